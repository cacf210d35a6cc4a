"""Metrics from counts equal those of scikit-learn from whole arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    f1_score,
    precision_score,
    recall_score,
)

from lancetnic_dask.training.metrics import ClassCounts

pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=60)


@given(rows=pairs, cut=st.integers(0, 60))
def test_counts_give_the_metrics_of_the_whole(rows: list[tuple[int, int]], cut: int) -> None:
    """However the rows are cut into batches."""
    target, predicted = np.array(rows, dtype=np.int64).T
    counts = ClassCounts(5)

    counts.add(target[:cut], predicted[:cut])
    counts.add(target[cut:], predicted[cut:])

    options = {"average": "weighted", "zero_division": 0}
    assert counts.num_rows == len(rows)
    assert counts.accuracy == pytest.approx(accuracy_score(target, predicted))
    assert counts.precision == pytest.approx(precision_score(target, predicted, **options))
    assert counts.recall == pytest.approx(recall_score(target, predicted, **options))
    assert counts.f1 == pytest.approx(f1_score(target, predicted, **options))
    assert counts.confusion is not None
    np.testing.assert_array_equal(
        counts.confusion, confusion_matrix(target, predicted, labels=range(5))
    )


def test_without_rows_nothing_is_known() -> None:
    """NaN, not a perfect score."""
    counts = ClassCounts(3)

    assert np.isnan([counts.accuracy, counts.precision, counts.recall, counts.f1]).all()


def test_many_classes_have_no_matrix() -> None:
    """The memory follows the classes, not their square; the metrics are the same."""
    many, few = ClassCounts(5000), ClassCounts(5)
    target, predicted = np.array([0, 1, 2, 2]), np.array([0, 2, 2, 2])

    many.add(target, predicted)
    few.add(target, predicted)

    assert many.confusion is None
    assert (many.precision, many.recall, many.f1) == (few.precision, few.recall, few.f1)
