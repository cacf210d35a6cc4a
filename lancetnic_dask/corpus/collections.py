"""pandas and Dask collections -> cells in the cache, as an Arrow file for each partition.

A collection has no files, its rows are not known, and it may compute differently twice. So it is
computed once, and what came is kept; a Dask collection that came out differently before is an
error, for nobody could say what a model was trained on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lancetnic_dask.corpus.arrow_files import read_units, write_pieces
from lancetnic_dask.corpus.formats import FileFormat
from lancetnic_dask.corpus.plan import Partition, PartitionPlan, PlannedFile
from lancetnic_dask.corpus.plan_table import copied_piece_bytes, partitions_of
from lancetnic_dask.corpus.sources import SourceFile, list_files
from lancetnic_dask.corpus.typed_cells import frame_table
from lancetnic_dask.corpus.whole_file import explain_cache_errors, owner_tag, replace_file
from lancetnic_dask.errors import CorpusError, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa

__all__ = [
    "StagedPartition",
    "check_recomputed",
    "collection_kind",
    "collection_token",
    "plan_frame",
    "plan_staged",
    "stage_partition",
]

CollectionKind = Literal["pandas", "dask", "bag"]

_FORMAT_VERSION = 1
# Rows of a frame that are turned into cells at a time.
_STEP_ROWS = 10_000
_NAMES = {"pandas": "pandas DataFrame", "dask": "Dask DataFrame", "bag": "Dask Bag"}


@dataclass(frozen=True)
class StagedPartition:
    """A partition of a collection that was computed and kept.

    Parameters
    ----------
    path : str
        The Arrow file of its cells.
    num_rows : int
        Rows.
    digest : str
        Of the cells: 32 hexadecimal digits.
    """

    path: str
    num_rows: int
    digest: str


def collection_kind(source: object) -> CollectionKind | None:
    """Tell what kind of collection an object is; None if it is none. Nothing is imported."""
    kind = type(source)
    for one in kind.__mro__:
        package, name = one.__module__, one.__name__
        if package.partition(".")[0] == "pandas" and name == "DataFrame":
            return "pandas"
        if package.startswith(("dask.dataframe", "dask_expr")) and name == "DataFrame":
            return "dask"
        if package.startswith("dask.bag") and name == "Bag":
            return "bag"
    return None


def collection_token(source: Any, columns: Sequence[str]) -> str:
    """Return Dask's name for what a collection computes, and which columns of it."""
    from dask.base import tokenize

    return str(tokenize(source, list(columns)))


def stage_partition(
    rows: Any, columns: Sequence[str], folder: Path, what: str, piece_bytes: int
) -> StagedPartition:
    """Keep the cells of one computed partition (a worker's task).

    Parameters
    ----------
    rows : pandas.DataFrame, or iterable of dict or tuple
        A partition of a DataFrame or a Bag.
    columns : sequence of str
        What is kept; the values of a tuple are those of the columns in this order.
    folder : Path
        Where; a file is named for what it holds.
    what : str
        The collection, for messages.
    piece_bytes : int
        Bytes of a record batch, roughly.

    Returns
    -------
    StagedPartition
        Where it is.

    Raises
    ------
    ColumnError, CorpusError
        If a column is missing or holds lists, or an element of a Bag is neither a dict nor a
        tuple that fits.
    CacheError
        If it can't be written.
    """
    partial = folder / f"staged.{owner_tag()}.partial"
    try:
        written = write_pieces(
            _pieces(rows, columns, what), columns, partial, piece_bytes=piece_bytes
        )
        path = folder / f"{written.digest}-{piece_bytes}.arrow"
        with explain_cache_errors(folder):
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return StagedPartition(str(path), written.num_rows, written.digest)


def plan_frame(
    frame: pd.DataFrame, columns: Sequence[str], copies: Path, *, partition_bytes: int
) -> PartitionPlan:
    """Keep the cells of a pandas DataFrame, and cut them into partitions.

    Parameters
    ----------
    frame : pandas.DataFrame
        The corpus.
    columns : sequence of str
        What of it is kept.
    copies : Path
        Where.
    partition_bytes : int
        As in `FileFormat`.

    Returns
    -------
    PartitionPlan
        Of one file, which is named ``DataFrame``.

    Raises
    ------
    ColumnError, CorpusError, CacheError
        As `stage_partition`; and if there is no row.
    """
    piece_bytes = copied_piece_bytes(partition_bytes)
    staged = stage_partition(frame, columns, copies, _NAMES["pandas"], piece_bytes)
    return plan_staged([staged], columns, kind="pandas", partition_bytes=partition_bytes)


def plan_staged(
    staged: Sequence[StagedPartition],
    columns: Sequence[str],
    *,
    kind: CollectionKind,
    partition_bytes: int,
) -> PartitionPlan:
    """Return the plan of a collection whose partitions are kept.

    Raises
    ------
    CorpusError
        If there is no row.
    """
    what = _NAMES[kind]
    planned: list[PlannedFile] = []
    partitions: list[Partition] = []
    for number, one in enumerate(staged):
        copy = list_files(one.path)[0]
        name = what if kind == "pandas" else f"{what}, partition {number}"
        file = SourceFile(name, copy.size, one.digest)
        partitions += partitions_of(
            len(planned), read_units(one.path, "arrow").units, partition_bytes
        )
        planned.append(PlannedFile(file, tuple(columns), one.num_rows, copy))
    if not partitions:
        raise CorpusError(
            "The corpus has no rows.", what, "Check what it is made of; it was computed."
        )
    file_format = FileFormat(kind="arrow", partition_bytes=partition_bytes)
    return PartitionPlan(file_format, tuple(planned), tuple(partitions))


def check_recomputed(
    staged: Sequence[StagedPartition], token: str, folder: Path, *, kind: CollectionKind
) -> None:
    """Compare what a collection gave with what it gave before, and note it.

    Parameters
    ----------
    staged : sequence of StagedPartition
        What it gave now.
    token : str
        Its name, by `collection_token`.
    folder : Path
        Where is noted what it gave before.
    kind : {'dask', 'bag'}
        For messages.

    Raises
    ------
    CorpusError
        If it is not the same: a model would be trained on rows that nobody can get again.
    CacheError
        If the note can't be written.
    """
    path = folder / f"{token}.computed.json"
    now = [[one.num_rows, one.digest] for one in staged]
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
        before = note["partitions"] if note["format_version"] == _FORMAT_VERSION else None
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        before = None
    if before is not None and before != now:
        numbers = [at for at, one in enumerate(now) if at >= len(before) or before[at] != one]
        number = numbers[0] if numbers else len(now)
        raise CorpusError(
            f"The {_NAMES[kind]} computes differently each time: partition {number} gave other "
            "rows than in an earlier run.",
            None,
            "Make what it does repeatable (seeds, order, files that stay), or write it to a file "
            f"and pass that. If its source was changed on purpose, delete {path}.",
        )
    with explain_cache_errors(folder), replace_file(path) as stream:
        stream.write(json.dumps({"format_version": _FORMAT_VERSION, "partitions": now}).encode())


def _pieces(rows: Any, columns: Sequence[str], what: str) -> Iterator[list[pa.LargeBinaryArray]]:
    """Yield the cells of some rows at a time."""
    if collection_kind(rows) == "pandas":
        for start in range(0, len(rows), _STEP_ROWS):
            table = frame_table(rows.iloc[start : start + _STEP_ROWS], columns, what)
            yield [table.column(name).combine_chunks() for name in columns]
        if not len(rows):  # a column that is missing is told of all the same
            frame_table(rows, columns, what)
        return
    for frame in _bag_frames(rows, columns, what):
        table = frame_table(frame, columns, what)
        yield [table.column(name).combine_chunks() for name in columns]


def _bag_frames(rows: Iterable[Any], columns: Sequence[str], what: str) -> Iterator[pd.DataFrame]:
    """Yield the elements of a Bag as frames of the columns."""
    import pandas as pd

    taken: list[list[Any]] = []
    for row in rows:
        if isinstance(row, dict):
            taken.append([row.get(name) for name in columns])
        elif isinstance(row, (tuple, list)) and len(row) == len(columns):
            taken.append(list(row))
        else:
            listed = ", ".join(columns)
            raise CorpusError(
                f"An element is {quoted(row)}, and neither a dict nor a tuple of {listed}.",
                what,
                "Map the Bag to dicts with these keys.",
            )
        if len(taken) == _STEP_ROWS:
            yield pd.DataFrame(taken, columns=list(columns), dtype=object)
            taken = []
    if taken:
        yield pd.DataFrame(taken, columns=list(columns), dtype=object)
