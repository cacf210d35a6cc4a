"""The order of classes, and the type that predictions have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancetnic_dask.features.labels import order_labels, parse_labels

MOST = 10**18 - 1  # 18 digits: what surely fits int64


@given(numbers=st.sets(st.integers(-MOST, MOST), min_size=1))
def test_whole_numbers_are_sorted_as_numbers_and_predicted_as_int64(numbers: set[int]) -> None:
    """Class i is the i-th number, and comes back as what pandas would have read."""
    ordered = order_labels(str(number) for number in numbers)

    parsed = parse_labels(ordered)
    assert parsed.dtype == np.int64
    assert parsed.tolist() == sorted(numbers)


@given(labels=st.sets(st.text(max_size=4), min_size=1))
def test_order_is_total_and_labels_come_back_as_written(labels: set[str]) -> None:
    """Whatever order they come in, equal labels give equal classes; none is lost or merged."""
    ordered = order_labels(sorted(labels))

    assert order_labels(sorted(labels, reverse=True)) == ordered
    assert len(ordered) == len(labels)
    assert [str(label) for label in parse_labels(ordered)] == list(ordered)


@pytest.mark.parametrize(
    "odd",
    ["01", "-0", "+1", "+0", "1.0", "1e3", " 1", "1\n", "", "-", "--1", "1_000", "٣", "²", "１"],
)
def test_one_label_that_int_does_not_carry_makes_all_of_them_text(odd: str) -> None:
    """Otherwise '01' and '1' would be one class."""
    ordered = order_labels(["10", "9", odd])

    assert ordered == tuple(sorted(["10", "9", odd]))
    assert parse_labels(ordered).tolist() == list(ordered)
    assert parse_labels(ordered).dtype == object


def test_zero_and_negative_numbers_are_numbers() -> None:
    """Minus zero is not, see above."""
    assert order_labels(["0", "-1", "1", "-10"]) == ("-10", "-1", "0", "1")


@pytest.mark.parametrize("huge", [str(2**63 - 1), str(-(2**63)), str(10**18), "9" * 400])
def test_numbers_that_may_not_fit_int64_stay_text(huge: str) -> None:
    """An identifier of twenty digits is a name: no overflow, no float."""
    assert parse_labels(["1", huge]).tolist() == ["1", huge]
    assert order_labels(["2", "10", huge]) == tuple(sorted(["2", "10", huge]))


def test_repeated_labels_are_one_class() -> None:
    """The labels of all partitions may be passed one after the other."""
    assert order_labels(["b", "a", "b"]) == ("a", "b")
