"""One partition -> batches of raw cells, in bounded memory.

Cells are bytes as they stand in the file, unquoted; what they mean is decided in ``schema``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from lancetnic_dask.corpus import header
from lancetnic_dask.corpus.arrow_files import iter_batches
from lancetnic_dask.corpus.csv_parse import CsvParser, ParsedRows
from lancetnic_dask.corpus.documents import FAULT_FIELD
from lancetnic_dask.corpus.json_fields import read_fields
from lancetnic_dask.corpus.plan_text import record_dialect
from lancetnic_dask.corpus.sources import check_unchanged, open_file
from lancetnic_dask.corpus.text_files import read_fasttext
from lancetnic_dask.errors import ColumnError, CorpusError, Location, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lancetnic_dask.corpus.formats import Kind
    from lancetnic_dask.corpus.plan import Partition, PartitionPlan, PlannedFile

__all__ = ["RawRows", "check_columns", "column_positions", "iter_rows"]

_PIECE_BYTES = 4 << 20


@dataclass(frozen=True)
class RawRows:
    """Consecutive records of one file, cut into cells.

    Parameters
    ----------
    url : str
        The file.
    first_row : int
        Index of the first record among those of the file, from 0.
    num_columns : int
        Names in the header of the file.
    cells : list of pyarrow.LargeBinaryArray
        One array of (num_rows,) for each wanted column; a cell that is not there is empty.
    start_byte : ndarray of shape (num_rows,), dtype=int64
        Where each record starts in the file.
    num_fields : ndarray of shape (num_rows,), dtype=int32
        Cells in each record.
    is_too_long : ndarray of shape (num_rows,), dtype=bool
        Records longer than ``max_row_bytes``; their cells are empty.
    broken : dict of int to str, default={}
        Records that could not be cut into cells, by their index here, and why.
    is_blank : ndarray of shape (num_rows,), dtype=bool, or None, default=None
        Records of white space alone; None if there are none.
    has_bytes : bool, default=True
        Whether `start_byte` is a place in `url`, and not in a copy of it.
    """

    url: str
    first_row: int
    num_columns: int
    cells: list[pa.Array]
    start_byte: np.ndarray
    num_fields: np.ndarray
    is_too_long: np.ndarray
    broken: Mapping[int, str] = field(default_factory=dict)
    is_blank: np.ndarray | None = None
    has_bytes: bool = True

    @property
    def num_rows(self) -> int:
        """Records in this batch."""
        return len(self.start_byte)

    def location(self, index: int, column: str | None = None) -> Location:
        """Return the place of one record for a message."""
        byte = int(self.start_byte[index]) if self.has_bytes else None
        return Location(self.url, self.first_row + index + 1, column, byte)


def iter_rows(
    plan: PartitionPlan,
    partition: Partition,
    columns: Sequence[str],
    storage_options: Mapping[str, Any] | None = None,
) -> Iterator[RawRows]:
    """Yield the records of a partition, some MiB of text at a time.

    Parameters
    ----------
    plan : PartitionPlan
        The plan that the partition belongs to.
    partition : Partition
        What to read.
    columns : sequence of str
        Names of the wanted columns; only these are kept.
    storage_options : mapping or None, default=None
        Options of the fsspec file system.

    Yields
    ------
    RawRows
        In the order of the file.

    Raises
    ------
    ColumnError
        If the file has no such column.
    CorpusError
        If the file is no longer the one that was planned.
    """
    planned = plan.file_of(partition)
    source = planned.read_from
    options = storage_options if planned.copy is None else None
    check_unchanged(source, options)
    row = partition.first_row
    read = _read_text if plan.file_format.is_text else _read_table
    for rows in read(plan, partition, columns, options, row):
        if rows.num_rows:
            yield rows
        row += rows.num_rows
    # Before reading for an early message, and after the last byte for the truth.
    check_unchanged(source, options)
    if row - partition.first_row != partition.num_rows:
        raise CorpusError(
            f"{partition.num_rows} rows were planned and {row - partition.first_row} were read.",
            plan.place(partition),
            "The file was written to while it was read. Run again when it is at rest.",
        )


def _read_text(
    plan: PartitionPlan,
    partition: Partition,
    columns: Sequence[str],
    storage_options: Mapping[str, Any] | None,
    first_row: int,
) -> Iterator[RawRows]:
    """Yield the records of a partition of a text file."""
    planned, file_format = plan.file_of(partition), plan.file_format
    is_csv = file_format.kind == "csv"
    parser = CsvParser(
        record_dialect(file_format),
        columns=column_positions(planned, columns) if is_csv else [0],
        max_row_bytes=file_format.max_row_bytes,
    )
    row = first_row
    for parsed in _parse_range(parser, partition, planned.read_from.url, storage_options):
        rows = RawRows(
            url=planned.file.url,
            first_row=row,
            num_columns=len(planned.columns) if is_csv else 1,
            cells=parsed.columns,
            start_byte=parsed.start_byte + partition.start,
            num_fields=parsed.num_fields,
            is_too_long=parsed.is_too_long,
            has_bytes=planned.copy is None,
        )
        row += rows.num_rows
        yield rows if is_csv else _fields_of_lines(rows, columns, file_format.kind)


def _read_table(
    plan: PartitionPlan,
    partition: Partition,
    columns: Sequence[str],
    storage_options: Mapping[str, Any] | None,
    first_row: int,
) -> Iterator[RawRows]:
    """Yield the rows of a partition of Parquet or Arrow."""
    planned = plan.file_of(partition)
    # A copy is of cells, whatever it was copied from.
    kind: Any = "arrow" if planned.copy is not None else plan.file_format.kind
    pieces = iter_batches(
        planned.read_from.url,
        kind,
        partition.start,
        partition.stop,
        columns or planned.columns[:1],  # rows without columns are still counted
        storage_options=storage_options,
    )
    row = first_row
    for cells in pieces:
        num_rows = len(cells[0])
        row_bytes = np.zeros(num_rows, np.int64)
        for column in cells:
            row_bytes += np.asarray(pc.binary_length(column))
        rows = RawRows(
            url=planned.file.url,
            first_row=row,
            num_columns=len(cells),
            cells=cells[: len(columns)],
            start_byte=np.zeros(num_rows, np.int64),
            num_fields=np.full(num_rows, len(cells), np.int32),
            is_too_long=row_bytes > plan.file_format.max_row_bytes,
            has_bytes=False,
        )
        row += rows.num_rows
        yield rows


def _fields_of_lines(rows: RawRows, columns: Sequence[str], kind: Kind | None) -> RawRows:
    """Turn records of one cell, a line, into the wanted fields."""
    if kind == "documents":
        fields = read_fields(rows.cells[0], [*columns, FAULT_FIELD])
        faults = fields.cells.pop().to_pylist()
        broken = {index: fault.decode() for index, fault in enumerate(faults) if fault}
        return replace(rows, cells=fields.cells, broken=broken)
    if kind == "json":
        fields = read_fields(rows.cells[0], columns)
        broken, is_blank = fields.broken, fields.is_blank
        # What is too long was not kept, so it is nothing that could be broken.
        is_blank &= ~rows.is_too_long
        return replace(rows, cells=fields.cells, broken=broken, is_blank=is_blank)
    labels, texts, broken = read_fasttext(rows.cells[0])
    by_name = {"label": labels, "text": texts}
    return replace(rows, cells=[by_name[name] for name in columns], broken=broken)


def check_columns(plan: PartitionPlan, columns: Sequence[str]) -> None:
    """Check that the files of a plan have columns.

    Parameters
    ----------
    plan : PartitionPlan
        Of a corpus. A field of JSON may be absent in any row: some file must have shown it.
    columns : sequence of str
        Names.

    Raises
    ------
    ColumnError
        If a name is missing, or stands in a header twice.
    """
    if plan.file_format.kind != "json":
        for planned in plan.files:
            column_positions(planned, columns)
        return
    known = {name: None for planned in plan.files for name in planned.columns}
    roots = {name.partition(".")[0] for name in known}
    for name in columns:
        if name not in known and name.partition(".")[0] not in roots:
            raise ColumnError(
                f"No field {name!r} is in the first rows.",
                plan.files[0].file.url,
                suggestion(name, known),
            )


def column_positions(planned: PlannedFile, columns: Sequence[str]) -> list[int]:
    """Return the positions of columns in a file, by name; as `header.column_positions`."""
    return header.column_positions(planned.columns, columns, planned.file.url)


def _parse_range(
    parser: CsvParser,
    partition: Partition,
    url: str,
    storage_options: Mapping[str, Any] | None,
) -> Iterator[ParsedRows]:
    left = partition.stop - partition.start
    with open_file(url, storage_options) as stream:
        stream.seek(partition.start)
        while left:
            data = stream.read(min(_PIECE_BYTES, left))
            if not data:
                raise CorpusError(
                    f"The file ends {left} bytes before the end of the partition.",
                    Location(url, byte=partition.stop - left),
                    "It was cut while it was read. Run again when it is at rest.",
                )
            left -= len(data)
            yield parser.feed(data)
    yield parser.finish()
