"""N-grams against plain Python and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_text import rows_of, texts, tokenize_text, word_ngrams
from sklearn.feature_extraction.text import CountVectorizer

from lancetnic_dask.errors import SettingError
from lancetnic_dask.features.ngrams import expand_terms
from lancetnic_dask.features.tokenize import TokenizedText, Tokenizer

NO_WORDS: frozenset[str] = frozenset()
# "ab" and "abc": the joining space must stand before each letter.
few_words = st.lists(st.sampled_from(["ab", "abc", "b0", "ba", "яя", "_a", "中文", "the"])).map(
    " ".join
)
rows_of_text = st.lists(st.one_of(few_words, texts), min_size=1, max_size=8)
ranges = st.sampled_from([(1, 1), (1, 2), (2, 2), (2, 3), (1, 3), (3, 5)])
stop_word_sets = st.sampled_from([NO_WORDS, frozenset(["the", "ab", "cat", "zz", "яя", ""])])


def tokenize(rows: list[str]) -> TokenizedText:
    """Tokenize all rows at once."""
    tokenizer = Tokenizer()
    tokenizer.add(pa.array(rows, pa.string()))
    return tokenizer.finish()


@given(rows=rows_of_text, ngram_range=ranges, stop_words=stop_word_sets)
def test_ngrams_are_those_of_plain_python(
    rows: list[str], ngram_range: tuple[int, int], stop_words: frozenset[str]
) -> None:
    """The n-grams of each row in the order that is told, and each term once, sorted."""
    text = tokenize(rows)
    before = (text.codes.copy(), text.row_offsets.copy(), text.terms)
    result = expand_terms(text, ngram_range=ngram_range, stop_words=stop_words)

    expected = [word_ngrams(tokenize_text(row), ngram_range, stop_words) for row in rows]
    assert rows_of(result) == expected
    assert result.terms.to_pylist() == sorted({term for row in expected for term in row})
    assert result.codes.dtype == np.int32
    assert result.row_offsets.dtype == np.int64
    assert np.array_equal(text.codes, before[0])
    assert np.array_equal(text.row_offsets, before[1])
    assert text.terms is before[2]


@given(
    rows=rows_of_text,
    ngram_range=st.sampled_from([(1, 1), (1, 2), (2, 3), (1, 3)]),
    stop_words=stop_word_sets,
)
def test_ngrams_are_those_of_scikit_learn(
    rows: list[str], ngram_range: tuple[int, int], stop_words: frozenset[str]
) -> None:
    """The same vocabulary in the same order, and the same counts."""
    result = expand_terms(tokenize(rows), ngram_range=ngram_range, stop_words=stop_words)
    vectorizer = CountVectorizer(ngram_range=ngram_range, stop_words=sorted(stop_words) or None)

    if not result.codes.size:
        with pytest.raises(ValueError, match="empty vocabulary"):
            vectorizer.fit(rows)
        return
    expected = vectorizer.fit_transform(rows).toarray()
    assert vectorizer.get_feature_names_out().tolist() == result.terms.to_pylist()
    row_of_token = np.repeat(np.arange(len(rows)), np.diff(result.row_offsets))
    counts = np.zeros_like(expected)
    np.add.at(counts, (row_of_token, result.codes), 1)
    assert np.array_equal(counts, expected)


def test_single_words_without_stop_words_are_left_as_they_are() -> None:
    """Nothing is copied where there is nothing to do."""
    text = tokenize(["one two", "three"])

    assert expand_terms(text, ngram_range=(1, 1), stop_words=NO_WORDS) is text


def test_tables_of_ngrams_grow() -> None:
    """More distinct n-grams than there is room for at the start."""
    random = np.random.default_rng(1)
    rows = [" ".join(f"w{i}" for i in random.integers(0, 60, 50)) for _ in range(200)]
    result = expand_terms(tokenize(rows), ngram_range=(1, 4), stop_words=NO_WORDS)

    expected = [word_ngrams(row.split(), (1, 4), NO_WORDS) for row in rows]
    assert rows_of(result) == expected
    assert result.terms.to_pylist() == sorted({term for row in expected for term in row})


@pytest.mark.parametrize("ngram_range", [(1, 3), (4, 10**9)])
def test_rows_shorter_than_n_have_no_ngrams(ngram_range: tuple[int, int]) -> None:
    """Empty rows, and n-grams longer than any row."""
    rows = ["", "one", "one two", "!"]
    result = expand_terms(tokenize(rows), ngram_range=ngram_range, stop_words=NO_WORDS)

    expected = [word_ngrams(tokenize_text(row), (ngram_range[0], 4), NO_WORDS) for row in rows]
    assert rows_of(result) == expected


@pytest.mark.parametrize("ngram_range", [(0, 1), (2, 1), (-1, -1)])
def test_impossible_range_is_refused(ngram_range: tuple[int, int]) -> None:
    """The message holds the value and what to do."""
    with pytest.raises(SettingError) as caught:
        expand_terms(tokenize(["one"]), ngram_range=ngram_range, stop_words=NO_WORDS)

    assert str(caught.value) == (
        f"ngram_range={ngram_range!r} is not a range of n-gram lengths.\n"
        "  Pass two whole numbers, the first at least 1 and the second not below it."
    )
