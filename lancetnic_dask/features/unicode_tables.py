"""Python's own Unicode version -> code point tables that kernels read.

Python's `str.lower` and `re` are the reference for tokens, so the tables are made from them,
not from a file of the Unicode Consortium: a worker with another Python has other tables, which
is why `UNICODE_VERSION` belongs into every fingerprint.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "CONTEXTUAL_CODE_POINTS",
    "CONTEXTUAL_LETTER",
    "NUM_CODE_POINTS",
    "UNICODE_VERSION",
    "is_word",
    "lower",
    "packed_letters",
]

UNICODE_VERSION: Final = unicodedata.unidata_version
NUM_CODE_POINTS: Final = 0x110000

# U+0130 becomes two code points, "i" and a combining dot; U+03A3 becomes σ or, at the end of a
# word, ς. All others become exactly one code point, whatever stands beside them.
CONTEXTUAL_CODE_POINTS: Final = (0x130, 0x3A3)
# Stands in `packed_letters` for the two above; byte 1 is no letter of any text.
CONTEXTUAL_LETTER: Final = 1

_FIRST_SURROGATE, _AFTER_SURROGATES = 0xD800, 0xE000


@functools.cache
def is_word() -> NDArray[np.bool_]:
    r"""Tell which code points ``\w`` of the `re` module matches in a ``str``.

    Returns
    -------
    ndarray of shape (0x110000,), dtype=bool
        Read-only; made once a process. Surrogates are False.

    Examples
    --------
    >>> is_word()[[ord(c) for c in "Aя_٣中 -"]].tolist()
    [True, True, True, True, True, False, False]
    """
    code_points = _code_points()
    matched = np.zeros(code_points.size, dtype=np.bool_)
    for match in re.finditer(r"\w+", _decoded(code_points)):
        matched[match.start() : match.end()] = True
    table = np.zeros(NUM_CODE_POINTS, dtype=np.bool_)
    table[code_points] = matched
    table.flags.writeable = False
    return table


@functools.cache
def lower() -> NDArray[np.uint32]:
    """Give the lower case of each code point, where it is one code point.

    Returns
    -------
    ndarray of shape (0x110000,), dtype=uint32
        Read-only; made once a process. Surrogates and `CONTEXTUAL_CODE_POINTS` map to
        themselves: rows that hold one of the latter need `str.lower`.

    Examples
    --------
    >>> chr(lower()[ord("Я")])
    'я'
    """
    code_points = np.delete(_code_points(), CONTEXTUAL_CODE_POINTS)  # both below the surrogates
    lowered = np.frombuffer(_decoded(code_points).lower().encode("utf-32-le"), dtype="<u4")
    if lowered.size != code_points.size:  # it would shift all that follow
        message = f"Unicode {UNICODE_VERSION} has new code points whose lower case is not one."
        raise RuntimeError(message)
    table = np.arange(NUM_CODE_POINTS, dtype=np.uint32)
    table[code_points] = lowered
    table.flags.writeable = False
    return table


@functools.cache
def packed_letters(*, lowercase: bool) -> NDArray[np.uint32]:
    """Give the UTF-8 bytes of each word character, the first byte lowest; 0 for all others.

    Parameters
    ----------
    lowercase : bool
        Whether to give the bytes of the lower case. A character counts as a word character by
        its lower case then, as the pattern is matched after `str.lower`.

    Returns
    -------
    ndarray of shape (num_letters,), dtype=uint32
        Read-only; made once a process. Ends after the last word character: code points beyond
        are none. `CONTEXTUAL_LETTER` stands for `CONTEXTUAL_CODE_POINTS` if lowercase.

    Examples
    --------
    >>> letters = packed_letters(lowercase=True)
    >>> [hex(letters[ord(c)]) for c in "AЯ-"]
    ['0x61', '0x8fd1', '0x0']
    """
    code_points = lower() if lowercase else np.arange(NUM_CODE_POINTS, dtype=np.uint32)
    code_points = np.where(is_word()[code_points], code_points, 0)
    code_points = code_points[: np.flatnonzero(code_points)[-1] + 1]
    tail = 0x80 | (code_points & 0x3F)
    second = 0x80 | (code_points >> 6 & 0x3F)
    third = 0x80 | (code_points >> 12 & 0x3F)
    table = np.select(
        [code_points < 0x80, code_points < 0x800, code_points < 0x10000],
        [
            code_points,
            tail << 8 | 0xC0 | code_points >> 6,
            tail << 16 | second << 8 | 0xE0 | code_points >> 12,
        ],
        tail << 24 | second << 16 | third << 8 | 0xF0 | code_points >> 18,
    ).astype(np.uint32)
    if lowercase:
        table[list(CONTEXTUAL_CODE_POINTS)] = CONTEXTUAL_LETTER
    table.flags.writeable = False
    return table


def _code_points() -> NDArray[np.uint32]:
    """List all code points that a text can hold: surrogates are not among them."""
    every = np.arange(NUM_CODE_POINTS, dtype=np.uint32)
    return np.delete(every, slice(_FIRST_SURROGATE, _AFTER_SURROGATES))


def _decoded(code_points: NDArray[np.uint32]) -> str:
    """Make one string of the code points, in milliseconds."""
    return code_points.astype("<u4").tobytes().decode("utf-32-le")
