"""Files -> PartitionPlan: byte ranges that start and end on a record boundary, rows of each.

Each block of a file is scanned once, wherever it lies; what the blocks mean is known only when
they are put in order (``csv_scan``). A remote file is therefore read once more than tokenizing
needs it; the plan is kept, so a second run reads it once.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import logging
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lancetnic_dask.corpus.csv_parse import read_record
from lancetnic_dask.corpus.csv_scan import BlockScan, cut_partitions, scan_block
from lancetnic_dask.corpus.dialect import CsvDialect, transition_table
from lancetnic_dask.corpus.sources import SourceFile, open_file
from lancetnic_dask.errors import CorpusError, EncodingError, Location, SettingError, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = [
    "CORPUS_VERSION",
    "CsvFormat",
    "MapTasks",
    "Partition",
    "PartitionPlan",
    "PlannedFile",
    "plan_csv",
    "plan_fingerprint",
]

T = TypeVar("T")

FORMAT_VERSION = 1
# To be raised with any change of what rows and cells the same bytes give: a test holds a digest.
CORPUS_VERSION = 1
_FIRST_READ_BYTES = 1 << 16
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_UNPACK = "Unpack it first."
_NO_TEXT = (
    (b"\x1f\x8b", "compressed with gzip", _UNPACK),
    (b"BZh", "compressed with bzip2", _UNPACK),
    (b"\xfd7z", "compressed with xz", _UNPACK),
    (b"\x28\xb5\x2f", "compressed with Zstandard", _UNPACK),
    (b"PK\x03", "a zip archive or an Excel workbook", "Unpack it, or save it as CSV."),
    (b"PAR", "Parquet", "Write it as CSV first."),
)

logger = logging.getLogger(__name__)


class MapTasks(Protocol):
    """Runs a function over argument tuples, somewhere, and yields the results in order."""

    def __call__(  # noqa: D102 - the class docstring tells
        self, function: Callable[..., T], items: Iterable[tuple[Any, ...]], *, name: str
    ) -> Iterator[T]: ...


@dataclass(frozen=True, kw_only=True)
class CsvFormat:
    """How the bytes of a CSV file are to be read.

    Parameters
    ----------
    dialect : CsvDialect
        Separator, quotes and escapes.
    encoding : str, default="utf-8"
        UTF-8, or any encoding of one byte a character that agrees with ASCII.
    partition_bytes : int, default=16 MiB
        Length of a partition before it is rounded to a record boundary. A setting of the run,
        not of the machine: it decides which rows are shuffled together.
    max_row_bytes : int, default=16 MiB
        A longer row is a bad row.
    """

    dialect: CsvDialect
    encoding: str = "utf-8"
    partition_bytes: int = 16 << 20
    max_row_bytes: int = 16 << 20

    def __post_init__(self) -> None:
        for name in ("partition_bytes", "max_row_bytes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SettingError(
                    f"{name} is {quoted(value)}.", None, "Pass a whole number of bytes from 1."
                )
        object.__setattr__(self, "encoding", _checked_encoding(self.encoding))


@dataclass(frozen=True)
class PlannedFile:
    """A file, the names in its header, and the rows below it."""

    file: SourceFile
    columns: tuple[str, ...]
    num_rows: int


@dataclass(frozen=True)
class Partition:
    """A task's input: whole records of one file.

    Parameters
    ----------
    file_index : int
        Position in `PartitionPlan.files`.
    start_byte, stop_byte : int
        Range in the file; the first byte belongs to a record, the last one ends a record.
    first_row : int
        Index of its first record among those of the file, from 0 below the header.
    num_rows : int
        Records, bad ones included; blank lines are none.
    """

    file_index: int
    start_byte: int
    stop_byte: int
    first_row: int
    num_rows: int


@dataclass(frozen=True)
class PartitionPlan:
    """What a corpus consists of, exactly.

    Parameters
    ----------
    csv_format : CsvFormat
        How the bytes are read.
    files : tuple of PlannedFile
        In the order of the corpus; empty ones are not among them.
    partitions : tuple of Partition
        In the order of the corpus.
    """

    csv_format: CsvFormat
    files: tuple[PlannedFile, ...]
    partitions: tuple[Partition, ...]

    @property
    def num_rows(self) -> int:
        """Records in all files, bad ones included."""
        return sum(partition.num_rows for partition in self.partitions)

    @property
    def num_bytes(self) -> int:
        """Bytes in all partitions."""
        return sum(part.stop_byte - part.start_byte for part in self.partitions)

    def file_of(self, partition: Partition) -> PlannedFile:
        """Return the file that a partition is cut from."""
        return self.files[partition.file_index]

    def only(self, partition: Partition) -> PartitionPlan:
        """Return the plan of one partition alone: small enough to travel with its task."""
        planned = self.file_of(partition)
        return PartitionPlan(self.csv_format, (planned,), (replace(partition, file_index=0),))

    def to_json(self) -> str:
        """Return the plan as JSON with a format version."""
        return json.dumps({"format_version": FORMAT_VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> PartitionPlan:
        """Read what `to_json` wrote.

        Parameters
        ----------
        text : str
            JSON.

        Returns
        -------
        PartitionPlan
            An equal plan.

        Raises
        ------
        ValueError, KeyError, TypeError
            If it is no plan, or one of another format version.
        """
        fields = json.loads(text)
        if fields["format_version"] != FORMAT_VERSION:
            raise ValueError(f"plan of format version {fields['format_version']}")
        csv_format = fields["csv_format"] | {
            "dialect": CsvDialect(**fields["csv_format"]["dialect"])
        }
        files = tuple(
            PlannedFile(SourceFile(**one["file"]), tuple(one["columns"]), one["num_rows"])
            for one in fields["files"]
        )
        partitions = tuple(Partition(**one) for one in fields["partitions"])
        rows_of: Counter[int] = Counter()
        for partition in partitions:
            if partition.first_row != rows_of[partition.file_index]:
                raise ValueError("plan whose partitions do not follow each other")
            rows_of[partition.file_index] += partition.num_rows
        if any(rows_of[index] != planned.num_rows for index, planned in enumerate(files)):
            raise ValueError("plan whose partitions do not hold all rows")
        return cls(CsvFormat(**csv_format), files, partitions)


def plan_fingerprint(files: Sequence[SourceFile], csv_format: CsvFormat) -> str:
    """Return a name for the plan of these files as they are now: 32 hexadecimal digits."""
    key = [FORMAT_VERSION, CORPUS_VERSION, asdict(csv_format), [asdict(file) for file in files]]
    return hashlib.blake2b(json.dumps(key).encode(), digest_size=16).hexdigest()


def plan_csv(
    files: Sequence[SourceFile],
    csv_format: CsvFormat,
    *,
    storage_options: Mapping[str, Any] | None = None,
    map_tasks: MapTasks,
    advance: Callable[[int], object] | None = None,
) -> PartitionPlan:
    """Cut CSV files into partitions of whole records.

    The cut depends on the bytes and on `partition_bytes` alone, not on who scans them.

    Parameters
    ----------
    files : sequence of SourceFile
        The corpus, in order. Empty files are left out.
    csv_format : CsvFormat
        How they are read.
    storage_options : mapping or None, default=None
        Options of the fsspec file system.
    map_tasks : MapTasks
        Runs the scans.
    advance : callable or None, default=None
        Told the bytes of each scan when it is done.

    Returns
    -------
    PartitionPlan
        At least one partition.

    Raises
    ------
    CorpusError
        If no file has a record below its header, a header is longer than ``max_row_bytes``, or
        a file cannot be read.
    EncodingError
        If a file is UTF-16, or its header is not in the given encoding.
    """
    heads = []
    for file in files:
        head = _read_header(file, csv_format, storage_options)
        if head is None:
            logger.info("%s is empty and is left out", file.url)
        else:
            heads.append((file, *head))
    blocks = [
        (index, start, min(start + csv_format.partition_bytes, file.size))
        for index, (file, _, data_start) in enumerate(heads)
        for start in range(data_start, file.size, csv_format.partition_bytes)
    ]
    tasks = (
        (heads[index][0].url, start, stop, csv_format.dialect, storage_options)
        for index, start, stop in blocks
    )
    scans: dict[int, list[BlockScan]] = defaultdict(list)
    starts: dict[int, list[int]] = defaultdict(list)
    for (index, start, stop), scan in zip(
        blocks, map_tasks(scan_range, tasks, name="plan"), strict=True
    ):
        scans[index].append(scan)
        starts[index].append(start)
        if advance is not None:
            advance(stop - start)
    planned, partitions = [], []
    for index, (file, columns, _) in enumerate(heads):
        first_row = 0
        for cut in cut_partitions(scans[index], starts[index], stop_byte=file.size):
            partitions.append(
                Partition(index, cut.start_byte, cut.stop_byte, first_row, cut.num_rows)
            )
            first_row += cut.num_rows
        planned.append(PlannedFile(file, columns, first_row))
    if not partitions:
        names = (name for _, columns, _ in heads for name in columns)
        is_quote_open = any("\n" in name or "\r" in name for name in names)
        raise CorpusError(
            "The corpus has no rows: "
            + ("every file is empty." if not heads else "there is nothing below the header."),
            files[0].url,
            "Check that this is the right file"
            + (", and that quotes in its first line are closed." if is_quote_open else "."),
        )
    return PartitionPlan(csv_format, tuple(planned), tuple(partitions))


def scan_range(
    url: str,
    start_byte: int,
    stop_byte: int,
    dialect: CsvDialect,
    storage_options: Mapping[str, Any] | None,
) -> BlockScan:
    """Read one block of a file and scan it from every start state (a worker's task)."""
    with open_file(url, storage_options) as stream:
        stream.seek(start_byte)
        data = stream.read(stop_byte - start_byte)
    return scan_block(data, transition_table(dialect))


def read_columns(
    file: SourceFile, csv_format: CsvFormat, storage_options: Mapping[str, Any] | None
) -> PlannedFile | None:
    """Return a file with the columns of its header, none of its rows being known yet.

    Parameters
    ----------
    file : SourceFile
        One of a corpus.
    csv_format : CsvFormat
        How it is read.
    storage_options : mapping or None
        Options of the fsspec file system.

    Returns
    -------
    PlannedFile or None
        None if the file is empty.

    Raises
    ------
    CorpusError, EncodingError
        As `plan_csv`.
    """
    head = _read_header(file, csv_format, storage_options)
    return None if head is None else PlannedFile(file, head[0], 0)


def _read_header(
    file: SourceFile, csv_format: CsvFormat, storage_options: Mapping[str, Any] | None
) -> tuple[tuple[str, ...], int] | None:
    """Return the column names and where the data starts; None for a file without a record."""
    wanted = _FIRST_READ_BYTES
    with open_file(file.url, storage_options) as stream:
        data = stream.read(len(codecs.BOM_UTF8))
        if data.startswith(_UTF16_MARKS):
            raise EncodingError(
                "The file is UTF-16.", Location(file.url, byte=0), "Convert it to UTF-8."
            )
        for magic, kind, fix in _NO_TEXT:
            if data.startswith(magic):
                raise CorpusError(f"The file is {kind}, not CSV.", Location(file.url), fix)
        mark = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
        while True:
            more = stream.read(wanted)
            data += more
            # A file that was cut since it was listed ends sooner than its size tells.
            is_whole = len(data) >= file.size or not more
            found = read_record(data[mark:], csv_format.dialect, is_end=is_whole)
            if found is not None or is_whole or len(data) > csv_format.max_row_bytes:
                break
            wanted *= 2
    num_bytes = len(data[mark : None if found is None else mark + found[1]].strip(b"\r\n"))
    if num_bytes > csv_format.max_row_bytes or (found is None and not is_whole):
        raise CorpusError(
            f"The header is longer than {csv_format.max_row_bytes} bytes.",
            Location(file.url, byte=mark),
            "Check that this is a CSV file and that quotes in its first line are closed, or pass "
            "a larger max_row_bytes.",
        )
    if found is None:
        return None
    cells, end = found
    try:
        names = tuple(cell.decode(csv_format.encoding) for cell in cells)
    except UnicodeDecodeError as error:
        raise EncodingError(
            f"The header is not {csv_format.encoding}: byte {error.object[error.start]:#04x}.",
            Location(file.url, byte=mark),
            "Pass the encoding of the file, for example encoding='cp1251' or 'cp1252'.",
        ) from error
    return names, mark + end


def _checked_encoding(encoding: str) -> str:
    """Return Python's name of an encoding whose ASCII bytes always mean ASCII."""
    try:
        name = codecs.lookup(encoding).name
        if name in ("utf-8", "utf-8-sig"):
            return "utf-8"
        is_safe = _is_single_byte(name)
    except (LookupError, TypeError, ValueError):
        raise SettingError(
            f"encoding is {quoted(encoding)}.",
            None,
            "Pass a text encoding that Python knows, such as 'utf-8', 'cp1251' or 'latin-1'.",
        ) from None
    if not is_safe:
        raise SettingError(
            f"Files in {name} cannot be cut into partitions yet.",
            None,
            "Convert the file to UTF-8, or pass an encoding of one byte a character.",
        )
    return name


def _is_single_byte(encoding: str) -> bool:
    """Tell whether each byte is a character by itself, and an ASCII byte that of ASCII."""
    characters = [bytes([byte]).decode(encoding, errors="replace") for byte in range(256)]
    if characters[:128] != [chr(byte) for byte in range(128)]:
        return False
    # In GB18030 or Shift-JIS single bytes look alright; pairs of them don't.
    pairs = bytes(byte for first in range(256) for second in range(256) for byte in (first, second))
    decoded = pairs.decode(encoding, errors="replace")
    return decoded == "".join(characters[byte] for byte in pairs)
