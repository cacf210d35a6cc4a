"""Kernels against their slow twins."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_models import group_by_loops, random_rows, rowwise_adagrad_by_loops

from lancetnic_dask.models.sparse_kernels import ColumnCounter, ColumnGroups, update_rows

shapes = st.tuples(st.integers(0, 12), st.integers(1, 30), st.floats(0, 8), st.integers(0, 999))


def as_dict(groups: ColumnGroups) -> dict[int, list[tuple[int, float]]]:
    """Read the groups back into Python."""
    return {
        int(column): [
            (int(groups.rows[entry]), float(groups.values[entry]))
            for entry in range(groups.starts[group], groups.starts[group + 1])
        ]
        for group, column in enumerate(groups.columns)
    }


@settings(deadline=None)  # the first example compiles
@given(shapes)
def test_entries_are_grouped_as_by_plain_loops(shape: tuple[int, int, float, int]) -> None:
    """Columns ascend, rows ascend within a column, and every entry is there once."""
    num_rows, num_columns, mean_terms, seed = shape
    rows = random_rows(num_rows, num_columns, mean_terms=mean_terms, seed=seed)

    groups = ColumnCounter(num_columns).group(rows.indptr, rows.indices, rows.values)

    assert list(as_dict(groups).items()) == list(group_by_loops(rows).items())
    assert len(groups.rows) == len(rows.indices)


def test_a_counter_remembers_nothing_of_the_batch_before() -> None:
    """The groups of a batch are the same from a new counter and from a used one."""
    first, second = random_rows(20, 50, seed=1), random_rows(30, 50, seed=2)
    counter = ColumnCounter(50)
    counter.group(first.indptr, first.indices, first.values)

    used = counter.group(second.indptr, second.indices, second.values)

    assert as_dict(used) == group_by_loops(second)


def test_a_column_may_stand_twice_in_a_row() -> None:
    """Both entries are kept, in their order."""
    indices = np.array([4, 2, 4], np.int32)

    groups = ColumnCounter(5).group(np.array([0, 3]), indices, np.array([1, 2, 3], np.float32))

    assert as_dict(groups) == {2: [(0, 2.0)], 4: [(0, 1.0), (0, 3.0)]}


def test_threads_may_share_a_counter() -> None:
    """Calls from several threads wait for each other instead of mixing their counts."""
    counter = ColumnCounter(300)
    batches = [random_rows(40, 300, mean_terms=20, seed=seed) for seed in range(50)]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda b: counter.group(b.indptr, b.indices, b.values), batches))

    assert [as_dict(groups) for groups in found] == [group_by_loops(rows) for rows in batches]


def test_a_copied_counter_has_counts_of_its_own() -> None:
    """Copies and pickles carry the number of columns only."""
    rows = random_rows(5, 9)
    counter = ColumnCounter(9)
    counter.group(rows.indptr, rows.indices, rows.values)

    for copied in (copy.deepcopy(counter), pickle.loads(pickle.dumps(counter))):
        assert copied._counts is None
        assert as_dict(copied.group(rows.indptr, rows.indices, rows.values)) == group_by_loops(rows)


@settings(deadline=None)  # the first example compiles
@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 999))
def test_the_update_equals_plain_loops(width: int, num_rows: int, seed: int) -> None:
    """Touched rows and their sums change as the formula says, the others not at all."""
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(num_rows, width)).astype(np.float32)
    sums = rng.random(num_rows).astype(np.float32)
    rows = np.flatnonzero(rng.random(num_rows) < 0.5)
    gradients = rng.normal(size=(len(rows), width)).astype(np.float32)
    by_row = dict(zip(rows.tolist(), gradients.tolist(), strict=True))
    wanted_weight, wanted_sums = rowwise_adagrad_by_loops(weight, sums, by_row, lr=0.05, eps=1e-10)
    untouched = np.setdiff1d(np.arange(num_rows), rows)
    before = weight[untouched].copy()

    update_rows(weight, sums, rows, gradients, np.float32(0.05), np.float32(1e-10))

    np.testing.assert_allclose(weight, wanted_weight, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(sums, wanted_sums, rtol=1e-5)
    np.testing.assert_array_equal(weight[untouched], before)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_visible(value: float) -> None:
    """The row with such a gradient is lost for all to see; the other row is not."""
    weight, sums = np.zeros((2, 8), np.float32), np.zeros(2, np.float32)
    gradients = np.ones((2, 8), np.float32)
    gradients[1, 3] = value

    update_rows(weight, sums, np.array([0, 1]), gradients, np.float32(0.5), np.float32(1e-10))

    assert np.isfinite(weight[0]).all()
    assert not np.isfinite(weight[1]).all()
    assert not np.isfinite(sums[1])
