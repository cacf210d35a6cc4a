"""Files that are named by their digest, in a folder whose model.json names them.

Such a file is never changed: a new one takes a name of its own, so that whoever has read the old
model.json still finds what it names. New files are made in a private sub-folder, synced, and
moved up when they are whole; a killed process leaves that sub-folder behind, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from errno import ENXIO
from functools import partial
from typing import IO, TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct, field

from lancetnic_dask.corpus.whole_file import owner_tag
from lancetnic_dask.errors import ModelFileError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "MANIFEST_NAME",
    "KeptFile",
    "check_digest",
    "check_plain",
    "keep_file",
    "kept_name",
    "link_file",
    "located",
    "new_digest",
    "publish",
    "staging",
]

MANIFEST_NAME: Final = "model.json"
# A file may have holes as long as what lies on the disk, and this much more.
_HOLE_BYTES: Final = 1 << 20

new_digest = partial(hashlib.blake2b, digest_size=16)

_KEPT = re.compile(r"(weights-[0-9a-f]{12}\.safetensors|vocabulary_\d+-[0-9a-f]{12}\.arrows?)")
_STAGE = re.compile(r"\.model\.(?P<host>.+)-(?P<pid>\d{1,9})-[0-9a-f]+\.partial")


class KeptFile(Struct, frozen=True):
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
    size: Annotated[int, Meta(ge=1, le=2**62)]
    digest: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")] = field(name="blake2b")


def kept_name(role: str, suffix: str, digest: str) -> str:
    """Return the name of a file.

    Examples
    --------
    >>> kept_name("weights", ".safetensors", "0123456789abcdef0123456789abcdef")
    'weights-0123456789ab.safetensors'
    """
    return f"{role}-{digest[:12]}{suffix}"


@contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """Make a folder, and in it a private one for files that are not whole yet.

    At the end, after success and failure alike, the private one is removed, and with it those of
    dead processes of this machine, and files of ours that model.json doesn't name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stage = folder / f".model.{owner_tag()}.partial"
    try:
        stage.mkdir()
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            _clean(folder)


def keep_file(stage: Path, role: str, suffix: str) -> KeptFile:
    """Sync the file ``stage / role`` and move it up, under the name that its digest gives it."""
    path = stage / role
    with ThreadPoolExecutor(1) as pool:  # the disk works while the processor does
        synced = pool.submit(_sync, path)
        digest = _digest(path)
        synced.result()
    kept = KeptFile(kept_name(role, suffix, digest), path.stat().st_size, digest)
    target = stage.parent / kept.name
    # An equal vocabulary is there after each epoch, but it may have been damaged.
    if target.is_symlink() or not target.is_file() or _digest(target) != digest:
        path.replace(target)
    return kept


def link_file(kept: KeptFile, source: Path, stage: Path) -> None:
    """Give a file of one folder to that of a stage: a second name of it, or a copy if need be.

    Raises
    ------
    OSError
        If it can't be written.
    ModelFileError
        If there is no such file, or it is not what is to be copied.
    """
    path = stage / kept.name
    with located(kept, source) as original:
        try:
            os.link(original, path)
        except OSError:  # another disk, or one that knows no links
            check_digest(original, kept)
            shutil.copyfile(original, path)
            _sync(path)
    path.replace(stage.parent / kept.name)


def publish(stage: Path, manifest: bytes) -> None:
    """Make a model.json, and with it the files that it names, the folder's model."""
    # Else a power cut could leave a model.json that lasts without the files that it names.
    _sync(stage.parent)
    path = stage / MANIFEST_NAME
    path.write_bytes(manifest)
    _sync(path)
    path.replace(stage.parent / MANIFEST_NAME)
    _sync(stage.parent)


@contextmanager
def located(kept: KeptFile, folder: Path) -> Iterator[Path]:
    """Give the path of a file, after a look at what can be seen from outside.

    Raises
    ------
    ModelFileError
        If it is missing, or removed while it is used; if it is no file of this folder, of
        another size, or mostly holes: what is read never takes much more memory than the file
        takes on the disk.
    """
    path = folder / kept.name
    try:
        path.lstat()
        check_plain(path)
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            data_bytes = _data_bytes(stream, size)
        if size != kept.size:
            raise ModelFileError(
                f"The file has {size} bytes and should have {kept.size}.",
                str(path),
                "It was cut short or changed: copy the folder again.",
            )
        if size - data_bytes > data_bytes + _HOLE_BYTES:
            raise ModelFileError(
                f"The file has {size} bytes, and only {data_bytes} of them lie on the disk.",
                str(path),
                "Use another copy of the model; if it is your own, copy it without holes.",
            )
        yield path
    except FileNotFoundError as error:
        raise ModelFileError(
            f"The file {kept.name!r} of the model is missing.",
            str(folder),
            "Copy the whole folder.",
        ) from error


def check_plain(path: Path) -> None:
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


def check_digest(path: Path, kept: KeptFile) -> None:
    """Read a file, in pieces; raises ModelFileError if it is not what model.json says."""
    if _digest(path) != kept.digest:
        raise ModelFileError(
            "The file is not as it was written.", str(path), "Copy the folder again."
        )


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, new_digest).hexdigest()


def _sync(path: Path) -> None:
    """Make a file, or renames in a folder, last: a power cut later than this undoes nothing."""
    is_folder = path.is_dir()
    if is_folder and os.name != "posix":  # Windows cannot open a folder
        return
    descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _clean(folder: Path) -> None:
    manifest = folder / MANIFEST_NAME
    named = set()
    if manifest.exists():
        named = {entry["name"] for entry in json.loads(manifest.read_bytes())["files"].values()}
    for path in folder.iterdir():
        if _KEPT.fullmatch(path.name) and path.name not in named:
            with suppress(OSError):  # open elsewhere, on Windows; or a folder of that name
                path.unlink()
        elif _is_abandoned(path.name):
            shutil.rmtree(path, ignore_errors=True)


def _is_abandoned(name: str) -> bool:
    """Whether it is the stage of a process of this machine that has ended for sure."""
    import psutil  # late: who only reads models needs none

    stage = _STAGE.fullmatch(name)
    return (
        stage is not None
        and stage["host"] == owner_tag().rsplit("-", 2)[0]
        and not psutil.pid_exists(int(stage["pid"]))
    )


def _data_bytes(stream: IO[bytes], size: int) -> int:
    """Count the bytes that are no hole; all of them where the system doesn't tell."""
    position = data_bytes = 0
    try:
        while position < size:
            start = os.lseek(stream.fileno(), position, os.SEEK_DATA)
            position = os.lseek(stream.fileno(), start, os.SEEK_HOLE)
            data_bytes += position - start
    except AttributeError:  # Windows
        return size
    except OSError as error:
        return data_bytes if error.errno == ENXIO else size  # no data after this position
    return data_bytes
