"""CsvDialect and its state machine."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from csv_strategies import NO_DEADLINE, cut_at, cuts, dialects, raw_texts
from hypothesis import example, given
from hypothesis import strategies as st
from reference_csv import read_records

from lancetnic_dask.corpus import dialect as dialect_module
from lancetnic_dask.corpus.csv_parse import CsvParser, read_record
from lancetnic_dask.corpus.csv_scan import WINDOW_BYTES, cut_partitions, scan_block
from lancetnic_dask.corpus.dialect import (
    LINES,
    NUM_SPECIAL,
    CsvDialect,
    build_machine,
    closing_bytes,
    transition_table,
)
from lancetnic_dask.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator

BACKSLASH = CsvDialect(escapechar="\\")
COMMENTED = CsvDialect(comment="#")
# Texts of `raw_texts` hold "a" and blanks, which never have another meaning.
comments = st.sampled_from(["#", "a", " ", "\x00", None])
# One range over all rows, or many small ones.
any_cuts = st.one_of(st.just([1000]), cuts)
commented = st.builds(
    lambda dialect, comment: replace(dialect, comment=comment), dialects, comments
)


def read_uncommented(data: bytes, dialect: CsvDialect) -> list[list[bytes]]:
    """Read by csv what is left when lines that begin like a comment, between records, are not."""
    is_between = True

    def lines() -> Iterator[str]:
        nonlocal is_between
        for line in io.StringIO(data.decode("latin-1"), newline=""):
            if not (is_between and dialect.comment and line.startswith(dialect.comment)):
                is_between = False
                yield line

    reader = csv.reader(
        lines(),
        delimiter=dialect.delimiter or "\u0100",
        quotechar=dialect.quotechar,
        quoting=csv.QUOTE_NONE if dialect.quotechar is None else csv.QUOTE_MINIMAL,
        escapechar=dialect.escapechar,
        doublequote=dialect.doublequote,
    )
    records = []
    for cells in reader:
        is_between = True
        if cells:
            records.append([cell.encode("latin-1") for cell in cells])
    return records


def read_in_parts(
    data: bytes, dialect: CsvDialect, block_sizes: list[int], piece_sizes: list[int]
) -> list[list[bytes]]:
    """Scan blocks, cut them into ranges, and parse each by itself, in pieces: the cells of rows."""
    blocks = cut_at(data, block_sizes)
    block_starts = [sum(map(len, blocks[:index])) for index in range(len(blocks))]
    scans = [scan_block(block, transition_table(dialect)) for block in blocks]
    rows = []
    for part in cut_partitions(scans, block_starts, stop_byte=len(data)):
        parser = CsvParser(dialect, columns=range(64), max_row_bytes=len(data))
        pieces = cut_at(data[part.start_byte : part.stop_byte], piece_sizes)
        fed = [*(parser.feed(piece) for piece in pieces), parser.finish()]
        assert sum(parsed.num_rows for parsed in fed) == part.num_rows
        for parsed in fed:
            cells = list(zip(*(column.to_pylist() for column in parsed.columns), strict=True))
            rows += [list(row[:num]) for row, num in zip(cells, parsed.num_fields, strict=True)]
    return rows


@pytest.mark.parametrize("value", ["", ",,", "é", "\n", "\r", 44])
def test_delimiter_must_be_one_ascii_character(value: Any) -> None:
    """Anything but one ASCII character that ends no line is refused."""
    with pytest.raises(SettingError) as caught:
        CsvDialect(delimiter=value)

    assert str(caught.value) == (
        f"delimiter must be one ASCII character other than a line end, got {value!r}.\n"
        "  Pass one such character."
    )


@pytest.mark.parametrize("name", ["quotechar", "escapechar", "comment"])
def test_quote_and_escape_name_none_as_a_way_out(name: str) -> None:
    """The message for an optional character says how to have none."""
    options: dict[str, Any] = {name: "none"}

    with pytest.raises(SettingError) as caught:
        CsvDialect(**options)

    assert str(caught.value) == (
        f"{name} must be one ASCII character other than a line end, got 'none'.\n"
        f"  Pass one such character, or {name}=None."
    )


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        ({"delimiter": '"'}, "delimiter", "quotechar"),
        ({"escapechar": ","}, "delimiter", "escapechar"),
        ({"escapechar": '"'}, "quotechar", "escapechar"),
        ({"comment": ","}, "delimiter", "comment"),
    ],
)
def test_a_character_has_one_meaning(options: dict[str, Any], first: str, second: str) -> None:
    """Two options with the same character contradict each other."""
    with pytest.raises(SettingError) as caught:
        CsvDialect(**options)

    character = next(iter(options.values()))
    assert str(caught.value) == (
        f"{first} and {second} are both {character!r}.\n"
        f"  Pass two different characters, or {second}=None."
    )


def test_doublequote_must_be_a_bool() -> None:
    """A word for yes or no is not taken for one."""
    options: dict[str, Any] = {"doublequote": "no"}

    with pytest.raises(SettingError, match="doublequote must be True or False, got 'no'"):
        CsvDialect(**options)


def test_table_is_shared_and_cannot_be_changed() -> None:
    """Equal dialects have one table, which nobody can write to."""
    table = transition_table(CsvDialect())

    assert transition_table(CsvDialect()) is table
    with pytest.raises(ValueError, match="read-only"):
        table[0, 0] = 0


@NO_DEADLINE
@example(dialect=CsvDialect(escapechar="\\", comment="#"))
@given(dialect=commented)
def test_machine_knows_just_the_bytes_with_a_meaning(dialect: CsvDialect) -> None:
    """Delimiter, quote, escape, comment and line ends are special, and nothing else is."""
    machine = build_machine(transition_table(dialect))

    given_characters = {dialect.delimiter, dialect.quotechar, dialect.escapechar, dialect.comment}
    characters = {*given_characters, "\r", "\n"} - {None}
    assert {chr(byte) for byte in machine.special} == characters
    ordinary = np.setdiff1d(np.arange(256), machine.special)
    assert (machine.table[:, ordinary] == machine.ordinary_entries[:, np.newaxis]).all()
    assert machine.special.size == max(NUM_SPECIAL, len(characters))


@pytest.mark.parametrize("state", range(dialect_module.NUM_STATES))
@NO_DEADLINE
@given(dialect=commented)
def test_second_ordinary_byte_of_a_run_changes_nothing(state: int, dialect: CsvDialect) -> None:
    """Kernels take a run of ordinary bytes, and one copied special byte before it, as one."""
    machine = build_machine(transition_table(dialect))

    ordinary = machine.ordinary_entries
    for entry in [*machine.table[state], *ordinary]:
        if entry & dialect_module.ACTION == dialect_module.APPEND:
            after = entry & dialect_module.NEXT_STATE
            assert ordinary[after] == after | dialect_module.APPEND
    assert ordinary[ordinary[state] & dialect_module.NEXT_STATE] == (
        ordinary[state] & ~np.uint8(dialect_module.STARTS_ROW)
    )


@NO_DEADLINE
@example(text=b"a\\", dialect=BACKSLASH)
@example(text=b'"a\\', dialect=BACKSLASH)
@example(text=b'"', dialect=CsvDialect())
@example(text=b'"a\r\n', dialect=CsvDialect())
@example(text=b'""', dialect=CsvDialect(doublequote=False))
@example(text=b"a,", dialect=CsvDialect())
@example(text=b"a\r", dialect=CsvDialect())
@example(text=b"\\\r\nb", dialect=BACKSLASH)
@given(text=raw_texts, dialect=dialects)
def test_first_record_is_that_of_csv(text: bytes, dialect: CsvDialect) -> None:
    """The table and the end of the file give what csv gives, blank records left out."""
    records = read_records(text, dialect)

    read = read_record(text, dialect, is_end=True)

    assert (read[0] if read else None) == (records[0].cells if records else None)


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        (b"a\\", [b"a\n"]),
        (b'"a\\', [b"a\n"]),
        (b'"a', [b"a"]),
        (b'"', [b""]),
        (b"a,", [b"a", b""]),
        (b"a\r", [b"a"]),
        (b"\r\n\n\r", None),
        (b"", None),
    ],
)
def test_odd_ends_of_a_file(text: bytes, cells: list[bytes] | None) -> None:
    """An escape at the end escapes a line end, an open quote is closed, CR ends the line."""
    read = read_record(text, BACKSLASH, is_end=True)

    assert (read[0] if read else None) == cells


@NO_DEADLINE
@given(dialect=commented)
def test_closing_bytes_end_the_row_in_every_state(dialect: CsvDialect) -> None:
    """Only the last closing byte ends a record, and no other does."""
    table = transition_table(dialect)
    quoted = {dialect_module.IN_QUOTED, dialect_module.ESCAPE_IN_QUOTED}
    unreachable = quoted if dialect.quotechar is None else set()

    for start in set(range(2, dialect_module.NUM_STATES)) - unreachable:
        state, ends = start, []
        for byte in closing_bytes(start, dialect):
            entry = int(table[state, byte])
            state = entry & dialect_module.NEXT_STATE
            ends.append(entry & dialect_module.ACTION == dialect_module.END_RECORD)
        assert ends == [False] * (len(ends) - 1) + [True]


@NO_DEADLINE
@example(b'#a"\nb\n#c"\nd\n', COMMENTED, [1], [1])
@example(b'#a"\nb\n#c"\nd\n', COMMENTED, [1000], [1000])
@example(b"\r\n#,\r#\n\n#x", COMMENTED, [2], [3])
@example(b'"a\n#b"\n #c\n', COMMENTED, [3], [2])
@example(b"a\\\n#b\n#c\\\nd", replace(BACKSLASH, comment="#"), [1], [40])
@given(text=raw_texts, dialect=commented, block_sizes=any_cuts, sizes=cuts)
def test_comments_are_no_records_however_the_file_is_cut(
    text: bytes, dialect: CsvDialect, block_sizes: list[int], sizes: list[int]
) -> None:
    """Cells and numbers of rows are those of csv for the file without its comment lines."""
    rows = read_in_parts(text, dialect, block_sizes, sizes)

    assert rows == read_uncommented(text, dialect)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_comment_longer_than_a_window_leaves_no_trace(line_end: str) -> None:
    """Kernels look at a file window by window; a comment may lie across several of them."""
    comment = '#"\\,#text ' * (2 * WINDOW_BYTES // 10)
    text = line_end.join(["a,1", comment, "b,2", "#", "c#,#3", comment]).encode()
    dialect = replace(BACKSLASH, comment="#")

    rows = read_in_parts(text, dialect, [len(text)], [3000])

    assert rows == [[b"a", b"1"], [b"b", b"2"], [b"c#", b"#3"]]


def test_a_header_stands_below_the_comments() -> None:
    """And ends with the bytes of its own line."""
    text = b'# made "here\r\n\r\n#\rtext,#\r\n#1\n'

    assert read_record(text, COMMENTED) == ([b"text", b"#"], text.index(b"#1"))
    assert read_record(b"# only", COMMENTED, is_end=True) is None


@NO_DEADLINE
@given(text=raw_texts, block_sizes=any_cuts, sizes=cuts)
def test_without_a_delimiter_each_line_is_a_cell(
    text: bytes, block_sizes: list[int], sizes: list[int]
) -> None:
    """No byte but a line end has a meaning, and blank lines are no records."""
    rows = read_in_parts(text, LINES, block_sizes, sizes)

    assert rows == [[line] for line in re.split(rb"[\r\n]", text) if line]
