"""Fields of JSON lines."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancetnic_dask.corpus.json_fields import field_names, read_fields

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


def read(lines: list[bytes], *paths: str) -> list[list[bytes]]:
    """Read fields as lists."""
    found = read_fields(pa.array(lines, pa.large_binary()), paths)
    return [cells.to_pylist() for cells in found.cells]


def expected_text(value: Any) -> str:
    """Say what a cell of a value is."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@settings(deadline=None, max_examples=60)
@given(rows=st.lists(st.dictionaries(st.sampled_from("abc"), VALUES), max_size=5))
def test_any_object_gives_its_values(rows: list[dict[str, Any]]) -> None:
    """As Python's own parser reads them, whatever else stands in the line."""
    lines = [json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") for row in rows]

    cells = read(lines, "b", "a")

    for name, column in zip("ba", cells, strict=True):
        assert [cell.decode() for cell in column] == [
            expected_text(json.loads(line).get(name)) for line in lines
        ]


def test_paths_lead_into_objects_and_arrays() -> None:
    """A field of that very name comes first."""
    line = b'{"a": {"b": {"c": 5}, "d": ["x", {"e": 7}]}, "a.b": "own", "n": null}'

    cells = read([line], "a.b.c", "a.d.0", "a.d.1.e", "a.b", "a.d.9", "n.x", "a.b.c.z")

    assert cells == [[b"5"], [b"x"], [b"7"], [b"own"], [b""], [b""], [b""]]


def test_numbers_are_as_they_are_written() -> None:
    """A label 1.0 is not 1."""
    line = b'{"a": 1.0, "b": 1e400, "c": 123456789012345678901234567890, "d": -0}'

    assert read([line], "a", "b", "c", "d") == [
        [b"1.0"], [b"1e400"], [b"123456789012345678901234567890"], [b"-0"]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a": "x', "it is JSON that is cut short"),
        (b"[1, 2]", "it is no JSON object"),
        (b'"text"', "it is no JSON object"),
        (b'{"a": NaN}', "it is no JSON (NaN and Infinity are no numbers there, null is missing)"),
        (b'{"a": "x",}', "it is no JSON (trailing comma in object (byte 10))"),
        (b'{"a": "\xff"}', "it holds bytes that are not UTF-8"),
        (b'{"a": ["\xff"]}', "it holds bytes that are not UTF-8"),
        (b'{"a": "\\ud800"}', "it is no JSON (half of a character, a lone surrogate)"),
        (b'{"x": "\\ud800", "a": 1}', "it is no JSON (half of a character, a lone surrogate)"),
    ],
)
def test_what_is_no_object_has_a_reason(line: bytes, reason: str) -> None:
    """Its cells are empty, and its neighbours are read."""
    found = read_fields(pa.array([b'{"a": 1}', line], pa.large_binary()), ["a"])

    assert found.broken == {1: reason}
    assert found.cells[0].to_pylist() == [b"1", b""]


def test_a_pair_of_surrogates_is_a_character() -> None:
    """As Python writes one by default."""
    assert read([json.dumps({"a": "🦊"}).encode()], "a") == [["🦊".encode()]]


def test_blank_lines_are_told_apart() -> None:
    """They are no broken ones."""
    found = read_fields(pa.array([b"  \t", b"{}"], pa.large_binary()), ["a"])

    assert found.is_blank.tolist() == [True, False]
    assert not found.broken


def test_names_are_those_of_all_lines() -> None:
    """Nested ones dotted; lines that are broken are passed over."""
    lines = [b'{"b": 1e400, "a": {"x": 1, "y": {}}}', b"broken", b'{"c": [{"z": 1}], "b": 2}']

    assert field_names(lines) == ("b", "a.x", "a.y", "c")
