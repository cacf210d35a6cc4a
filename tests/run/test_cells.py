"""One cell: a text, a number, missing, or refused with its value."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancetnic_dask.errors import RecordError
from lancetnic_dask.run.cells import (
    as_number,
    as_text,
    as_written_text,
    read_cells,
    string_array,
)

MISSING = [None, float("nan"), np.float32("nan"), np.float64("nan"), pd.NA, pd.NaT]


def refusal(read: Any, value: Any) -> str:
    """Return the whole text of the error of a cell that stands second."""
    with pytest.raises(RecordError) as caught:
        read_cells(read, ["7", value], lambda at: f"cell {at + 1}")
    return str(caught.value)


@pytest.mark.parametrize("value", MISSING, ids=repr)
def test_a_missing_cell_is_an_empty_text_or_no_number(value: Any) -> None:
    """None, NaN and the two of pandas are alike, wherever they stand."""
    assert as_text(value) == as_written_text(value) == ""
    assert math.isnan(as_number(value))


@pytest.mark.parametrize(
    "value",
    [b"text", 5, 5.0, True, ["a"], {"a": 1}, ("a",), dt.date(2024, 1, 2), np.array(["a"])],
    ids=repr,
)
def test_only_a_string_is_a_text(value: Any) -> None:
    """The repr of something else would be tokenized, and nobody would notice."""
    assert refusal(as_text, value) == (
        f"{value!r} is not a string but of type {type(value).__name__}.\n"
        "  at cell 2\n"
        "  Pass strings; None stands for a missing text."
    )


def test_a_number_in_a_text_column_is_its_digits() -> None:
    """As in a file, which knows no types."""
    values = [5, 2.5, True, np.int64(7), np.float32(0.5), Decimal("1.10"), np.str_("x"), "y"]

    found = read_cells(as_written_text, values, str)
    assert found == ["5", "2.5", "True", "7", "0.5", "1.10", "x", "y"]


@pytest.mark.parametrize("value", [b"text", ["a"], {"a": 1}, pd.Timestamp("2024-01-02")], ids=repr)
def test_what_is_neither_text_nor_number_is_no_cell_of_a_text_column(value: Any) -> None:
    """A date would be written out otherwise than it stood in the file."""
    assert refusal(as_written_text, value) == (
        f"{value!r} is neither a string nor a number but of type {type(value).__name__}.\n"
        "  at cell 2\n"
        "  Turn the column into strings first, for example with astype(str)."
    )


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (7, 7.0), (-2.5, -2.5), (True, 1.0), (np.bool_(0), 0.0), (np.uint8(200), 200.0),
        (Decimal("1.25"), 1.25), (Fraction(1, 4), 0.25), ("12", 12.0), (" +1e3\t", 1000.0),
        (".5", 0.5), ("7.", 7.0), (10**300, 1e300), (1e300, 1e300),
    ],
    ids=repr,
)  # fmt: skip
def test_numbers_of_any_kind_are_numbers(value: Any, number: float) -> None:
    """Booleans are 0 and 1; a text is the number that it says."""
    assert as_number(value) == number


@pytest.mark.parametrize("value", ["", " ", "\t\u3000", "\0\0"], ids=repr)
def test_a_blank_text_is_a_missing_number(value: str) -> None:
    """As an empty cell of a file."""
    assert math.isnan(as_number(value))


@pytest.mark.parametrize(
    "value",
    [
        "12 EUR", "1,5", "nan", "inf", "0x10", "1_000", "١٢", "--1", "1e", b"1", [1], {"a": 1},
        1j, np.complex64(1), pd.Timestamp("2024-01-02"), np.datetime64("2024-01-02"),
        np.timedelta64(5, "s"), dt.timedelta(1), Decimal("NaN"), Decimal("sNaN"),
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_number_is_refused(value: Any) -> None:
    """Neither Python's own spellings, nor dates, which numpy would turn into nanoseconds."""
    assert refusal(as_number, value) == (
        f"{value!r} is not a number.\n  at cell 2\n  Correct it, or leave it empty."
    )


@pytest.mark.parametrize("value", [math.inf, -math.inf, "1e999", 10**400], ids=["+", "-", "s", "i"])
def test_an_infinite_number_is_refused(value: Any) -> None:
    """It has no place among the others."""
    assert "is not a finite number.\n  at cell 2\n" in refusal(as_number, value)


def test_numbers_of_thousands_of_digits_are_refused_too() -> None:
    """Python writes none, so the message can't show it."""
    huge = 10**5000

    assert refusal(as_number, huge).startswith("An int of thousands of digits is not a finite")
    assert refusal(as_written_text, huge).startswith("An int of thousands of digits is neither")
    assert refusal(as_text, huge).startswith("An int of thousands of digits is not a string")


def test_half_a_surrogate_pair_is_refused_with_its_row() -> None:
    """UTF-8 has no such letter."""
    with pytest.raises(RecordError) as caught:
        string_array(["fine", "\ud800"], "text")

    assert str(caught.value) == (
        "'\\ud800' cannot be written as UTF-8.\n"
        "  at row 2, column 'text'\n"
        "  Remove the lone surrogates, for example with text.encode('utf-8', 'ignore').decode()."
    )


def from_a_file(text: str) -> float | None:
    """Return what the corpus reads from a cell of a number column; None if it refuses it."""
    import pyarrow as pa

    from lancetnic_dask.corpus.number_cells import read_numbers

    values, is_bad = read_numbers(pa.array([text], pa.large_string()))
    return None if is_bad[0] or math.isinf(values[0]) else float(values[0])


@given(
    st.one_of(
        st.text("0123456789.eE+- \t\0_", max_size=8),
        st.text(max_size=4),
        st.floats().map(repr),
        st.sampled_from(["\x85 5", "5\u2028", "\u180e5", "\ufeff5", "5\u200b", "1e400", "1e-400"]),
    )
)
def test_a_text_is_the_number_that_the_corpus_reads(text: str) -> None:
    """Trained from a file and predicted from a DataFrame: one rule."""
    try:
        number: float | None = read_cells(as_number, [text], str)[0]
    except RecordError:
        number = None

    assert repr(number) == repr(from_a_file(text))
