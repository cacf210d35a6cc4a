"""Files -> PartitionPlan, whatever they are: looked at, copied where they must be, and cut."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from lancetnic_dask.corpus.arrow_files import read_units
from lancetnic_dask.corpus.documents import DOCUMENT_COLUMNS, are_documents, copy_documents
from lancetnic_dask.corpus.formats import FileFormat
from lancetnic_dask.corpus.heads import (
    FileHead,
    found_dialect,
    open_plain,
    read_head,
    read_text_columns,
)
from lancetnic_dask.corpus.plan import CORPUS_VERSION, PartitionPlan, PlannedFile
from lancetnic_dask.corpus.plan_table import plan_tables
from lancetnic_dask.corpus.plan_text import plan_text, scan_share
from lancetnic_dask.corpus.sources import SourceFile, list_files, open_file
from lancetnic_dask.corpus.whole_file import explain_cache_errors, replace_file
from lancetnic_dask.errors import CorpusError, SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from lancetnic_dask.corpus.formats import Kind
    from lancetnic_dask.corpus.plan import MapTasks

__all__ = ["plan_files", "read_columns", "table_kind", "text_kind"]

logger = logging.getLogger(__name__)

COPY_VERSION = 1
_HEAD_BYTES = 1 << 18


def plan_files(
    files: Sequence[SourceFile],
    file_format: FileFormat,
    *,
    columns: Sequence[str] = (),
    copies: Path | None = None,
    storage_options: Mapping[str, Any] | None = None,
    map_tasks: MapTasks,
    advance: Callable[[int], object] | None = None,
) -> PartitionPlan:
    """Cut files into partitions of whole records.

    The cut depends on the files and on `partition_bytes` alone, not on who does the work.

    Parameters
    ----------
    files : sequence of SourceFile
        The corpus, in order. Empty files are left out.
    file_format : FileFormat
        How they are read.
    columns : sequence of str, default=()
        What is wanted: the separator under which they stand in the header is the right one.
    copies : Path or None, default=None
        Where plain copies are kept of files that are compressed, or can't be cut as they are.
        Workers write them.
    storage_options : mapping or None, default=None
        Options of the fsspec file system.
    map_tasks : MapTasks
        Runs what takes time.
    advance : callable or None, default=None
        Told the bytes of the corpus that are done.

    Returns
    -------
    PartitionPlan
        At least one partition.

    Raises
    ------
    CorpusError
        If there is no record, the files are of several kinds, or one can't be read.
    EncodingError
        If a file is not in the given encoding, as far as that is seen here.
    CacheError
        If a copy can't be written.
    """
    if copies is not None and _holds_documents(files, file_format, columns):
        file_format = replace(file_format, kind="documents")
        planned = copy_documents(
            files,
            file_format,
            copies,
            storage_options=storage_options,
            map_tasks=map_tasks,
            advance=advance,
        )
        return plan_text(
            planned, file_format, storage_options=None, map_tasks=map_tasks, advance=advance
        )
    heads, file_format = _look_at(files, file_format, storage_options)
    if not file_format.is_text:
        return plan_tables(
            [_as_table(head) for head in heads],
            file_format,
            copies=copies,
            storage_options=storage_options,
            map_tasks=map_tasks,
            advance=advance,
        )
    planned = _copied(heads, file_format, copies, storage_options, map_tasks, advance)
    if file_format.kind == "csv":
        options = storage_options if planned[0].copy is None else None
        with open_file(planned[0].read_from.url, options) as stream:
            pieces = iter(lambda: stream.read(_HEAD_BYTES), b"")
            file_format, warnings, _ = found_dialect(
                pieces, planned[0].file.url, file_format, columns
            )
        for warning in warnings:
            logger.warning("%s", warning)
    return plan_text(
        planned, file_format, storage_options=storage_options, map_tasks=map_tasks, advance=advance
    )


def read_columns(
    files: Sequence[SourceFile],
    file_format: FileFormat,
    columns: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> PartitionPlan | None:
    """Return the plan of the first file that holds anything, without partitions and rows yet.

    Parameters
    ----------
    files : sequence of SourceFile
        The corpus, in order.
    file_format : FileFormat
        How they are read.
    columns : sequence of str, default=()
        What is wanted, as for `plan_files`.
    storage_options : mapping or None, default=None
        Options of the fsspec file system.

    Returns
    -------
    PartitionPlan or None
        Its file has columns. None if there is no record in any file.

    Raises
    ------
    CorpusError, EncodingError
        As `plan_files`.
    """
    if _holds_documents(files, file_format, columns):
        known = replace(file_format, kind="documents")
        return PartitionPlan(known, (PlannedFile(files[0], DOCUMENT_COLUMNS, 0),), ())
    for file in files:
        head = read_head(file, file_format, storage_options)
        if head is None:
            continue
        known = replace(file_format, kind=head.kind)
        if not known.is_text:
            url = _as_table(head).url
            columns_found = read_units(url, head.kind, storage_options).columns  # type: ignore[arg-type]
            return PartitionPlan(known, (PlannedFile(file, columns_found, 0),), ())
        with open_plain(head, known, storage_options) as pieces:
            again: Iterator[bytes] = pieces
            if known.kind == "csv":
                known, _, again = found_dialect(pieces, file.url, known, columns)
            found = read_text_columns(again, file.url, known)
        if found is not None:
            return PartitionPlan(known, (PlannedFile(file, found[0], 0),), ())
    return None


def text_kind(
    files: Sequence[SourceFile], storage_options: Mapping[str, Any] | None = None
) -> Kind:
    """Return which kind of plain text files are: documents, or lines of fastText.

    Raises
    ------
    CorpusError
        If they are neither.
    """
    if are_documents(files):
        return "documents"
    heads = (read_head(file, FileFormat(), storage_options) for file in files)
    head = next((head for head in heads if head is not None), None)
    if head is not None and head.kind == "fasttext":
        return "fasttext"
    raise CorpusError(
        "These are neither documents, .txt files in two folders or more, nor lines of fastText.",
        files[0].url if head is None else head.file.url,
        "Pass a pattern such as 'folder/*/*.txt', or read a table with Corpus.read_csv.",
    )


def table_kind(
    files: Sequence[SourceFile],
    file_format: FileFormat,
    storage_options: Mapping[str, Any] | None = None,
) -> Kind:
    """Return which kind of table the first file is that holds anything.

    Raises
    ------
    CorpusError
        If it is text, or every file is empty.
    """
    heads = (read_head(file, file_format, storage_options) for file in files)
    head = next((head for head in heads if head is not None), None)
    if head is not None and head.is_table:
        return head.kind
    raise CorpusError(
        "The file is empty." if head is None else f"The file is {head.kind}, and no table.",
        files[0].url if head is None else head.file.url,
        "Pass a file of Parquet or Arrow, or read it with Corpus.read_csv or Corpus.read_json.",
    )


def _look_at(
    files: Sequence[SourceFile],
    file_format: FileFormat,
    storage_options: Mapping[str, Any] | None,
) -> tuple[list[FileHead], FileFormat]:
    """Return what the files are, empty ones left out, and the format with its kind."""
    heads = []
    for file in files:
        head = read_head(file, file_format, storage_options)
        if head is None:
            logger.info("%s is empty and is left out", file.url)
        else:
            heads.append(head)
    if not heads:
        raise CorpusError(
            "The corpus has no rows: every file is empty.",
            files[0].url,
            "Check that this is the right file.",
        )
    first = heads[0]
    for other in heads:
        if other.kind != first.kind:
            raise CorpusError(
                f"The files are of several kinds: {first.file.url} is {first.kind}, and "
                f"{other.file.url} is {other.kind}.",
                None,
                "Pass files of one kind, for example by a pattern such as 'folder/*.csv'.",
            )
    return heads, replace(file_format, kind=first.kind)


def _holds_documents(
    files: Sequence[SourceFile], file_format: FileFormat, columns: Sequence[str]
) -> bool:
    """Tell whether each file is one text, because that was said or nothing else is likely."""
    if file_format.kind is not None:
        return file_format.kind == "documents"
    return bool(columns) and are_documents(files, columns)


def _as_table(head: FileHead) -> SourceFile:
    """Return a file of Parquet or Arrow, which packs its columns itself."""
    if head.compression is not None:
        raise CorpusError(
            f"The {head.kind} file is compressed as a whole, with {head.compression}.",
            head.file.url,
            "Unpack it first: its columns are compressed already.",
        )
    return head.file


def _copied(
    heads: Sequence[FileHead],
    file_format: FileFormat,
    copies: Path | None,
    storage_options: Mapping[str, Any] | None,
    map_tasks: MapTasks,
    advance: Callable[[int], object] | None,
) -> list[PlannedFile]:
    """Have plain copies made of the files that need one."""
    needed = [head for head in heads if head.is_copied(file_format)]
    if needed and copies is None:
        raise SettingError(
            "A plain copy of a file must be written, and there is no folder for it.",
            needed[0].file.url,
            "Pass a folder.",
        )
    items = ((head, file_format, copies, storage_options) for head in needed)
    made = map_tasks(make_copy, items, name="unpack") if needed else iter(())
    planned = []
    for head in heads:
        copy = next(made) if head.is_copied(file_format) else None
        if copy is None:
            planned.append(PlannedFile(head.file, (), 0))
        else:
            planned.append(PlannedFile(head.file, (), 0, copy.file, copy.num_replaced))
            if advance is not None:
                advance(head.file.size - scan_share(planned[-1]))
    return planned


@dataclass(frozen=True)
class _Copy:
    """A plain copy, and the characters that were replaced in it."""

    file: SourceFile
    num_replaced: int


def make_copy(
    head: FileHead,
    file_format: FileFormat,
    copies: Path,
    storage_options: Mapping[str, Any] | None,
) -> _Copy:
    """Write the plain copy of a file, or find it (a worker's task)."""
    name = _copy_name(head, file_format)
    kept = next(copies.glob(f"{name}-*.txt"), None)
    if kept is None:
        partial = copies / f"{name}.txt"
        with (
            explain_cache_errors(copies),
            replace_file(partial) as sink,
            open_plain(head, file_format, storage_options) as pieces,
        ):
            for data in pieces:
                sink.write(data)
        kept = partial.rename(copies / f"{name}-{pieces.num_replaced}.txt")
    return _Copy(list_files(kept)[0], int(kept.stem.rpartition("-")[2]))


def _copy_name(head: FileHead, file_format: FileFormat) -> str:
    """Return a name for the copy of a file as it is now: 32 hexadecimal digits."""
    key = [
        COPY_VERSION,
        CORPUS_VERSION,
        asdict(head),
        file_format.encoding,
        file_format.encoding_errors,
        file_format.max_row_bytes if head.is_array else None,
    ]
    return hashlib.blake2b(json.dumps(key).encode(), digest_size=16).hexdigest()
