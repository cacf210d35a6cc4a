"""parse_times, time_text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import numpy as np
import pytest
from cell_rows import place, raw_rows, string_column
from csv_strategies import NO_DEADLINE
from hypothesis import given
from hypothesis import strategies as st

from lancetnic_dask.corpus.sieve import SetAside, Sieve
from lancetnic_dask.corpus.time_cells import parse_times, time_text
from lancetnic_dask.errors import RecordError
from lancetnic_dask.settings import NumberFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lancetnic_dask.settings import BadRowPolicy


def sieve_of(cells: Sequence[str], policy: BadRowPolicy = "error") -> Sieve:
    """Make the sieve of rows with nothing but a time."""
    return Sieve(raw_rows([(b"",)] * len(cells)), policy, way_out=", or skip it")


def read(cells: Sequence[str], time_format: str | None = None) -> list[str]:
    """Return times as `time_text` writes them."""
    times, is_number = parse_times(
        sieve_of(cells), string_column(cells), "when", time_format=time_format
    )
    return [
        time_text(int(time), is_number=bool(number))
        for time, number in zip(times, is_number, strict=True)
    ]


def refused(cells: Sequence[str], time_format: str | None = None) -> str:
    """Return the error about a column."""
    with pytest.raises(RecordError) as caught:
        read(cells, time_format)
    return str(caught.value)


@pytest.mark.parametrize(
    ("cell", "time"),
    [
        ("2024-02-29", "2024-02-29T00:00:00Z"),
        ("2024-05", "2024-05-01T00:00:00Z"),
        (" 2024-05-06 07:08\t", "2024-05-06T07:08:00Z"),
        ("2024-05-06T07:08:09", "2024-05-06T07:08:09Z"),
        ("2024-05-06t07:08:09z", "2024-05-06T07:08:09Z"),
        ("2024-05-06 07:08:09 UTC", "2024-05-06T07:08:09Z"),
        ("2024-05-06T07:08:09,25", "2024-05-06T07:08:09.25Z"),
        ("2024-05-06T07:08:09.123456789", "2024-05-06T07:08:09.123456789Z"),
        ("2024-05-06T07:08:09+05:30", "2024-05-06T01:38:09Z"),
        ("2024-05-06T07:08:09-0530", "2024-05-06T12:38:09Z"),
        ("2024-01-01 00:30+01", "2023-12-31T23:30:00Z"),
        ("1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59.5Z"),
        ("1678-01-01", "1678-01-01T00:00:00Z"),
        ("2261-12-31T23:59:59-23:59", "2262-01-01T23:58:59Z"),
    ],
)
def test_times_by_iso_8601(cell: str, time: str) -> None:
    """With a zone or without, which is UTC."""
    assert read([cell]) == [time]


@pytest.mark.parametrize(
    "cell",
    ["2023-02-29", "2024-13-01", "2024-00-01", "2024-01-00", "2024-04-31", "1900-02-29",
     "2024-01-01T24:00", "2024-01-01T23:60", "2024-01-01T23:59:60", "2024-01-01T00:00+24:00",
     "2024-01-01T00:00+01:60",
     "2024-1-1", "24-01-01", "2024-01-01T", "2024-01-01T12", "2024-01-01T12:00 EST", "1/2/2024",
     "2024-01-01 00:00:00.1234567890", "0000-01-01", "true", "1e400", "nan", "yesterday"],
)  # fmt: skip
def test_what_is_no_time_is_named(cell: str) -> None:
    """A day that no calendar has is none; the text after it isn't ignored."""
    assert refused(["2024-01-01", cell]) == (
        f"{cell!r} is not a time.\n"
        "  at a.csv, row 102, column 'when', byte 5100\n"
        "  Pass time_format=, for example '%d.%m.%Y', correct the cell, or skip it."
    )


def test_other_faults_of_times_are_named() -> None:
    """A missing one, one of another format, and one that doesn't fit."""
    at = "\n  at a.csv, row 101, column 'when', byte 5000\n  "

    assert refused([" "]) == f"The time is missing.{at}Fill it in, or skip it."
    assert refused(["2024-01-01"], "%d.%m.%Y") == (
        f"'2024-01-01' is not a time as in '%d.%m.%Y'.{at}Correct it, or skip it."
    )
    for cell in ("9999-12-31", "1677-12-31T23:59:59", "0001-01-01"):
        assert refused([cell]) == (
            f"{cell!r} is before 1678 or after 2261.{at}Correct it, or skip it."
        )


def test_bad_times_are_set_aside() -> None:
    """By reason, with the first place."""
    cells = ["2024-01-01", "", "9999-12-31", "soon", "2024-01-02"]
    sieve = sieve_of(cells, "skip")

    times, is_number = parse_times(sieve, string_column(cells), "when")

    assert sieve.keep.tolist() == [True, False, False, False, True]
    assert list(sieve.found.values()) == [
        SetAside("no time in column 'when'", 2, place(1, "when")),
        SetAside("a time before 1678 or after 2261", 1, place(2, "when")),
    ]
    assert times[[1, 2, 3]].tolist() == [0, 0, 0]
    assert not is_number.any()


@pytest.mark.parametrize(
    ("time_format", "cells", "times"),
    [
        ("%d.%m.%Y", ["31.12.2023", "1.2.2024"], ["2023-12-31T00:00:00Z", "2024-02-01T00:00:00Z"]),
        ("%m/%d/%y %H:%M", ["1/2/69 3:4", "1/2/68 3:4"],
         ["1969-01-02T03:04:00Z", "2068-01-02T03:04:00Z"]),
        ("%Y%m%d", ["20240102"], ["2024-01-02T00:00:00Z"]),
        ("%Y-%m-%dT%H:%M:%S.%f%z", ["2024-01-02T03:04:05.5-0130"], ["2024-01-02T04:34:05.5Z"]),
        ("%d (%m) [%Y]*", ["2 (1) [2024]*"], ["2024-01-02T00:00:00Z"]),
        ("%b %d, %Y", ["Jan 02, 2024", "Feb 29, 2024"],
         ["2024-01-02T00:00:00Z", "2024-02-29T00:00:00Z"]),
        ("%Y-%m-%d %I:%M %p %z", ["2024-01-02 11:30 PM +0100"], ["2024-01-02T22:30:00Z"]),
        ("%H:%M", ["07:08"], ["1900-01-01T07:08:00Z"]),
        (" %Y  %m ", ["2024 \t 5"], ["2024-05-01T00:00:00Z"]),
    ],
)  # fmt: skip
def test_times_of_a_format(time_format: str, cells: list[str], times: list[str]) -> None:
    """As ``strptime`` reads them."""
    assert read(cells, time_format) == times


FORMATS = ["%Y-%m-%d", "%d.%m.%y", "%Y%m%d", "%m/%d/%Y %H:%M:%S", "%H:%M", "%d %b %Y",
           "%Y-%m-%dT%H:%M:%S.%f%z"]  # fmt: skip
# Written by a format, and spoiled by a character: the edges of what is a time.
written = st.builds(
    lambda time, form, position, character: (
        time.strftime(form)[:position] + character + time.strftime(form)[position + 1 :]
    ),
    st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1),  # noqa: DTZ001 - zones come by the third
                 timezones=st.sampled_from([UTC, timezone(timedelta(hours=-9, minutes=-30))])),
    st.sampled_from(FORMATS),
    st.integers(0, 30),
    st.sampled_from(["", "0", "3", "9", " ", "-", "x"]),
)  # fmt: skip


@NO_DEADLINE
@given(time_format=st.sampled_from(FORMATS), cells=st.lists(written, min_size=1, max_size=8))
def test_a_format_reads_what_strptime_reads(time_format: str, cells: list[str]) -> None:
    """The same times, and no other cells."""
    sieve = sieve_of(cells, "skip")

    times, _ = parse_times(sieve, string_column(cells), "when", time_format=time_format)

    expected: list[datetime | None] = []
    for cell in cells:
        try:
            time = datetime.strptime(cell.strip(), time_format)  # noqa: DTZ007
            expected.append(time if time.tzinfo else time.replace(tzinfo=UTC))
        except ValueError:
            expected.append(None)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    nanoseconds = [
        (time - epoch) // timedelta(microseconds=1) * 1000
        if time is not None and 1678 <= time.year <= 2261
        else None
        for time in expected
    ]
    kept = [int(time) if keep else None for time, keep in zip(times, sieve.keep, strict=True)]
    assert kept == nanoseconds


@NO_DEADLINE
@given(
    values=st.lists(
        st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53),
        min_size=1,
        max_size=20,
    )
)
def test_numbers_keep_their_order_and_their_value(values: list[float]) -> None:
    """Years, days, seconds of any epoch: whatever unit, and fractions among whole numbers."""
    cells = [repr(value) for value in values]

    times, is_number = parse_times(sieve_of(cells), string_column(cells), "when")

    assert is_number.all()
    numbers = np.array(values, np.float64)
    np.testing.assert_array_equal(times[:, None] < times, numbers[:, None] < numbers)
    assert [float(text) for text in read(cells)] == numbers.tolist()


def test_a_number_is_read_by_the_format_of_numbers() -> None:
    """And told from a time, for the two can't be compared."""
    cells = ["1.234,5", "2024-01-01", "2024"]

    times, is_number = parse_times(
        sieve_of(cells), string_column(cells), "when",
        numbers=NumberFormat(decimal=",", thousands="."),
    )  # fmt: skip

    assert is_number.tolist() == [True, False, True]
    assert time_text(int(times[0]), is_number=True) == "1234.5"
    assert time_text(int(times[2]), is_number=True) == "2024"
