"""Row hashes and the split: values that never change, uniform, whatever the cuts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_text import hash_row, texts

from lancetnic_dask.errors import SettingError
from lancetnic_dask.features.split import hash_rows, is_validation

NO_NUMBERS = np.empty((0, 0))
tables = st.integers(0, 10).flatmap(
    lambda num_rows: st.tuples(
        st.lists(
            st.lists(st.one_of(texts, st.none()), min_size=num_rows, max_size=num_rows), max_size=3
        ),
        st.integers(0, 3).flatmap(
            lambda num_columns: st.lists(
                st.lists(st.floats(width=64), min_size=num_columns, max_size=num_columns),
                min_size=num_rows,
                max_size=num_rows,
            ).map(lambda rows: np.array(rows, dtype=np.float64).reshape(num_rows, num_columns))
        ),
    )
)


@given(table=tables)
def test_hashes_are_those_of_plain_python(
    table: tuple[list[list[str | None]], np.ndarray],
) -> None:
    """Lengths before bytes, nulls as empty texts, one NaN, one zero."""
    columns, numeric = table
    row_hash = hash_rows([pa.array(column, pa.string()) for column in columns], numeric)

    expected = [
        hash_row([column[i] or "" for column in columns], numeric[i].tolist())
        for i in range(len(numeric))
    ]
    assert [tuple(pair) for pair in row_hash.tolist()] == expected


@given(table=tables, cuts=st.lists(st.integers(0, 10), max_size=3), is_large=st.booleans())
def test_hashes_do_not_depend_on_the_cuts(
    table: tuple[list[list[str | None]], np.ndarray], cuts: list[int], *, is_large: bool
) -> None:
    """Sliced, chunked, large or not; numbers by rows or by columns."""
    columns, numeric = table
    arrays = [
        pa.array(column, pa.large_string() if is_large else pa.string()) for column in columns
    ]
    bounds = [0, *sorted(min(cut, len(numeric)) for cut in cuts), len(numeric)]
    slices = list(pairwise(bounds))

    whole = hash_rows([pa.array(column, pa.string()) for column in columns], numeric)
    chunked = [pa.chunked_array([a[i:j] for i, j in slices], type=a.type) for a in arrays]
    assert np.array_equal(hash_rows(chunked, np.asfortranarray(numeric)), whole)
    by_slice = [hash_rows([a[i:j] for a in arrays], numeric[i:j]) for i, j in slices]
    assert np.array_equal(np.concatenate(by_slice), whole)


def test_golden_hashes() -> None:
    """A kept shard, and the split of each corpus, depend on these values: never change them."""
    first = pa.array(["", "a", "The quick brown fox", "Яблоко 中文", None])
    second = pa.array(["", "bc", "jumps", "over", "the lazy dog"])
    numeric = np.array([[0.0, -0.0], [1.5, np.nan], [-np.inf, 1e300], [2.0, 3.0], [np.nan, 0.1]])

    assert [[f"{lane:016x}" for lane in pair] for pair in hash_rows([first, second], numeric)] == [
        ["1acd037f5fc90b29", "8383014025dc6679"],
        ["221db829cb7512f6", "e6f8845c769e15a0"],
        ["67300f98ad503a3f", "dca579d2942dc522"],
        ["be407d32ea7a36d7", "0a2fc446f13c5c54"],
        ["1ff8599eed983e50", "0f94339426d36d02"],
    ]


def test_places_of_bytes_matter() -> None:
    """Where one column ends and the next begins, zero bytes, and the order of columns."""
    left = pa.array(["ab", "a", "", "ab", "a", "a\0", "12345678", "1234567"])
    right = pa.array(["c", "bc", "abc", "", "b", "b", "9", "89"])
    row_hash = hash_rows([left, right], np.zeros((8, 0)))
    swapped = hash_rows([right, left], np.zeros((8, 0)))

    assert len(np.unique(np.concatenate([row_hash, swapped]), axis=0)) == 16


def test_each_lane_tells_rows_apart_alone() -> None:
    """Neither lane collides on rows that differ little, and their bits are even."""
    numbers = np.arange(200_000, dtype=np.float64).reshape(-1, 1)
    row_hash = hash_rows([pa.array([f"{i}" for i in range(200_000)])], numbers % 7)

    for lane in range(2):
        values = np.ascontiguousarray(row_hash[:, lane])
        assert len(np.unique(values)) == 200_000
        shares = np.unpackbits(values.view(np.uint8).reshape(-1, 8), axis=1).mean(axis=0)
        assert np.abs(shares - 0.5).max() < 0.006  # 5 standard deviations
    agreement = np.unpackbits((row_hash[:, 0] ^ row_hash[:, 1]).view(np.uint8)).mean()
    assert abs(agreement - 0.5) < 0.001


def test_columns_of_other_lengths_are_refused() -> None:
    """The message holds both numbers."""
    with pytest.raises(ValueError, match="rows") as caught:
        hash_rows([pa.array(["a"]), pa.array(["a", "b"])], np.zeros((1, 1)))

    assert str(caught.value) == "Text column 1 has 2 rows, the numeric columns 1."


@pytest.fixture(scope="module")
def row_hash() -> np.ndarray:
    """Hashes of 400,000 distinct rows."""
    return hash_rows([], np.arange(400_000, dtype=np.float64).reshape(-1, 1))


def test_golden_split(row_hash: np.ndarray) -> None:
    """The split of a corpus never changes: a model is resumed and compared on the same rows."""
    chosen = is_validation(row_hash[:64], split_ratio=0.25, random_state=42)

    assert np.flatnonzero(chosen).tolist() == [
        4,
        7,
        8,
        10,
        15,
        16,
        20,
        21,
        26,
        27,
        28,
        30,
        39,
        41,
        45,
        48,
        50,
        51,
        52,
        53,
        55,
        56,
        57,
        61,
        62,
    ]
    other = is_validation(row_hash[:64], split_ratio=0.25, random_state=-1)
    assert np.flatnonzero(other).tolist() == [1, 5, 13, 20, 23, 30, 31, 34, 47, 48, 51, 53]


@pytest.mark.parametrize("split_ratio", [0.01, 0.2, 0.5, 0.9])
def test_fraction_is_close_to_the_ratio(row_hash: np.ndarray, split_ratio: float) -> None:
    """For each key, overall and in each stretch of rows."""
    deviation = np.sqrt(split_ratio * (1 - split_ratio))
    for random_state in range(5):
        chosen = is_validation(row_hash, split_ratio=split_ratio, random_state=random_state)
        assert abs(chosen.mean() - split_ratio) < 5 * deviation / np.sqrt(400_000)
        by_stretch = chosen.reshape(40, -1).mean(axis=1)
        assert np.abs(by_stretch - split_ratio).max() < 5 * deviation / np.sqrt(10_000)


def test_keys_give_independent_splits(row_hash: np.ndarray) -> None:
    """Two keys share the fraction of rows that chance gives them, and no pattern."""
    chosen = [
        is_validation(row_hash, split_ratio=0.3, random_state=key) for key in [0, 1, 2, 42, 2**70]
    ]
    deviation = np.sqrt(0.09 * 0.91 / 400_000)

    for i in range(5):
        for j in range(i):
            assert abs((chosen[i] & chosen[j]).mean() - 0.09) < 5 * deviation


def test_greater_ratio_only_adds_rows(row_hash: np.ndarray) -> None:
    """No row leaves validation when its fraction grows."""
    small = is_validation(row_hash, split_ratio=0.1, random_state=7)
    large = is_validation(row_hash, split_ratio=0.3, random_state=7)

    assert not (small & ~large).any()


def test_edge_ratios_are_exact(row_hash: np.ndarray) -> None:
    """0 gives none, 1 gives all, and the dtype is bool."""
    none = is_validation(row_hash, split_ratio=0.0, random_state=1)
    every = is_validation(row_hash, split_ratio=1.0, random_state=1)

    assert none.dtype == every.dtype == np.bool_
    assert not none.any()
    assert every.all()
    assert is_validation(hash_rows([], NO_NUMBERS), split_ratio=0.5, random_state=1).size == 0


def test_equal_rows_fall_on_the_same_side() -> None:
    """Duplicates never straddle, wherever they stand."""
    array = pa.array([f"text {i % 1000}" for i in range(5000)])
    chosen = is_validation(hash_rows([array], np.zeros((5000, 1))), split_ratio=0.5, random_state=3)

    assert (chosen.reshape(5, 1000) == chosen[:1000]).all()


@pytest.mark.parametrize("split_ratio", [-0.1, 1.5, float("nan")])
def test_impossible_ratio_is_refused(split_ratio: float) -> None:
    """The message holds the value and what to do."""
    with pytest.raises(SettingError) as caught:
        is_validation(np.zeros((1, 2), np.uint64), split_ratio=split_ratio, random_state=0)

    assert str(caught.value) == (
        f"split_ratio={split_ratio!r} is not between 0 and 1.\n"
        "  Pass the fraction of rows for validation, such as 0.2."
    )
