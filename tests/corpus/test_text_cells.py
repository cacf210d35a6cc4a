"""decode_cells, is_empty; see also test_schema."""

from __future__ import annotations

import pyarrow as pa
import pytest
from cell_rows import raw_rows
from csv_strategies import NO_DEADLINE
from hypothesis import given
from hypothesis import strategies as st

from lancetnic_dask.corpus.sieve import Sieve
from lancetnic_dask.corpus.text_cells import PADDING, decode_cells, is_empty
from lancetnic_dask.errors import EncodingError


@NO_DEADLINE
@given(
    texts=st.lists(st.text(st.sampled_from(PADDING + "aб£‐。"), max_size=3), max_size=12),
    start=st.integers(0, 3),
)
def test_a_text_is_empty_where_strip_leaves_nothing(texts: list[str], start: int) -> None:
    """Wherever in a larger array it stands; £, ‐ and 。 begin with the bytes of some padding."""
    column = pa.array(["x "] * start + texts, pa.large_string()).slice(start)

    assert is_empty(column).tolist() == [not text.strip(PADDING) for text in texts]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"a" * 30 + b"\xff", "…b'" + "a" * 20 + "\\xff'"),
        (b"\xff" + b"a" * 30, "b'\\xff" + "a" * 19 + "'…"),
        (b"a" * 21 + b"\xff" + b"b" * 20, "…b'" + "a" * 20 + "\\xff" + "b" * 19 + "'…"),
        (b"a" * 20 + b"\xff" + b"b" * 19, "b'" + "a" * 20 + "\\xff" + "b" * 19 + "'"),
    ],
)
def test_the_bytes_around_a_fault_are_shown(value: bytes, shown: str) -> None:
    """However long the text is, and wherever in it the fault."""
    rows = raw_rows([(value,)])

    with pytest.raises(EncodingError) as caught:
        decode_cells(Sieve(rows, "error"), rows.cells[0], "text", "utf-8")

    assert caught.value.what == f"Byte 0xff is not utf-8: {shown}."


def test_the_encoding_is_guessed_from_all_cells() -> None:
    """The first alone looks like cp1252."""
    words = ["ё", "Очень хорошая лампа, всем советую", "Плохо работает, не берите"]
    rows = raw_rows([(b"plain",), *((word.encode("koi8-r"),) for word in words)])

    with pytest.raises(EncodingError) as caught:
        decode_cells(Sieve(rows, "error"), rows.cells[0], "text", "utf-8")

    assert str(caught.value) == (
        "Byte 0xa3 is not utf-8: b'\\xa3'.\n"
        "  at a.csv, row 102, column 'text', byte 5100\n"
        "  It looks like koi8-r or iso8859-5 or cp1251: pass encoding='koi8-r', or "
        "encoding_errors='replace'."
    )
