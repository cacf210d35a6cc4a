"""One partition -> batches of raw cells, in bounded memory.

Cells are bytes as they stand in the file, unquoted; what they mean is decided in ``schema``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lancetnic_dask.corpus.csv_parse import CsvParser, ParsedRows
from lancetnic_dask.corpus.sources import check_unchanged, open_file
from lancetnic_dask.errors import ColumnError, CorpusError, Location, quoted, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    import pyarrow as pa

    from lancetnic_dask.corpus.plan import Partition, PartitionPlan, PlannedFile

__all__ = ["RawRows", "column_positions", "iter_rows"]

_PIECE_BYTES = 4 << 20
_SEPARATORS = (";", "\t", "|", ",")


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
    """

    url: str
    first_row: int
    num_columns: int
    cells: list[pa.Array]
    start_byte: np.ndarray
    num_fields: np.ndarray
    is_too_long: np.ndarray

    @property
    def num_rows(self) -> int:
        """Records in this batch."""
        return len(self.start_byte)

    def location(self, index: int, column: str | None = None) -> Location:
        """Return the place of one record for a message."""
        return Location(self.url, self.first_row + index + 1, column, int(self.start_byte[index]))


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
    check_unchanged(planned.file, storage_options)
    parser = CsvParser(
        plan.csv_format.dialect,
        columns=column_positions(planned, columns),
        max_row_bytes=plan.csv_format.max_row_bytes,
    )
    row = partition.first_row
    for parsed in _parse_range(parser, partition, planned.file.url, storage_options):
        num_rows = len(parsed.start_byte)
        if num_rows:
            yield RawRows(
                url=planned.file.url,
                first_row=row,
                num_columns=len(planned.columns),
                cells=parsed.columns,
                start_byte=parsed.start_byte + partition.start_byte,
                num_fields=parsed.num_fields,
                is_too_long=parsed.is_too_long,
            )
        row += num_rows
    # Before reading for an early message, and after the last byte for the truth.
    check_unchanged(planned.file, storage_options)
    if row - partition.first_row != partition.num_rows:
        raise CorpusError(
            f"{partition.num_rows} rows were planned and {row - partition.first_row} were read.",
            Location(planned.file.url, byte=partition.start_byte),
            "The file was written to while it was read. Run again when it is at rest.",
        )


def column_positions(planned: PlannedFile, columns: Sequence[str]) -> list[int]:
    """Return the positions of columns in a file, by name.

    Parameters
    ----------
    planned : PlannedFile
        The file; its columns may stand in another order than those of its neighbours.
    columns : sequence of str
        Names.

    Returns
    -------
    list of int
        Positions from 0.

    Raises
    ------
    ColumnError
        If a name is missing, or stands in the header twice.
    """
    header = planned.columns
    for name in columns:
        count = header.count(name)
        if count == 1:
            continue
        if count > 1:
            what = f"The file has {count} columns named {name!r}."
            fix = "Rename one of them."
        else:
            what = f"There is no column {name!r}."
            fix = suggestion(name, header)
            separator = next((one for one in _SEPARATORS if one in header[0]), None)
            if len(header) == 1 and separator is not None:
                what += f" The file has one column, named {quoted(header[0])}."
                fix = f"Is the separator {separator!r}? Pass delimiter={separator!r}."
        raise ColumnError(what, planned.file.url, fix)
    return [header.index(name) for name in columns]


def _parse_range(
    parser: CsvParser,
    partition: Partition,
    url: str,
    storage_options: Mapping[str, Any] | None,
) -> Iterator[ParsedRows]:
    left = partition.stop_byte - partition.start_byte
    with open_file(url, storage_options) as stream:
        stream.seek(partition.start_byte)
        while left:
            data = stream.read(min(_PIECE_BYTES, left))
            if not data:
                raise CorpusError(
                    f"The file ends {left} bytes before the end of the partition.",
                    Location(url, byte=partition.stop_byte - left),
                    "It was cut while it was read. Run again when it is at rest.",
                )
            left -= len(data)
            yield parser.feed(data)
    yield parser.finish()
