"""PartitionPlan -> a lazily partitioned Dask DataFrame of text columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lancetnic_dask.corpus.readers import check_columns, iter_rows
from lancetnic_dask.corpus.schema import decode_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import dask.dataframe as dd
    import pandas as pd

    from lancetnic_dask.corpus.plan import PartitionPlan

__all__ = ["dask_frame"]


def dask_frame(
    plan: PartitionPlan, columns: Sequence[str], storage_options: Mapping[str, Any] | None
) -> dd.DataFrame:
    """Return the records of a plan as a lazy Dask DataFrame, one partition for each of its own.

    Parameters
    ----------
    plan : PartitionPlan
        What is read.
    columns : sequence of str
        Names, each once.
    storage_options : mapping or None
        Options of the fsspec file system.

    Returns
    -------
    dask.dataframe.DataFrame
        String columns; see `Corpus.to_dask_dataframe`.

    Raises
    ------
    ColumnError
        If a file lacks one of the columns.
    """
    import dask.dataframe as dd

    check_columns(plan, columns)
    frame: dd.DataFrame = dd.from_map(
        _read_frame,
        [plan.only(partition) for partition in plan.partitions],
        columns=columns,
        storage_options=storage_options,
        meta=_to_pandas(_empty_table(columns)),
        label="lancetnic-read",
        enforce_metadata=False,
    )
    return frame


def _read_frame(
    part: PartitionPlan, columns: Sequence[str], storage_options: Mapping[str, Any] | None
) -> pd.DataFrame:
    """Read one partition as pandas (a worker's task)."""
    import pandas as pd

    tables = [
        decode_rows(
            rows,
            columns,
            encoding=part.file_format.cell_encoding,
            encoding_errors=part.file_format.encoding_errors,
        )
        for rows in iter_rows(part, part.partitions[0], columns, storage_options)
    ]
    if not columns:  # an Arrow table without columns has no rows
        return pd.DataFrame(index=pd.RangeIndex(part.num_rows))
    return _to_pandas(pa.concat_tables([_empty_table(columns), *tables]))


def _empty_table(columns: Sequence[str]) -> pa.Table:
    return pa.table({name: pa.array([], pa.large_string()) for name in columns})


def _to_pandas(table: pa.Table) -> pd.DataFrame:
    import pandas as pd

    frame: pd.DataFrame = table.to_pandas(types_mapper=lambda _: pd.StringDtype("pyarrow"))
    return frame
