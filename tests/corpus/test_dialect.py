"""CsvDialect and its state machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from csv_strategies import NO_DEADLINE, dialects, raw_texts
from hypothesis import example, given
from reference_csv import read_records

from lancetnic_dask.corpus import dialect as dialect_module
from lancetnic_dask.corpus.csv_parse import read_record
from lancetnic_dask.corpus.dialect import (
    CsvDialect,
    build_machine,
    closing_bytes,
    transition_table,
)
from lancetnic_dask.errors import SettingError

BACKSLASH = CsvDialect(escapechar="\\")


@pytest.mark.parametrize("value", ["", ",,", "é", "\n", "\r", None, 44])
def test_delimiter_must_be_one_ascii_character(value: Any) -> None:
    """Anything but one ASCII character that ends no line is refused."""
    with pytest.raises(SettingError) as caught:
        CsvDialect(delimiter=value)

    assert str(caught.value) == (
        f"delimiter must be one ASCII character other than a line end, got {value!r}.\n"
        "  Pass one such character."
    )


@pytest.mark.parametrize("name", ["quotechar", "escapechar"])
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
@given(dialect=dialects)
def test_machine_knows_just_the_bytes_with_a_meaning(dialect: CsvDialect) -> None:
    """Delimiter, quote, escape and line ends are special, and nothing else is."""
    machine = build_machine(transition_table(dialect))

    characters = {dialect.delimiter, dialect.quotechar, dialect.escapechar, "\r", "\n"} - {None}
    assert {chr(byte) for byte in machine.special} == characters
    ordinary = np.setdiff1d(np.arange(256), machine.special)
    assert (machine.table[:, ordinary] == machine.ordinary_entries[:, np.newaxis]).all()


@pytest.mark.parametrize("state", range(dialect_module.NUM_STATES))
@NO_DEADLINE
@given(dialect=dialects)
def test_second_ordinary_byte_of_a_run_changes_nothing(state: int, dialect: CsvDialect) -> None:
    """Kernels take a run of ordinary bytes, and one copied special byte before it, as one."""
    machine = build_machine(transition_table(dialect))

    for entry in machine.table[state]:
        if entry & dialect_module.ACTION == dialect_module.APPEND:
            after = entry & dialect_module.NEXT_STATE
            assert machine.ordinary_entries[after] == after | dialect_module.APPEND


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
@given(dialect=dialects)
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
