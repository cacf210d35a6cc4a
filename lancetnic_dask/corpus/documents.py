"""One folder a class, with a text file for each document -> lines of JSON in the cache.

Thousands of small files would be as many partitions of one row; in copies of some MiB they are cut
like any other text. The class is the name of the folder that a file is in.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lancetnic_dask.corpus.encodings import encoding_advice
from lancetnic_dask.corpus.plan import CORPUS_VERSION, PlannedFile
from lancetnic_dask.corpus.sources import SourceFile, list_files, open_file
from lancetnic_dask.corpus.whole_file import explain_cache_errors, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from lancetnic_dask.corpus.formats import FileFormat
    from lancetnic_dask.corpus.plan import MapTasks

__all__ = ["DOCUMENT_COLUMNS", "FAULT_FIELD", "are_documents", "copy_documents"]

DOCUMENT_COLUMNS: Final = ("text", "label", "file")
# The field of a line whose document can't be used: why.
FAULT_FIELD: Final = "lancetnic_fault"
COPY_VERSION = 1
_FEWEST_CLASSES = 2


def are_documents(files: Sequence[SourceFile], columns: Sequence[str] = ()) -> bool:
    """Tell whether files look like documents in folders that are classes.

    Parameters
    ----------
    files : sequence of SourceFile
        Of a corpus.
    columns : sequence of str, default=()
        What is wanted of it.

    Returns
    -------
    bool
        True if all are ``.txt``, they lie in two folders or more, and nothing is wanted but the
        columns of `DOCUMENT_COLUMNS`.

    Examples
    --------
    >>> files = [SourceFile(f"/bbc/{name}", 10, "") for name in ("sport/1.txt", "tech/1.txt")]
    >>> are_documents(files), are_documents(files, ["text", "stars"])
    (True, False)
    """
    return (
        set(columns) <= set(DOCUMENT_COLUMNS)
        and all(file.url.lower().endswith(".txt") for file in files)
        and len({_class_of(file) for file in files}) >= _FEWEST_CLASSES
    )


def copy_documents(
    files: Sequence[SourceFile],
    file_format: FileFormat,
    copies: Path,
    *,
    storage_options: Mapping[str, Any] | None,
    map_tasks: MapTasks,
    advance: Callable[[int], object] | None,
) -> list[PlannedFile]:
    """Have documents copied as lines of JSON, some MiB of them in a copy.

    Parameters
    ----------
    files : sequence of SourceFile
        The documents, in order.
    file_format : FileFormat
        Their encoding, what becomes of bytes that are no text, and how long a document may be.
    copies : Path
        Where; workers write there.
    storage_options : mapping or None
        Options of the fsspec file system.
    map_tasks : MapTasks
        Copies.
    advance : callable or None
        Told half of the bytes of each copy: the other half is of scanning it.

    Returns
    -------
    list of PlannedFile
        Named for the first document in it; columns and rows are not known yet.
    """
    groups = _groups(files, file_format.partition_bytes)
    items = ((group, file_format, copies, storage_options) for group in groups)
    planned = []
    for group, (copy, num_replaced) in zip(
        groups, map_tasks(copy_group, items, name="unpack"), strict=True
    ):
        size = sum(file.size for file in group)
        stamp = hashlib.blake2b(json.dumps([asdict(file) for file in group]).encode()).hexdigest()
        more = f" and {len(group) - 1} more" if len(group) > 1 else ""
        source = SourceFile(f"{group[0].url}{more}", size, stamp)
        planned.append(PlannedFile(source, (), 0, copy, num_replaced))
        if advance is not None:
            advance(size - size // 2)
    return planned


def copy_group(
    files: Sequence[SourceFile],
    file_format: FileFormat,
    copies: Path,
    storage_options: Mapping[str, Any] | None,
) -> tuple[SourceFile, int]:
    """Copy documents, or find the copy (a worker's task)."""
    key = [
        COPY_VERSION,
        CORPUS_VERSION,
        [asdict(file) for file in files],
        file_format.encoding,
        file_format.encoding_errors,
        file_format.max_row_bytes,
    ]
    name = hashlib.blake2b(json.dumps(key).encode(), digest_size=16).hexdigest()
    kept = next(copies.glob(f"{name}-*.txt"), None)
    if kept is None:
        partial, num_replaced = copies / f"{name}.txt", 0
        with explain_cache_errors(copies), replace_file(partial) as sink:
            for file in files:
                line, num_here = _line_of(file, file_format, storage_options)
                num_replaced += num_here
                sink.write(line + b"\n")
        kept = partial.rename(copies / f"{name}-{num_replaced}.txt")
    return list_files(kept)[0], int(kept.stem.rpartition("-")[2])


def _line_of(
    file: SourceFile, file_format: FileFormat, storage_options: Mapping[str, Any] | None
) -> tuple[bytes, int]:
    """Return a document as a line of JSON, and how many characters were replaced in it."""
    fields = {"text": "", "label": _class_of(file), "file": file.url}
    num_replaced = 0
    if file.size > file_format.max_row_bytes:
        fields[FAULT_FIELD] = f"{file.url} is longer than max_row_bytes"
        return msgspec.json.encode(fields), 0
    with open_file(file.url, storage_options) as stream:
        data = stream.read(file.size)
    try:
        fields["text"] = data.decode(file_format.encoding).removeprefix("\ufeff")
    except UnicodeError as error:
        if file_format.encoding_errors == "replace":
            fields["text"] = data.decode(file_format.encoding, "replace")
            num_replaced = fields["text"].count("\ufffd")
        else:
            at = getattr(error, "start", 0)
            fields[FAULT_FIELD] = (
                f"byte {at} of {file.url}, {data[at]:#04x}, is not {file_format.encoding}. "
                f"{encoding_advice(data[at:], wrong=file_format.encoding).rstrip('.')}"
            )
    return msgspec.json.encode(fields), num_replaced


def _groups(files: Sequence[SourceFile], num_bytes: int) -> list[list[SourceFile]]:
    """Cut the documents into groups of about so many bytes, a file with itself at least."""
    groups: list[list[SourceFile]] = [[]]
    size = 0
    for file in files:
        if groups[-1] and size + file.size > num_bytes:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size
    return groups


def _class_of(file: SourceFile) -> str:
    """Return the name of the folder that a file is in."""
    return file.url.rpartition("/")[0].rpartition("/")[2]
