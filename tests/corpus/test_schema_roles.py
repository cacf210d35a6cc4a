"""cast_rows: categories, groups, times, formats of numbers, and the count of missing cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cell_rows import place, raw_rows

from lancetnic_dask.corpus.schema import CastRows, SetAside, cast_rows
from lancetnic_dask.errors import RecordError
from lancetnic_dask.settings import ColumnRoles, NumberFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lancetnic_dask.settings import BadRowPolicy

PLAIN = ColumnRoles(text_columns=("text",), data_columns=("price",), label_column="label")


def cast(
    cells: Sequence[Sequence[bytes]], roles: ColumnRoles, policy: BadRowPolicy = "error"
) -> CastRows:
    """Cast rows of a file in UTF-8."""
    return cast_rows(raw_rows(cells), roles, encoding="utf-8", policy=policy)


def roles_of(**others: Any) -> ColumnRoles:
    """Make the roles of a text and a label, and others."""
    return ColumnRoles(text_columns=("text",), data_columns=(), label_column="label", **others)


def refused(cells: Sequence[Sequence[bytes]], roles: ColumnRoles) -> str:
    """Return the error about some rows."""
    with pytest.raises(RecordError) as caught:
        cast(cells, roles)
    return str(caught.value)


def test_categories_are_names_as_a_whole() -> None:
    """Without padding around; a missing one is a category of its own, and NA a name."""
    roles = roles_of(category_columns=("shop", "town"))
    cells = [
        (b"a", b" North Gate ", b"NA", b"x"),
        (b"b", b"", b"01", b"y"),
        (b"c", b"\xc2\xa0", b"1", b"x"),
    ]

    kept = cast(cells, roles)

    assert [column.to_pylist() for column in kept.categories] == [
        ["North Gate", "", ""],
        ["NA", "01", "1"],
    ]
    assert kept.missing == {"text": 0, "shop": 2, "town": 0}


def test_a_row_with_nothing_but_a_category_is_used() -> None:
    """There is something to learn from; without that, too, it is set aside."""
    roles = roles_of(category_columns=("shop",))

    kept = cast([(b"", b"north", b"x"), (b" ", b"\0", b"y")], roles)

    assert kept.categories[0].to_pylist() == ["north"]
    assert kept.set_aside == [SetAside("neither a word, a number nor a category", 1, place(1))]


def test_a_group_is_never_missing() -> None:
    """Rows without one would be one group, or each its own: nobody can tell."""
    roles = roles_of(group_column="patient")
    cells = [(b"a", b"x", b" 07 "), (b"b", b"y", b"7"), (b"c", b"x", b" ")]

    assert refused(cells, roles) == (
        "The group is missing.\n"
        "  at a.csv, row 103, column 'patient', byte 5200\n"
        "  Fill it in, or leave such rows out with on_bad_rows='skip'."
    )
    kept = cast(cells, roles, "skip")
    assert kept.groups is not None
    assert kept.groups.to_pylist() == ["07", "7"]
    assert kept.set_aside == [SetAside("no group", 1, place(2, "patient"))]


def test_a_column_may_be_an_input_and_the_group() -> None:
    """It is read once, and a row without it has no group."""
    roles = roles_of(category_columns=("shop",), group_column="shop")

    kept = cast([(b"a", b"north ", b"x"), (b"b", b"", b"x")], roles, "skip")

    assert kept.categories[0].to_pylist() == ["north"]
    assert kept.groups is not None
    assert kept.groups.to_pylist() == ["north"]
    assert kept.missing == {"text": 0, "shop": 0}


def test_a_fault_of_a_column_with_two_roles_counts_once() -> None:
    """As does a character that was replaced in it."""
    roles = roles_of(category_columns=("shop",), group_column="shop")
    rows = raw_rows([(b"a", b"caf\xe9", b"x")])

    kept = cast_rows(rows, roles, encoding="utf-8", policy="skip", encoding_errors="replace")
    strict = cast_rows(rows, roles, encoding="utf-8", policy="skip")

    assert kept.num_replaced == 1
    assert strict.set_aside == [SetAside("bytes that are not utf-8", 1, place(0, "shop"))]


def test_times_come_in_their_order() -> None:
    """As nanoseconds of UTC; only used rows are there and counted."""
    roles = roles_of(time_column="when")
    cells = [
        (b"a", b"x", b"1970-01-01T01:00+01:00"),
        (b"b", b"y", b"soon"),
        (b"c", b"x", b"1970-01-01 00:00:01"),
        (b"", b"x", b"2024"),
    ]

    kept = cast(cells, roles, "skip")

    assert kept.times is not None
    assert kept.times.tolist() == [0, 1_000_000_000]
    assert kept.times.dtype == np.int64
    assert kept.num_number_times == 0
    assert refused(cells, roles) == (
        "'soon' is not a time.\n"
        "  at a.csv, row 102, column 'when', byte 5100\n"
        "  Pass time_format=, for example '%d.%m.%Y', correct the cell, or leave such rows out "
        "with on_bad_rows='skip'."
    )


def test_times_are_read_by_the_format_of_the_roles() -> None:
    """So that day and month are never guessed."""
    roles = roles_of(time_column="when", time_format="%d.%m.%Y")

    kept = cast([(b"a", b"x", b"02.01.1970")], roles)

    assert kept.times is not None
    assert kept.times.tolist() == [86_400_000_000_000]


def test_times_as_numbers_are_counted() -> None:
    """Who merges rows can tell a corpus that has both kinds."""
    kept = cast([(b"a", b"x", b"2024"), (b"b", b"x", b"2024-01-01")], roles_of(time_column="when"))

    assert kept.num_number_times == 1


def test_numbers_are_read_by_their_format() -> None:
    """In columns of numbers, and booleans are numbers as well."""
    roles = ColumnRoles(text_columns=(), data_columns=("price", "sold"), label_column=None)
    cells = [(b"1.234,56", b"True"), (b"7", b"FALSE"), (b"", b"")]

    kept = cast_rows(
        raw_rows(cells), roles, encoding="utf-8", policy="error",
        numbers=NumberFormat(decimal=",", thousands="."),
    )  # fmt: skip

    assert kept.numeric.tolist() == [[1234.56, 1.0], [7.0, 0.0]]


def test_missing_cells_of_used_rows_are_counted() -> None:
    """By input column; a row that is set aside misses nothing."""
    cells = [
        (b"a", b"", b"x"),
        (b" ", b"2.5", b"x"),
        (b"c", b"\0", b"y"),
        (b"", b"", b"x"),
        (b"", b"3", b""),
    ]

    kept = cast(cells, PLAIN, "skip")

    assert kept.num_rows == 3
    assert kept.missing == {"text": 1, "price": 2}
    assert sum(part.count for part in kept.set_aside) == 2


@pytest.mark.parametrize("policy", ["error", "skip", "quarantine"])
def test_without_new_roles_there_is_nothing_of_them(policy: BadRowPolicy) -> None:
    """Nor are there rows to tell of, unless they are wanted."""
    kept = cast([(b"a", b"1", b"x")], PLAIN, policy)

    assert (kept.categories, kept.groups, kept.times, kept.num_number_times) == ([], None, None, 0)
    assert (kept.quarantined is None) == (policy != "quarantine")


def test_a_name_that_the_encoding_cannot_write_is_no_header() -> None:
    """It was replaced when the header was read, and ends in no error of Python's."""
    roles = ColumnRoles(text_columns=("t\ufffdxt",), data_columns=(), label_column=None)

    kept = cast_rows(raw_rows([(b"t\x81xt",), (b"word",)]), roles, encoding="cp1252",
                     policy="error", encoding_errors="replace")  # fmt: skip

    assert kept.texts[0].to_pylist() == ["t\ufffdxt", "word"]
