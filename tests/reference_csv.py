"""Slow twin of the CSV kernels: rows and where they start, by Python's csv module."""

from __future__ import annotations

import csv
import io
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lancetnic_dask.corpus.dialect import CsvDialect

__all__ = ["Record", "read_records"]


@dataclass(frozen=True)
class Record:
    """A row: offset of its first byte, and its cells."""

    start_byte: int
    cells: list[bytes]


def read_records(data: bytes, dialect: CsvDialect) -> list[Record]:
    """Read all rows; blank ones, for which csv gives [], are left out.

    Latin-1 makes one character of each byte. A row starts where a physical line starts, and
    the reader takes lines one by one, so the line that it asks for first is the row's start.
    """
    lines = io.StringIO(data.decode("latin-1"), newline="").readlines()
    line_starts = [0]
    for line in lines:
        line_starts.append(line_starts[-1] + len(line))
    reader = csv.reader(
        lines,
        # The data are characters up to U+00FF: this one is never met.
        delimiter=dialect.delimiter or "\u0100",
        quotechar=dialect.quotechar,
        quoting=csv.QUOTE_NONE if dialect.quotechar is None else csv.QUOTE_MINIMAL,
        escapechar=dialect.escapechar,
        doublequote=dialect.doublequote,
    )
    records = []
    with _unlimited_fields():
        first_line = 0
        for cells in reader:
            if cells:
                encoded = [cell.encode("latin-1") for cell in cells]
                records.append(Record(line_starts[first_line], encoded))
            first_line = reader.line_num
    return records


@contextmanager
def _unlimited_fields() -> Iterator[None]:
    """Lift csv's limit of 131,072 characters a field, which is global, and put it back."""
    limit = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(limit)
