"""One cell that a user passed -> its text or its number, by the rules of the corpus."""

from __future__ import annotations

import math
import re
import sys
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from lancetnic_dask.corpus.schema import NUMBER, PADDING
from lancetnic_dask.errors import RecordError, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["as_number", "as_text", "as_written_text", "read_cells", "string_array"]

T = TypeVar("T")

_BOOLEANS = {"true": 1.0, "false": 0.0}


class _RefusedError(Exception):
    """A cell that is not what it should be: what it is, and what to do."""


def read_cells(
    read: Callable[[Any], T], values: Iterable[Any], where: Callable[[int], str]
) -> list[T]:
    """Read cells one by one.

    Parameters
    ----------
    read : callable
        `as_text`, `as_written_text` or `as_number`.
    values : iterable
        The cells.
    where : callable
        ``where(position)`` tells the place of a cell, for the message.

    Returns
    -------
    list
        What they hold.

    Raises
    ------
    RecordError
        If one can't be read.
    """
    found: list[T] = []
    try:
        for value in values:
            found.append(read(value))  # noqa: PERF401 - its length is where it went wrong
    except _RefusedError as refused:
        what, fix = refused.args
        raise RecordError(what, where(len(found)), fix) from None
    return found


def as_text(value: Any) -> str:
    """Return a text; a missing one (None, NaN, pandas.NA, pandas.NaT) is empty."""
    if isinstance(value, str):
        return value
    if _is_missing(value):
        return ""
    raise _RefusedError(
        f"{_shown(value)} is not a string but of type {type(value).__name__}.",
        "Pass strings; None stands for a missing text.",
    )


def as_written_text(value: Any) -> str:
    """Return the cell of a text column: a number is the text of its digits, as in a file."""
    if isinstance(value, str):
        return value
    if _is_missing(value):
        return ""
    if isinstance(value, (bool, int, float, Decimal, np.number, np.bool_)):
        with suppress(ValueError):  # Python writes no int of over 4,300 digits
            return str(value)
    raise _RefusedError(
        f"{_shown(value)} is neither a string nor a number but of type {type(value).__name__}.",
        "Turn the column into strings first, for example with astype(str).",
    )


def as_number(value: Any) -> float:
    """Return a number; a missing one is NaN, a boolean 0 or 1, a text what it says."""
    if isinstance(value, str):
        trimmed = value.strip(PADDING)
        if not trimmed:
            return math.nan
        number = _BOOLEANS.get(trimmed.lower())
        if number is None and re.fullmatch(NUMBER, trimmed):
            number = float(trimmed)
    elif _is_missing(value):
        return math.nan
    else:
        number = _as_float(value)
    fix = "Correct it, or leave it empty."
    if number is None or math.isnan(number):
        raise _RefusedError(f"{_shown(value)} is not a number.", fix)
    if math.isinf(number):
        raise _RefusedError(f"{_shown(value)} is not a finite number.", fix)
    return number


def string_array(texts: list[str], column: str) -> pa.LargeStringArray:
    """Return texts as Arrow.

    Raises
    ------
    RecordError
        If a text has half a surrogate pair, which no UTF-8 has.
    """
    # Not `pa.array`: of a list it imports pandas, 0.3 s for one string.
    pieces: list[bytes] = []
    try:
        pieces.extend(text.encode() for text in texts)
    except UnicodeEncodeError as error:
        raise RecordError(
            f"{quoted(texts[len(pieces)])} cannot be written as UTF-8.",
            f"row {len(pieces) + 1}, column {column!r}",
            "Remove the lone surrogates, for example with text.encode('utf-8', 'ignore').decode().",
        ) from error
    offsets = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum([len(piece) for piece in pieces], out=offsets[1:])
    return pa.LargeStringArray.from_buffers(
        len(pieces), pa.py_buffer(offsets), pa.py_buffer(b"".join(pieces))
    )


def _as_float(value: Any) -> float | None:
    is_number = isinstance(value, (bool, int, float, Decimal, Fraction, np.bool_, np.number))
    if not is_number or (isinstance(value, np.number) and value.dtype.kind not in "iuf"):
        return None  # complex numbers and spans of time are np.number too
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except ValueError:  # a signaling NaN
        return None


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, (float, np.floating)):
        return bool(np.isnan(value))
    pandas = sys.modules.get("pandas")
    return pandas is not None and (value is pandas.NA or value is pandas.NaT)


def _shown(value: Any) -> str:
    try:
        return quoted(value)
    except ValueError:  # Python writes no int of over 4,300 digits
        return "An int of thousands of digits"
