"""Weighted rows against scikit-learn's TfidfVectorizer and StandardScaler; kernels, slow twins."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference_features import (
    dense_rows,
    join_blocks_slowly,
    make_shard,
    weigh_rows_slowly,
    write_corpus,
)
from reference_text import texts
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import StandardScaler

from lancetnic_dask.corpus.frame import here
from lancetnic_dask.features.build import ShardRecipe
from lancetnic_dask.features.cache import ShardCache
from lancetnic_dask.features.counts import count_partition, count_terms, write_counts
from lancetnic_dask.features.groups import encode_partition
from lancetnic_dask.features.moments import Moments
from lancetnic_dask.features.split import hash_rows, is_validation
from lancetnic_dask.features.stop_words import resolve_stop_words
from lancetnic_dask.features.terms import Vocabulary
from lancetnic_dask.features.vocabulary import build_vocabulary
from lancetnic_dask.features.weighting import (
    EncodedRows,
    FittedFeatures,
    concatenate_rows,
    encode_rows,
    join_blocks,
    standardize,
    weigh_rows,
)
from lancetnic_dask.settings import ColumnRoles, FeatureSettings, SplitSettings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lancetnic_dask.features.groups import Side
    from lancetnic_dask.features.shard import TokenShard

each_file_anew = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
Blocks = list[list[tuple[int, float]]]
NO_MOMENTS = Moments.of(np.empty((0, 0)))

few_words = st.lists(st.sampled_from(["ab", "abc", "яя", "the", "中文", "zz", "of"])).map(" ".join)
columns_of_text = st.tuples(st.integers(1, 3), st.integers(1, 10)).flatmap(
    lambda size: st.lists(
        st.lists(few_words | texts, min_size=size[1], max_size=size[1]),
        min_size=size[0],
        max_size=size[0],
    )
)


def csr(rows: Blocks) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return indptr, indices, values of rows of (column, value)."""
    entries = [entry for row in rows for entry in row]
    return (
        np.cumsum([0, *map(len, rows)], dtype=np.int64),
        np.array([column for column, _ in entries], np.int32),
        np.array([value for _, value in entries], np.float32),
    )


def spelled(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray) -> Blocks:
    """Return rows of (column, value)."""
    entries = list(zip(indices.tolist(), values.tolist(), strict=True))
    return [entries[start:stop] for start, stop in pairwise(indptr.tolist())]


def fit(
    shards: Sequence[TokenShard], training: Sequence[np.ndarray], folder: Path, **options: Any
) -> FittedFeatures:
    """Learn vocabularies from the training rows of shards, bool (num_rows,) of each."""
    features = FeatureSettings(**options)
    vocabularies = []
    for index in range(len(shards[0].texts)):
        paths = []
        for i, (shard, is_training) in enumerate(zip(shards, training, strict=True)):
            text = shard.texts[index]
            counts = count_terms(text.codes, text.row_offsets, is_training, len(text.terms))
            paths.append(folder / f"{i:06d}.{index}.arrow")
            write_counts(paths[-1], text.terms, *counts)
        vocabularies.append(
            build_vocabulary(
                paths,
                features,
                column=f"t{index}",
                num_training=int(sum(one.sum() for one in training)),
                max_features=features.max_features or 10**6,
                map_tasks=here,
            )
        )
    return FittedFeatures(
        vocabularies=tuple(vocabularies),
        moments=NO_MOMENTS,
        sublinear_tf=features.sublinear_tf,
        classes=(),
    )


@each_file_anew
@given(
    columns=columns_of_text,
    cuts=st.lists(st.integers(0, 10), max_size=3),
    ngram_range=st.sampled_from([(1, 1), (1, 2), (2, 2)]),
    stop_words=st.sampled_from([None, "english"]),
    sublinear_tf=st.booleans(),
    min_df=st.sampled_from([1, 2, 0.3]),
    data=st.data(),
)
def test_weights_are_those_of_scikit_learn(
    columns: list[list[str]],
    cuts: list[int],
    ngram_range: tuple[int, int],
    stop_words: str | None,
    *,
    sublinear_tf: bool,
    min_df: float,
    data: st.DataObject,
    tmp_path: Path,
) -> None:
    """One vectorizer a column, fitted on the training rows, side by side; all rows encoded."""
    num_rows = len(columns[0])
    is_training = np.array(data.draw(st.lists(st.booleans(), min_size=num_rows, max_size=num_rows)))
    options: dict[str, Any] = {
        "ngram_range": ngram_range,
        "stop_words": stop_words,
        "sublinear_tf": sublinear_tf,
        "min_df": min_df,
    }
    places = [0, *sorted(min(cut, num_rows) for cut in cuts), num_rows]
    slices = list(pairwise(places))
    shards = [
        make_shard(
            [column[start:stop] for column in columns],
            ngram_range=ngram_range,
            stop_words=resolve_stop_words(stop_words),
        )
        for start, stop in slices
    ]
    blocks = []
    try:
        for column in columns:
            vectorizer = TfidfVectorizer(**options)
            vectorizer.fit([text for text, used in zip(column, is_training, strict=True) if used])
            blocks.append(vectorizer.transform(column).toarray())
    except ValueError:  # no terms: an error of ours too, see test_vocabulary
        return

    features = fit(shards, [is_training[i:j] for i, j in slices], tmp_path, **options)
    parts = [encode_rows(shard, np.arange(shard.num_rows), features) for shard in shards]
    found = concatenate_rows(parts)
    assert features.input_size == features.num_terms == sum(len(b.T) for b in blocks)
    np.testing.assert_allclose(
        dense_rows(found, features.num_terms), np.hstack(blocks), rtol=0, atol=1e-6
    )
    assert (found.values > 0).all()
    row_of_entry = np.repeat(np.arange(num_rows), np.diff(found.indptr)).tolist()
    entries = list(zip(row_of_entry, found.indices.tolist(), strict=True))
    assert len(set(entries)) == len(entries)
    arrays: list[np.ndarray] = [found.indptr, found.indices, found.values, found.numeric]
    assert [array.dtype for array in arrays] == [np.int64, np.int32, np.float32, np.float32]
    assert found.target.dtype == np.int64


@st.composite
def coded_rows(draw: st.DrawFn) -> tuple[list[list[int]], list[int], list[float]]:
    """Draw rows of codes, the column of each code, and the idf of each column."""
    num_terms, num_columns = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    rows = draw(st.lists(st.lists(st.integers(0, num_terms - 1), max_size=12), max_size=8))
    kept = draw(st.permutations(range(max(num_terms, num_columns))))[:num_terms]
    columns = [column if column < num_columns else -1 for column in kept]
    idf = draw(st.lists(st.floats(1, 20), min_size=num_columns, max_size=num_columns))
    return rows, columns, idf


@settings(deadline=None)
@given(
    drawn=coded_rows(),
    chosen=st.lists(st.integers(0, 7), max_size=10),
    first_column=st.integers(0, 1000),
    sublinear_tf=st.booleans(),
)
def test_rows_are_weighed_as_in_plain_python(
    drawn: tuple[list[list[int]], list[int], list[float]],
    chosen: list[int],
    first_column: int,
    *,
    sublinear_tf: bool,
) -> None:
    """Rows in any order and repeated; terms without a column; entries by first occurrence."""
    rows, columns, idf = drawn
    wanted = [row for row in chosen if row < len(rows)]
    found = weigh_rows(
        np.array([code for row in rows for code in row], np.int32),
        np.cumsum([0, *map(len, rows)], dtype=np.int64),
        np.array(wanted, np.int64),
        np.array(columns, np.int32),
        np.array(idf, np.float64),
        first_column,
        sublinear_tf,
    )

    expected = weigh_rows_slowly(
        [rows[row] for row in wanted],
        columns,
        idf,
        first_column=first_column,
        sublinear_tf=sublinear_tf,
    )
    assert [[column for column, _ in row] for row in spelled(*found)] == [
        [column for column, _ in row] for row in expected
    ]
    np.testing.assert_allclose(found[2], csr(expected)[2], rtol=1e-6)
    assert [array.dtype for array in found] == [np.int64, np.int32, np.float32]


blocks_of_rows = st.integers(0, 6).flatmap(
    lambda num_rows: st.tuples(
        *[
            st.lists(
                st.lists(st.tuples(st.integers(0, 99), st.integers(-9, 9).map(float)), max_size=5),
                min_size=num_rows,
                max_size=num_rows,
            )
        ]
        * 2
    )
)


@settings(deadline=None)
@given(blocks=blocks_of_rows)
def test_blocks_are_joined_as_in_plain_python(blocks: tuple[Blocks, Blocks]) -> None:
    """The entries of each row side by side, rows without entries included."""
    left, right = blocks

    joined = join_blocks(*csr(left), *csr(right))
    assert spelled(*joined) == join_blocks_slowly(left, right)


def vocabulary_of(*terms: str) -> Vocabulary:
    """Make a vocabulary of sorted terms that occur in half of ten training rows."""
    return Vocabulary(pa.array(sorted(terms)), np.full(len(terms), 5), 10, len(terms))


def test_each_text_column_is_normalized_on_its_own() -> None:
    """Words of one column take no weight from another; the same word has two columns."""
    shard = make_shard([["aa bb", "aa", "zz"], ["aa", "", "bb"]])
    features = FittedFeatures(
        vocabularies=(vocabulary_of("aa", "bb"), vocabulary_of("aa", "cc")),
        moments=NO_MOMENTS,
        sublinear_tf=False,
        classes=(),
    )
    found = dense_rows(encode_rows(shard, np.arange(3), features), features.num_terms)

    half = np.sqrt(0.5)
    np.testing.assert_allclose(found, [[half, half, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]], atol=1e-7)


def test_numbers_are_standardized_and_missing_ones_become_the_mean() -> None:
    """By the moments of the training rows, whatever the rows at hand."""
    training = np.array([[1.0, 7.0, np.nan], [3.0, 7.0, np.nan], [5.0, 7.0, np.nan]])
    rows = np.array([[3.0, 7.5, 4.0], [np.nan, np.nan, np.nan], [1e5, 7.0, -4.0]])
    features = FittedFeatures(
        vocabularies=(), moments=Moments.of(training), sublinear_tf=False, classes=()
    )
    found = encode_rows(make_shard([], rows), np.array([2, 0, 1]), features)

    scale = np.sqrt(8 / 3)
    assert (features.num_terms, features.num_numeric, features.input_size) == (0, 3, 3)
    np.testing.assert_allclose(
        found.numeric, [[(1e5 - 3) / scale, 0, -4], [0, 0.5, 4], [0, 0, 0]], rtol=1e-6
    )
    assert found.indptr.tolist() == [0, 0, 0, 0]
    assert len(found.indices) == len(found.values) == len(found.target) == 0


@pytest.mark.parametrize("number", [1e9, 1e300, 1.7e308])
def test_numbers_far_outside_are_cut_off(number: float) -> None:
    """At a million standard deviations: what a model makes of them stays finite."""
    training = np.array([[1.0], [1.0 + 1e-3]])
    features = FittedFeatures(
        vocabularies=(), moments=Moments.of(training), sublinear_tf=False, classes=()
    )
    rows = np.array([[number], [-number]])

    found = encode_rows(make_shard([], rows), np.arange(2), features)
    assert found.numeric.tolist() == [[1e6], [-1e6]]


def test_labels_become_class_numbers_and_unknown_ones_minus_one() -> None:
    """The order of classes is that of the features, not of the shard."""
    shard = make_shard([["", "", "", ""]], None, ["9", "10", "x", "9"])
    features = FittedFeatures(
        vocabularies=(vocabulary_of("aa"),),
        moments=NO_MOMENTS,
        sublinear_tf=False,
        classes=("9", "10", "11"),
    )

    assert encode_rows(shard, np.arange(4), features).target.tolist() == [0, 1, -1, 0]
    assert encode_rows(shard, np.array([1, 0]), features).target.tolist() == [1, 0]
    assert encode_rows(shard, np.array([], np.int64), features).target.tolist() == []
    assert encode_rows(make_shard([["aa"]]), np.arange(1), features).target.tolist() == []


def encoded(num_rows: int, start: int) -> EncodedRows:
    """Make rows that can be told apart."""
    counts = np.arange(start, start + num_rows) % 3
    nnz = int(counts.sum())
    return EncodedRows(
        indptr=np.concatenate([[0], np.cumsum(counts)]),
        indices=np.arange(start, start + nnz, dtype=np.int32),
        values=np.arange(start, start + nnz, dtype=np.float32),
        numeric=np.arange(start, start + 2 * num_rows, dtype=np.float32).reshape(num_rows, 2),
        target=np.arange(start, start + num_rows),
    )


@settings(deadline=None)
@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=5))
def test_parts_stand_one_below_the_other_and_are_let_go(sizes: list[int]) -> None:
    """Empty parts as well; the list is empty afterwards."""
    starts = np.cumsum([0, *sizes]).tolist()
    parts = [encoded(size, start) for size, start in zip(sizes, starts[:-1], strict=True)]
    expected = [row for part in parts for row in spelled(part.indptr, part.indices, part.values)]
    numeric = np.concatenate([part.numeric for part in parts])
    found = concatenate_rows(parts)

    assert parts == []
    assert spelled(found.indptr, found.indices, found.values) == expected
    assert found.target.tolist() == list(range(starts[-1]))
    np.testing.assert_array_equal(found.numeric, numeric, strict=True)


WORDS = ["red", "dog", "ΟΔΟΣ", "İx", "яблоко", "中文", "the", "of", "Straße", "x1", "ab\nab"]


@pytest.mark.parametrize("partition_bytes", [60, 1000, 1 << 20])
@pytest.mark.parametrize("is_cached", [False, True])
def test_whole_path_from_a_file_gives_the_numbers_of_scikit_learn(
    tmp_path: Path, partition_bytes: int, *, is_cached: bool
) -> None:
    """CSV, plan, shards, counts, vocabulary, weights: vectorizer and scaler of training rows."""
    rng = np.random.default_rng(5)
    rows = [
        (
            " ".join(rng.choice(WORDS, rng.integers(0, 9))),
            " ".join(rng.choice(WORDS[:5], rng.integers(0, 4))),
            "" if rng.random() < 0.2 else f"{rng.normal(50, 9):.3f}",
            rng.choice(["b", "a", "c"]),
        )
        for _ in range(80)
    ]
    rows = [row for row in rows if any(row[:3])]
    roles = ColumnRoles(text_columns=("t", "u"), data_columns=("x",), label_column="y")
    settings_ = FeatureSettings(
        ngram_range=(1, 2), min_df=2, max_df=0.9, stop_words="english", sublinear_tf=True
    )
    split = SplitSettings(split_ratio=0.3, random_state=7)
    recipe = ShardRecipe(
        roles=roles,
        policy="error",
        ngram_range=settings_.ngram_range,
        stop_words=tuple(sorted(resolve_stop_words("english"))),
    )
    cache = ShardCache(tmp_path / "cache") if is_cached else None
    _, parts = write_corpus(
        tmp_path / "c.csv", rows, ["t", "u", "x", "y"], partition_bytes=partition_bytes
    )
    with ShardCache(tmp_path / "cache").work_folder() as work:
        items = [
            (part, recipe, split, None, cache, work / f"{i:06d}") for i, part in enumerate(parts)
        ]
        counts = list(here(count_partition, items, name="tokenize"))
        num_training = sum(one.num_training for one in counts)
        vocabularies = tuple(
            build_vocabulary(
                [work / f"{i:06d}.{index}.arrow" for i in range(len(parts))],
                settings_,
                column=column,
                num_training=num_training,
                max_features=10**6,
                map_tasks=here,
            )
            for index, column in enumerate(roles.text_columns)
        )
    moments = counts[0].moments
    for one in counts[1:]:
        moments = moments.merge(one.moments)
    features = FittedFeatures(
        vocabularies=vocabularies, moments=moments, sublinear_tf=True, classes=("a", "b", "c")
    )
    texts_by_column = [[row[index] for row in rows] for index in (0, 1)]
    numeric = np.array([[float(row[2] or "nan")] for row in rows])
    validates = is_validation(
        hash_rows([pa.array(column) for column in texts_by_column], numeric),
        split_ratio=0.3,
        random_state=7,
    )
    blocks = [
        TfidfVectorizer(
            ngram_range=(1, 2), min_df=2, max_df=0.9, stop_words="english", sublinear_tf=True
        )
        .fit(np.array(column, object)[~validates])
        .transform(column)
        .toarray()
        for column in texts_by_column
    ]
    scaled = np.nan_to_num(StandardScaler().fit(numeric[~validates]).transform(numeric))

    sides: list[tuple[Side, np.ndarray]] = [("training", ~validates), ("validation", validates)]
    for side, is_chosen in sides:
        found = concatenate_rows(
            [encode_partition(part, recipe, split, None, cache, features, side) for part in parts]
        )
        assert 0 < found.num_rows == is_chosen.sum()
        np.testing.assert_allclose(
            dense_rows(found, features.num_terms),
            np.hstack(blocks)[is_chosen],
            rtol=0,
            atol=1e-6,
        )
        np.testing.assert_allclose(found.numeric, scaled[is_chosen], rtol=1e-5, atol=1e-6)
        labels = np.array([row[3] for row in rows])[is_chosen]
        assert [features.classes[number] for number in found.target] == labels.tolist()


def test_extreme_numbers_are_cut_off_and_missing_ones_are_the_mean() -> None:
    """A cell of 1e300 must not turn a whole prediction into NaN."""
    moments = Moments.of(np.array([[1.0], [3.0], [5.0]]))

    scaled = standardize(np.array([[3.0], [np.nan], [1e300], [-1.7e308]]), moments)

    assert scaled.ravel().tolist() == [0.0, 0.0, 1e6, -1e6]
    assert scaled.dtype == np.float32
