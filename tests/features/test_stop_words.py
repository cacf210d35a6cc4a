"""Stop words against scikit-learn's list."""

from __future__ import annotations

from typing import cast

import pytest
from sklearn.feature_extraction import text as sklearn_text

from lancetnic_dask.errors import SettingError
from lancetnic_dask.features.stop_words import ENGLISH_STOP_WORDS, resolve_stop_words


def test_english_words_are_those_of_scikit_learn() -> None:
    """All 318 of them, and the same object for each call."""
    assert sklearn_text.ENGLISH_STOP_WORDS == ENGLISH_STOP_WORDS
    assert len(ENGLISH_STOP_WORDS) == 318
    assert resolve_stop_words("english") is ENGLISH_STOP_WORDS


def test_words_are_taken_as_they_come() -> None:
    """Any iterable of words, or none."""
    assert resolve_stop_words(word for word in ["und", "oder", "und"]) == {"und", "oder"}
    assert resolve_stop_words([]) == frozenset()
    assert resolve_stop_words(None) == frozenset()


def test_unknown_name_is_refused() -> None:
    """A misspelt name gets the nearest one."""
    with pytest.raises(SettingError) as caught:
        resolve_stop_words("englisch")

    assert str(caught.value) == (
        "stop_words='englisch' is not the name of a list.\n"
        "  Did you mean 'english'? There are: 'english'. Other words are passed as a list."
    )


def test_words_that_are_no_strings_are_refused() -> None:
    """They would never match, and say nothing."""
    with pytest.raises(SettingError) as caught:
        resolve_stop_words(cast("list[str]", ["und", 7]))

    assert str(caught.value) == (
        "stop_words holds 7, which is not a string.\n  Pass a list of strings."
    )
