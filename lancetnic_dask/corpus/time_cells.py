"""Texts of a column -> int64 that stand in the order of the times."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancetnic_dask.corpus.number_cells import PLAIN_NUMBERS, read_numbers
from lancetnic_dask.corpus.text_cells import PADDING, trim
from lancetnic_dask.errors import RecordError, quoted

if TYPE_CHECKING:
    from lancetnic_dask.corpus.sieve import Sieve
    from lancetnic_dask.errors import Location
    from lancetnic_dask.settings import NumberFormat

__all__ = ["parse_times", "time_text"]

# Nanoseconds since 1970 in an int64 reach from September 1677 to April 2262.
_FIRST_YEAR, _LAST_YEAR = 1678, 2261
_ZONE = r"(?:[Zz]|UTC|GMT|(?P<sign>[+-])(?P<zone_hour>[0-9]{2})(?::?(?P<zone_minute>[0-9]{2}))?)"
_ISO = (
    r"^(?P<year>[0-9]{4})-(?P<month>[0-9]{2})(?:-(?P<day>[0-9]{2})"
    r"(?:[Tt ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})"
    r"(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,9}))?)?"
    rf"(?: ?{_ZONE})?)?)?$"
)
# As `datetime.strptime` reads them; a format with any other directive is left to it.
_DIRECTIVES = {
    "Y": r"(?P<year>[0-9]{4})",
    "y": r"(?P<short_year>[0-9]{2})",
    "m": r"(?P<month>1[0-2]|0[1-9]|[1-9])",
    "d": r"(?P<day>3[01]|[12][0-9]|0[1-9]|[1-9]| [1-9])",
    "H": r"(?P<hour>2[0-3]|[01][0-9]|[0-9])",
    "M": r"(?P<minute>[0-5][0-9]|[0-9])",
    "S": r"(?P<second>[0-5][0-9]|[0-9])",
    "f": r"(?P<fraction>[0-9]{1,6})",
    "z": r"(?:Z|(?P<sign>[+-])(?P<zone_hour>[0-9]{2}):?(?P<zone_minute>[0-9]{2}))",
    "%": "%",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_times(
    sieve: Sieve,
    texts: pa.Array,
    name: str,
    *,
    time_format: str | None = None,
    numbers: NumberFormat = PLAIN_NUMBERS,
) -> tuple[np.ndarray, np.ndarray]:
    """Read a column of times, and drop the rows where there is none.

    Without a format these are dates and times by ISO 8601 (a time without a zone is UTC, a month
    its first day), and numbers of any unit, which stand in their own order. The two can't be
    compared: who merges rows must check that there is one kind only.

    Parameters
    ----------
    sieve : Sieve
        Of the rows.
    texts : pyarrow.LargeStringArray
        One for each row.
    name : str
        The column, for messages.
    time_format : str or None, default=None
        As in ``datetime.strptime``.
    numbers : NumberFormat
        How numbers are written.

    Returns
    -------
    times : ndarray of shape (num_rows,), dtype=int64
        Nanoseconds since 1970 in UTC; of a number, what `time_text` turns back into it. 0 in rows
        that are dropped.
    is_number : ndarray of shape (num_rows,), dtype=bool
        Where a number is written.

    Raises
    ------
    RecordError
        If the sieve's policy is 'error', and a cell is empty, no time, or one before 1678 or
        after 2261.
    """
    trimmed = trim(texts)
    if time_format is None:
        times, is_time, is_out = _read_parts(trimmed, _ISO)
        times, is_number = _add_numbers(trimmed, times, is_time | is_out, numbers)
    else:
        times, is_time, is_out = _read_format(trimmed, time_format)
        is_number = np.zeros(len(times), dtype=bool)
    first = sieve.drop(~(is_time | is_out | is_number), f"no time in column {name!r}", name)
    if first is not None:
        raise _no_time(sieve, texts[first].as_py(), sieve.rows.location(first, name), time_format)
    first = sieve.drop(is_out, f"a time before {_FIRST_YEAR} or after {_LAST_YEAR}", name)
    if first is not None:
        raise RecordError(
            f"{quoted(texts[first].as_py())} is before {_FIRST_YEAR} or after {_LAST_YEAR}.",
            sieve.rows.location(first, name),
            sieve.fix("Correct it"),
        )
    return times, is_number


def time_text(time: int, *, is_number: bool = False) -> str:
    """Write one of the times that `parse_times` gave.

    Parameters
    ----------
    time : int
        Nanoseconds since 1970, or what stands for a number.
    is_number : bool, default=False
        Whether it was written as a number.

    Returns
    -------
    str
        By ISO 8601 in UTC, or the number.

    Examples
    --------
    >>> time_text(1_500_000_000_000_000_000)
    '2017-07-14T02:40:00Z'
    """
    if is_number:
        number = float(_swap_order(np.array([time], np.int64)).view(np.float64)[0])
        return str(int(number)) if number.is_integer() else str(number)
    text = str(np.datetime64(time, "ns"))
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}Z"


def _no_time(sieve: Sieve, text: str, where: Location, time_format: str | None) -> RecordError:
    if not text.strip(PADDING):
        return RecordError("The time is missing.", where, sieve.fix("Fill it in"))
    if time_format is None:
        ways = "Pass time_format=, for example '%d.%m.%Y', correct the cell"
        return RecordError(f"{quoted(text)} is not a time.", where, sieve.fix(ways))
    return RecordError(
        f"{quoted(text)} is not a time as in {time_format!r}.", where, sieve.fix("Correct it")
    )


def _add_numbers(
    trimmed: pa.Array, times: np.ndarray, is_time: np.ndarray, numbers: NumberFormat
) -> tuple[np.ndarray, np.ndarray]:
    """Read what is no time as a number; return the times, and where they are numbers."""
    is_number = np.zeros(len(times), dtype=bool)
    others = np.flatnonzero(~is_time)
    if len(others):
        words = trimmed.take(pa.array(others))
        values, _ = read_numbers(words, numbers)
        is_word = np.asarray(pc.is_in(pc.ascii_lower(words), pa.array(["true", "false"])))
        is_read = np.isfinite(values) & ~is_word
        times[others[is_read]] = _swap_order((values[is_read] + 0.0).view(np.int64))  # no -0.0
        is_number[others[is_read]] = True
    return times, is_number


def _swap_order(bits: np.ndarray) -> np.ndarray:
    """Turn the bits of float64 into int64 of the same order, and back.

    The greater a positive number the greater are its bits; the others are the other way around.
    """
    swapped: np.ndarray = bits ^ ((bits >> np.int64(63)) & np.iinfo(np.int64).max)
    return swapped


def _read_format(trimmed: pa.Array, time_format: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read times by a format of ``strptime``; as `_read_parts`."""
    time_format = time_format.strip(PADDING)
    pattern, known = "", True
    for directive, space, literal in re.findall(r"%(.)|(\s+)|([^%\s]+)", time_format):
        known = known and (not directive or directive in _DIRECTIVES)
        pattern += _DIRECTIVES.get(directive, "") or (r"\s+" if space else re.escape(literal))
    if known:
        return _read_parts(trimmed, f"(?i)^{pattern}$")
    # Names of months and the like: Python knows them. Rows of one time are read once.
    encoded = trimmed.dictionary_encode()
    read = [_read_by_python(text, time_format) for text in encoded.dictionary.to_pylist()]
    codes = encoded.indices.to_numpy()
    is_read = np.array([time is not None for time in read])[codes]
    years = np.array([0 if time is None else time.year for time in read])[codes]
    is_in = (years >= _FIRST_YEAR) & (years <= _LAST_YEAR)
    microseconds = [
        0 if time is None else (time - _EPOCH) // timedelta(microseconds=1) for time in read
    ]
    times = np.array(microseconds, np.int64)[codes]
    return np.where(is_in, times * 1000, 0), is_read & is_in, is_read & ~is_in


def _read_by_python(text: str, time_format: str) -> datetime | None:
    try:
        time = datetime.strptime(text, time_format)  # noqa: DTZ007 - the zone, if any, is in it
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _read_parts(trimmed: pa.Array, pattern: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read times whose parts have names in a pattern.

    Returns
    -------
    times : ndarray of shape (num_rows,), dtype=int64
        Nanoseconds since 1970; 0 where there is no time.
    is_time : ndarray of shape (num_rows,), dtype=bool
        Where there is one.
    is_out : ndarray of shape (num_rows,), dtype=bool
        Where there is one that no int64 holds.
    """
    parts = pc.extract_regex(trimmed, pattern)
    matched = np.flatnonzero(np.asarray(pc.is_valid(parts)))
    parts = parts.take(pa.array(matched))
    names = {field.name for field in parts.type}

    def part(name: str, default: int, num_digits: int = 0) -> np.ndarray:
        """Return a part as int64 (num_matched,)."""
        if name not in names:
            return np.full(len(matched), default, np.int64)
        digits = parts.field(name)
        if num_digits:
            digits = pc.utf8_rpad(digits, num_digits, "0")
        digits = pc.if_else(pc.equal(digits, ""), str(default), pc.utf8_ltrim_whitespace(digits))
        return np.array(pc.cast(digits, pa.int64()))

    short_year = part("short_year", 0)
    years = (
        np.where(short_year < 69, 2000, 1900) + short_year  # as in POSIX
        if "short_year" in names
        else part("year", 1900)
    )
    months, days = part("month", 1), part("day", 1)
    hours, minutes, seconds = part("hour", 0), part("minute", 0), part("second", 0)
    zone_hours, zone_minutes = part("zone_hour", 0), part("zone_minute", 0)
    sign = np.ones(len(matched), np.int64)
    if "sign" in names:
        sign[np.asarray(pc.equal(parts.field("sign"), "-"))] = -1
    is_right = (months >= 1) & (months <= 12) & (days >= 1) & (hours < 24) & (minutes < 60)
    is_right &= (seconds < 60) & (zone_hours < 24) & (zone_minutes < 60) & (years >= 1)
    is_in = (years >= _FIRST_YEAR) & (years <= _LAST_YEAR)
    month = (years - 1970) * 12 + months - 1
    first_day, next_first_day = (
        number.astype("M8[M]").astype("M8[D]").astype(np.int64) for number in (month, month + 1)
    )
    is_right &= days <= next_first_day - first_day
    day_seconds = (
        hours * 3600 + minutes * 60 + seconds - sign * (zone_hours * 3600 + zone_minutes * 60)
    )
    total = ((first_day + days - 1) * 86400 + day_seconds) * 1_000_000_000 + part("fraction", 0, 9)
    times = np.zeros(len(trimmed), np.int64)
    is_time, is_out = np.zeros(len(trimmed), dtype=bool), np.zeros(len(trimmed), dtype=bool)
    times[matched] = np.where(is_right & is_in, total, 0)
    is_time[matched] = is_right & is_in
    is_out[matched] = is_right & ~is_in
    return times, is_time, is_out
