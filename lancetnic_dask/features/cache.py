"""The cache folder: plans and shards by fingerprint, published whole or not at all."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from lancetnic_dask.corpus.plan import PartitionPlan
from lancetnic_dask.errors import CacheError
from lancetnic_dask.features.shard import TokenShard, read_shard, write_shard

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ShardCache"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ShardCache:
    """A folder of shards and plans; several runs may use it at once.

    Parameters
    ----------
    folder : Path
        Made when something is written.
    """

    folder: Path

    def load(self, fingerprint: str) -> TokenShard | None:
        """Return a kept shard; None if there is none, or one that can't be read."""
        path = self._shard_path(fingerprint)
        try:
            return read_shard(path)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, OSError) as error:
            logger.warning("%s cannot be read (%s) and is made again", path, error)
            return None

    def publish(self, fingerprint: str, shard: TokenShard) -> None:
        """Keep a shard.

        Raises
        ------
        CacheError
            If the disk is full or the folder can't be written.
        """
        with self._explained():
            write_shard(shard, self._shard_path(fingerprint))

    def load_plan(self, fingerprint: str) -> PartitionPlan | None:
        """Return a kept plan; None if there is none, or one that can't be read."""
        path = self._plan_path(fingerprint)
        try:
            return PartitionPlan.from_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, OSError) as error:
            logger.warning("%s cannot be read (%s) and is made again", path, error)
            return None

    def publish_plan(self, fingerprint: str, plan: PartitionPlan) -> None:
        """Keep a plan.

        Raises
        ------
        CacheError
            If the disk is full or the folder can't be written.
        """
        path = self._plan_path(fingerprint)
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
            partial.write_text(plan.to_json(), encoding="utf-8")
            partial.replace(path)

    @contextmanager
    def work_folder(self) -> Iterator[Path]:
        """Yield a folder for what one run needs for a while; it is removed at the end.

        Folders of runs that were killed on this machine are removed on the way.
        """
        work = self.folder / "work"
        host = socket.gethostname()
        with self._explained():
            work.mkdir(parents=True, exist_ok=True)
            for stale in work.glob(f"{host}-*"):
                pid = stale.name.removeprefix(f"{host}-").split("-")[0]
                if pid.isdigit() and not psutil.pid_exists(int(pid)):
                    shutil.rmtree(stale, ignore_errors=True)
            folder = Path(tempfile.mkdtemp(prefix=f"{host}-{os.getpid()}-", dir=work))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _shard_path(self, fingerprint: str) -> Path:
        return self.folder / "shards" / fingerprint[:2] / f"{fingerprint}.arrow"

    def _plan_path(self, fingerprint: str) -> Path:
        return self.folder / "plans" / f"{fingerprint}.json"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CacheError(
                f"The cache cannot be written: {error.strerror or error}.",
                str(self.folder),
                "Free some space, pass another cache_dir=, or train with cache=False.",
            ) from error
