"""Parquet and Arrow files -> PartitionPlan: ranges of row groups, or of record batches.

A row group is read by one task. Where some are much larger than a partition, the file is copied
into the cache first, as cells in small record batches.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from lancetnic_dask.corpus.arrow_files import iter_batches, read_units, write_pieces
from lancetnic_dask.corpus.plan import CORPUS_VERSION, Partition, PartitionPlan, PlannedFile
from lancetnic_dask.corpus.sources import list_files
from lancetnic_dask.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from lancetnic_dask.corpus.arrow_files import Unit
    from lancetnic_dask.corpus.formats import FileFormat
    from lancetnic_dask.corpus.plan import MapTasks
    from lancetnic_dask.corpus.sources import SourceFile

__all__ = ["copied_piece_bytes", "partitions_of", "plan_tables"]

TableKind = Literal["parquet", "arrow"]

COPY_VERSION = 1
# A unit so many times as large as a partition is cut: smaller ones are partitions as they are.
_LARGE = 2
_PIECE_BYTES = 1 << 20


def plan_tables(
    files: Sequence[SourceFile],
    file_format: FileFormat,
    *,
    copies: Path | None,
    storage_options: Mapping[str, Any] | None,
    map_tasks: MapTasks,
    advance: Callable[[int], object] | None,
) -> PartitionPlan:
    """Cut tables into partitions; as `plan_files`, for files of Parquet or Arrow."""
    kind = cast("TableKind", file_format.kind)
    items = ((file.url, kind, storage_options) for file in files)
    planned: list[PlannedFile] = []
    partitions: list[Partition] = []
    for file, found in zip(files, map_tasks(read_units, items, name="plan"), strict=True):
        columns, units = found.columns, found.units
        one = PlannedFile(file, columns, sum(unit.num_rows for unit in units))
        is_large = any(unit.num_bytes > _LARGE * file_format.partition_bytes for unit in units)
        if is_large and copies is not None:
            piece_bytes = copied_piece_bytes(file_format.partition_bytes)
            task = (file, kind, columns, len(units), copies, storage_options, piece_bytes)
            copy, units = next(iter(map_tasks(copy_cells, [task], name="unpack")))
            one = replace(one, copy=copy)
        partitions += partitions_of(len(planned), units, file_format.partition_bytes)
        planned.append(one)
        if advance is not None:
            advance(file.size)
    if not partitions:
        raise CorpusError(
            "The corpus has no rows: every table is empty.",
            files[0].url,
            "Check that this is the right file.",
        )
    return PartitionPlan(file_format, tuple(planned), tuple(partitions))


def copied_piece_bytes(partition_bytes: int) -> int:
    """Return how large the record batches of a copy are, so that they make partitions."""
    return max(1, min(_PIECE_BYTES, partition_bytes // 4))


def partitions_of(file_index: int, units: Sequence[Unit], partition_bytes: int) -> list[Partition]:
    """Join units of a file to partitions of about `partition_bytes`."""
    partitions = []
    start, first_row, num_rows, num_bytes = 0, 0, 0, 0
    for at, unit in enumerate(units):
        num_rows += unit.num_rows
        num_bytes += unit.num_bytes
        is_last = at + 1 == len(units)
        next_bytes = 0 if is_last else units[at + 1].num_bytes
        if num_rows and (is_last or num_bytes + next_bytes > partition_bytes):
            partitions.append(Partition(file_index, start, at + 1, first_row, num_rows))
            first_row += num_rows
            start, num_rows, num_bytes = at + 1, 0, 0
    return partitions


def copy_cells(
    file: SourceFile,
    kind: TableKind,
    columns: Sequence[str],
    num_units: int,
    copies: Path,
    storage_options: Mapping[str, Any] | None,
    piece_bytes: int,
) -> tuple[SourceFile, tuple[Unit, ...]]:
    """Copy a table as cells in small record batches, or find the copy (a worker's task)."""
    key = json.dumps([COPY_VERSION, CORPUS_VERSION, asdict(file), kind, list(columns), piece_bytes])
    digest = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    target = copies / f"{digest}.arrow"
    if not target.exists():
        pieces = iter_batches(
            file.url, kind, 0, num_units, columns, storage_options=storage_options
        )
        write_pieces(pieces, columns, target, piece_bytes=piece_bytes)
    copy = list_files(target)[0]
    return copy, read_units(copy.url, "arrow").units
