"""What the user says of the files -> FileFormat; the first bytes of a file -> what it is."""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final, Literal, get_args

from lancetnic_dask.corpus.dialect import CsvDialect
from lancetnic_dask.corpus.encodings import checked_encoding, is_cuttable
from lancetnic_dask.corpus.header import check_names
from lancetnic_dask.errors import CorpusError, Location, SettingError, quoted

__all__ = [
    "TABLE_MAGIC",
    "TEXT_KINDS",
    "Compression",
    "EncodingErrors",
    "FileFormat",
    "Kind",
    "compression_of",
    "kind_of",
]

Kind = Literal["csv", "json", "fasttext", "documents", "parquet", "arrow"]
Compression = Literal["gzip", "bz2", "xz", "zstd", "zip"]
EncodingErrors = Literal["strict", "replace"]

TEXT_KINDS: Final[frozenset[Kind]] = frozenset({"csv", "json", "fasttext", "documents"})
TABLE_MAGIC: Final = (b"PAR1", b"ARROW1")
_COMPRESSIONS: Final[tuple[tuple[bytes, Compression], ...]] = (
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    *((bytes([0x50 + low]) + b"\x2a\x4d\x18", "zstd") for low in range(16)),  # a frame to skip
    (b"PK\x03\x04", "zip"),
)
# Three letters alone could be those of a text.
_BZIP2: Final = re.compile(rb"BZh[1-9](1AY&SY|\x17\x72\x45\x38\x50\x90)")
_REFUSED = (
    (b"FEA1", "a Feather file of version 1", "Write it again with a newer pyarrow or pandas."),
    (b"\xff\xff\xff\xff", "an Arrow stream", "Write it as an Arrow file (pyarrow.ipc.new_file)."),
    (b"PARE", "an encrypted Parquet file", "Decrypt it first."),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook", "Save it as CSV."),
    (b"%PDF", "a PDF", "Pass a table."),
    (b"SQLite format 3", "an SQLite database", "Export the table as CSV."),
    (b"\x7fELF", "a program", "Pass a table."),
)
_JSON_NAMES = frozenset({".json", ".jsonl", ".ndjson"})
_PACKED_NAMES = frozenset({".gz", ".bz2", ".xz", ".zst", ".zip"})
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_FASTTEXT_PREFIX = b"__label__"


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """How the bytes of the files of a corpus are to be read.

    Parameters
    ----------
    kind : {'csv', 'json', 'fasttext', 'documents', 'parquet', 'arrow'} or None, default=None
        What a file holds: separated values; one JSON object a line, or an array of them; fastText's
        ``__label__x words``; one text, in a folder that is its class; Parquet; an Arrow file, also
        called Feather. None: what the files show; a plan knows it.
    dialect : CsvDialect, default=CsvDialect()
        Separator, quotes, escapes and comments of CSV files.
    is_sniffed : bool, default=False
        Whether the separator is to be found in the first file, and what else of the dialect is
        the default and can't be meant; a plan has found it.
    names : tuple of str or None, default=None
        Columns of CSV files without a header. None: the first record names them.
    encoding : str, default="utf-8"
        Of text files: any text encoding that Python knows.
    encoding_errors : {'strict', 'replace'}, default='strict'
        Whether bytes that are no text in the encoding are an error, or become U+FFFD and are
        counted.
    partition_bytes : int, default=16 MiB
        Length of a partition before it is rounded to whole records. A setting of the run, not of
        the machine: it decides which rows are shuffled together.
    max_row_bytes : int, default=16 MiB
        A longer row is a bad row.
    """

    kind: Kind | None = None
    dialect: CsvDialect = field(default_factory=CsvDialect)
    is_sniffed: bool = False
    names: tuple[str, ...] | None = None
    encoding: str = "utf-8"
    encoding_errors: EncodingErrors = "strict"
    partition_bytes: int = 16 << 20
    max_row_bytes: int = 16 << 20

    def __post_init__(self) -> None:
        for name in ("partition_bytes", "max_row_bytes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SettingError(
                    f"{name} is {quoted(value)}.", None, "Pass a whole number of bytes from 1."
                )
        if self.kind is not None:
            _check_choice("kind", self.kind, get_args(Kind))
        _check_choice("encoding_errors", self.encoding_errors, get_args(EncodingErrors))
        object.__setattr__(self, "encoding", checked_encoding(self.encoding))
        if self.names is not None:
            object.__setattr__(self, "names", check_names(self.names))

    @property
    def is_text(self) -> bool:
        """Whether files are lines of text, which are cut by byte."""
        return self.kind in TEXT_KINDS

    @property
    def is_copied(self) -> bool:
        """Whether text files must be transcoded before they are read."""
        return not is_cuttable(self.encoding) or (self.kind == "json" and self.encoding != "utf-8")

    @property
    def cell_encoding(self) -> str:
        """The encoding in which cells come from the readers."""
        is_utf8 = self.kind not in ("csv", "fasttext") or self.is_copied
        return "utf-8" if is_utf8 else self.encoding


def compression_of(head: bytes) -> Compression | None:
    """Tell how a file is compressed, from its first bytes; its name may lie.

    Parameters
    ----------
    head : bytes
        Ten bytes at least, unless the file is shorter.

    Returns
    -------
    {'gzip', 'bz2', 'xz', 'zstd', 'zip'} or None
        None: as it is.
    """
    if _BZIP2.match(head):
        return "bz2"
    return next((name for magic, name in _COMPRESSIONS if head.startswith(magic)), None)


def kind_of(head: bytes, url: str) -> Kind:
    """Tell what a file holds, from its first bytes when it is unpacked, and from its name.

    Parameters
    ----------
    head : bytes
        Some KiB, transcoded to UTF-8 where that is needed to cut the file.
    url : str
        For its extension, and for messages.

    Returns
    -------
    {'csv', 'json', 'fasttext', 'parquet', 'arrow'}
        CSV where nothing tells of anything else.

    Raises
    ------
    CorpusError
        If the file is known to be something that can't be read.
    """
    for magic, what, fix in _REFUSED:
        if head.startswith(magic):
            raise CorpusError(f"The file is {what}.", Location(url), fix)
    if head[257:262] == b"ustar":
        raise CorpusError("The file is a tar archive.", Location(url), "Unpack it first.")
    if head.startswith(TABLE_MAGIC):
        return "parquet" if head.startswith(TABLE_MAGIC[0]) else "arrow"
    text = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if text.startswith(_FASTTEXT_PREFIX):
        return "fasttext"
    if extension_of(url) in _JSON_NAMES or _is_json_object(text):
        return "json"
    return "csv"


def is_utf16(head: bytes) -> bool:
    """Tell whether a file begins with the byte order mark of UTF-16."""
    return head.startswith(_UTF16_MARKS)


def extension_of(url: str) -> str:
    """Return the extension of a file without those of compression, such as ``.csv``."""
    suffixes = PurePosixPath(url.partition("?")[0].lower()).suffixes
    plain = [suffix for suffix in suffixes if suffix not in _PACKED_NAMES]
    return plain[-1] if plain else ""


def is_packed_name(url: str) -> bool:
    """Tell whether a name says that a file is compressed; only its bytes know."""
    return PurePosixPath(url.partition("?")[0].lower()).suffix in _PACKED_NAMES


def _is_json_object(text: bytes) -> bool:
    """Tell whether the first line is a JSON object with at least one field."""
    line = text.partition(b"\n")[0]
    if not line.startswith(b"{"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        listed = ", ".join(map(repr, choices))
        raise SettingError(f"{name} is {quoted(value)}.", None, f"Pass one of {listed}.")
