"""cast_rows, decode_rows, merge_set_aside."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from cell_rows import place, raw_rows
from csv_strategies import NO_DEADLINE
from hypothesis import example, given
from hypothesis import strategies as st

from lancetnic_dask.corpus import schema
from lancetnic_dask.corpus.readers import RawRows
from lancetnic_dask.corpus.schema import CastRows, SetAside, cast_rows, decode_rows, merge_set_aside
from lancetnic_dask.errors import EncodingError, Location, RecordError, quoted
from lancetnic_dask.settings import ColumnRoles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lancetnic_dask.settings import BadRowPolicy

ROLES = ColumnRoles(text_columns=("text",), data_columns=("price",), label_column="label")
TEXT = ColumnRoles(text_columns=("text",), data_columns=(), label_column=None)
PRICE = ColumnRoles(text_columns=(), data_columns=("price",), label_column=None)

COLUMNS = (None, "text", "price", "label")
BLANK = "neither a word nor a number"
SINGLE_BYTE = ["latin-1", "cp1251", "cp1252", "koi8-r", "iso8859-15", "cp437", "cp1258", "ascii"]


def cast(
    rows: RawRows, roles: ColumnRoles = ROLES, *, policy: BadRowPolicy, encoding: str = "utf-8"
) -> CastRows:
    """Cast, and check that every row is either kept or set aside, once."""
    result = cast_rows(rows, roles, encoding=encoding, policy=policy)
    for text in result.texts:
        text.validate(full=True)
        assert len(text) == result.num_rows
    assert result.numeric.shape == (result.num_rows, len(roles.data_columns))
    assert (result.labels is None) == (roles.label_column is None)
    assert result.num_rows + sum(part.count for part in result.set_aside) == rows.num_rows
    return result


def labels_of(rows: CastRows) -> list[str]:
    """Return the labels of rows that have some."""
    assert rows.labels is not None
    labels: list[str] = rows.labels.to_pylist()
    return labels


def numbers(cells: Sequence[str]) -> list[float]:
    """Cast one column of numbers, beside a text that keeps every row."""
    roles = ColumnRoles(text_columns=("text",), data_columns=("price",), label_column=None)
    rows = raw_rows([(b"x", cell.encode()) for cell in cells])
    values: list[float] = cast(rows, roles, policy="error").numeric[:, 0].tolist()
    return values


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("12", 12.0),
        ("+12.50", 12.5),
        ("-0.5", -0.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("007", 7.0),
        ("1e3", 1000.0),
        ("1E+3", 1000.0),
        ("+1.5e-3", 0.0015),
        ("  12\t", 12.0),
        ("\xa012\u2009", 12.0),
        ("12\0\0", 12.0),
        ("1e-400", 0.0),
        ("1" * 300, float("1" * 300)),
        ("0." + "3" * 400, 1 / 3),
    ],
)
def test_numbers_as_people_write_them(cell: str, number: float) -> None:
    """Signs, exponents and padding; as many digits as you like."""
    assert numbers([cell]) == [number]


@pytest.mark.parametrize("cell", ["", " ", "\t", "\xa0", "\0\0", " \0"])
def test_an_empty_cell_is_a_missing_number(cell: str) -> None:
    """So is one of white space or NULs."""
    [number] = numbers([cell])

    assert math.isnan(number)


@NO_DEADLINE
@given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_a_number_that_python_writes_is_read_back(values: list[float]) -> None:
    """Exactly, in both notations."""
    assert numbers([repr(value) for value in values]) == values
    assert numbers([f"{value:.17e}" for value in values]) == values


@pytest.mark.parametrize(
    "cell",
    ["1_000", "12,5.1", "0x1A", "1e", "e5", ".", "+", "--1", "+-1", "1.2.3", "1e5.0", "٣",
     "nan", "NaN", "inf", "-Infinity", "NA", "N/A", "null", "None", "12,50 EUR", "70%",
     "$1,200", "Yes", "5\n6"],
)  # fmt: skip
def test_what_is_no_number_is_named(cell: str) -> None:
    """Row, column, byte and value; a word for "missing" is a word."""
    rows = raw_rows([(b"good", b"1", b"x"), (b"bad", cell.encode(), b"x")])

    with pytest.raises(RecordError) as caught:
        cast(rows, policy="error")

    assert str(caught.value) == (
        f"{cell!r} is not a number.\n"
        "  at a.csv, row 102, column 'price', byte 5100\n"
        "  Correct it, empty the cell, or leave such rows out with on_bad_rows='skip'."
    )
    assert cast(rows, policy="skip").set_aside == [
        SetAside("no number in column 'price'", 1, place(1, "price"))
    ]


@pytest.mark.parametrize("cell", ["1e400", "-1e400", "+9" * 1 + "9" * 400])
def test_a_number_too_large_is_named(cell: str) -> None:
    """Infinity is no number to learn from."""
    rows = raw_rows([(b"good", b"1", b"x"), (b"bad", cell.encode(), b"x")])

    with pytest.raises(RecordError) as caught:
        cast(rows, policy="error")

    assert str(caught.value) == (
        f"{quoted(cell)} is too large for a number.\n"
        "  at a.csv, row 102, column 'price', byte 5100\n"
        "  Correct it, empty the cell, or leave such rows out with on_bad_rows='skip'."
    )
    kept = cast(rows, policy="skip")
    assert kept.numeric.tolist() == [[1.0]]
    assert kept.set_aside == [
        SetAside("an infinite number in column 'price'", 1, place(1, "price"))
    ]


def test_words_for_missing_are_words() -> None:
    """In texts and labels only the empty cell is missing."""
    words = ["NA", "null", "None", "nan", "N/A", "NULL", "-"]

    cast_words = cast(raw_rows([(w.encode(), b"", w.encode()) for w in words]), policy="error")

    assert cast_words.texts[0].to_pylist() == words
    assert labels_of(cast_words) == words
    assert cast_words.set_aside == []


def test_labels_stay_as_written() -> None:
    """Leading zeros, blanks around and signs are part of a label."""
    labels = ["01", "1", "+1", "1.0", " good", "Good"]

    kept = cast(raw_rows([(b"x", b"1", label.encode()) for label in labels]), policy="error")

    assert labels_of(kept) == labels


@pytest.mark.parametrize("label", [b"", b"  ", b"\0"])
def test_a_missing_label_is_an_error_or_set_aside(label: bytes) -> None:
    """It never becomes a class."""
    rows = raw_rows([(b"a", b"1", b"x"), (b"b", b"2", label), (b"c", b"3", label)])

    with pytest.raises(RecordError) as caught:
        cast(rows, policy="error")

    assert str(caught.value) == (
        "The label is missing.\n"
        "  at a.csv, row 102, column 'label', byte 5100\n"
        "  Fill it in, or leave such rows out with on_bad_rows='skip'."
    )
    kept = cast(rows, policy="skip")
    assert labels_of(kept) == ["x"]
    assert kept.set_aside == [SetAside("no label", 2, place(1, "label"))]


@pytest.mark.parametrize("policy", ["error", "skip"])
def test_a_row_with_nothing_to_learn_from_is_set_aside_and_no_error(policy: BadRowPolicy) -> None:
    """Blank texts and no number; with or without a label, as in rows of separators only."""
    rows = raw_rows(
        [
            (b"", b"", b"x"),
            (b"a", b"", b"x"),
            (b"", b"0", b"x"),
            (b" \t\xc2\xa0", b" ", b"x"),
            (b"", b"", b""),
            (b"\0", b"\0", b"x"),
        ]
    )

    kept = cast(rows, policy=policy)

    assert kept.texts[0].to_pylist() == ["a", ""]
    assert kept.set_aside == [SetAside(BLANK, 4, place(0))]


@pytest.mark.parametrize("roles", [TEXT, PRICE])
def test_a_blank_cell_is_set_aside_where_there_is_no_other_column(roles: ColumnRoles) -> None:
    """With texts only, and with numbers only."""
    kept = cast(raw_rows([(b"1",), (b" ",)]), roles, policy="error")

    assert kept.num_rows == 1
    assert kept.set_aside == [SetAside(BLANK, 1, place(1))]


@pytest.mark.parametrize(("num_fields", "cells"), [(2, "2 cells"), (4, "4 cells")])
def test_a_ragged_row_is_an_error_or_set_aside(num_fields: int, cells: str) -> None:
    """Too few or too many cells mean a quote or separator gone wrong."""
    rows = raw_rows([(b"a", b"1", b"x"), (b"b", b"2", b"")], num_fields=[3, num_fields])

    with pytest.raises(RecordError) as caught:
        cast(rows, policy="error")

    assert str(caught.value) == (
        f"The row has {cells} and the header 3.\n"
        "  at a.csv, row 102, byte 5100\n"
        "  Check quotes and separators there, or leave such rows out with on_bad_rows='skip'."
    )
    assert cast(rows, policy="skip").set_aside == [
        SetAside("too few or too many cells", 1, place(1))
    ]


def test_a_row_that_is_too_long_is_an_error_or_set_aside() -> None:
    """Its cells were never kept."""
    rows = raw_rows([(b"a", b"1", b"x"), (b"", b"", b"")], too_long=[1], num_fields=[3, 900])

    with pytest.raises(RecordError) as caught:
        cast(rows, policy="error")

    assert str(caught.value) == (
        "The row is longer than max_row_bytes; perhaps a quote is never closed.\n"
        "  at a.csv, row 102, byte 5100\n"
        "  Close the quote, pass quotechar=None or a larger max_row_bytes, or leave such rows out "
        "with on_bad_rows='skip'."
    )
    assert cast(rows, policy="skip").set_aside == [
        SetAside("more bytes than max_row_bytes", 1, place(1))
    ]


@pytest.mark.parametrize(("column", "name"), [(0, "text"), (1, "price"), (2, "label")])
def test_bytes_of_another_encoding_are_named(column: int, name: str) -> None:
    """File, row, column, byte and value; in each role."""
    bad = [b"b", b"2", b"x"]
    bad[column] = b"caf\xe9"
    rows = raw_rows([(b"a", b"1", b"x"), bad, (b"c", b"3", b"x")])

    with pytest.raises(EncodingError) as caught:
        cast(rows, policy="error")

    assert str(caught.value) == (
        "Byte 0xe9 is not utf-8: b'caf\\xe9'.\n"
        f"  at a.csv, row 102, column {name!r}, byte 5100\n"
        "  It looks like cp1252 or cp1250 or cp1257: pass encoding='cp1252', or "
        "encoding_errors='replace', or "
        "leave such rows out with on_bad_rows='skip'."
    )
    kept = cast(rows, policy="skip")
    assert kept.texts[0].to_pylist() == ["a", "c"]
    assert kept.numeric.tolist() == [[1.0], [3.0]]
    assert kept.set_aside == [SetAside("bytes that are not utf-8", 1, place(1, name))]


def test_half_characters_of_two_cells_make_no_character() -> None:
    """Cells lie side by side in memory, and together these would be valid UTF-8."""
    rows = raw_rows([(b"caf\xc3",), (b"\xa9",), (b"good",)])

    with pytest.raises(EncodingError) as caught:
        cast(rows, TEXT, policy="error")

    assert caught.value.where == place(0, "text")
    kept = cast(rows, TEXT, policy="skip")
    assert kept.texts[0].to_pylist() == ["good"]
    assert kept.set_aside == [SetAside("bytes that are not utf-8", 2, place(0, "text"))]


def decoded(cell: bytes, encoding: str) -> str | None:
    """Decode as Python does; None if it can't."""
    try:
        return cell.decode(encoding)
    except UnicodeDecodeError:
        return None


# Rich in the edges of UTF-8: overlong forms, surrogates, beyond U+10FFFF, cut characters.
bytes_of_text = st.one_of(
    st.binary(max_size=8),
    st.text(max_size=4).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from([b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"]),
).filter(lambda cell: cell != b"text")  # which would be the header once more


@NO_DEADLINE
@pytest.mark.parametrize("encoding", ["utf-8", *SINGLE_BYTE])
@given(cells=st.lists(bytes_of_text, min_size=1, max_size=12), start=st.integers(0, 3))
def test_text_is_what_python_decodes(encoding: str, cells: list[bytes], start: int) -> None:
    """Cell by cell, wherever in a larger array they stand; the rest is set aside."""
    rows = raw_rows([(b"\xff\x81" * start,)] * start + [(cell,) for cell in cells])
    sliced = RawRows(
        url=rows.url,
        first_row=rows.first_row,
        num_columns=1,
        cells=[rows.cells[0].slice(start)],
        start_byte=rows.start_byte[start:],
        num_fields=rows.num_fields[start:],
        is_too_long=rows.is_too_long[start:],
    )
    texts = [decoded(cell, encoding) for cell in cells]
    bad = [index for index, text in enumerate(texts) if text is None]

    kept = cast(sliced, TEXT, policy="skip", encoding=encoding)

    assert kept.texts[0].to_pylist() == [text for text in texts if text and text.strip(PADDING)]
    reason = f"bytes that are not {encoding}"
    assert [part for part in kept.set_aside if part.reason == reason] == (
        [SetAside(reason, len(bad), Location("a.csv", 101 + bad[0], "text",
                                             5000 + 100 * (start + bad[0])))] if bad else []
    )  # fmt: skip


PADDING = "".join(filter(str.isspace, map(chr, range(0x110000)))) + "\0"


def test_padding_is_what_python_takes_for_space_and_nul() -> None:
    """So that a text is blank exactly where ``str.strip`` leaves nothing."""
    assert set(schema.PADDING) == set(PADDING)


@pytest.mark.parametrize("encoding", SINGLE_BYTE)
def test_every_byte_of_an_encoding_of_one_byte_a_character(encoding: str) -> None:
    """Equal to ``bytes.decode``, bytes that mean nothing there included (0x81 in cp1252)."""
    cells = [b"a" + bytes([byte]) + b"z" for byte in range(256)]
    texts = [decoded(cell, encoding) for cell in cells]

    kept = cast(raw_rows([(cell,) for cell in cells]), TEXT, policy="skip", encoding=encoding)

    assert kept.texts[0].to_pylist() == [text for text in texts if text is not None]
    assert sum(part.count for part in kept.set_aside) == texts.count(None)


def test_an_undefined_byte_of_cp1252_is_named() -> None:
    """A single-byte encoding may have holes too."""
    with pytest.raises(EncodingError) as caught:
        cast(raw_rows([(b"a\x81",)]), TEXT, policy="error", encoding="cp1252")

    assert str(caught.value).startswith("Byte 0x81 is not cp1252: b'a\\x81'.\n  at a.csv, row 101,")


def test_a_row_counts_for_its_first_reason_only() -> None:
    """Length, shape, encoding, number, blank, missing label: in this order."""
    rows = raw_rows(
        [
            (b"", b"", b""),
            (b"\xff", b"word", b""),
            (b"\xff", b"word", b""),
            (b"x", b"word", b""),
            (b"", b"", b""),
            (b"x", b"", b""),
            (b"x", b"1", b"y"),
        ],
        too_long=[0],
        num_fields=[9, 2, 3, 3, 3, 3, 3],
    )

    kept = cast(rows, policy="skip")

    assert kept.set_aside == [
        SetAside("more bytes than max_row_bytes", 1, place(0)),
        SetAside("too few or too many cells", 1, place(1)),
        SetAside("bytes that are not utf-8", 1, place(2, "text")),
        SetAside("no number in column 'price'", 1, place(3, "price")),
        SetAside(BLANK, 1, place(4)),
        SetAside("no label", 1, place(5, "label")),
    ]


dirty_cells = st.one_of(
    st.sampled_from([b"", b" ", b"\xff", b"\xc3", b"\xa9", b"1", b"-2.5", b"1e400", b"NA", b"x"]),
    st.binary(max_size=4),
)


def reason_of(row: tuple[bytes, bytes, bytes], num_fields: int, *, is_too_long: bool) -> str | None:
    """Tell why a row can't be used, the slow way."""
    text, price, label = (decoded(cell, "utf-8") for cell in row)
    number = (price or "").strip(PADDING)
    is_number = re.fullmatch(
        r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", number, re.IGNORECASE
    )
    is_blank = not (text or "").strip(PADDING) and not number
    reasons = [
        (is_too_long, "more bytes than max_row_bytes"),
        (num_fields != 3, "too few or too many cells"),
        (text is None or price is None, "bytes that are not utf-8"),
        (number and not is_number, "no number in column 'price'"),
        (is_number and math.isinf(float(number)), "an infinite number in column 'price'"),
        (label is None, "bytes that are not utf-8"),
        (is_blank, BLANK),
        (not (label or "").strip(PADDING), "no label"),
    ]
    return next((reason for holds, reason in reasons if holds), None)


@NO_DEADLINE
@example(table=[((b"\xc3", b"1", b"x"), 3, False), ((b"\xa9", b"1", b"x"), 3, False)])
@given(
    table=st.lists(
        st.tuples(
            st.tuples(dirty_cells, dirty_cells, dirty_cells),
            st.sampled_from([3, 3, 3, 3, 2, 4]),
            st.sampled_from([False, False, False, False, True]),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_every_row_is_kept_or_counted_once_with_the_first_place(
    table: list[tuple[tuple[bytes, bytes, bytes], int, bool]],
) -> None:
    """However dirty a table is; under 'error' the first fault of its first kind is raised."""
    rows = raw_rows(
        [(b"",) * 3 if too_long else cells for cells, _, too_long in table],
        num_fields=[num_fields for _, num_fields, _ in table],
        too_long=[index for index, row in enumerate(table) if row[2]],
    )
    reasons = [reason_of(cells, fields, is_too_long=long) for cells, fields, long in table]

    kept = cast(rows, policy="skip")

    clean = [cells for (cells, _, _), reason in zip(table, reasons, strict=True) if reason is None]
    assert kept.texts[0].to_pylist() == [text.decode() for text, _, _ in clean]
    assert labels_of(kept) == [label.decode() for _, _, label in clean]
    prices = [price.decode().strip(PADDING) for _, price, _ in clean]
    expected = [[float(price or "nan")] for price in prices]
    np.testing.assert_array_equal(kept.numeric, np.array(expected).reshape(-1, 1))
    assert {part.reason: part.count for part in kept.set_aside} == Counter(filter(None, reasons))
    for part in kept.set_aside:
        assert part.first == place(reasons.index(part.reason), part.first.column)
    if set(reasons) <= {None, BLANK}:
        strict = cast(rows, policy="error")
        assert strict.texts == kept.texts
        assert strict.set_aside == kept.set_aside
    else:
        with pytest.raises(RecordError) as caught:
            cast(rows, policy="error")
        assert caught.value.where in [place(i, c) for i in range(len(table)) for c in COLUMNS]
        assert isinstance(caught.value.where, Location)
        assert reasons[(caught.value.where.row or 0) - 101] not in {None, BLANK}


def test_sliced_arrays_are_cast_from_where_they_start() -> None:
    """Offsets of a slice don't start at zero, in any role."""
    rows = raw_rows([(b"\xff", b"word", b""), (b"a", b"1", b"x"), (b"b", b"2", b"y")])
    sliced = RawRows(
        url=rows.url,
        first_row=101,
        num_columns=3,
        cells=[cells.slice(1) for cells in rows.cells],
        start_byte=rows.start_byte[1:],
        num_fields=rows.num_fields[1:],
        is_too_long=rows.is_too_long[1:],
    )

    for encoding in ("utf-8", "cp1251"):
        kept = cast(sliced, policy="error", encoding=encoding)

        assert kept.texts[0].to_pylist() == ["a", "b"]
        assert kept.numeric.tolist() == [[1.0], [2.0]]
        assert labels_of(kept) == ["x", "y"]


def test_several_columns_of_a_role_keep_their_order() -> None:
    """Texts and numbers come in the order of the roles."""
    roles = ColumnRoles(text_columns=("b", "a"), data_columns=("y", "x"), label_column=None)

    kept = cast(raw_rows([(b"B", b"A", b"2", b"1")]), roles, policy="error")

    assert [text.to_pylist() for text in kept.texts] == [["B"], ["A"]]
    assert kept.numeric.tolist() == [[2.0, 1.0]]
    assert kept.labels is None


def test_decode_rows_keeps_every_cell_as_text() -> None:
    """Blank rows too: here nothing is cast."""
    table = decode_rows(raw_rows([(b"NA", b""), (b"", b" 1 ")]), ["a", "b"], encoding="utf-8")

    assert table.schema == pa.schema([("a", pa.large_string()), ("b", pa.large_string())])
    assert table.to_pylist() == [{"a": "NA", "b": ""}, {"a": "", "b": " 1 "}]


def test_decode_rows_offers_no_option_that_it_lacks() -> None:
    """`on_bad_rows` belongs to training."""
    cases = {
        "The row is longer than max_row_bytes; perhaps a quote is never closed.\n"
        "  at a.csv, row 101, byte 5000\n"
        "  Close the quote, pass quotechar=None or a larger max_row_bytes.": raw_rows(
            [(b"", b"")], too_long=[0]
        ),
        "The row has 3 cells and the header 2.\n"
        "  at a.csv, row 101, byte 5000\n"
        "  Check quotes and separators there.": raw_rows([(b"", b"")], num_fields=[3]),
        "Byte 0xff is not utf-8: b'\\xff'.\n"
        "  at a.csv, row 101, column 'b', byte 5000\n"
        "  It looks like cp1251 or koi8-r or cp1258: pass encoding='cp1251', or "
        "encoding_errors='replace'.": raw_rows([(b"", b"\xff")]),
    }

    for message, rows in cases.items():
        with pytest.raises(RecordError) as caught:
            decode_rows(rows, ["a", "b"], encoding="utf-8")

        assert str(caught.value) == message


def test_merged_reasons_keep_the_first_place() -> None:
    """Counts add up by reason, in the order in which the reasons came up."""
    parts = [
        SetAside("b", 2, Location("1.csv", 7)),
        SetAside("a", 1, Location("1.csv", 3)),
        SetAside("b", 5, Location("2.csv", 1)),
    ]

    assert merge_set_aside(parts) == [
        SetAside("b", 7, Location("1.csv", 7)),
        SetAside("a", 1, Location("1.csv", 3)),
    ]
    assert merge_set_aside([]) == []


def test_a_header_in_the_middle_is_no_row() -> None:
    """Two files joined by ``cat`` must not teach a class named for its column."""
    rows = raw_rows([[b"a text", b"1", b"x"], [b"text", b"size", b"label"], [b"text", b"2", b"y"]])
    roles = ColumnRoles(text_columns=("text",), data_columns=("size",), label_column="label")

    cast = cast_rows(rows, roles, encoding="utf-8", policy="error")

    assert cast.num_rows == 2
    assert [(part.reason, part.count) for part in cast.set_aside] == [("the header once more", 1)]


def test_bytes_that_are_no_text_may_be_replaced() -> None:
    """And are counted; their rows stay."""
    rows = raw_rows(
        [(b"caf\xe9", b"1", b"a"), (b"\xff\xff", b"2", b"a"), ("\ufffd ok".encode(), b"3", b"a")]
    )

    cast = cast_rows(rows, ROLES, encoding="utf-8", policy="error", encoding_errors="replace")

    assert cast.texts[0].to_pylist() == ["caf\ufffd", "\ufffd\ufffd", "\ufffd ok"]
    assert cast.num_replaced == 3
    assert cast.set_aside == []


def test_a_record_that_could_not_be_read_is_a_bad_row() -> None:
    """With its reason; blank lines are none under any policy."""
    rows = replace(
        raw_rows([(b"good", b"1", b"a"), (b"", b"", b""), (b"", b"", b"")]),
        broken={1: "it is JSON that is cut short"},
        is_blank=np.array([False, False, True]),
    )

    with pytest.raises(RecordError) as caught:
        cast_rows(rows, ROLES, encoding="utf-8", policy="error")
    cast = cast_rows(rows, ROLES, encoding="utf-8", policy="skip")

    assert caught.value.what == "The row cannot be read: it is JSON that is cut short."
    assert caught.value.where == rows.location(1)
    assert cast.num_rows == 1
    assert [(one.reason, one.count) for one in cast.set_aside] == [
        ("neither a word nor a number", 1),
        ("what cannot be read: it is JSON that is cut short", 1),
    ]
