"""First bytes of a file -> what it is, the names of its columns, where its records start."""

from __future__ import annotations

import codecs
import logging
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from lancetnic_dask.corpus.csv_parse import read_record
from lancetnic_dask.corpus.dialect import CsvDialect
from lancetnic_dask.corpus.documents import DOCUMENT_COLUMNS
from lancetnic_dask.corpus.encodings import encoding_advice
from lancetnic_dask.corpus.formats import (
    TABLE_MAGIC,
    TEXT_KINDS,
    Compression,
    FileFormat,
    Kind,
    compression_of,
    is_utf16,
    kind_of,
)
from lancetnic_dask.corpus.header import check_names, clean_columns
from lancetnic_dask.corpus.json_array import is_json_array, iter_elements, refuse_json_object
from lancetnic_dask.corpus.json_fields import field_names
from lancetnic_dask.corpus.sniff import quote_trouble, sniff_dialect
from lancetnic_dask.corpus.transcode import transcode
from lancetnic_dask.corpus.unpack import open_unpacked
from lancetnic_dask.errors import CorpusError, EncodingError, Location

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lancetnic_dask.corpus.sources import SourceFile
    from lancetnic_dask.corpus.transcode import TranscodedText
    from lancetnic_dask.corpus.unpack import UnpackedFile

__all__ = ["FileHead", "found_dialect", "open_plain", "read_head", "read_text_columns"]

logger = logging.getLogger(__name__)

FASTTEXT_COLUMNS = ("label", "text")
_HEAD_BYTES = 1 << 16
_FIRST_READ_BYTES = 1 << 16
# Fields of JSON are known from so many bytes, or objects of an array.
_SAMPLE_BYTES = 1 << 20
_SAMPLE_ELEMENTS = 200


@dataclass(frozen=True)
class FileHead:
    """What the first bytes of a file show.

    Parameters
    ----------
    file : SourceFile
        The file; not an empty one.
    kind : {'csv', 'json', 'fasttext', 'parquet', 'arrow'}
        What it holds.
    compression : {'gzip', 'bz2', 'xz', 'zstd', 'zip'} or None
        How it is compressed.
    is_array : bool
        Whether it is a JSON array, and no lines.
    """

    file: SourceFile
    kind: Kind
    compression: Compression | None
    is_array: bool

    @property
    def is_table(self) -> bool:
        """Whether it holds columns with types, and no text."""
        return self.kind not in TEXT_KINDS

    def is_copied(self, file_format: FileFormat) -> bool:
        """Tell whether a plain copy is read in its place."""
        return self.compression is not None or (
            not self.is_table and (self.is_array or file_format.is_copied)
        )


def read_head(
    file: SourceFile, file_format: FileFormat, storage_options: Mapping[str, Any] | None
) -> FileHead | None:
    """Look at the first bytes of a file.

    Returns
    -------
    FileHead or None
        None if the file is empty, packed or not.

    Raises
    ------
    CorpusError
        If it can't be read, or is no table.
    EncodingError
        If it is UTF-16 and that was not said.
    """
    with open_unpacked(file.url, None, storage_options) as stream:
        packed = stream.read(_HEAD_BYTES)
    compression = compression_of(packed)
    head = packed
    if compression is not None:
        with open_unpacked(file.url, compression, storage_options) as stream:
            head = stream.read(_HEAD_BYTES)
    if not head:
        return None
    if is_utf16(head) and file_format.encoding == "utf-8":
        raise EncodingError(
            "The file is UTF-16.", Location(file.url, byte=0), "Pass encoding='utf-16'."
        )
    text = _as_utf8(head, file_format)
    found = kind_of(text, file.url)
    kind = file_format.kind or found
    if kind != found and not {kind, found} <= TEXT_KINDS:
        raise CorpusError(
            f"The file is {found}, not {kind}.", file.url, "Read it as what it is: leave kind= out."
        )
    is_array = False
    if kind == "json":
        is_array = is_json_array(text)
        refuse_json_object(text, file.url, is_whole=len(head) < _HEAD_BYTES)
    return FileHead(file, kind, compression, is_array)


def _as_utf8(head: bytes, file_format: FileFormat) -> bytes:
    """Return the first bytes of a text file as UTF-8; those of a table as they are."""
    if file_format.encoding == "utf-8" or head.startswith(TABLE_MAGIC):
        return head
    decoder = codecs.getincrementaldecoder(file_format.encoding)("replace")
    try:
        return decoder.decode(head).removeprefix("\ufeff").encode("utf-8", "replace")
    except UnicodeError:  # no byte order mark: transcoding says so
        return head


@contextmanager
def open_plain(
    head: FileHead, file_format: FileFormat, storage_options: Mapping[str, Any] | None
) -> Iterator[PlainPieces]:
    """Yield the pieces of what the plain copy of a file holds."""
    with open_unpacked(head.file.url, head.compression, storage_options) as stream:
        yield PlainPieces(stream, head, file_format)


class PlainPieces:
    """The pieces of what the plain copy of a file holds.

    Attributes
    ----------
    num_replaced : int
        Characters that were no text and became U+FFFD, so far.
    """

    def __init__(self, stream: UnpackedFile, head: FileHead, file_format: FileFormat) -> None:
        self._texts: TranscodedText | None = None
        if not head.is_table and (head.is_array or file_format.is_copied):
            self._texts = transcode(
                stream, file_format.encoding, file_format.encoding_errors, head.file.url
            )
        if self._texts is None:
            self._pieces = iter(lambda: stream.read(_FIRST_READ_BYTES), b"")
        elif head.is_array:
            limit = file_format.max_row_bytes
            elements = iter_elements(self._texts, url=head.file.url, max_row_bytes=limit)
            self._pieces = (element.encode() for element in elements)
        else:
            self._pieces = (text.encode() for text in self._texts)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._pieces)

    @property
    def num_replaced(self) -> int:
        return 0 if self._texts is None else self._texts.num_replaced


def read_text_columns(
    pieces: Iterator[bytes], url: str, file_format: FileFormat
) -> tuple[tuple[str, ...], int] | None:
    """Return the names of the columns of a plain text file, and where its records start.

    Parameters
    ----------
    pieces : iterator of bytes
        The file from its start; only as much is taken as is needed.
    url : str
        For messages.
    file_format : FileFormat
        Its kind is known.

    Returns
    -------
    columns, start_byte : tuple of str, int
        None for a CSV file without a record.

    Raises
    ------
    CorpusError
        If the header is longer than ``max_row_bytes``.
    EncodingError
        If the header is not in the encoding.
    """
    if file_format.kind == "csv":
        return _read_csv_header(pieces, url, file_format)
    if file_format.kind == "documents":
        return DOCUMENT_COLUMNS, 0
    data = _take(pieces, _SAMPLE_BYTES)
    start = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
    if file_format.kind == "fasttext":
        return FASTTEXT_COLUMNS, start
    return field_names(islice(data[start:].splitlines(), _SAMPLE_ELEMENTS)), start


def found_dialect(
    pieces: Iterator[bytes], url: str, file_format: FileFormat, columns: Sequence[str]
) -> tuple[FileFormat, tuple[str, ...], Iterator[bytes]]:
    """Return the format with the dialect that the first file shows, warnings, and its pieces again.

    Parameters
    ----------
    pieces : iterator of bytes
        The first CSV file that holds anything, from its start.
    url : str
        For messages.
    file_format : FileFormat
        Unless it is to be sniffed, quotes that seem wrong are only told of.
    columns : sequence of str
        What is wanted of the file.
    """
    head = _take(pieces, _SAMPLE_BYTES)
    more = next(pieces, b"")
    again = chain([head, more], pieces)
    names, dialect = file_format.names, file_format.dialect
    if not file_format.is_sniffed:
        trouble = quote_trouble(head, dialect, is_whole=not more, has_header=names is None, url=url)
        return file_format, () if trouble is None else (trouble,), again
    usual = asdict(CsvDialect())
    given = {name: value for name, value in asdict(dialect).items() if value != usual[name]}
    sniffed = sniff_dialect(
        head,
        encoding=file_format.cell_encoding,
        is_whole=not more,
        columns=columns,
        num_columns=None if names is None else len(names),
        given=given,
        url=url,
    )
    logger.debug("%s: %s", url, sniffed.reason)
    return replace(file_format, dialect=sniffed.dialect, is_sniffed=False), sniffed.warnings, again


def _read_csv_header(
    pieces: Iterator[bytes], url: str, file_format: FileFormat
) -> tuple[tuple[str, ...], int] | None:
    data = b""
    wanted = 1
    while True:
        more = _take(pieces, wanted)
        data += more
        mark = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
        is_whole = not more
        found = read_record(data[mark:], file_format.dialect, is_end=is_whole)
        if found is not None or is_whole or len(data) > file_format.max_row_bytes:
            break
        wanted = len(data)
    num_bytes = len(data[mark : None if found is None else mark + found[1]].strip(b"\r\n"))
    if num_bytes > file_format.max_row_bytes or (found is None and not is_whole):
        raise CorpusError(
            f"The header is longer than {file_format.max_row_bytes} bytes.",
            Location(url, byte=mark),
            "Check that this is a CSV file and that quotes in its first line are closed, or pass "
            "a larger max_row_bytes.",
        )
    if found is None:
        return None
    cells, end = found
    encoding = file_format.cell_encoding
    if file_format.names is not None:
        first = [cell.decode(encoding, "replace") for cell in cells]
        return check_names(file_format.names, first=first, url=url), mark
    try:
        names = clean_columns([cell.decode(encoding) for cell in cells])
    except UnicodeDecodeError as error:
        raise EncodingError(
            f"The header is not {encoding}: byte {error.object[error.start]:#04x}.",
            Location(url, byte=mark),
            f"{encoding_advice(data[:_HEAD_BYTES], wrong=encoding)}.",
        ) from error
    return names, mark + end


def _take(pieces: Iterator[bytes], num_bytes: int) -> bytes:
    """Return at least so many bytes, in whole pieces, unless the file ends before."""
    taken: list[bytes] = []
    size = 0
    for piece in pieces:
        taken.append(piece)
        size += len(piece)
        if size >= num_bytes:
            break
    return b"".join(taken)
