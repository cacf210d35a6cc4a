"""Sorted term counts of all partitions -> the terms that become columns.

The lists are merged by range of the sorted terms: exact, in memory that neither the corpus nor
its vocabulary sets, and in an order that doesn't depend on the workers.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancetnic_dask.errors import CorpusError, SettingError
from lancetnic_dask.features.counts import COUNTS_SCHEMA, write_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lancetnic_dask.corpus.plan import MapTasks
    from lancetnic_dask.settings import FeatureSettings

__all__ = ["Vocabulary", "build_vocabulary", "iter_merged_counts"]

# Terms that one merge step holds: about 100 MB with their counts and the hash table over them.
_TERMS_PER_RANGE = 1 << 20
# Lists that one merge reads at once: each costs an open file and a mapping.
_FAN_IN = 64


@dataclass(frozen=True)
class Vocabulary:
    """The terms of one text column that are model features.

    Parameters
    ----------
    terms : pyarrow.StringArray
        Sorted by code point; a term's position is its column.
    document_frequency : ndarray of shape (num_terms,), dtype=int64
        Training rows that hold each term.
    num_training : int
        Training rows.
    num_distinct : int
        Distinct terms in the training rows before any were dropped.
    """

    terms: pa.Array
    document_frequency: np.ndarray
    num_training: int
    num_distinct: int

    @cached_property  # every row of a prediction needs it
    def idf(self) -> np.ndarray:
        """Smooth inverse document frequency, float64 (num_terms,): ln((1 + n) / (1 + df)) + 1."""
        return np.log((1 + self.num_training) / (1 + self.document_frequency)) + 1.0


def build_vocabulary(
    paths: Sequence[Path],
    settings: FeatureSettings,
    *,
    column: str,
    num_training: int,
    max_features: int,
    map_tasks: MapTasks,
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
    O(T log S) time for T entries in S lists, memory for a million terms and the vocabulary.
    scikit-learn 1.9 sorts unstably at the cut: among equal counts it keeps others, and which
    ones differs between CPUs.
    """
    low, high = _frequency_bounds(settings, num_training)
    kept = COUNTS_SCHEMA.empty_table()
    num_distinct = 0
    for merged in iter_merged_counts(_merge_many(paths, map_tasks)):
        num_distinct += len(merged)
        frequency = merged["document_frequency"].to_numpy()
        admitted = merged.filter(pa.array((frequency >= low) & (frequency <= high)))
        kept = _most_frequent(pa.concat_tables([kept, admitted]), max_features)
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


def iter_merged_counts(paths: Sequence[Path]) -> Iterator[pa.Table]:
    """Yield the summed counts of sorted lists, range by range of the terms.

    Parameters
    ----------
    paths : sequence of Path
        Files of sorted counts.

    Yields
    ------
    pyarrow.Table
        term, term_frequency, document_frequency; terms are distinct and ascend within a table
        and from one to the next.
    """
    with ExitStack() as stack:
        tables = []
        for path in paths:
            source = stack.enter_context(pa.memory_map(str(path)))
            tables.append(pa.ipc.open_file(source).read_all())
        starts = [0] * len(tables)
        for bound in [*_range_bounds(tables), None]:
            stops = [len(t) if bound is None else _position(t["term"], bound) for t in tables]
            parts = [
                table.slice(start, stop - start)
                for table, start, stop in zip(tables, starts, stops, strict=True)
                if stop > start
            ]
            starts = stops
            if parts:
                yield _sum_by_term(pa.concat_tables(parts))


def merge_counts(paths: Sequence[Path], merged_path: Path) -> Path:
    """Merge sorted lists into one (a worker's task)."""
    return write_table(iter_merged_counts(paths), merged_path)


def _merge_many(paths: Sequence[Path], map_tasks: MapTasks) -> Sequence[Path]:
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
        paths = list(map_tasks(merge_counts, tasks, name="merge-vocabulary"))
        level += 1
    return paths


def _range_bounds(tables: Sequence[pa.Table]) -> list[str]:
    """Choose terms that cut the lists into ranges of about `_TERMS_PER_RANGE` entries in all."""
    total = sum(len(table) for table in tables)
    if total <= _TERMS_PER_RANGE:
        return []
    # Each list is sampled at one step: a range is off by less than two steps a list, a quarter
    # (one for what lies between samples, one for samples that equal the bound).
    step = max(1, _TERMS_PER_RANGE // (8 * len(tables)))
    samples = [
        term for table in tables for term in table["term"].take(
            pa.array(np.arange(step - 1, len(table), step))
        ).to_pylist()
    ]  # fmt: skip
    samples.sort()
    per_range = max(1, _TERMS_PER_RANGE // step)
    return sorted(set(samples[per_range - 1 :: per_range]))


def _position(terms: pa.ChunkedArray, bound: str) -> int:
    """Return how many of the sorted terms are at most the bound."""
    low, high = 0, len(terms)
    while low < high:
        middle = (low + high) // 2
        if terms[middle].as_py() <= bound:
            low = middle + 1
        else:
            high = middle
    return low


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


def _most_frequent(counts: pa.Table, max_features: int) -> pa.Table:
    """Keep the most frequent terms, in the order of the terms."""
    if len(counts) <= max_features:
        return counts
    # A stable sort over ascending terms breaks ties by the term itself.
    order = np.argsort(-counts["term_frequency"].to_numpy(), kind="stable")[:max_features]
    return counts.take(pa.array(np.sort(order))).combine_chunks()


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
