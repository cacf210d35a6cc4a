"""Tokens against plain Python and against scikit-learn."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from reference_text import rows_of, texts, tokenize_text
from sklearn.feature_extraction.text import CountVectorizer

from lancetnic_dask.errors import BudgetError
from lancetnic_dask.features import arrow_text
from lancetnic_dask.features.term_lookup import lookup_terms
from lancetnic_dask.features.tokenize import TokenizedText, Tokenizer

rows_of_text = st.lists(st.one_of(texts, st.none()), max_size=12)


def tokenize(rows: list[str | None], *, lowercase: bool = True) -> TokenizedText:
    """Tokenize all rows at once."""
    tokenizer = Tokenizer(lowercase=lowercase)
    tokenizer.add(pa.array(rows, pa.string()))
    return tokenizer.finish()


def assert_same(left: TokenizedText, right: TokenizedText) -> None:
    """Compare all that there is."""
    assert left.terms.to_pylist() == right.terms.to_pylist()
    assert left.codes.tolist() == right.codes.tolist()
    assert left.row_offsets.tolist() == right.row_offsets.tolist()


def test_every_code_point_is_treated_as_in_python() -> None:
    """Each code point alone, twice, and inside a word."""
    characters = [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000]
    rows = [f"{c} {c}{c} aB{c}Cd" for c in characters]
    text = tokenize([*rows])

    expected = [tokenize_text(row) for row in rows]
    assert text.terms.to_pylist() == sorted({term for row in expected for term in row})
    assert text.terms.take(text.codes).to_pylist() == [term for row in expected for term in row]
    assert np.diff(text.row_offsets).tolist() == [len(row) for row in expected]


@pytest.mark.parametrize("lowercase", [False, True])
def test_every_ascii_character_is_treated_as_in_python_at_each_place(*, lowercase: bool) -> None:
    """Eight bytes are read at once: a character may stand at any of them."""
    rows: list[str | None] = [
        "xY" * 8 + "q" * shift + chr(i) + "Zw" * 8 for i in range(128) for shift in range(8)
    ]
    text = tokenize(rows, lowercase=lowercase)

    assert rows_of(text) == [tokenize_text(row, lowercase=lowercase) for row in rows]


@given(rows=rows_of_text, lowercase=st.booleans())
@example(rows=["ΑΣ Α'Σ ΑΣΑ Σ ΣΣ ΑΣ'Α ΑΣ' x\u0301Σ"], lowercase=True)
@example(rows=["ok İİ DİYARBAKIR Istanbul ΟΔΟΣ İ end"], lowercase=True)
@example(rows=["ȺȺȺ \u212aK ab ΑΣ cd İx end", "ÅÅ\u212b ΟΔΟΣ"], lowercase=True)
@example(rows=["K\u212aK ȺȺȺȺȺȺ ÅÅ", "x" * 7 + "я" * 9, "ab\x00cd"], lowercase=True)
def test_tokens_are_those_of_python(rows: list[str | None], *, lowercase: bool) -> None:
    """The tokens of each row in their order, and each term once, sorted."""
    text = tokenize(rows, lowercase=lowercase)

    expected = [tokenize_text(row, lowercase=lowercase) for row in rows]
    assert rows_of(text) == expected
    assert text.terms.to_pylist() == sorted({term for row in expected for term in row})


@given(rows=st.lists(texts, min_size=1, max_size=12))
def test_terms_and_counts_are_those_of_scikit_learn(rows: list[str]) -> None:
    """The same vocabulary in the same order, and the same count of each term in each row."""
    text = tokenize([*rows])
    counts = np.zeros((len(rows), len(text.terms)), dtype=np.int64)
    for row, (start, stop) in enumerate(pairwise(text.row_offsets)):
        np.add.at(counts[row], text.codes[start:stop], 1)

    if not text.codes.size:
        with pytest.raises(ValueError, match="empty vocabulary"):
            CountVectorizer().fit(rows)
        return
    vectorizer = CountVectorizer()
    expected = vectorizer.fit_transform(rows).toarray()
    assert vectorizer.get_feature_names_out().tolist() == text.terms.to_pylist()
    assert np.array_equal(counts, expected)


@given(rows=rows_of_text, cuts=st.lists(st.integers(0, 12), max_size=4), is_large=st.booleans())
def test_result_does_not_depend_on_the_batches(
    rows: list[str | None], cuts: list[int], *, is_large: bool
) -> None:
    """Sliced, chunked, large or not: the same rows give the same tokens."""
    array = pa.array(rows, pa.large_string() if is_large else pa.string())
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    slices = [array[i:j] for i, j in pairwise(bounds)]
    one_by_one, chunked = Tokenizer(), Tokenizer()
    for batch in slices:
        one_by_one.add(batch)
    chunked.add(pa.chunked_array(slices, type=array.type))

    whole = tokenize(rows)
    assert_same(one_by_one.finish(), whole)
    assert_same(chunked.finish(), whole)


@pytest.mark.parametrize("mask", [0, 1, 0x80000001])
def test_equal_hashes_do_not_merge_terms(mask: int) -> None:
    """Terms are told apart by their bytes, also if all of them have the same hash."""
    rows: list[str | None] = [
        f"term{i} {'long' * 5}{i} term{i // 2} я{i}я ab{'c' * i}" for i in range(300)
    ]
    tokenizer = Tokenizer()
    tokenizer._hash_mask = np.uint64(mask)
    tokenizer.add(pa.array(rows))

    assert_same(tokenizer.finish(), tokenize(rows))


def test_tables_grow() -> None:
    """Many terms, many tokens, and a term longer than all room at the start."""
    words = [f"w{i:x}" for i in range(40_000)]
    rows = [" ".join(words[i : i + 500]) for i in range(0, 40_000, 250)]
    rows += ["z" * 100_000 + " " + "я" * 70_001 + "!", "y" * 3_000_000]
    text = tokenize([*rows])

    assert text.terms.to_pylist() == sorted([*words, "z" * 100_000, "я" * 70_001, "y" * 3_000_000])
    assert rows_of(text) == [row.rstrip("!").split(" ") for row in rows]


@pytest.mark.parametrize("unit", ["a ", "ab ", "я ", "яя ", "a中 ", "", "x" * 17 + " "])
@pytest.mark.parametrize("end", ["z" * 20, "ΑΣ bc Σ", "яΣя" * 3, "中𐐀" * 9, "y" * 9_000, "ab\x00c"])
def test_the_end_of_a_block_may_stand_anywhere(unit: str, end: str) -> None:
    """Texts are read by some thousand bytes: no token is cut or lost where one block ends."""
    rows = [unit * (4_090 // max(1, len(unit)) + shift) + end + " tail" for shift in range(-3, 9)]
    rows += [unit.strip() * 2] * 5_000 + [end]
    text = tokenize([*rows])

    assert rows_of(text) == [tokenize_text(row) for row in rows]


def test_terms_with_the_same_start_are_sorted_by_the_rest() -> None:
    """Eight bytes decide most orders, but not all."""
    starts = ["abcdefgh", "abcdefg", "яяяя", "abcdefgя", "zz"]
    terms = [start + rest for start in starts for rest in ("", "a", "я", "ab", "a" * 20, "中")]
    text = tokenize([" ".join(reversed(terms))])

    assert text.terms.to_pylist() == sorted(set(terms))


def test_one_row_may_fill_many_segments() -> None:
    """Codes are kept in segments that do not end with rows, also in rows with a sigma."""
    row = "one two three " * 700_000
    rows: list[str | None] = [row, row + "ΣΑΣ " + "one " * 10_000, "end"]
    text = tokenize(rows)

    assert text.row_offsets.tolist() == [0, 2_100_000, 4_210_001, 4_210_002]
    assert text.terms.to_pylist() == ["end", "one", "three", "two", "σας"]
    expected = np.array([1, 3, 2] * 1_400_000 + [4] + [1] * 10_000 + [0])
    assert np.array_equal(text.codes, expected)


def test_null_is_an_empty_text_whatever_stands_behind_it() -> None:
    """Arrow leaves the bytes of a null undefined: they are not read."""
    validity = pa.py_buffer(bytes([0b11001]))  # the first row has the lowest bit
    offsets = pa.py_buffer(np.array([0, 3, 6, 9, 12, 15], dtype=np.int32))
    array = pa.StringArray.from_buffers(
        5, offsets, pa.py_buffer(b"aa bb \xff\xfe\xf0cc dd "), validity, 2
    )
    for start in range(6):
        tokenizer = Tokenizer()
        tokenizer.add(array[start:])
        assert rows_of(tokenizer.finish()) == [
            tokenize_text(row) for row in ["aa ", None, None, "cc ", "dd "][start:]
        ]


@pytest.mark.parametrize(
    "empty",
    [
        pa.array([], pa.string()),
        pa.array(["ab"], pa.large_string())[1:],
        pa.chunked_array([], pa.string()),
        pa.StringArray.from_buffers(0, pa.py_buffer(b""), pa.py_buffer(b"")),
    ],
)
def test_no_rows_give_no_tokens(empty: pa.StringArray) -> None:
    """Arrays of no rows have odd buffers, or none."""
    tokenizer = Tokenizer()
    tokenizer.add(empty)

    assert_same(tokenizer.finish(), Tokenizer().finish())


def test_finish_starts_again() -> None:
    """One tokenizer serves one partition after the other."""
    tokenizer = Tokenizer()
    tokenizer.add(pa.array(["first rows"]))
    tokenizer.finish()
    tokenizer.add(pa.array(["second"]))

    assert_same(tokenizer.finish(), tokenize(["second"]))


def test_terms_beyond_32_bit_offsets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message holds the size, the most, and what to do."""
    monkeypatch.setattr(arrow_text, "MAX_TERM_BYTES", 5)
    tokenizer = Tokenizer()
    tokenizer.add(pa.array(["one two"]))
    with pytest.raises(BudgetError) as caught:
        tokenizer.finish()

    assert str(caught.value) == (
        "The terms of one partition take 6 bytes; 5 is the most.\n"
        "  Cut the corpus into smaller partitions, or choose a smaller ngram_range."
    )


def test_other_types_are_refused() -> None:
    """Numbers are not texts."""
    with pytest.raises(TypeError) as caught:
        Tokenizer().add(pa.array([1, 2]))

    assert str(caught.value) == "Texts are string or large_string arrays, not int64."


def test_dtypes_are_those_of_the_docstring() -> None:
    """What is kept in files has one type."""
    text = tokenize(["one two", None])

    assert text.codes.dtype == np.int32
    assert text.row_offsets.dtype == np.int64
    assert text.terms.type == pa.string()


term_sets = st.sets(st.text(st.sampled_from("ab\x00я中𐐀"), max_size=4), max_size=30)


@given(terms=term_sets, vocabulary=term_sets, skipped=st.integers(0, 3), left_out=st.integers(0, 3))
def test_lookup_finds_what_a_dict_finds(
    terms: set[str], vocabulary: set[str], skipped: int, left_out: int
) -> None:
    """Columns of known terms, -1 for others, also in slices."""
    term_array = pa.array(sorted(terms), pa.string())[skipped:]
    vocabulary_array = pa.array(sorted(vocabulary), pa.string())[left_out:]
    columns = lookup_terms(term_array, vocabulary_array)

    known = {term: column for column, term in enumerate(vocabulary_array.to_pylist())}
    assert columns.tolist() == [known.get(term, -1) for term in term_array.to_pylist()]
    assert columns.dtype == np.int32


@pytest.mark.parametrize("num_terms", [1, 10, 5_000])
def test_lookup_in_a_large_vocabulary(num_terms: int) -> None:
    """Few terms or many, from the first to the last."""
    vocabulary = pa.array(sorted(f"t{i:x}" for i in range(0, 40_000, 2)))
    wanted = sorted(f"t{i:x}" for i in range(0, 40_000, 40_000 // num_terms))
    columns = lookup_terms(pa.array(wanted), vocabulary)

    known = {term: column for column, term in enumerate(vocabulary.to_pylist())}
    assert columns.tolist() == [known.get(term, -1) for term in wanted]
