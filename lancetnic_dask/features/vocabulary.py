"""Sorted term counts of all partitions -> the terms that become columns.

The lists are merged by range of the sorted terms: exact, in memory that neither the corpus nor
its vocabulary sets, and in an order that doesn't depend on the workers.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancetnic_dask.errors import CorpusError, SettingError
from lancetnic_dask.features.counts import COUNTS_SCHEMA, write_table
from lancetnic_dask.features.terms import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from lancetnic_dask.corpus.plan import MapTasks
    from lancetnic_dask.settings import FeatureSettings

__all__ = ["build_vocabulary", "count_merged_lists", "iter_merged_counts"]

# Lists that one merge reads at once: each costs an open file and a batch of 256 KiB.
_FAN_IN = 64
# Entries that are gathered before the most frequent are chosen among them and those kept so far.
_GATHERED_TERMS = 1 << 18


def build_vocabulary(
    paths: Sequence[Path],
    settings: FeatureSettings,
    *,
    column: str,
    num_training: int,
    max_features: int,
    map_tasks: MapTasks,
    advance: Callable[[int], object] | None = None,
) -> Vocabulary:
    """Choose the terms of one text column that become model features.

    Terms outside `min_df` and `max_df` are dropped first, then the most frequent ones win; ties
    are broken by the term itself. The result doesn't depend on how the corpus was cut.

    Parameters
    ----------
    paths : sequence of Path
        Files of sorted counts (`counts.write_counts`), one for each partition, in order.
    settings : FeatureSettings
        `min_df` and `max_df` are read here, the others for messages.
    column : str
        Name of the column, for messages.
    num_training : int
        Training rows.
    max_features : int
        Terms kept at most.
    map_tasks : MapTasks
        Runs merges of many lists.
    advance : callable or None, default=None
        Told the lists that have been merged, `count_merged_lists` in all.

    Returns
    -------
    Vocabulary
        At least one term.

    Raises
    ------
    CorpusError
        If the training rows hold no term.
    SettingError
        If `min_df` and `max_df` leave none.

    Notes
    -----
    O(T log S) time for T entries in S lists; memory for some 30 MiB of lists, a quarter of a
    million terms and the vocabulary.
    scikit-learn 1.9 sorts unstably at the cut: among equal counts it keeps others, and which
    ones differs between CPUs.
    """
    low, high = _frequency_bounds(settings, num_training)
    chosen = _MostFrequent(max_features)
    num_distinct = 0
    for merged in iter_merged_counts(_merge_many(paths, map_tasks, advance), advance):
        num_distinct += len(merged)
        frequency = merged["document_frequency"].to_numpy()
        chosen.add(merged.filter(pa.array((frequency >= low) & (frequency <= high))))
    kept = chosen.finish()
    if not num_distinct:
        raise _no_terms(settings, column, num_training)
    if not len(kept):
        raise SettingError(
            f"No term of column {column!r} is left by min_df={settings.min_df!r} and "
            f"max_df={settings.max_df!r} in {num_training} training rows.",
            None,
            "Pass a lower min_df or a higher max_df.",
        )
    return Vocabulary(
        terms=kept["term"].combine_chunks(),
        document_frequency=kept["document_frequency"].to_numpy(),
        num_training=num_training,
        num_distinct=num_distinct,
    )


def count_merged_lists(num_lists: int) -> int:
    """Return how many lists are read in all to merge so many into one.

    Examples
    --------
    >>> count_merged_lists(64), count_merged_lists(65)
    (64, 67)
    """
    total = num_lists
    while num_lists > _FAN_IN:
        num_lists = -(-num_lists // _FAN_IN)
        total += num_lists
    return total


def iter_merged_counts(
    paths: Sequence[Path], advance: Callable[[int], object] | None = None
) -> Iterator[pa.Table]:
    """Yield the summed counts of sorted lists, range by range of the terms.

    One batch of each list is in memory at a time, read and not mapped: the pages of a mapped
    file would count as a worker's memory once they were touched.

    Parameters
    ----------
    paths : sequence of Path
        Files of sorted counts.
    advance : callable or None, default=None
        Told the lists that have come to their end.

    Yields
    ------
    pyarrow.Table
        term, term_frequency, document_frequency; terms are distinct and ascend within a table
        and from one to the next.
    """
    with ExitStack() as stack:
        lists = [_SortedList(stack.enter_context(pa.OSFile(str(path)))) for path in paths]
        while going_on := [one for one in lists if one.batch is not None]:
            if advance is not None:
                advance(len(lists) - len(going_on))
            lists = going_on
            # All entries up to this term are in hand: no list goes on below it.
            bound = min(one.last_term for one in lists)
            yield _sum_by_term(pa.Table.from_batches([one.take(bound) for one in lists]))
        if advance is not None:
            advance(len(lists))


class _MostFrequent:
    """The most frequent of ascending terms; ties are broken by the term itself."""

    def __init__(self, max_features: int) -> None:
        self._max_features = max_features
        self._kept = COUNTS_SCHEMA.empty_table()
        self._gathered: list[pa.Table] = []
        self._least = 0

    def add(self, counts: pa.Table) -> None:
        """Add terms above all that were added before."""
        # A term that ties with the least one kept comes after it, and loses.
        frequent = counts["term_frequency"].to_numpy() > self._least
        self._gathered.append(counts if frequent.all() else counts.filter(pa.array(frequent)))
        if sum(map(len, self._gathered)) >= _GATHERED_TERMS:
            self._choose()

    def finish(self) -> pa.Table:
        """Return the chosen terms, ascending."""
        self._choose()
        return self._kept

    def _choose(self) -> None:
        counts = pa.concat_tables([self._kept, *self._gathered]).combine_chunks()
        self._gathered = []
        if len(counts) > self._max_features:
            frequency = counts["term_frequency"].to_numpy()
            # A stable sort over ascending terms breaks ties by the term itself.
            order = np.argsort(-frequency, kind="stable")[: self._max_features]
            self._least = int(frequency[order[-1]])
            counts = counts.take(pa.array(np.sort(order))).combine_chunks()
        self._kept = counts


class _SortedList:
    """A file of sorted counts, read batch by batch.

    Attributes
    ----------
    batch : pyarrow.RecordBatch or None
        What was read and not yet taken; None at the end of the list.
    last_term : str
        The last term of the batch.
    """

    def __init__(self, stream: pa.OSFile) -> None:
        self.batch: Any = None  # pyarrow has no types
        self.last_term = ""
        self._reader = pa.ipc.open_file(stream)
        self._next_batch = 0
        self._advance()

    def take(self, bound: str) -> pa.RecordBatch:
        """Return and let go of the entries up to a term; there must be a batch."""
        batch = self.batch
        terms = batch.column("term")
        stop = bisect_right(range(len(terms)), bound, key=lambda index: terms[index].as_py())
        if stop == len(terms):
            self._advance()
        else:
            self.batch = batch.slice(stop)
        return batch.slice(0, stop)

    def _advance(self) -> None:
        self.batch, self.last_term = None, ""
        while self.batch is None and self._next_batch < self._reader.num_record_batches:
            batch = self._reader.get_batch(self._next_batch)
            self._next_batch += 1
            if len(batch):
                self.batch, self.last_term = batch, batch.column("term")[-1].as_py()


def merge_counts(paths: Sequence[Path], merged_path: Path) -> Path:
    """Merge sorted lists into one (a worker's task)."""
    return write_table(iter_merged_counts(paths), merged_path)


def _merge_many(
    paths: Sequence[Path], map_tasks: MapTasks, advance: Callable[[int], object] | None
) -> Sequence[Path]:
    """Merge lists by runs of consecutive ones until few are left."""
    level = 0
    while len(paths) > _FAN_IN:
        tasks = [
            (
                paths[start : start + _FAN_IN],
                paths[start].with_name(f"{paths[start].stem}.level{level}.arrow"),
            )
            for start in range(0, len(paths), _FAN_IN)
        ]
        merged = []
        for task, path in zip(
            tasks, map_tasks(merge_counts, tasks, name="merge-vocabulary"), strict=True
        ):
            merged.append(path)
            if advance is not None:
                advance(len(task[0]))
        paths = merged
        level += 1
    return paths


def _sum_by_term(counts: pa.Table) -> pa.Table:
    summed = counts.group_by("term", use_threads=False).aggregate(
        [("term_frequency", "sum"), ("document_frequency", "sum")]
    )
    summed = summed.rename_columns(
        {
            "term_frequency_sum": "term_frequency",
            "document_frequency_sum": "document_frequency",
        }
    )
    return summed.take(pc.sort_indices(summed["term"])).combine_chunks()


def _no_terms(settings: FeatureSettings, column: str, num_training: int) -> CorpusError:
    """Return the error of a column without terms, and what may have caused it."""
    low = settings.ngram_range[0]
    if low == 1:
        what, fix = "no word", "A word has two letters or digits at least."
    else:
        what, fix = f"no {low} words side by side", "Pass a lower ngram_range."
    if settings.stop_words:
        what += " but stop words"
    return CorpusError(
        f"Column {column!r} holds {what} in {num_training} training rows.",
        None,
        f"{fix} Check the column's name, or leave it out of text_column.",
    )


def _frequency_bounds(settings: FeatureSettings, num_training: int) -> tuple[float, float]:
    """Return the least and the greatest document frequency that are kept."""
    low, high = (
        value * num_training if isinstance(value, float) else value
        for value in (settings.min_df, settings.max_df)
    )
    if high < low:
        raise SettingError(
            f"max_df={settings.max_df!r} is below min_df={settings.min_df!r}: at most "
            f"{math.floor(high)} and at least {math.ceil(low)} of {num_training} training rows.",
            None,
            "Pass a lower min_df or a higher max_df.",
        )
    return low, high
