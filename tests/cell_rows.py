"""Raw rows made of cells, for the tests of what casts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lancetnic_dask.corpus.readers import RawRows
from lancetnic_dask.errors import Location

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["place", "raw_rows", "string_column"]


def raw_rows(
    rows: Sequence[Sequence[bytes]],
    *,
    num_fields: Sequence[int] | None = None,
    too_long: Sequence[int] = (),
    broken: Mapping[int, str] | None = None,
    blank: Sequence[int] | None = None,
    has_bytes: bool = True,
) -> RawRows:
    """Make the rows 101, 102 … of a file, 100 bytes each."""
    num_columns = len(rows[0])
    indices = np.arange(len(rows))
    return RawRows(
        url="a.csv",
        first_row=100,
        num_columns=num_columns,
        cells=[pa.array(column, pa.large_binary()) for column in zip(*rows, strict=True)],
        start_byte=np.arange(len(rows), dtype=np.int64) * 100 + 5000,
        num_fields=np.array(num_fields or [num_columns] * len(rows), np.int32),
        is_too_long=np.isin(indices, too_long),
        broken=broken or {},
        is_blank=None if blank is None else np.isin(indices, blank),
        has_bytes=has_bytes,
    )


def string_column(cells: Sequence[str]) -> pa.Array:
    """Make a decoded column."""
    return pa.array(cells, pa.large_string())


def place(index: int, column: str | None = None) -> Location:
    """Return where a row of `raw_rows` is."""
    return Location("a.csv", 101 + index, column, 5000 + 100 * index)
