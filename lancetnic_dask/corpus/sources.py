"""Path, URL, glob, folder or list -> the files of a corpus: url, size, change stamp.

Nothing is read here; opening and reading by ranges is in ``readers``. What a store says when it
fails is made an error of ours here, and only here.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import fsspec
from fsspec.core import url_to_fs

from lancetnic_dask.errors import CorpusError, LancetnicError, SettingError, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["PathLike", "SourceFile", "check_unchanged", "list_files", "open_file"]

PathLike = str | os.PathLike[str]

# What tells that a file was rewritten, the strongest first: names as the stores' drivers give them.
_STAMP_KEYS = ("ETag", "etag", "md5Hash", "Content-MD5", "content_md5", "mtime", "LastModified",
               "Last-Modified", "last_modified", "updated")  # fmt: skip
_SHOWN_PATH_CHARS = 400
_NAME_FILES = "Pass a path, a URL, a pattern, or a list of these."
_CHECK_THE_STORE = "Check the path, your rights to it, and storage_options."
_PASSWORD = re.compile(r"://[^/]*:[^/]*@")


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
        Changes when the file is rewritten: entity tag or time of modification. A local file
        that is rewritten with as many bytes and then given its old time back looks unchanged.
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
        What the user passed. Of a folder all files are taken, those in folders below too, but
        none whose name, or whose folder's, starts with ``.`` or ``_``. As in a shell, ``*`` and
        ``?`` stand for no leading dot.
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
    SettingError
        If the path is none.
    """
    paths = [path] if isinstance(path, (str, os.PathLike)) else path
    if hasattr(path, "columns"):
        raise SettingError(
            "The path is a DataFrame, and files are read.", None, "Write it to CSV, and pass that."
        )
    if isinstance(paths, bytes) or not hasattr(paths, "__iter__"):
        raise SettingError(f"The path is {quoted(path)}.", None, _NAME_FILES)
    files = [file for one in paths for file in _expand(_checked(one), storage_options or {})]
    if not files:
        raise CorpusError("The list of files is empty.", None, "Pass at least one path.")
    for url, count in Counter(map(_true_name, files)).items():
        if count > 1:
            raise CorpusError(
                f"The file is named {count} times: its rows would count as often.",
                url,
                "Name each file once; look for a pattern that covers a file in the list.",
            )
    return tuple(files)


@contextmanager
def open_file(url: str, storage_options: Mapping[str, Any] | None = None) -> Iterator[Any]:
    """Open a file for reading by ranges, without a cache of its own: pieces are read once.

    Parameters
    ----------
    url : str
        As in `SourceFile.url`.
    storage_options : mapping or None, default=None
        Options of the fsspec file system.

    Yields
    ------
    binary file
        With ``seek`` and ``read``.

    Raises
    ------
    CorpusError
        If the file cannot be opened, or the store fails while it is read.
    """
    fs, bare = _resolve(url, storage_options or {})
    options = {} if _is_local(fs) else {"cache_type": "none"}
    try:
        with fs.open(bare, "rb", **options) as stream:
            yield stream
    except LancetnicError:  # of who reads, and what it writes
        raise
    except OSError as error:
        raise CorpusError(
            f"The file cannot be read: {error.strerror or error}.", url, _CHECK_THE_STORE
        ) from error


def check_unchanged(file: SourceFile, storage_options: Mapping[str, Any] | None = None) -> None:
    """Raise CorpusError if the file is no longer the one that was listed.

    Parameters
    ----------
    file : SourceFile
        As it was when the corpus was planned.
    storage_options : mapping or None, default=None
        Options of the fsspec file system.
    """
    fs, bare = _resolve(file.url, storage_options or {})
    fs.invalidate_cache()
    try:
        now = _describe(fs, bare, file.url)
    except FileNotFoundError as error:
        raise CorpusError(
            "The file is gone since the corpus was planned.", file.url, "Restore it, or train anew."
        ) from error
    except OSError as error:
        raise CorpusError(
            f"The file cannot be looked up: {error.strerror or error}.", file.url, _CHECK_THE_STORE
        ) from error
    if now != file:
        is_as_long = now.size == file.size
        raise CorpusError(
            "The file has changed since the corpus was planned: "
            + (f"{now.size} other bytes." if is_as_long else f"{now.size} bytes, not {file.size}."),
            file.url,
            "Run again: the plan is then made anew. Don't write to a corpus while it is read.",
        )


def _checked(path: object) -> str:
    """Return a path as str, if it can be one; ``~`` is the user's home."""
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise SettingError(f"The path is {quoted(path)}.", None, _NAME_FILES)
    text = os.fsdecode(path)
    if _PASSWORD.search(text):
        raise SettingError(
            f"The URL holds a password: {_shown(_PASSWORD.sub('://***@', text))}.",
            None,
            "Pass it in storage_options, which are never written or shown.",
        )
    return os.path.expanduser(text)  # noqa: PTH111 - may be a URL


def _resolve(path: str, storage_options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the file system of a path or URL, and what the file is called there."""
    try:
        is_path = "://" not in path and "::" not in path
        if is_path or os.path.exists(path):  # noqa: PTH110 - may be a URL
            # fsspec would take "a::b.csv" for two URLs chained together.
            fs = fsspec.filesystem("file", **storage_options)
            return fs, fs._strip_protocol(path)  # noqa: SLF001 - what url_to_fs does
        return url_to_fs(path, **storage_options)  # type: ignore[no-any-return]
    except ImportError as error:
        raise CorpusError(
            f"{_shown(path)} cannot be opened: a driver is missing.",
            None,
            f"{str(error).rstrip('.')}.",
        ) from error
    except (TypeError, ValueError) as error:
        raise CorpusError(
            f"{_shown(path)} cannot be opened: {error}.",
            None,
            "Check the protocol of the URL, and storage_options.",
        ) from error


def _expand(path: str, storage_options: Mapping[str, Any]) -> list[SourceFile]:
    """Return the files of one path: the file itself, a folder's, or a pattern's."""
    fs, bare = _resolve(path, storage_options)
    # Stores keep listings for the life of a process: a rewritten file would look as before.
    fs.invalidate_cache()
    url_of = _url_maker(fs, path, bare)
    try:
        names = _find(fs, path, bare)
        return [_describe(fs, name, url_of(name)) for name in names]
    except UnicodeEncodeError as error:
        raise CorpusError(
            f"{_shown(path)} cannot be written in this system's encoding, {error.encoding}.",
            None,
            "Run with PYTHONUTF8=1, or in a UTF-8 locale.",
        ) from error
    except OSError as error:
        name = f": {_shown(os.fsdecode(error.filename))}" if error.filename else ""
        raise CorpusError(
            f"{_shown(path)} cannot be looked up: {error.strerror or error}{name}.",
            None,
            _CHECK_THE_STORE,
        ) from error


def _find(fs: fsspec.AbstractFileSystem, path: str, bare: str) -> list[str]:
    """Return the names of the files of one path, at least one, in natural order."""
    try:
        kind = fs.info(bare)["type"]
    except (FileNotFoundError, NotADirectoryError):
        kind = "pattern"
    if kind == "file":
        return [bare]
    if kind == "directory":
        found = [name for name in fs.find(bare) if not _has_part(name[len(bare) :], (".", "_"))]
        what = f"The folder {_shown(path)} holds no file."
        fix = "Check the path. Names that start with . or _ are left out."
    elif kind == "pattern":
        found = [name for name in fs.glob(bare) if not fs.isdir(name)]
        start = len(re.split(r"[*?[]", bare, maxsplit=1)[0].rpartition("/")[0])
        if not _has_part(bare[start:], (".",)):
            found = [name for name in found if not _has_part(name[start:], (".",))]
        what = f"There is no file {_shown(path)}."
        fix = "Check the path. In a pattern, * stands for any letters, [*] for a star, [[] for a [."
    else:
        found = []
        what = f"{_shown(path)} is neither a file nor a folder."
        fix = "Write what it holds to a file: a corpus is read more than once."
    if not found:
        raise CorpusError(what, None, fix)
    return sorted(found, key=_natural_key)


def _true_name(file: SourceFile) -> str:
    """Return a name that all spellings of a local file share, links included."""
    return file.url if "://" in file.url else os.path.realpath(file.url)


def _describe(fs: fsspec.AbstractFileSystem, bare: str, url: str) -> SourceFile:
    info = fs.info(bare)
    if info.get("size") is None:
        raise CorpusError(
            "The store doesn't tell the size of the file, so it can't be read by ranges.",
            url,
            "Copy it to a disk or another store.",
        )
    stamps = (f"{key}={info[key]}" for key in _STAMP_KEYS if info.get(key) not in (None, ""))
    return SourceFile(url, int(info["size"]), next(stamps, None) or f"ukey={fs.ukey(bare)}")


def _url_maker(fs: fsspec.AbstractFileSystem, path: str, bare: str) -> Callable[[str], str]:
    """Return what makes URLs of names, under the protocol, host and wrapping of the path.

    A file system's own ``unstrip_protocol`` forgets the host of ``sftp://host/a.csv``, and the
    archive of ``zip://a.csv::archive.zip``.
    """
    if _is_local(fs):
        return str
    head, separator, tail = path.partition("::")
    if not bare.strip("/"):
        return lambda name: (
            f"{head}{name.lstrip('/') if head.endswith('/') else name}{separator}{tail}"
        )
    for url, after in ((path, ""), (head, separator + tail)):
        if url.rstrip("/").endswith(bare):
            before = url.rstrip("/").removesuffix(bare)
            return lambda name: before + name + after
    return lambda name: str(fs.unstrip_protocol(name))


def _shown(path: str) -> str:
    return repr(path) if len(path) <= _SHOWN_PATH_CHARS else quoted(path)


def _is_local(fs: fsspec.AbstractFileSystem) -> bool:
    protocol = fs.protocol
    return "file" in ((protocol,) if isinstance(protocol, str) else protocol)


def _has_part(name: str, starts: tuple[str, ...]) -> bool:
    """Tell whether a folder or the file in a path starts so."""
    return any(part.startswith(starts) for part in name.split("/"))


def _natural_key(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Sort key that compares runs of ASCII digits as numbers; ``1`` and ``01`` by the text."""
    parts = re.split(r"([0-9]+)", name)
    runs = [(0, int(part), "") if part[0] in "0123456789" else (1, 0, part)
            for part in parts if part]  # fmt: skip
    return runs, name
