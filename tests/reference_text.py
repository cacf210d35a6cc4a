"""Slow twins of the text kernels: tokens, n-grams and row hashes in plain Python."""

from __future__ import annotations

import re
import struct
from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lancetnic_dask.features.tokenize import TokenizedText

__all__ = [
    "hash_row",
    "rows_of",
    "texts",
    "tokenize_text",
    "word_ngrams",
]

_MASK = (1 << 64) - 1

# Where lower-casing and word boundaries go wrong: final sigma, dotted capital I, letters whose
# lower case has another length, marks, joiners, digits and scripts of many kinds.
_HARD_CHARACTERS = (
    "ΣσςΑαΟ'·.:’\u00ad"  # sigma, and what the search for its word passes over
    "İIıiK\u212aÅ\u212bȺⱥẞßÄä\u1e9e\u01c5"  # Kelvin, Angstrom, title case
    "\u0301\u0307\u0345\u200d\u200c\u200b\ufeff\u2060\x00\x01"
    "ЯяЁё\u0456中文日本語漢ไทยสวัสดีكتابمرحباחיים"
    "𐐀𐐨𝐀𝐚𞤀𞤢😀👩\U0010ffff\ue000"
    "_-09٣५²½Ⅷⅷⓐⓑ aB zZ@[`{/:^~\t\n\r\u2028\u00a0"
)
characters = st.one_of(
    st.sampled_from(_HARD_CHARACTERS),
    st.sampled_from("abcXYZ _"),
    st.characters(exclude_categories=["Cs"]),
)
texts = st.one_of(
    st.text(characters, max_size=40),
    st.lists(st.sampled_from(["the", "cat", "ΟΔΟΣ", "İx", "a", "of", "Яблоко", "Straße"])).map(
        " ".join
    ),
)


def tokenize_text(text: str | None, *, lowercase: bool = True) -> list[str]:
    """Cut a text as scikit-learn does."""
    text = text or ""
    return re.findall(r"(?u)\b\w\w+\b", text.lower() if lowercase else text)


def word_ngrams(
    tokens: list[str], ngram_range: tuple[int, int], stop_words: frozenset[str]
) -> list[str]:
    """All n-grams of a row, the shorter first."""
    tokens = [token for token in tokens if token not in stop_words]
    return [
        " ".join(tokens[i : i + n])
        for n in range(ngram_range[0], ngram_range[1] + 1)
        for i in range(len(tokens) - n + 1)
    ]


def rows_of(text: TokenizedText) -> list[list[str]]:
    """Spell the tokens of each row out."""
    terms: list[str] = text.terms.to_pylist()
    spelled = [terms[code] for code in text.codes]
    bounds = text.row_offsets.tolist()
    return [spelled[start:stop] for start, stop in pairwise(bounds)]


def hash_row(texts: Sequence[str], numbers: Sequence[float]) -> tuple[int, int]:
    """Hash a row as `hash_rows` does, in Python's integers."""
    words: list[int] = []
    for text in texts:
        utf8 = text.encode()
        words.append(len(utf8))
        words += [int.from_bytes(utf8[i : i + 8], "little") for i in range(0, len(utf8), 8)]
    for number in numbers:
        is_nan = number != number  # noqa: PLR0124 - only NaN differs from itself
        bits = struct.unpack("<Q", struct.pack("<d", 0.0 if number == 0 else number))[0]
        words.append(0x7FF8000000000000 if is_nan else bits)
    first, second = 0x243F6A8885A308D3, 0x13198A2E03707344
    for word in words:
        first = (first ^ word * 0x4CF5AD432745937F & _MASK) * 0x87C37B91114253D5 & _MASK
        first ^= first >> 29
        second = second + (word ^ word >> 32) * 0xFF51AFD7ED558CCD & _MASK
        second = (second << 27 | second >> 37) * 0xC4CEB9FE1A85EC53 & _MASK
    return _final(first), _final(second)


def _final(state: int) -> int:
    """Mix all bits."""
    state = (state ^ state >> 33) * 0xFF51AFD7ED558CCD & _MASK
    state = (state ^ state >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return state ^ state >> 33
