"""Slow twins of the kernels over shards, and how the tests of features make and compare shards."""

from __future__ import annotations

import csv
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lancetnic_dask.corpus.frame import Corpus
from lancetnic_dask.corpus.schema import SetAside
from lancetnic_dask.errors import Location
from lancetnic_dask.features.ngrams import expand_terms
from lancetnic_dask.features.shard import TokenShard
from lancetnic_dask.features.split import hash_rows
from lancetnic_dask.features.tokenize import TokenizedText, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lancetnic_dask.corpus.plan import PartitionPlan
    from lancetnic_dask.features.weighting import EncodedRows

__all__ = [
    "assert_same_shard",
    "busy_shard",
    "count_terms_slowly",
    "dense_rows",
    "join_blocks_slowly",
    "make_shard",
    "names_in",
    "tokenized",
    "weigh_rows_slowly",
    "write_corpus",
]


def count_terms_slowly(
    rows: Sequence[Sequence[int]], counts_row: Sequence[bool], num_terms: int
) -> tuple[list[int], list[int]]:
    """Count occurrences of each term and rows that hold it."""
    counted = [row for row, counts in zip(rows, counts_row, strict=True) if counts]
    occurrences = Counter(code for row in counted for code in row)
    holding = Counter(code for row in counted for code in set(row))
    return [occurrences[i] for i in range(num_terms)], [holding[i] for i in range(num_terms)]


def weigh_rows_slowly(
    rows: Sequence[Sequence[int]],
    columns: Sequence[int],
    idf: Sequence[float],
    *,
    first_column: int,
    sublinear_tf: bool,
) -> list[list[tuple[int, float]]]:
    """Return (column, weight) of each row in the order of first occurrence."""
    weighed = []
    for row in rows:
        counts = Counter(columns[code] for code in row if columns[code] >= 0)
        weights = {
            column: (1 + math.log(count) if sublinear_tf else count) * idf[column]
            for column, count in counts.items()
        }
        length = math.sqrt(sum(weight**2 for weight in weights.values()))
        weighed.append([(first_column + c, weight / length) for c, weight in weights.items()])
    return weighed


def join_blocks_slowly(
    left: Sequence[Sequence[tuple[int, float]]], right: Sequence[Sequence[tuple[int, float]]]
) -> list[list[tuple[int, float]]]:
    """Put the entries of the right rows behind those of the left ones."""
    return [[*a, *b] for a, b in zip(left, right, strict=True)]


def dense_rows(rows: EncodedRows, num_columns: int) -> np.ndarray:
    """Return the weights as a dense matrix, float64 (num_rows, num_columns)."""
    dense = np.zeros((rows.num_rows, num_columns))
    row_of_entry = np.repeat(np.arange(rows.num_rows), np.diff(rows.indptr))
    np.add.at(dense, (row_of_entry, rows.indices), rows.values)
    return dense


def tokenized(
    rows: Sequence[str],
    ngram_range: tuple[int, int] = (1, 1),
    stop_words: frozenset[str] = frozenset(),
) -> TokenizedText:
    """Tokenize all rows at once."""
    tokenizer = Tokenizer()
    tokenizer.add(pa.array(rows, pa.string()))
    return expand_terms(tokenizer.finish(), ngram_range=ngram_range, stop_words=stop_words)


def make_shard(
    texts: Sequence[Sequence[str]],
    numeric: np.ndarray | None = None,
    labels: Sequence[str] | None = None,
    *,
    ngram_range: tuple[int, int] = (1, 1),
    stop_words: frozenset[str] = frozenset(),
    set_aside: tuple[SetAside, ...] = (),
) -> TokenShard:
    """Make a shard of columns of texts, numbers and labels, as `build_shard` would."""
    num_rows = len(texts[0]) if texts else 0 if numeric is None else len(numeric)
    numbers = np.empty((num_rows, 0)) if numeric is None else numeric
    values = sorted(set(labels or ()))
    return TokenShard(
        texts=tuple(tokenized(column, ngram_range, stop_words) for column in texts),
        numeric=numbers,
        label_codes=np.array([values.index(label) for label in labels or ()], np.int32),
        label_values=tuple(values),
        row_hash=hash_rows([pa.array(column, pa.string()) for column in texts], numbers),
        set_aside=set_aside,
    )


def busy_shard() -> TokenShard:
    """Make a shard in which everything that can be is present."""
    return make_shard(
        [["red dog", "", "Яблоко İx red red", "the dog"], ["aa bb", "cc", "", "aa"]],
        np.array([[1.0, np.nan], [-0.0, 2.5], [1e300, np.nan], [0.0, -7.25]]),
        ["yes", "no", "", "no"],
        set_aside=(
            SetAside("no label", 3, Location("file.csv", row=7, column="label", byte=99)),
            SetAside("too few or too many cells", 1, Location("file.csv", row=2)),
        ),
    )


def assert_same_shard(left: TokenShard, right: TokenShard) -> None:
    """Compare all that there is, types and missing numbers included."""
    assert len(left.texts) == len(right.texts)
    for a, b in zip(left.texts, right.texts, strict=True):
        assert a.terms.equals(b.terms)
        _assert_same_array(a.codes, b.codes)
        _assert_same_array(a.row_offsets, b.row_offsets)
    for name in ("numeric", "label_codes", "row_hash"):
        _assert_same_array(getattr(left, name), getattr(right, name))
    assert left.label_values == right.label_values
    assert left.set_aside == right.set_aside


def names_in(folder: Path) -> list[str]:
    """List a folder."""
    return sorted(path.name for path in folder.iterdir())


def write_corpus(
    path: Path, rows: Sequence[Sequence[Any]], header: Sequence[str], *, partition_bytes: int
) -> tuple[Corpus, list[PartitionPlan]]:
    """Write a CSV file and cut it; return the corpus and the plan of each partition."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    corpus = Corpus.read_csv(path, partition_bytes=partition_bytes)
    return corpus, [corpus.plan.only(partition) for partition in corpus.plan.partitions]


def _assert_same_array(left: np.ndarray, right: np.ndarray) -> None:
    assert left.dtype == right.dtype
    np.testing.assert_array_equal(left, right, strict=True)
