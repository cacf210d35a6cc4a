"""Scanning blocks from every start state, composing them, cutting partitions."""

from __future__ import annotations

import numpy as np
import pytest
from csv_strategies import NO_DEADLINE, cut_at, cuts, dialects, raw_texts, tables, write_table
from hypothesis import given
from hypothesis import strategies as st
from reference_csv import read_records

from lancetnic_dask.corpus.csv_scan import (
    WINDOW_BYTES,
    BlockScan,
    ByteRange,
    compose,
    cut_partitions,
    scan_block,
)
from lancetnic_dask.corpus.dialect import (
    IN_QUOTED,
    NEXT_STATE,
    NUM_STATES,
    STARTS_ROW,
    CsvDialect,
    transition_table,
)


def scan_slowly(data: bytes, dialect: CsvDialect) -> BlockScan:
    """Run the machine byte by byte from each state: the slow twin of the kernel."""
    table = transition_table(dialect)
    end_state = np.zeros(NUM_STATES, np.uint8)
    num_rows = np.zeros(NUM_STATES, np.int64)
    first_row = np.full(NUM_STATES, -1, np.int64)
    for start in range(NUM_STATES):
        state, starts = start, []
        for position, byte in enumerate(data):
            entry = int(table[state, byte])
            state = entry & NEXT_STATE
            if entry & STARTS_ROW:
                starts.append(position)
        end_state[start] = state
        num_rows[start] = len(starts)
        first_row[start] = starts[0] if starts else -1
    return BlockScan(end_state=end_state, num_rows=num_rows, first_row=first_row)


def cut_in_blocks(data: bytes, sizes: list[int], dialect: CsvDialect) -> list[ByteRange]:
    """Scan blocks of the given sizes and cut the file."""
    blocks = cut_at(data, sizes)
    block_starts = [sum(map(len, blocks[:index])) for index in range(len(blocks))]
    scans = [scan_block(block, transition_table(dialect)) for block in blocks]
    return cut_partitions(scans, block_starts, stop_byte=len(data))


def check_ranges(ranges: list[ByteRange], data: bytes, dialect: CsvDialect) -> None:
    """Ranges join without a gap, and each read on its own gives the rows of the file."""
    records = read_records(data, dialect)
    assert [byte_range.start_byte for byte_range in ranges[1:]] == [
        byte_range.stop_byte for byte_range in ranges[:-1]
    ]
    assert not ranges or ranges[-1].stop_byte == len(data)

    read = []
    for byte_range in ranges:
        start, stop = byte_range.start_byte, byte_range.stop_byte
        in_range = read_records(data[start:stop], dialect)
        assert in_range[0].start_byte == 0
        assert len(in_range) == byte_range.num_rows
        read += [(start + record.start_byte, record.cells) for record in in_range]
    assert read == [(record.start_byte, record.cells) for record in records]


@NO_DEADLINE
@given(data=raw_texts, dialect=dialects)
def test_scan_is_the_machine_run_from_each_state(data: bytes, dialect: CsvDialect) -> None:
    """End state, rows and first row are those of eight separate runs."""
    scan = scan_block(data, transition_table(dialect))

    expected = scan_slowly(data, dialect)
    np.testing.assert_array_equal(scan.end_state, expected.end_state)
    np.testing.assert_array_equal(scan.num_rows, expected.num_rows)
    np.testing.assert_array_equal(scan.first_row, expected.first_row)


@NO_DEADLINE
@given(
    data=raw_texts,
    dialect=dialects,
    num_before=st.integers(WINDOW_BYTES - 20, WINDOW_BYTES + 2),
    filler=st.sampled_from([b"a", b"\n", b'"', b"a\n", b'"\n']),
)
def test_scan_does_not_depend_on_windows(
    data: bytes, dialect: CsvDialect, num_before: int, filler: bytes
) -> None:
    """Rows at the edge of a window, and scans that meet in the second one, count as others."""
    block = (filler * num_before)[:num_before] + data

    scan = scan_block(block, transition_table(dialect))

    expected = scan_slowly(block, dialect)
    np.testing.assert_array_equal(scan.end_state, expected.end_state)
    np.testing.assert_array_equal(scan.num_rows, expected.num_rows)
    np.testing.assert_array_equal(scan.first_row, expected.first_row)


@NO_DEADLINE
@given(
    texts=st.lists(raw_texts, max_size=6),
    num_ordinary=st.lists(st.integers(0, 40), min_size=6, max_size=6),
    dialect=dialects,
)
def test_scan_passes_over_ordinary_text(
    texts: list[bytes], num_ordinary: list[int], dialect: CsvDialect
) -> None:
    """Words of eight ordinary bytes are one step, wherever in a word the others stand."""
    block = b"".join(
        b"x" * count + data for count, data in zip(num_ordinary, [*texts, b""], strict=False)
    )

    scan = scan_block(block, transition_table(dialect))

    expected = scan_slowly(block, dialect)
    np.testing.assert_array_equal(scan.end_state, expected.end_state)
    np.testing.assert_array_equal(scan.num_rows, expected.num_rows)
    np.testing.assert_array_equal(scan.first_row, expected.first_row)


@pytest.mark.parametrize("last", [b"", b"x", b"\n", b"x" * 8, b"\nx", b'"' + b"x" * 20])
@pytest.mark.parametrize("piece", [b",", b'"', b"\\", b"\r", b"\n", b"0,", b"0\r\n", b'"0",', b""])
def test_scan_of_dense_bytes_is_that_of_the_machine(piece: bytes, last: bytes) -> None:
    """Where nearly every byte has a meaning, over several windows, up to four scans go on."""
    dialect = CsvDialect(escapechar="\\")
    block = piece * WINDOW_BYTES + last

    scan = scan_block(block, transition_table(dialect))

    expected = scan_slowly(block, dialect)
    np.testing.assert_array_equal(scan.end_state, expected.end_state)
    np.testing.assert_array_equal(scan.num_rows, expected.num_rows)
    np.testing.assert_array_equal(scan.first_row, expected.first_row)


@NO_DEADLINE
@given(data=raw_texts, sizes=cuts, dialect=dialects)
def test_composed_blocks_are_one_block(data: bytes, sizes: list[int], dialect: CsvDialect) -> None:
    """However a file is cut into blocks, its rows are counted the same."""
    table = transition_table(dialect)
    scans = [scan_block(block, table) for block in cut_at(data, sizes)]

    rows = compose(scans)

    assert sum(block.num_rows for block in rows) == len(read_records(data, dialect))


@NO_DEADLINE
@given(data=raw_texts, sizes=cuts, dialect=dialects)
def test_cuts_are_record_boundaries_of_any_text(
    data: bytes, sizes: list[int], dialect: CsvDialect
) -> None:
    """Whatever the bytes, the dialect and the blocks, the ranges hold the rows of csv."""
    check_ranges(cut_in_blocks(data, sizes, dialect), data, dialect)


@NO_DEADLINE
@given(table=tables, line_end=st.sampled_from(["\n", "\r\n", "\r"]), size=st.integers(1, 99))
def test_written_table_is_cut_between_rows(
    table: list[list[str]], line_end: str, size: int
) -> None:
    """A table with newlines, quotes and delimiters in its cells is cut between its rows."""
    dialect = CsvDialect()
    data = write_table(table, line_end=line_end)

    ranges = cut_in_blocks(data, [size], dialect)

    assert sum(byte_range.num_rows for byte_range in ranges) == len(table)
    check_ranges(ranges, data, dialect)


@pytest.mark.parametrize("size", [1, 7, 256, 1024, 10_000])
def test_file_with_only_cr_has_its_rows_once(size: int) -> None:
    """CR alone ends a line, at any block size."""
    data = b"".join(b"%d,label\r" % index for index in range(200))

    ranges = cut_in_blocks(data, [size], CsvDialect())

    assert sum(byte_range.num_rows for byte_range in ranges) == 200
    check_ranges(ranges, data, CsvDialect())


def test_crlf_cut_in_two_ends_one_line() -> None:
    """The LF that opens a block after a CR is no line of its own."""
    ranges = cut_in_blocks(b"a,b\r\nc,d\r\n", [4], CsvDialect())

    assert ranges == [
        ByteRange(start_byte=0, stop_byte=5, num_rows=1),
        ByteRange(start_byte=5, stop_byte=10, num_rows=1),
    ]


def test_block_without_a_row_start_belongs_to_the_range_before() -> None:
    """A row longer than several blocks is one range."""
    data = b'a,"' + b"x\n" * 50 + b'"\nb,c\n'

    ranges = cut_in_blocks(data, [10], CsvDialect())

    assert ranges == [
        ByteRange(start_byte=0, stop_byte=105, num_rows=1),
        ByteRange(start_byte=105, stop_byte=109, num_rows=1),
    ]


@pytest.mark.parametrize("data", [b"", b"\n\r\n\r\r\n"])
def test_file_without_rows_has_no_ranges(data: bytes) -> None:
    """An empty file, or one of blank lines, gives no partition."""
    assert cut_in_blocks(data, [2], CsvDialect()) == []


def test_leading_blank_lines_are_in_no_range() -> None:
    """The first range starts at the first byte of the first row."""
    ranges = cut_in_blocks(b"\n\r\n1,2\n", [100], CsvDialect())

    assert ranges == [ByteRange(start_byte=3, stop_byte=7, num_rows=1)]


def test_scan_starts_where_it_is_told() -> None:
    """From inside quotes the first newline is text."""
    scan = scan_block(b'1\n2"\n3\n', transition_table(CsvDialect()))

    (inside,) = compose([scan], start_state=IN_QUOTED)

    assert (inside.start_state, inside.first_row, inside.num_rows) == (IN_QUOTED, 5, 1)


def test_all_kinds_of_bytes_give_the_same_scan() -> None:
    """Bytes, bytearray, memoryview and arrays are read in place."""
    table = transition_table(CsvDialect())
    data = b"a,b\nc,d\n"

    for block in (data, bytearray(data), memoryview(data), np.frombuffer(data, np.uint8)):
        assert scan_block(block, table).num_rows[0] == 2
