"""Shard + split -> term counts, label counts and moments of the training rows.

Everything is summed in the order of the partitions, so the result doesn't depend on which
worker was faster.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lancetnic_dask.corpus.whole_file import explain_cache_errors, replace_file
from lancetnic_dask.features.build import ShardRecipe, obtain_shard
from lancetnic_dask.features.moments import Moments
from lancetnic_dask.features.split import is_validation
from lancetnic_dask.jit import kernel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from lancetnic_dask.corpus.plan import PartitionPlan
    from lancetnic_dask.corpus.schema import SetAside
    from lancetnic_dask.features.cache import ShardCache
    from lancetnic_dask.features.shard import TokenShard
    from lancetnic_dask.settings import SplitSettings

__all__ = ["PartitionCounts", "count_partition", "count_terms", "write_counts"]

COUNTS_SCHEMA = pa.schema(
    [
        ("term", pa.string()),
        ("term_frequency", pa.int64()),
        ("document_frequency", pa.int64()),
    ]
)
# Merging 64 lists of 200,000 terms took 27 MiB so; with 1 MiB it took 88, and Arrow kept 250.
_BATCH_BYTES = 1 << 18


@dataclass(frozen=True)
class PartitionCounts:
    """What the client needs to know of a partition.

    Parameters
    ----------
    num_training, num_validation : int
        Rows on each side of the split.
    training_labels, validation_labels : Counter of str
        Rows by label.
    moments : Moments
        Of the training rows.
    set_aside : tuple of SetAside
        Rows that are on neither side.
    num_replaced : int, default=0
        Characters that were no text and became U+FFFD.
    num_entries : int, default=0
        Pairs of a training row and a term in it: entries of the encoded rows, at most. 0 where
        terms are not counted.
    """

    num_training: int
    num_validation: int
    training_labels: Counter[str]
    validation_labels: Counter[str]
    moments: Moments
    set_aside: tuple[SetAside, ...] = field(default=())
    num_replaced: int = 0
    num_entries: int = 0


def validation_rows(shard: TokenShard, split: SplitSettings | None) -> np.ndarray:
    """Return which rows validate, bool (num_rows,); none if there is no split."""
    if split is None:
        return np.zeros(shard.num_rows, dtype=bool)
    return is_validation(
        shard.row_hash, split_ratio=split.split_ratio, random_state=split.random_state
    )


def count_partition(
    part: PartitionPlan,
    recipe: ShardRecipe,
    split: SplitSettings | None,
    storage_options: Mapping[str, Any] | None,
    cache: ShardCache | None,
    counts_path: Path | None,
) -> PartitionCounts:
    """Make (or find) the shard of a partition and count its training rows (a worker's task).

    Parameters
    ----------
    part, recipe, storage_options, cache
        As in `obtain_shard`.
    split : SplitSettings or None
        Which rows validate; None means none of them.
    counts_path : Path or None
        Where the term counts are written; None for a corpus that only validates.

    Returns
    -------
    PartitionCounts
        The few numbers that travel to the client.
    """
    shard = obtain_shard(part, recipe, storage_options, cache)
    validates = validation_rows(shard, split)
    num_entries = 0
    if counts_path is not None:
        for index, text in enumerate(shard.texts):
            term_frequency, document_frequency = count_terms(
                text.codes, text.row_offsets, ~validates, len(text.terms)
            )
            num_entries += int(document_frequency.sum())
            write_counts(
                counts_path.with_name(f"{counts_path.name}.{index}.arrow"),
                text.terms,
                term_frequency,
                document_frequency,
            )
    return PartitionCounts(
        num_training=int((~validates).sum()),
        num_validation=int(validates.sum()),
        training_labels=_count_labels(shard, ~validates),
        validation_labels=_count_labels(shard, validates),
        moments=Moments.of(shard.numeric[~validates]),
        set_aside=shard.set_aside,
        num_replaced=shard.num_replaced,
        num_entries=num_entries,
    )


@kernel()
def count_terms(
    codes: np.ndarray, row_offsets: np.ndarray, counts_row: np.ndarray, num_terms: int
) -> tuple[np.ndarray, np.ndarray]:
    """Count occurrences of each term, and rows that hold it.

    Parameters
    ----------
    codes : ndarray of shape (num_tokens,), dtype=int32
        Terms in reading order.
    row_offsets : ndarray of shape (num_rows + 1,), dtype=int64
        Where each row's codes start.
    counts_row : ndarray of shape (num_rows,), dtype=bool
        Rows that count.
    num_terms : int
        Codes are below it.

    Returns
    -------
    term_frequency, document_frequency : ndarray of shape (num_terms,), dtype=int64
        Occurrences, and rows.
    """
    term_frequency = np.zeros(num_terms, np.int64)
    document_frequency = np.zeros(num_terms, np.int64)
    last_row = np.full(num_terms, -1, np.int64)
    for row in range(len(row_offsets) - 1):
        if not counts_row[row]:
            continue
        for position in range(row_offsets[row], row_offsets[row + 1]):
            code = codes[position]
            term_frequency[code] += 1
            if last_row[code] != row:
                last_row[code] = row
                document_frequency[code] += 1
    return term_frequency, document_frequency


def write_counts(
    path: Path, terms: pa.Array, term_frequency: np.ndarray, document_frequency: np.ndarray
) -> None:
    """Write sorted terms and their counts; terms of no training row are left out.

    Raises
    ------
    CacheError
        If the disk is full or the folder can't be written.
    """
    occurs = document_frequency > 0
    table = pa.table(
        [
            terms.filter(pa.array(occurs)),
            pa.array(term_frequency[occurs]),
            pa.array(document_frequency[occurs]),
        ],
        schema=COUNTS_SCHEMA,
    )
    write_table([table], path)


def write_table(tables: Iterable[pa.Table], path: Path) -> Path:
    """Write tables of counts as one file, whole or not at all; see `write_counts`.

    They are cut and joined into batches that a merge of many lists can hold one of each.
    """
    with (
        explain_cache_errors(path.parent),
        replace_file(path, is_kept=False) as stream,
        pa.ipc.new_file(stream, COUNTS_SCHEMA) as writer,
    ):
        gathered: list[pa.Table] = []
        for table in tables:
            gathered.append(table)
            if sum(part.nbytes for part in gathered) >= _BATCH_BYTES:
                _write_batches(writer, gathered)
                gathered = []
        _write_batches(writer, gathered)
    return path


def _write_batches(writer: pa.ipc.RecordBatchFileWriter, tables: list[pa.Table]) -> None:
    if tables:
        table = pa.concat_tables(tables).combine_chunks()
        num_batches = -(-table.nbytes // _BATCH_BYTES)
        writer.write_table(table, max_chunksize=max(1, len(table) // max(1, num_batches)))


def _count_labels(shard: TokenShard, rows: np.ndarray) -> Counter[str]:
    if not shard.label_values:
        return Counter()
    counts = np.bincount(shard.label_codes[rows], minlength=len(shard.label_values))
    return Counter(
        {
            label: int(count)
            for label, count in zip(shard.label_values, counts, strict=True)
            if count
        }
    )
