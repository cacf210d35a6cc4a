"""Parsing record-aligned bytes into columns, in pieces of any size."""

from __future__ import annotations

import csv
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest
from csv_strategies import NO_DEADLINE, cut_at, cuts, dialects, raw_texts, tables, write_table
from hypothesis import given
from hypothesis import strategies as st
from reference_csv import read_records

from lancetnic_dask.corpus.csv_parse import CsvParser, ParsedRows, read_record
from lancetnic_dask.corpus.csv_scan import WINDOW_BYTES, cut_partitions, scan_block
from lancetnic_dask.corpus.dialect import (
    ACTION,
    END_RECORD,
    NEXT_STATE,
    START_RECORD,
    CsvDialect,
    transition_table,
)

MANY_BYTES = 1 << 40


def parse(
    pieces: list[bytes], dialect: CsvDialect, columns: list[int], max_row_bytes: int = MANY_BYTES
) -> list[tuple[int, int, bool, list[bytes]]]:
    """Feed pieces and return (start_byte, num_fields, is_too_long, cells) of each row."""
    parser = CsvParser(dialect, columns=columns, max_row_bytes=max_row_bytes)
    results = [*(parser.feed(piece) for piece in pieces), parser.finish()]
    return [row for result in results for row in rows_of(result)]


def rows_of(result: ParsedRows) -> list[tuple[int, int, bool, list[bytes]]]:
    """Turn columns into rows, and check that the result holds together."""
    for column in result.columns:
        column.validate(full=True)
        assert column.type == pa.large_binary()
        assert len(column) == result.num_rows
    cells = [column.to_pylist() for column in result.columns]
    return [
        (
            int(result.start_byte[row]),
            int(result.num_fields[row]),
            bool(result.is_too_long[row]),
            [column[row] for column in cells],
        )
        for row in range(result.num_rows)
    ]


def expect(
    data: bytes, dialect: CsvDialect, columns: list[int]
) -> list[tuple[int, int, bool, list[bytes]]]:
    """Return what `parse` should, by the csv module."""
    return [
        (
            record.start_byte,
            len(record.cells),
            False,
            [(dict(enumerate(record.cells))).get(column, b"") for column in columns],
        )
        for record in read_records(data, dialect)
    ]


def row_length(data: bytes, dialect: CsvDialect) -> int:
    """Return the bytes before the line end of the row at the start of the data."""
    table = transition_table(dialect)
    state = START_RECORD
    for position, byte in enumerate(data):
        entry = int(table[state, byte])
        state = entry & NEXT_STATE
        if entry & ACTION == END_RECORD:
            return position
    return len(data)


columns_of_interest = st.lists(st.integers(0, 4), max_size=4)


@NO_DEADLINE
@given(data=raw_texts, dialect=dialects, columns=columns_of_interest, sizes=cuts)
def test_any_text_in_any_pieces_parses_as_by_csv(
    data: bytes, dialect: CsvDialect, columns: list[int], sizes: list[int]
) -> None:
    """Cells, row starts and numbers of fields are those of csv, blank lines left out."""
    parsed = parse(cut_at(data, sizes), dialect, columns)

    assert parsed == expect(data, dialect, columns)


@NO_DEADLINE
@given(
    data=raw_texts,
    dialect=dialects,
    num_before=st.integers(WINDOW_BYTES - 20, WINDOW_BYTES + 2),
    filler=st.sampled_from([b"a", b"a\n", b'"\n', b",", b"\\"]),
)
def test_parse_does_not_depend_on_windows(
    data: bytes, dialect: CsvDialect, num_before: int, filler: bytes
) -> None:
    """Cells that reach over the edge of a window are whole."""
    text = (filler * num_before)[:num_before] + data

    assert parse([text], dialect, [0, 1]) == expect(text, dialect, [0, 1])


@NO_DEADLINE
@given(data=raw_texts, dialect=dialects, block_sizes=cuts, sizes=cuts)
def test_scan_cut_and_parse_give_the_rows_of_the_file(
    data: bytes, dialect: CsvDialect, block_sizes: list[int], sizes: list[int]
) -> None:
    """Ranges of any blocks, each parsed on its own in any pieces, give the file's rows."""
    blocks = cut_at(data, block_sizes)
    block_starts = [sum(map(len, blocks[:index])) for index in range(len(blocks))]
    scans = [scan_block(block, transition_table(dialect)) for block in blocks]

    rows = []
    for byte_range in cut_partitions(scans, block_starts, stop_byte=len(data)):
        start, stop = byte_range.start_byte, byte_range.stop_byte
        in_range = parse(cut_at(data[start:stop], sizes), dialect, [0, 2])
        assert len(in_range) == byte_range.num_rows
        rows += [(start + row_start, *rest) for row_start, *rest in in_range]

    assert rows == expect(data, dialect, [0, 2])


@NO_DEADLINE
@given(table=tables, line_end=st.sampled_from(["\n", "\r\n", "\r"]), sizes=cuts)
def test_written_table_comes_back(table: list[list[str]], line_end: str, sizes: list[int]) -> None:
    """What csv.writer wrote is read again, column by column."""
    data = write_table(table, line_end=line_end)
    num_columns = len(table[0]) if table else 1

    parsed = parse(cut_at(data, sizes), CsvDialect(), list(range(num_columns)))

    assert [cells for *_, cells in parsed] == [[cell.encode() for cell in row] for row in table]


@NO_DEADLINE
@given(data=raw_texts, dialect=dialects, sizes=cuts, max_row_bytes=st.integers(0, 20))
def test_row_is_too_long_whatever_the_pieces(
    data: bytes, dialect: CsvDialect, sizes: list[int], max_row_bytes: int
) -> None:
    """A row over the limit is marked and empty; all others are as without a limit."""
    parsed = parse(cut_at(data, sizes), dialect, [0, 1], max_row_bytes)

    expected = []
    for start, num_fields, _, cells in expect(data, dialect, [0, 1]):
        is_too_long = row_length(data[start:], dialect) > max_row_bytes
        expected.append((start, num_fields, is_too_long, [b"", b""] if is_too_long else cells))
    assert parsed == expected


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_long_row_is_dropped_and_parsing_goes_on(size: int) -> None:
    """The rows around a row that is too long keep their places and cells."""
    data = b'1,one\n2,"' + b"x\n" * 50 + b'",3\r\n4,four'

    parsed = parse(cut_at(data, [size]), CsvDialect(), [1, 0], max_row_bytes=20)

    assert parsed == [
        (0, 2, False, [b"one", b"1"]),
        (6, 3, True, [b"", b""]),
        (114, 2, False, [b"four", b"4"]),
    ]


@pytest.mark.parametrize("line_end", [b"", b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("size", [1, 100])
def test_line_end_does_not_count_for_the_length(line_end: bytes, size: int) -> None:
    """A row of five bytes is five bytes long, at the end of the file too."""
    pieces = cut_at(b"ab,cd" + line_end, [size])

    assert parse(pieces, CsvDialect(), [0], 5) == [(0, 2, False, [b"ab"])]
    assert parse(pieces, CsvDialect(), [0], 4) == [(0, 2, True, [b""])]


@pytest.mark.parametrize("data", [b'a,"bc', b'a,"b\\', b"a,bc\\"])
def test_closing_an_open_row_does_not_make_it_longer(data: bytes) -> None:
    """The quote or line end that the file lacks is not counted."""
    dialect = CsvDialect(escapechar="\\")

    assert parse([data], dialect, [0], 5) == [(0, 2, False, [b"a"])]
    assert parse([data], dialect, [0], 4) == [(0, 2, True, [b""])]


def test_unclosed_quote_does_not_fill_the_memory() -> None:
    """64 MB after an open quote leave one marked row, and memory for a few pieces."""
    piece = b"text, and more\n" * 17_000
    parser = CsvParser(CsvDialect(), columns=[0], max_row_bytes=1_000_000)
    parser.feed(b"warm,up\n")

    tracemalloc.start()
    parser.feed(b'"')
    for _ in range(250):
        assert parser.feed(piece).num_rows == 0
    result = parser.finish()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert rows_of(result) == [(8, 1, True, [b""])]
    assert peak < 5_000_000


def test_field_over_the_limit_of_csv_is_read() -> None:
    """200,000 characters in a field are no problem, and csv's global limit is as before."""
    limit = csv.field_size_limit()
    data = b'a,"' + b"x" * 200_000 + b'"\n'

    parsed = parse(cut_at(data, [4096]), CsvDialect(), [1])

    assert parsed == [(0, 2, False, [b"x" * 200_000])]
    assert csv.field_size_limit() == limit


def test_nul_bytes_are_text() -> None:
    """Nothing after a NUL is lost."""
    assert parse([b"a\0b,\0\n"], CsvDialect(), [0, 1]) == [(0, 2, False, [b"a\0b", b"\0"])]


def test_bytes_that_are_not_utf8_pass() -> None:
    """Cells are bytes in whatever encoding; the caller decodes."""
    assert parse([b"\xff,\x93x\x94\n"], CsvDialect(), [1]) == [(0, 2, False, [b"\x93x\x94"])]


def test_columns_come_in_the_order_asked_for() -> None:
    """Any order, also twice the same; a column that no row has is empty."""
    assert parse([b"a,b,c\n"], CsvDialect(), [2, 0, 2, 9]) == [
        (0, 3, False, [b"c", b"a", b"c", b""])
    ]


def test_short_and_long_rows_tell_their_fields() -> None:
    """A missing field is an empty cell, a surplus one is counted."""
    assert parse([b"a\nb,c,d\n"], CsvDialect(), [0, 1]) == [
        (0, 1, False, [b"a", b""]),
        (2, 3, False, [b"b", b"c"]),
    ]


def test_crlf_cut_in_two_ends_one_row() -> None:
    """The LF in the next piece is no blank row, nor part of one."""
    assert parse([b"a\r", b"\nb\r", b"\n"], CsvDialect(), [0]) == [
        (0, 1, False, [b"a"]),
        (3, 1, False, [b"b"]),
    ]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_feed_keeps_nothing_of_its_argument(kind: Any) -> None:
    """Columns stay as they are when the caller reads the next piece into the same memory."""
    memory = bytearray(b"one,1\n")
    result = CsvParser(CsvDialect(), columns=[0], max_row_bytes=100).feed(kind(memory))

    memory[:] = b"two,2\n"

    assert result.columns[0].to_pylist() == [b"one"]


@NO_DEADLINE
@given(data=raw_texts, dialect=dialects)
def test_header_ends_where_the_next_row_may_start(data: bytes, dialect: CsvDialect) -> None:
    """What follows the first record holds all other rows."""
    records = read_records(data, dialect)

    read = read_record(data, dialect)

    if read is None:
        assert len(records) <= 1
    else:
        cells, stop = read
        rest = [
            (stop + record.start_byte, record.cells)
            for record in read_records(data[stop:], dialect)
        ]
        assert cells == records[0].cells
        assert rest == [(record.start_byte, record.cells) for record in records[1:]]


def test_header_without_its_line_end_is_not_whole() -> None:
    """More bytes may follow, unless the caller knows that the file ends."""
    assert read_record(b"text,label", CsvDialect()) is None
    assert read_record(b"text,label", CsvDialect(), is_end=True) == ([b"text", b"label"], 10)
    assert read_record(b'"text\nlabel', CsvDialect()) is None


def test_header_stands_after_blank_lines() -> None:
    """Blank lines before the header are skipped, and a CRLF is passed whole."""
    assert read_record(b"\r\n\ntext,label\r\nx", CsvDialect()) == ([b"text", b"label"], 15)
