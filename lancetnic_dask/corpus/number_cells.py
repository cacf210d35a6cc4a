"""Texts of a column -> float64; what is no number, and how it would be one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancetnic_dask.corpus.text_cells import trim
from lancetnic_dask.errors import RecordError, quoted
from lancetnic_dask.settings import NumberFormat

if TYPE_CHECKING:
    from lancetnic_dask.corpus.sieve import Sieve

__all__ = ["NUMBER", "PLAIN_NUMBERS", "parse_numbers", "read_numbers"]

# What is a number, and what around it is nothing: prediction reads cells by the same two.
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
PLAIN_NUMBERS = NumberFormat()
_BOOLEANS = {"false": 0.0, "true": 1.0}
# Of two that mend as many cells the first is advised: 1,200 is more often a large number, and 12,5
# can be nothing but a fraction.
_USUAL_FORMATS = (
    PLAIN_NUMBERS,
    NumberFormat(thousands=","),
    NumberFormat(decimal=","),
    NumberFormat(decimal=",", thousands="."),
    NumberFormat(thousands=" "),
    NumberFormat(decimal=",", thousands=" "),
    NumberFormat(thousands="'"),
)


def read_numbers(
    texts: pa.Array, numbers: NumberFormat = PLAIN_NUMBERS
) -> tuple[np.ndarray, np.ndarray]:
    """Read texts as numbers; true and false are 1 and 0.

    Parameters
    ----------
    texts : pyarrow.LargeStringArray
        A column; padding around a number is nothing.
    numbers : NumberFormat
        How they are written.

    Returns
    -------
    values : ndarray of shape (num_rows,), dtype=float64
        NaN where nothing is written, or no number; infinite where one is too large.
    is_bad : ndarray of shape (num_rows,), dtype=bool
        Where something is written that is no number.
    """
    trimmed = trim(texts)
    is_number = _matches(trimmed, numbers)
    is_bad = np.asarray(pc.and_not(pc.invert(is_number), pc.equal(trimmed, "")))
    digits = pc.if_else(is_number, trimmed, pa.scalar(None, pa.large_string()))
    for separator in numbers.separators:
        digits = pc.replace_substring(digits, separator, "")
    if numbers.decimal != ".":
        digits = pc.replace_substring(digits, numbers.decimal, ".")
    # The parser of older versions of Arrow knows no plus sign.
    digits = pc.utf8_ltrim(digits, "+")
    values = np.asarray(pc.fill_null(pc.cast(digits, pa.float64()), np.nan))
    if is_bad.any():
        words = pc.ascii_lower(trimmed)
        for word, number in _BOOLEANS.items():
            is_word = np.asarray(pc.equal(words, word))
            values, is_bad = np.where(is_word, number, values), is_bad & ~is_word
    return values, is_bad


def parse_numbers(
    sieve: Sieve, texts: pa.Array, name: str, numbers: NumberFormat = PLAIN_NUMBERS
) -> np.ndarray:
    """Read a column of numbers, and drop the rows where there is none.

    Parameters
    ----------
    sieve : Sieve
        Of the rows.
    texts : pyarrow.LargeStringArray
        One for each row.
    name : str
        The column, for messages.
    numbers : NumberFormat
        How they are written.

    Returns
    -------
    ndarray of shape (num_rows,), dtype=float64
        Finite, or NaN where nothing is written and in rows that are dropped.

    Raises
    ------
    RecordError
        If the sieve's policy is 'error', and a cell is no number or an infinite one.
    """
    values, is_bad = read_numbers(texts, numbers)
    first = sieve.drop(is_bad, f"no number in column {name!r}", name)
    if first is not None:
        found = texts.filter(pa.array(sieve.keep & (is_bad | ~np.isnan(values))))
        shown = quoted(texts[first].as_py())
        is_none = len(found) > 1 and not (sieve.keep & ~is_bad & ~np.isnan(values)).any()
        raise RecordError(
            f"None of {len(found)} cells is a number; the first is {shown}."
            if is_none
            else f"{shown} is not a number.",
            sieve.rows.location(first, name),
            sieve.fix(_ways(found, texts.slice(first, 1), numbers, is_none=is_none)),
        )
    first = sieve.drop(np.isinf(values), f"an infinite number in column {name!r}", name)
    if first is not None:
        raise RecordError(
            f"{quoted(texts[first].as_py())} is too large for a number.",
            sieve.rows.location(first, name),
            sieve.fix("Correct it, empty the cell"),
        )
    return np.where(np.isinf(values), np.nan, values)


def _matches(trimmed: pa.Array, numbers: NumberFormat) -> pa.Array:
    """Return True (num_rows,) where a whole text is a number, infinite ones included."""
    if numbers == PLAIN_NUMBERS:
        return pc.match_substring_regex(trimmed, NUMBER)
    point = _any_of(numbers.decimal)
    whole = "[0-9]+"
    if numbers.separators:  # between three digits, so that 12,5 never becomes 125
        whole = f"(?:[0-9]{{1,3}}(?:{_any_of(numbers.separators)}[0-9]{{3}})+|[0-9]+)"
    pattern = f"^[+-]?(?:{whole}(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?$"
    return pc.match_substring_regex(trimmed, pattern)


def _any_of(characters: str) -> str:
    """Return a class of characters for RE2, whatever they are."""
    return "[" + "".join(rf"\x{{{ord(character):x}}}" for character in characters) + "]"


def _ways(found: pa.Array, first: pa.Array, numbers: NumberFormat, *, is_none: bool) -> str:
    """Return how the first cell that is no number could be mended, as the start of a sentence."""
    better = _better_format(found, first, numbers)
    if better is not None:
        options = [
            f"{option}={value!r}"
            for option, value, now in (
                ("decimal", better.decimal, numbers.decimal),
                ("thousands", better.thousands, numbers.thousands),
            )
            if value != now
        ]
        return f"Pass {' and '.join(options)}, correct it, empty the cell"
    if is_none:
        return "Read words as text_column= or category_column=, correct the cells, empty them"
    return "Correct it, empty the cell"


def _better_format(found: pa.Array, first: pa.Array, numbers: NumberFormat) -> NumberFormat | None:
    """Return the usual format that reads the first cell, the most others, and what is read now."""
    _, is_bad = read_numbers(found, numbers)
    best, most = None, 0
    for usual in _USUAL_FORMATS:
        _, is_still_bad = read_numbers(found, usual)
        num_mended = int((is_bad & ~is_still_bad).sum())
        mends_first = not read_numbers(first, usual)[1][0]
        if num_mended > most and mends_first and not (is_still_bad & ~is_bad).any():
            best, most = usual, num_mended
    return best
