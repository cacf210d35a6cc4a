"""Names of encodings, and guesses from bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancetnic_dask.corpus.encodings import (
    checked_encoding,
    encoding_advice,
    is_cuttable,
    likely_encodings,
)
from lancetnic_dask.errors import SettingError


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("utf8", "utf-8"),
        ("UTF-8-SIG", "utf-8"),
        ("windows-1251", "cp1251"),
        ("latin1", "iso8859-1"),
        ("utf-16", "utf-16"),
        ("shift-jis", "shift_jis"),
    ],
)
def test_an_encoding_has_one_name(given: str, name: str) -> None:
    """However people write it; UTF-8 is the same with a byte order mark."""
    assert checked_encoding(given) == name


@pytest.mark.parametrize(
    "given", ["klingon", "base64", "rot13", "idna", "undefined", "unicode_escape", "", None, 8]
)
def test_what_is_no_text_encoding_is_refused(given: object) -> None:
    """Codecs of bytes to bytes and of domain names are none."""
    with pytest.raises(SettingError) as caught:
        checked_encoding(given)

    assert str(caught.value) == (
        f"encoding is {given!r}.\n"
        "  Pass a text encoding that Python knows, such as 'utf-8', 'cp1251' or 'latin-1'."
    )


@pytest.mark.parametrize("encoding", ["utf-8", "cp1251", "iso8859-1", "koi8-r"])
def test_files_whose_newline_bytes_are_newlines_can_be_cut(encoding: str) -> None:
    """UTF-8, and one byte a character."""
    assert is_cuttable(encoding)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-7", "gb18030", "shift_jis", "cp037"])
def test_other_files_are_not_cut(encoding: str) -> None:
    """There that byte may be part of another character, or mean something else."""
    assert not is_cuttable(encoding)


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1251", "Отличный телефон, работает быстро"),
        ("koi8-r", "Отличный телефон, работает быстро"),
        ("cp1252", "He said “fine” – 5 € for a café"),
        ("cp1252", "Müller fährt im Café"),
        ("gb18030", "这家餐厅的菜很好吃，服务也不错"),
        ("cp932", "この映画はとても面白かったです"),
        ("euc-kr", "이 영화는 정말 재미있었다"),
        ("big5", "這部電影非常好看"),
        ("utf-16", "hello"),
    ],
)
def test_the_likeliest_encoding_comes_first(encoding: str, text: str) -> None:
    """Also of a short text: that is what there is when one cell is wrong."""
    assert likely_encodings(text.encode(encoding))[0] == encoding


@pytest.mark.parametrize("text", ["хорошо", "Доставка в Москву", "Привет", "ёлка"])
@pytest.mark.parametrize("encoding", ["cp1251", "koi8-r"])
def test_a_few_russian_letters_are_enough(encoding: str, text: str) -> None:
    """The cases of letters are swapped between the two, and both are Chinese as well."""
    assert likely_encodings(text.encode(encoding))[0] == encoding


@pytest.mark.parametrize("text", ["caf\xe9", "ni\xf1o", "it’s", "£5", " 25 °C", "¿Qué?", "wait…"])
def test_a_single_western_character_is_enough(text: str) -> None:
    """By what stands around it; latin-1 has control characters where cp1252 has quotes."""
    assert likely_encodings(text.encode("cp1252"))[0] == "cp1252"


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1250", "Książka była bardzo ciekawa i polecam ją każdemu"),
        ("cp1257", "Rīgā ļoti skaisti, šodien ēdām pīrāgus un ķiršu kūku"),
        ("iso8859-5", "Спасибо за быструю доставку, всё понравилось"),
    ],
)
def test_rarer_encodings_are_among_the_likely_ones(encoding: str, text: str) -> None:
    """Of whole sentences, also where only charset-normalizer knows them."""
    assert encoding in likely_encodings(text.encode(encoding))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_zeros_beside_ascii_are_utf_16_without_a_mark(encoding: str) -> None:
    """Excel and Windows write it with a mark, and programs without."""
    assert likely_encodings("text,label\n".encode(encoding)) == [encoding]


@given(st.binary(max_size=200))
@settings(max_examples=100)
def test_a_guess_never_fails(sample: bytes) -> None:
    """It is part of a message about another error."""
    names = likely_encodings(sample)

    assert len(names) <= 3
    for name in names:
        assert checked_encoding(name)
        sample.decode(name, "replace")


def test_a_guess_decodes_the_sample() -> None:
    """Else it would be bad advice; a sample may end within a character."""
    sample = "这家餐厅的菜很好吃".encode("gb18030")[:-1]

    for name in likely_encodings(sample):
        sample.decode(name, errors="ignore")
    assert likely_encodings(b"\xff" + sample)[0] == "gb18030"
    assert likely_encodings(b"\x81\xff\xff\x00\xff") == []


def test_advice_names_what_to_pass() -> None:
    """With the likeliest encodings, or without where nothing fits."""
    assert encoding_advice("Книга понравилась, спасибо".encode("cp1251")).startswith(
        "It looks like cp1251"
    )
    assert encoding_advice(b"\x81\xff\xff\x00\xff") == (
        "Pass the encoding of the file, for example encoding='cp1251' or 'cp1252'"
    )


def test_advice_leaves_out_what_was_tried() -> None:
    """Bytes that are wrong in an encoding are not in it, in whatever order of bytes."""
    sample = "text,label\n".encode("utf-16-be")

    assert "utf-16-be" in encoding_advice(sample)
    assert "utf-16" not in encoding_advice(sample, wrong="utf-16")
