"""read_numbers, parse_numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from cell_rows import raw_rows, string_column
from csv_strategies import NO_DEADLINE
from hypothesis import given
from hypothesis import strategies as st

from lancetnic_dask.corpus.number_cells import parse_numbers, read_numbers
from lancetnic_dask.corpus.sieve import Sieve
from lancetnic_dask.errors import RecordError
from lancetnic_dask.settings import NumberFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

PLAIN = NumberFormat()
GERMAN = NumberFormat(decimal=",", thousands=".")
AMERICAN = NumberFormat(thousands=",")
SPACED = NumberFormat(decimal=",", thousands=" ")


def refused(cells: Sequence[str], numbers: NumberFormat = PLAIN, *, dropped: int = 0) -> str:
    """Return the error about a column, its first rows being out already."""
    sieve = Sieve(raw_rows([(b"",)] * len(cells)), "error", way_out=", or skip it")
    sieve.keep[:dropped] = False
    with pytest.raises(RecordError) as caught:
        parse_numbers(sieve, string_column(cells), "price", numbers)
    return str(caught.value)


@pytest.mark.parametrize(
    ("numbers", "cell", "number"),
    [
        (GERMAN, "1.234,56", 1234.56),
        (GERMAN, "-1.234.567", -1234567.0),
        (GERMAN, "+1234,5", 1234.5),
        (GERMAN, ",5", 0.5),
        (GERMAN, "5,", 5.0),
        (GERMAN, "1,5E3", 1500.0),
        (GERMAN, "\xa01.234\t", 1234.0),
        (AMERICAN, "1,200", 1200.0),
        (AMERICAN, "12,345,678.9", 12345678.9),
        (SPACED, "1 234 567,8", 1234567.8),
        (SPACED, "1\xa0234\u202f567", 1234567.0),
        (NumberFormat(thousands="\u202f"), "1 000.5", 1000.5),
        (NumberFormat(thousands="'"), "1'000", 1000.0),
        (NumberFormat(decimal="|", thousands="^"), "1^000|5", 1000.5),
        (NumberFormat(decimal="]", thousands="\\"), "1\\000]5", 1000.5),
        (NumberFormat(decimal="٫", thousands="٬"), "1٬000٫5", 1000.5),
    ],
)
def test_numbers_in_the_format_that_is_given(
    numbers: NumberFormat, cell: str, number: float
) -> None:
    """Any character may stand before the fraction and between the groups."""
    values, is_bad = read_numbers(string_column([cell]), numbers)

    assert (values.tolist(), is_bad.tolist()) == ([number], [False])


@pytest.mark.parametrize(
    ("numbers", "cell"),
    [
        (GERMAN, "12.5"),
        (GERMAN, "1.2345"),
        (GERMAN, "1234.567"),
        (GERMAN, "1,234,567"),
        (GERMAN, ".123"),
        (GERMAN, "1..234"),
        (AMERICAN, "12,5"),
        (AMERICAN, "1,200,"),
        (AMERICAN, "1,200 000"),
        (SPACED, "1  234"),
        (NumberFormat(decimal=","), "1.5"),
        (NumberFormat(decimal="|"), "1x5"),
    ],
)
def test_a_number_in_another_format_is_none(numbers: NumberFormat, cell: str) -> None:
    """A group has three digits: 12,5 must never be read as 125."""
    values, is_bad = read_numbers(string_column([cell]), numbers)

    assert (np.isnan(values).tolist(), is_bad.tolist()) == ([True], [True])


@pytest.mark.parametrize("numbers", [PLAIN, GERMAN])
def test_true_and_false_are_one_and_zero(numbers: NumberFormat) -> None:
    """In any case, and no other words."""
    cells = ["true", "False", "TRUE", " fAlSe ", "", "yes", "t", "truefalse"]

    values, is_bad = read_numbers(string_column(cells), numbers)

    np.testing.assert_array_equal(values, [1, 0, 1, 0, np.nan, np.nan, np.nan, np.nan])
    assert is_bad.tolist() == [False] * 5 + [True] * 3


@NO_DEADLINE
@given(
    values=st.lists(
        st.floats(-1e15, 1e15).map(lambda value: round(value, 3)), min_size=1, max_size=20
    ),
    marks=st.sampled_from([(".", ","), (",", "."), (",", " "), (".", "'"), (".", "_")]),
)
def test_what_python_groups_is_read_back(values: list[float], marks: tuple[str, str]) -> None:
    """Exactly, whichever the marks; without groups too."""
    decimal, thousands = marks
    to_marks = str.maketrans({".": decimal, ",": thousands})
    cells = [f"{value:,.3f}".translate(to_marks) for value in values]
    cells += [f"{value:.3f}".translate(to_marks) for value in values]

    read, is_bad = read_numbers(
        string_column(cells), NumberFormat(decimal=decimal, thousands=thousands)
    )

    assert not is_bad.any()
    assert read.tolist() == values * 2


@pytest.mark.parametrize(
    ("cells", "numbers", "ways"),
    [
        (["1", "12,5"], PLAIN, "Pass decimal=',', correct it"),
        (["1", "1,200"], PLAIN, "Pass thousands=',', correct it"),
        (["1", "1,200", "0,5"], PLAIN, "Pass decimal=',', correct it"),
        (["1", "1.234,56"], PLAIN, "Pass decimal=',' and thousands='.', correct it"),
        (["1", "1 000"], PLAIN, "Pass thousands=' ', correct it"),
        (["1", "1'000"], PLAIN, 'Pass thousands="\'", correct it'),
        (["1", "1 000,5"], PLAIN, "Pass decimal=',' and thousands=' ', correct it"),
        (["1", "1.5"], NumberFormat(decimal=","), "Pass decimal='.', correct it"),
        (["1", "1.5"], GERMAN, "Pass decimal='.' and thousands=None, correct it"),
        (["1", "$1,200"], PLAIN, "Correct it"),
        (["1", "70%", "1,5"], PLAIN, "Correct it"),
        (["2.5", "12,5"], PLAIN, "Correct it"),  # decimal=',' would not read the one before
    ],
)
def test_the_format_that_mends_a_cell_is_advised(
    cells: list[str], numbers: NumberFormat, ways: str
) -> None:
    """If it reads the most of the cells that are no numbers, and all that are."""
    expected = (
        f"{cells[1]!r} is not a number.\n"
        "  at a.csv, row 102, column 'price', byte 5100\n"
        f"  {ways}, empty the cell, or skip it."
    )

    assert refused(cells, numbers) == expected


def test_a_column_without_any_number_is_told() -> None:
    """It is of another role, most likely; cells that are empty or out already don't count."""
    assert refused(["7", "red", "", "blue"], dropped=1) == (
        "None of 2 cells is a number; the first is 'red'.\n"
        "  at a.csv, row 102, column 'price', byte 5100\n"
        "  Read words as text_column= or category_column=, correct the cells, empty them, "
        "or skip it."
    )
    assert refused(["1,5", "2,5"]) == (
        "None of 2 cells is a number; the first is '1,5'.\n"
        "  at a.csv, row 101, column 'price', byte 5000\n"
        "  Pass decimal=',', correct it, empty the cell, or skip it."
    )
    assert refused(["red"]).startswith("'red' is not a number.\n")
