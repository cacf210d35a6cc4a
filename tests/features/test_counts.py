"""Counts of terms and labels, and moments, against plain Python, numpy and scikit-learn."""

from __future__ import annotations

import errno
import os
import pickle
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_features import count_terms_slowly, names_in, write_corpus
from sklearn.preprocessing import StandardScaler

from lancetnic_dask.errors import CacheError
from lancetnic_dask.features.build import ShardRecipe
from lancetnic_dask.features.counts import count_partition, count_terms, write_counts
from lancetnic_dask.features.moments import Moments
from lancetnic_dask.features.split import hash_rows, is_validation
from lancetnic_dask.settings import ColumnRoles, SplitSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

cells = st.floats(-1e6, 1e6) | st.just(np.nan)
tables = st.integers(1, 3).flatmap(
    lambda num_columns: st.lists(
        st.lists(cells, min_size=num_columns, max_size=num_columns), min_size=1, max_size=30
    ).map(np.array)
)


def merged(numeric: np.ndarray, cuts: Sequence[int], order: Sequence[int] = ()) -> Moments:
    """Cut the rows, and merge the moments of the cuts in some order."""
    parts = np.split(numeric, sorted(cut % (len(numeric) + 1) for cut in cuts))
    ordered = sorted(range(len(parts)), key=lambda i: order[i] if i < len(order) else 0)
    total, *others = [Moments.of(parts[i]) for i in ordered]
    for other in others:
        total = total.merge(other)
    return total


def bits(moments: Moments) -> tuple[bytes, ...]:
    """Return all numbers of the moments, bit for bit."""
    return tuple(x.tobytes() for x in (moments.count, moments.mean, moments.squares))


@st.composite
def coded_rows(draw: st.DrawFn) -> tuple[list[list[int]], list[bool], int]:
    """Draw rows of codes, which of them count, and how many terms there are."""
    num_terms = draw(st.integers(1, 6))
    rows = draw(st.lists(st.lists(st.integers(0, num_terms - 1), max_size=12), max_size=8))
    counts_row = draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    return rows, counts_row, num_terms


@settings(deadline=None)
@given(drawn=coded_rows())
def test_terms_are_counted_as_in_plain_python(
    drawn: tuple[list[list[int]], list[bool], int],
) -> None:
    """Occurrences and rows, of the rows that count only."""
    rows, counts_row, num_terms = drawn
    term_frequency, document_frequency = count_terms(
        np.array([code for row in rows for code in row], np.int32),
        np.cumsum([0, *map(len, rows)], dtype=np.int64),
        np.array(counts_row, bool),
        num_terms,
    )

    expected = count_terms_slowly(rows, counts_row, num_terms)
    assert (term_frequency.tolist(), document_frequency.tolist()) == expected
    assert term_frequency.dtype == document_frequency.dtype == np.int64


@settings(deadline=None)
@given(numeric=tables, cuts=st.lists(st.integers(0, 30), max_size=5), order=st.lists(st.integers()))
def test_moments_are_those_of_numpy_however_the_rows_are_cut_and_merged(
    numeric: np.ndarray, cuts: list[int], order: list[int]
) -> None:
    """Empty cuts, cuts of missing cells alone, any order of merging."""
    moments = merged(numeric, cuts, order)

    for column in range(numeric.shape[1]):
        present = numeric[~np.isnan(numeric[:, column]), column]
        size = np.abs(present).max(initial=1.0)
        assert moments.count[column] == len(present)
        if len(present):
            np.testing.assert_allclose(moments.mean[column], present.mean(), atol=1e-13 * size)
            squares = ((present - present.mean()) ** 2).sum()
            np.testing.assert_allclose(
                moments.squares[column], squares, rtol=1e-9, atol=1e-24 * size**2
            )


@settings(deadline=None)
@given(numeric=tables, cuts=st.lists(st.integers(0, 30), max_size=5))
def test_moments_merged_in_the_same_order_are_the_same_bits(
    numeric: np.ndarray, cuts: list[int]
) -> None:
    """The model is bit-equal only if these are, also after a trip to a worker."""
    moments = merged(numeric, cuts)

    assert bits(merged(numeric.copy(), cuts)) == bits(moments)
    assert bits(pickle.loads(pickle.dumps(moments))) == bits(moments)


def test_scale_is_that_of_standard_scaler() -> None:
    """Columns that vary, a constant one, one with missing cells, one of nothing else."""
    rng = np.random.default_rng(3)
    numeric = rng.normal(size=(1000, 5)) * [1, 1e-8, 1e8, 0, 3] + [0, 1, -1e8, 0.1, 5]
    numeric[rng.random(1000) < 0.3, 4] = np.nan
    scaler = StandardScaler().fit(numeric)

    moments = merged(numeric, [10, 500, 501])
    np.testing.assert_allclose(moments.mean, scaler.mean_, rtol=1e-12)
    np.testing.assert_allclose(moments.scale, scaler.scale_, rtol=1e-9)
    assert moments.count.tolist() == [1000, 1000, 1000, 1000, np.sum(~np.isnan(numeric[:, 4]))]


@pytest.mark.parametrize("cuts", [[], [1], [7, 7, 30_000], list(range(0, 60_000, 977))])
def test_times_in_seconds_keep_the_spread_of_their_noise(cuts: list[int]) -> None:
    """A great mean must not eat a small spread: 1.7e9 with a noise of a millisecond."""
    noise = np.random.default_rng(1).integers(-1000, 1000, (60_000, 3)) / 2**20  # exact in binary
    moments = merged(1.7e9 + noise, cuts)

    expected = np.sqrt(((noise - noise.mean(axis=0)) ** 2).mean(axis=0))
    np.testing.assert_allclose(moments.scale, expected, rtol=2e-5)
    np.testing.assert_allclose(moments.mean - 1.7e9, noise.mean(axis=0), atol=3e-6)


@pytest.mark.parametrize("value", [0.0, 0.1, -1 / 3, 1.7e9 + 0.1, 1e-300, -1e150])
@pytest.mark.parametrize("cuts", [[], [1], list(range(0, 60_000, 977))], ids=len)
def test_constant_columns_are_not_blown_up(value: float, cuts: list[int]) -> None:
    """What rounding leaves of 60,000 equal numbers is not taken for variation."""
    moments = merged(np.full((60_000, 2), value), cuts)

    assert moments.scale.tolist() == [1.0, 1.0]
    np.testing.assert_allclose(moments.mean, value, rtol=1e-15)


def test_columns_that_differ_by_rounding_alone_are_constant() -> None:
    """As for StandardScaler: 0.1 + 0.2 beside 0.3 is no variation to be learned."""
    numeric = np.array([[0.3], [0.1 + 0.2]] * 50)

    assert Moments.of(numeric).squares > 0
    assert (
        Moments.of(numeric).scale.tolist() == StandardScaler().fit(numeric).scale_.tolist() == [1]
    )


def test_column_without_a_number_has_mean_0_and_scale_1() -> None:
    """In one partition or in all: no division by zero, no NaN."""
    missing = np.full((5, 2), np.nan)
    numbers = np.array([[1.0, np.nan], [3.0, np.nan]])
    moments = Moments.of(missing).merge(Moments.of(numbers)).merge(Moments.of(missing[:0]))

    assert moments.count.tolist() == [2, 0]
    assert moments.mean.tolist() == [2, 0]
    assert moments.scale.tolist() == [1, 1]
    assert Moments.of(np.empty((4, 0))).scale.shape == (0,)


def test_terms_of_no_training_row_are_not_written(tmp_path: Path) -> None:
    """The others stay in order, with both counts."""
    path = tmp_path / "counts.arrow"
    write_counts(path, pa.array(["aa", "bb", "cc"]), np.array([5, 0, 2]), np.array([3, 0, 1]))

    with pa.memory_map(str(path)) as source:
        assert pa.ipc.open_file(source).read_all().to_pydict() == {
            "term": ["aa", "cc"],
            "term_frequency": [5, 2],
            "document_frequency": [3, 1],
        }
    assert names_in(tmp_path) == ["counts.arrow"]


def test_full_disk_is_an_error_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the folder, and nothing half-written stays."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(CacheError) as caught:
        write_counts(tmp_path / "counts", pa.array(["aa"]), np.array([1]), np.array([1]))

    assert str(caught.value) == (
        f"The cache cannot be written: No space left on device.\n  at {tmp_path}\n"
        "  Free some space, pass another cache_dir=, or train with cache=False."
    )
    assert names_in(tmp_path) == []


ROLES = ColumnRoles(text_columns=("t", "u"), data_columns=("x",), label_column="y")
ROWS = [
    (f"red {i}{i}", "same words same" if i % 2 else "", "" if i % 5 == 0 else i, "ab"[i % 3 > 0])
    for i in range(60)
]
SPLIT = SplitSettings(split_ratio=0.3, random_state=1)


@pytest.mark.parametrize("partition_bytes", [40, 300, 1 << 20])
def test_only_training_rows_count(tmp_path: Path, partition_bytes: int) -> None:
    """Terms and moments are of the training rows; labels are counted on each side."""
    corpus, parts = write_corpus(
        tmp_path / "c.csv", ROWS, ["t", "u", "x", "y"], partition_bytes=partition_bytes
    )
    recipe = ShardRecipe(roles=ROLES, policy="error")
    counts = [
        count_partition(part, recipe, SPLIT, None, None, tmp_path / f"{i:03d}")
        for i, part in enumerate(parts)
    ]

    texts = [pa.array([row[i] for row in ROWS]) for i in (0, 1)]
    numeric = np.array([[float(row[2] or "nan")] for row in ROWS])
    validates = is_validation(hash_rows(texts, numeric), split_ratio=0.3, random_state=1)
    assert sum(part.num_training for part in counts) == (~validates).sum()
    assert sum(part.num_validation for part in counts) == validates.sum()
    sides = [
        sum((getattr(part, name) for part in counts), Counter[str]())
        for name in ("training_labels", "validation_labels")
    ]
    assert sides[0] == Counter(np.array([row[3] for row in ROWS])[~validates].tolist())
    assert sides[1] == Counter(np.array([row[3] for row in ROWS])[validates].tolist())
    entries = sum(
        len(set(re.findall(r"\w\w+", str(row[i]).lower())))
        for row, is_held_out in zip(ROWS, validates, strict=True)
        for i in (0, 1)
        if not is_held_out
    )
    assert sum(part.num_entries for part in counts) == entries
    moments = counts[0].moments
    for part in counts[1:]:
        moments = moments.merge(part.moments)
    np.testing.assert_allclose(moments.mean, np.nanmean(numeric[~validates]))
    for index, column in enumerate(("t", "u")):
        found: Counter[str] = Counter()
        for i in range(corpus.npartitions):
            with pa.memory_map(str(tmp_path / f"{i:03d}.{index}.arrow")) as source:
                table = pa.ipc.open_file(source).read_all().to_pydict()
            found.update(dict(zip(table["term"], table["term_frequency"], strict=True)))
        words = " ".join(np.array([row[index] for row in ROWS])[~validates].tolist()).split()
        assert found == Counter(words), column


def test_corpus_that_is_not_split_counts_whole_and_writes_no_terms(tmp_path: Path) -> None:
    """A corpus that only validates: its rows all stand on the training side."""
    _, parts = write_corpus(tmp_path / "c.csv", ROWS, ["t", "u", "x", "y"], partition_bytes=1 << 20)
    counts = count_partition(
        parts[0], ShardRecipe(roles=ROLES, policy="error"), None, None, None, None
    )

    assert (counts.num_training, counts.num_validation) == (60, 0)
    assert counts.training_labels == Counter(row[3] for row in ROWS)
    assert counts.validation_labels == Counter()
    assert names_in(tmp_path) == ["c.csv"]


def test_rows_set_aside_are_reported(tmp_path: Path) -> None:
    """The client warns of them, with the place of the first."""
    rows = [("red", "", 1, "a"), ("red", "", "x", "a"), ("red", "", 2, "")]
    _, parts = write_corpus(tmp_path / "c.csv", rows, ["t", "u", "x", "y"], partition_bytes=1 << 20)
    counts = count_partition(
        parts[0], ShardRecipe(roles=ROLES, policy="skip"), None, None, None, None
    )

    assert counts.num_training == 1
    assert {(one.reason, one.count, one.first.row) for one in counts.set_aside} == {
        ("no number in column 'x'", 1, 2),
        ("no label", 1, 3),
    }
