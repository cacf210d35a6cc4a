"""Arrays <-> files that are named by their digest, in a folder with a model.json.

A file of that kind is never changed: a new one is written beside it, so that whoever has read
the old model.json still finds what it names. Also everything that makes a write last: temporary
names, fsync of file and folder, and what a killed process left behind.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

from lancetnic_dask.errors import ModelFileError
from lancetnic_dask.features.shard import owner_tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = [
    "DIGEST_HEX",
    "MANIFEST_NAME",
    "KeptFile",
    "PieceReader",
    "cleaned",
    "keep_file",
    "kept_name",
    "link_file",
    "open_kept",
    "publish",
    "regular_file",
    "replace_bytes",
]

MANIFEST_NAME: Final = "model.json"
DIGEST_HEX: Final = 32
_NAME_HEX: Final = 12
_PIECE_BYTES: Final = 1 << 20
# A file may have holes as long as what lies on the disk, and this much more.
_HOLE_BYTES: Final = 1 << 20

_KEPT = re.compile(rf"(weights-[0-9a-f]{{{_NAME_HEX}}}\.safetensors"
                   rf"|vocabulary_\d+-[0-9a-f]{{{_NAME_HEX}}}\.arrows?)")  # fmt: skip
_PARTIAL = re.compile(r"(?:model\.json|weights|vocabulary_\d+)\.(.+)-(\d+)-[0-9a-f]+\.partial")


@dataclass(frozen=True)
class KeptFile:
    """A file as model.json names it.

    Parameters
    ----------
    name : str
        Its name in the folder, as by `kept_name`.
    size : int
        Bytes.
    digest : str
        blake2b of its bytes, hexadecimal.
    """

    name: str
    size: int
    digest: str


def kept_name(role: str, suffix: str, digest: str) -> str:
    """Return the name of a file.

    Examples
    --------
    >>> kept_name("weights", ".safetensors", "0123456789abcdef0123456789abcdef")
    'weights-0123456789ab.safetensors'
    """
    return f"{role}-{digest[:_NAME_HEX]}{suffix}"


def keep_file(folder: Path, role: str, suffix: str, write: Callable[[Path], None]) -> KeptFile:
    """Write a file under the name that its digest gives it, synced; whole or not at all.

    Parameters
    ----------
    folder : Path
        Where.
    role, suffix : str
        Start and end of its name.
    write : callable
        ``write(path)`` makes the file, which is not there yet, and writes all of it.

    Returns
    -------
    KeptFile
        What to write into model.json.

    Raises
    ------
    OSError
        If it can't be written; nothing is left of it.
    """
    with _partial(folder, role) as partial:
        write(partial)
        with partial.open("rb+") as stream:
            digest = PieceReader(stream).digest_of_rest()
            size = stream.tell()
            os.fsync(stream.fileno())
        kept = KeptFile(kept_name(role, suffix, digest), size, digest)
        if not _holds(folder / kept.name, kept):
            partial.replace(folder / kept.name)
    return kept


def link_file(kept: KeptFile, source: Path, target: Path) -> None:
    """Give a file of one folder to another: a second name of it, or a copy if need be.

    Parameters
    ----------
    kept : KeptFile
        The file.
    source, target : Path
        Folders.

    Raises
    ------
    OSError
        If it can't be written; nothing is left of it.
    ModelFileError
        If what was copied is not what it should be.
    """
    path = target / kept.name
    if path.exists() and path.samefile(source / kept.name):
        return
    with _partial(target, kept.name.partition("-")[0]) as partial:
        try:
            os.link(source / kept.name, partial)
        except OSError:  # another disk, or one that knows no links
            _copy_synced(kept, source, partial)
        partial.replace(path)


def replace_bytes(path: Path, data: bytes) -> None:
    """Write a small file beside its name, synced; then it takes the name in one step."""
    with _partial(path.parent, path.name) as partial:
        with partial.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)


def publish(folder: Path, manifest: bytes) -> None:
    """Make a model.json, and with it the files that it names, the folder's model."""
    # Else a power cut could leave a model.json that lasts without the files that it names.
    sync_folder(folder)
    replace_bytes(folder / MANIFEST_NAME, manifest)
    sync_folder(folder)


@contextmanager
def cleaned(folder: Path) -> Iterator[None]:
    """Remove what the folder's model.json doesn't name, after success and failure alike.

    Only files of ours go, by their names. What a process of another machine may still be
    writing stays.
    """
    try:
        yield
    finally:
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            _sweep(folder, _named_files(folder))


def sync_folder(folder: Path) -> None:
    """Make renames in a folder last; a power cut later than this does not undo them."""
    if os.name != "posix":  # Windows cannot open a folder
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def open_kept(folder: Path, kept: KeptFile) -> Iterator[IO[bytes]]:
    """Open a file that model.json names, after a look at what can be seen from outside.

    Raises
    ------
    ModelFileError
        If it is missing, no file of this folder, of another size, or mostly holes: what is read
        never takes much more memory than the file takes on the disk.
    """
    path = folder / kept.name
    if not path.is_symlink() and not path.exists():
        raise ModelFileError(
            f"The file {kept.name!r} of the model is missing.",
            str(folder),
            "Copy the whole folder.",
        )
    regular_file(path)
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if size != kept.size:
            raise ModelFileError(
                f"The file has {size} bytes and should have {kept.size}.",
                str(path),
                "It was cut short or changed: copy the folder again.",
            )
        data_bytes = _data_bytes(stream, size)
        if size - data_bytes > data_bytes + _HOLE_BYTES:
            raise ModelFileError(
                f"The file has {size} bytes, and only {data_bytes} of them lie on the disk.",
                str(path),
                "Use another copy of the model; if it is your own, copy it without holes.",
            )
        yield stream


def regular_file(path: Path) -> None:
    """Refuse what is no plain file of its folder.

    Raises
    ------
    ModelFileError
        If it is a device, a pipe, or a link out of the folder.
    """
    if not path.is_file() or path.resolve().parent != path.parent.resolve():
        raise ModelFileError(
            f"{path.name!r} is no plain file of the model's folder.",
            str(path.parent),
            "Do not use this model, or copy the files themselves in place of links.",
        )


class PieceReader:
    """Reads a file once, in pieces, and digests what it reads.

    Parameters
    ----------
    stream : binary file
        At its start.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._hash = hashlib.blake2b(digest_size=DIGEST_HEX // 2)

    def read_into(self, buffer: memoryview) -> None:
        """Fill a buffer of bytes.

        Raises
        ------
        ValueError
            If the file ends before.
        """
        filled = 0
        while filled < len(buffer):
            piece = buffer[filled : filled + _PIECE_BYTES]
            count = self._stream.readinto(piece)  # type: ignore[attr-defined]
            if not count:
                message = "the file ends too soon"
                raise ValueError(message)
            self._hash.update(piece[:count])
            filled += count

    def digest_of_rest(self) -> str:
        """Read to the end, keep nothing, and return the digest of the whole file."""
        while piece := self._stream.read(_PIECE_BYTES):
            self._hash.update(piece)
        return self._hash.hexdigest()

    def check(self, kept: KeptFile, folder: Path) -> None:
        """Compare what was read with what model.json says.

        Raises
        ------
        ModelFileError
            If it is something else.
        """
        if self.digest_of_rest() != kept.digest:
            raise ModelFileError(
                "The file is not as it was written.",
                str(folder / kept.name),
                "Copy the folder again.",
            )


@contextmanager
def _partial(folder: Path, role: str) -> Iterator[Path]:
    partial = folder / f"{role}.{owner_tag()}.partial"
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)


def _named_files(folder: Path) -> set[str]:
    """Return the files that a folder's model.json names, if there is one."""
    path = folder / MANIFEST_NAME
    if not path.exists():
        return set()
    return {entry["name"] for entry in json.loads(path.read_bytes())["files"].values()}


def _sweep(folder: Path, named: set[str]) -> None:
    for path in folder.iterdir():
        partial = _PARTIAL.fullmatch(path.name)
        is_left = partial is not None and _is_dead(partial[1], int(partial[2]))
        if is_left or (_KEPT.fullmatch(path.name) and path.name not in named):
            with suppress(OSError):  # open elsewhere, on Windows; or a folder of that name
                path.unlink()


def _holds(path: Path, kept: KeptFile) -> bool:
    """Whether the file is there already, as it should be: a vocabulary is, after each epoch."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size != kept.size:
        return False
    with path.open("rb") as stream:
        return PieceReader(stream).digest_of_rest() == kept.digest


def _copy_synced(kept: KeptFile, source: Path, partial: Path) -> None:
    with open_kept(source, kept) as read, partial.open("xb") as written:
        shutil.copyfileobj(read, written, _PIECE_BYTES)
        written.flush()
        os.fsync(written.fileno())
    with partial.open("rb") as stream:
        PieceReader(stream).check(kept, source)


def _is_dead(host: str, pid: int) -> bool:
    """Whether a process has ended for sure."""
    if os.name != "posix" or host != socket.gethostname().replace(".", "_"):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


def _data_bytes(stream: IO[bytes], size: int) -> int:
    """Count the bytes that are no hole; all of them where the file system doesn't tell."""
    if not hasattr(os, "SEEK_HOLE"):
        return size
    descriptor, position, data_bytes = stream.fileno(), 0, 0
    try:
        while position < size:
            start = os.lseek(descriptor, position, os.SEEK_DATA)
            position = os.lseek(descriptor, start, os.SEEK_HOLE)
            data_bytes += position - start
    except OSError:  # ENXIO: no data after this position; else it cannot tell
        return data_bytes if _knows_holes(descriptor) else size
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)
    return data_bytes


def _knows_holes(descriptor: int) -> bool:
    try:
        os.lseek(descriptor, 0, os.SEEK_HOLE)
    except OSError:
        return False
    return True
