"""Path, URL, glob, folder or list -> the files of a corpus: url, size, change stamp.

Nothing is read here; opening and reading by ranges is in ``readers``.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fsspec.core import url_to_fs

from lancetnic_dask.errors import CorpusError, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import fsspec

__all__ = ["PathLike", "SourceFile", "check_unchanged", "list_files", "open_file"]

PathLike = str | os.PathLike[str]

# What tells that a file was rewritten, the strongest first: names as the stores' drivers give them.
_STAMP_KEYS = ("ETag", "etag", "md5Hash", "content_md5", "mtime", "LastModified", "last_modified",
               "updated")  # fmt: skip


@dataclass(frozen=True)
class SourceFile:
    """A file of the corpus as it was when it was listed.

    Parameters
    ----------
    url : str
        Where it is: an absolute path, or a URL that fsspec opens.
    size : int
        Bytes.
    stamp : str
        Changes when the file is rewritten: entity tag or time of modification.
    """

    url: str
    size: int
    stamp: str


def list_files(
    path: PathLike | Sequence[PathLike], storage_options: Mapping[str, Any] | None = None
) -> tuple[SourceFile, ...]:
    """Find the files that a path, glob, folder or list of these stands for.

    An existing path is taken literally even if it holds ``*``, ``?`` or ``[``. Numbers in names
    are compared as numbers, so ``part-2`` comes before ``part-10`` on every system.

    Parameters
    ----------
    path : str, os.PathLike or sequence of these
        What the user passed.
    storage_options : mapping or None, default=None
        Options of the fsspec file system.

    Returns
    -------
    tuple of SourceFile
        At least one file; a list keeps the order in which it was given.

    Raises
    ------
    CorpusError
        If there is no file, or it cannot be looked up.
    """
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    if not paths:
        raise CorpusError("The list of files is empty.", None, "Pass at least one path.")
    files = [file for one in paths for file in _expand(os.fspath(one), storage_options or {})]
    return tuple(files)


def open_file(url: str, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Open a file for reading by ranges, without a cache of its own: pieces are read once.

    Parameters
    ----------
    url : str
        As in `SourceFile.url`.
    storage_options : mapping or None, default=None
        Options of the fsspec file system.

    Returns
    -------
    binary file
        With ``seek`` and ``read``; close it.
    """
    fs, bare = url_to_fs(url, **(storage_options or {}))
    if _is_local(fs):
        return fs.open(bare, "rb")
    return fs.open(bare, "rb", cache_type="none")


def check_unchanged(file: SourceFile, storage_options: Mapping[str, Any] | None = None) -> None:
    """Raise CorpusError if the file is no longer the one that was listed.

    Parameters
    ----------
    file : SourceFile
        As it was when the corpus was planned.
    storage_options : mapping or None, default=None
        Options of the fsspec file system.
    """
    fs, bare = url_to_fs(file.url, **(storage_options or {}))
    fs.invalidate_cache()
    try:
        now = _describe(fs, bare)
    except FileNotFoundError as error:
        raise CorpusError(
            "The file is gone since the corpus was planned.", file.url, "Restore it, or train anew."
        ) from error
    if now != file:
        raise CorpusError(
            f"The file has changed since the corpus was planned: {now.size} bytes now, "
            f"{file.size} then.",
            file.url,
            "Run again: the plan is then made anew. Don't write to a corpus while it is read.",
        )


def _expand(path: str, storage_options: Mapping[str, Any]) -> Iterator[SourceFile]:
    """Yield the files of one path: the file itself, a folder's, or a pattern's."""
    try:
        fs, bare = url_to_fs(os.path.expanduser(path), **storage_options)  # noqa: PTH111 - may be a URL
    except (ImportError, ValueError) as error:
        raise CorpusError(
            f"{quoted(path)} cannot be opened: {error}.", None, "Check the protocol of the URL."
        ) from error
    if fs.isfile(bare):
        yield _describe(fs, bare)
        return
    if fs.isdir(bare):
        found = [name for name in fs.find(bare) if not _is_hidden(name)]
    else:
        found = [name for name in fs.glob(bare) if fs.isfile(name)]
    if not found:
        raise CorpusError(
            f"There is no file {quoted(path)}.",
            None,
            "Check the path. In a pattern, * stands for any letters and [*] for a star.",
        )
    for name in sorted(found, key=_natural_key):
        yield _describe(fs, name)


def _describe(fs: fsspec.AbstractFileSystem, bare: str) -> SourceFile:
    info = fs.info(bare)
    stamp = next((f"{key}={info[key]}" for key in _STAMP_KEYS if info.get(key)), None)
    url = bare if _is_local(fs) else fs.unstrip_protocol(bare)
    return SourceFile(url, int(info["size"] or 0), stamp or f"ukey={fs.ukey(bare)}")


def _is_local(fs: fsspec.AbstractFileSystem) -> bool:
    protocol = fs.protocol
    return "file" in ((protocol,) if isinstance(protocol, str) else protocol)


def _is_hidden(name: str) -> bool:
    return name.rsplit("/", 1)[-1].startswith((".", "_"))


def _natural_key(name: str) -> list[tuple[int, int, str]]:
    """Sort key that compares runs of digits as numbers."""
    parts = re.split(r"([0-9]+)", name)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts if part]
