"""A file of the cache is written whole or not at all."""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING
from uuid import uuid4

from lancetnic_dask.errors import CacheError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["explain_cache_errors", "owner_tag", "replace_file"]


@contextmanager
def replace_file(path: Path, *, is_kept: bool = True) -> Iterator[IO[bytes]]:
    """Open a file beside its name; it gets the name at the end, unless there is an error.

    Parameters
    ----------
    path : Path
        Where; folders are made, and an older file of that name is replaced.
    is_kept : bool, default=True
        Whether the file must be whole after a power loss as well: it is then synced before it
        gets its name. A file that ends with the run need not wait for the disk.

    Yields
    ------
    binary file
        To write to. After an error nothing is left of it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{owner_tag()}.partial")
    try:
        with partial.open("xb") as stream:
            yield stream
            stream.flush()
            if is_kept:
                os.fsync(stream.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def owner_tag() -> str:
    """Return host, process and something unique, as ``host-pid-hex``, without a dot.

    Several threads, processes and machines may write the same shard at once. What is left of a
    process that was killed can be told by it.
    """
    return f"{socket.gethostname().replace('.', '_')}-{os.getpid()}-{uuid4().hex[:12]}"


@contextmanager
def explain_cache_errors(folder: Path) -> Iterator[None]:
    """Turn what the operating system says of a folder into a CacheError.

    Parameters
    ----------
    folder : Path
        Where something is written.
    """
    try:
        yield
    except CacheError:
        raise
    except OSError as error:
        raise CacheError(
            f"The cache cannot be written: {error.strerror or error}.",
            str(folder),
            "Free some space, pass another cache_dir=, or train with cache=False.",
        ) from error
