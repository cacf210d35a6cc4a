"""Plain text files -> PartitionPlan: byte ranges that start and end on a record boundary.

Each block of a file is scanned once, wherever it lies; what the blocks mean is known only when
they are put in order (``csv_scan``). A remote file is therefore read once more than tokenizing
needs it; the plan is kept, so a second run reads it once.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lancetnic_dask.corpus.csv_scan import BlockScan, cut_partitions, scan_block
from lancetnic_dask.corpus.dialect import LINES, CsvDialect, transition_table
from lancetnic_dask.corpus.heads import read_text_columns
from lancetnic_dask.corpus.plan import Partition, PartitionPlan, PlannedFile
from lancetnic_dask.corpus.sources import open_file
from lancetnic_dask.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lancetnic_dask.corpus.formats import FileFormat
    from lancetnic_dask.corpus.plan import MapTasks

__all__ = ["plan_text", "record_dialect", "scan_share"]

_FIRST_READ_BYTES = 1 << 16

logger = logging.getLogger(__name__)


def record_dialect(file_format: FileFormat) -> CsvDialect:
    """Return how records are told apart: those of JSON and fastText are lines."""
    return file_format.dialect if file_format.kind == "csv" else LINES


def plan_text(
    files: Sequence[PlannedFile],
    file_format: FileFormat,
    *,
    storage_options: Mapping[str, Any] | None = None,
    map_tasks: MapTasks,
    advance: Callable[[int], object] | None = None,
) -> PartitionPlan:
    """Cut plain text files into partitions of whole records.

    The cut depends on the bytes and on `partition_bytes` alone, not on who scans them.

    Parameters
    ----------
    files : sequence of PlannedFile
        The corpus, in order; columns and rows are found here.
    file_format : FileFormat
        How they are read; its kind is known.
    storage_options : mapping or None, default=None
        Options of the fsspec file system.
    map_tasks : MapTasks
        Runs the scans.
    advance : callable or None, default=None
        Told the bytes of each scan when it is done; of a copied file fewer, see `scan_share`.

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
        If a header is not in the given encoding.
    """
    heads = []
    for planned in files:
        head = _read_columns(planned, file_format, storage_options)
        if head is None:
            logger.info("%s is empty and is left out", planned.file.url)
        else:
            heads.append((planned, *head))
    blocks = [
        (index, start, min(start + file_format.partition_bytes, planned.read_from.size))
        for index, (planned, _, data_start) in enumerate(heads)
        for start in range(data_start, planned.read_from.size, file_format.partition_bytes)
    ]
    dialect = record_dialect(file_format)
    tasks = (
        (
            heads[index][0].read_from.url,
            start,
            stop,
            dialect,
            _options(heads[index][0], storage_options),
        )
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
            planned = heads[index][0]
            advance(scan_share(planned) * (stop - start) // planned.read_from.size)
    counted, partitions = [], []
    for index, (planned, columns, _) in enumerate(heads):
        first_row = 0
        stop_byte = planned.read_from.size
        for cut in cut_partitions(scans[index], starts[index], stop_byte=stop_byte):
            partitions.append(
                Partition(index, cut.start_byte, cut.stop_byte, first_row, cut.num_rows)
            )
            first_row += cut.num_rows
        counted.append(replace(planned, columns=columns, num_rows=first_row))
    if not partitions:
        names = (name for _, columns, _ in heads for name in columns)
        is_quote_open = any("\n" in name or "\r" in name for name in names)
        raise CorpusError(
            "The corpus has no rows: "
            + ("every file is empty." if not heads else "there is nothing below the header."),
            files[0].file.url,
            "Check that this is the right file"
            + (", and that quotes in its first line are closed." if is_quote_open else "."),
        )
    return PartitionPlan(file_format, tuple(counted), tuple(partitions))


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


def scan_share(planned: PlannedFile) -> int:
    """Return how many of a file's bytes count as the work of scanning, and not of copying it."""
    return planned.file.size // (1 if planned.copy is None else 2)


def _options(
    planned: PlannedFile, storage_options: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """Return the options of the file system that the file is read from."""
    return storage_options if planned.copy is None else None


def _read_columns(
    planned: PlannedFile, file_format: FileFormat, storage_options: Mapping[str, Any] | None
) -> tuple[tuple[str, ...], int] | None:
    options = _options(planned, storage_options)
    with open_file(planned.read_from.url, options) as stream:
        pieces: Iterator[bytes] = iter(lambda: stream.read(_FIRST_READ_BYTES), b"")
        return read_text_columns(pieces, planned.file.url, file_format)
