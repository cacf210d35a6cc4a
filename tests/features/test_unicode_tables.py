"""Code point tables against Python, one code point after the other."""

from __future__ import annotations

import re
import unicodedata

import numpy as np
import pytest

from lancetnic_dask.features.unicode_tables import (
    CONTEXTUAL_CODE_POINTS,
    CONTEXTUAL_LETTER,
    NUM_CODE_POINTS,
    UNICODE_VERSION,
    is_word,
    lower,
    packed_letters,
)

CHARACTERS = [chr(i) for i in range(NUM_CODE_POINTS) if not 0xD800 <= i < 0xE000]


def test_word_characters_are_those_of_python() -> None:
    r"""Each code point is a word character where ``\w`` matches it."""
    matches = re.compile(r"\w").match
    expected = [c for c in CHARACTERS if matches(c)]

    assert [chr(i) for i in np.flatnonzero(is_word())] == expected
    assert expected == [c for c in CHARACTERS if c.isalnum() or c == "_"]


def test_lower_case_is_that_of_python() -> None:
    """Each code point has Python's lower case, except for the two that are told."""
    table = lower()
    wrong = [ord(c) for c in CHARACTERS if chr(table[ord(c)]) != c.lower()]

    assert wrong == list(CONTEXTUAL_CODE_POINTS)
    assert table[list(CONTEXTUAL_CODE_POINTS)].tolist() == list(CONTEXTUAL_CODE_POINTS)


def test_only_two_code_points_have_no_lower_case_of_their_own() -> None:
    """All others become one code point, and the same at the start, inside and at the end."""
    odd = [
        ord(c)
        for c in CHARACTERS
        if len(c.lower()) != 1 or f"a{c}a{c}".lower() != f"a{c.lower()}a{c.lower()}"
    ]

    assert odd == list(CONTEXTUAL_CODE_POINTS)


@pytest.mark.parametrize("lowercase", [False, True])
def test_packed_letters_are_utf8_bytes(*, lowercase: bool) -> None:
    """The bytes of each word character, the first lowest, and 0 for all others."""
    table = packed_letters(lowercase=lowercase)
    expected = np.zeros(NUM_CODE_POINTS, dtype=np.uint32)
    for c in CHARACTERS:
        letter = c.lower() if lowercase else c
        if len(letter) == 1 and re.match(r"\w", letter):
            expected[ord(c)] = int.from_bytes(letter.encode(), "little")
    if lowercase:
        expected[list(CONTEXTUAL_CODE_POINTS)] = CONTEXTUAL_LETTER

    assert np.array_equal(table, expected[: table.size])
    assert not expected[table.size :].any()


def test_tables_are_made_once_and_cannot_be_changed() -> None:
    """Every caller of a process sees the same read-only arrays."""
    for first, second in [
        (is_word(), is_word()),
        (lower(), lower()),
        (packed_letters(lowercase=True), packed_letters(lowercase=True)),
    ]:
        assert first is second
        assert not first.flags.writeable


def test_version_is_the_one_of_this_python() -> None:
    """Fingerprints carry the version that the tables were made from."""
    assert unicodedata.unidata_version == UNICODE_VERSION
