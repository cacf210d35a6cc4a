"""The cache folder: plans, shards and fits by fingerprint, published whole or not at all."""

from __future__ import annotations

import logging
import re
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from lancetnic_dask.corpus.plan import PartitionPlan
from lancetnic_dask.corpus.sources import check_unchanged
from lancetnic_dask.corpus.whole_file import explain_cache_errors, owner_tag, replace_file
from lancetnic_dask.features.shard import TokenShard, read_shard, write_shard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["ShardCache"]

logger = logging.getLogger(__name__)

# `owner_tag`, alone or in the name of an unfinished file. A host's name may end in a number.
_OWNED = re.compile(r"(?:.*\.)?(?P<host>[^.]+)-(?P<pid>[0-9]{1,9})-[0-9a-f]{12}(?:\.partial)?")

_LEFTOVERS = (
    "work/*",
    "plans/*.partial",
    "copies/*.partial",
    "fits/*.partial",
    "shards/*/*.partial",
)


@dataclass(frozen=True)
class ShardCache:
    """A folder of shards and plans; several runs may use it at once.

    Parameters
    ----------
    folder : Path
        Made when something is written.
    """

    folder: Path

    @property
    def copies(self) -> Path:
        """Where plain copies of files are kept that can't be read as they are."""
        return self.folder / "copies"

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

    def has(self, fingerprint: str) -> bool:
        """Tell whether there is a shard of that name; whether it can be read is not looked at."""
        return self._shard_path(fingerprint).exists()

    def publish(self, fingerprint: str, shard: TokenShard) -> None:
        """Keep a shard.

        Raises
        ------
        CacheError
            If the disk is full or the folder can't be written.
        """
        with explain_cache_errors(self.folder):
            write_shard(shard, self._shard_path(fingerprint))

    def load_plan(self, fingerprint: str) -> PartitionPlan | None:
        """Return a kept plan; None if there is none, or one that can't be read."""
        path = self._plan_path(fingerprint)
        try:
            plan = PartitionPlan.from_json(path.read_text(encoding="utf-8"))
            for planned in plan.files:
                if planned.copy is not None:
                    check_unchanged(planned.copy)
            return plan  # noqa: TRY300 - what follows is about faults
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
        with explain_cache_errors(self.folder), replace_file(path) as stream:
            stream.write(plan.to_json().encode())

    @contextmanager
    def work_folder(self) -> Iterator[Path]:
        """Yield a folder for what one run needs for a while; it is removed at the end.

        What runs that were killed on this machine left behind is removed on the way.

        Raises
        ------
        CacheError
            If the folder can't be made.
        """
        folder = self.folder / "work" / owner_tag()
        with explain_cache_errors(self.folder):
            folder.mkdir(parents=True)
        self._remove_leftovers()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _remove_leftovers(self) -> None:
        """Remove the work folders and unfinished files of processes that are gone."""
        for pattern in (
            "work/*",
            "plans/*.partial",
            "copies/*.partial",
            "fits/*.partial",
            "shards/*/*.partial",
        ):
            for leftover in self.folder.glob(pattern):
                if not _is_abandoned(leftover.name):
                    continue
                logger.info("%s is of a killed run and is removed", leftover)
                if leftover.is_dir():
                    shutil.rmtree(leftover, ignore_errors=True)
                else:
                    with suppress(OSError):
                        leftover.unlink()

    def _shard_path(self, fingerprint: str) -> Path:
        return self.folder / "shards" / fingerprint[:2] / f"{fingerprint}.arrow"

    def _plan_path(self, fingerprint: str) -> Path:
        return self.folder / "plans" / f"{fingerprint}.json"


def _is_abandoned(name: str) -> bool:
    """Tell whether a file or folder belongs to a process of this machine that is gone."""
    owned = _OWNED.fullmatch(name)
    return (
        owned is not None
        and owned["host"] == owner_tag().rsplit("-", 2)[0]
        and not psutil.pid_exists(int(owned["pid"]))
    )
