"""Elements of a JSON array, and objects that are no corpus."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancetnic_dask.corpus.json_array import iter_elements, refuse_json_object
from lancetnic_dask.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Iterator


def pieces(text: str, size: int) -> Iterator[str]:
    """Cut a text."""
    return (text[at : at + size] for at in range(0, len(text), size))


def elements(text: str, size: int = 1 << 20, max_row_bytes: int = 100_000) -> list[str]:
    """Read the elements of a text that comes in pieces."""
    return list(iter_elements(pieces(text, size), url="a.json", max_row_bytes=max_row_bytes))


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.dictionaries(st.text(max_size=4), st.text(max_size=9) | st.integers())),
    indent=st.sampled_from([None, 0, 3]),
    size=st.integers(1, 40),
)
def test_any_array_gives_its_objects_a_line_each(
    rows: list[dict[str, Any]], indent: int | None, size: int
) -> None:
    """However it is written, and however it comes in pieces."""
    found = elements(json.dumps(rows, indent=indent), size)

    assert [json.loads(line) for line in found] == rows
    assert all(line.count("\n") == 1 and line.endswith("\n") for line in found)


def test_digits_are_copied() -> None:
    """However many there are."""
    digits = "7" * 5000

    assert elements(f'[{{"a": {digits}, "b": 1.0}}]', max_row_bytes=10_000) == [
        f'{{"a": {digits}, "b": 1.0}}\n'
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "The file is no JSON array: the file ends there."),
        ("{}", "The file is no JSON array: '{}' stands there."),
        ("[1]", "Element 1 of the JSON array is no object: '1]'."),
        ('[{"a": 1}', "There is no comma after element 1: the file ends there."),
        ('[{"a": 1} {}]', "There is no comma after element 1: '{}]' stands there."),
        ('[{"a": 1}] x', "Something follows the end of the JSON array: 'x'."),
    ],
)
def test_what_is_no_array_of_objects_is_said(text: str, what: str) -> None:
    """With the number of the element."""
    with pytest.raises(CorpusError) as caught:
        elements(text)

    assert caught.value.what == what


@pytest.mark.parametrize("size", [1, 1000])
def test_an_element_is_bounded(size: int) -> None:
    """Whether it comes at once or in pieces; what is cut short is told."""
    with pytest.raises(CorpusError, match=r"Element 2 .* longer than 50 characters"):
        elements(f'[{{"a": 1}}, {{"b": "{"x" * 60}"}}]', size, max_row_bytes=50)
    with pytest.raises(CorpusError, match=r"Element 2 .* broken, or the file ends within it"):
        elements('[{"a": 1}, {"b": "x', size)


@pytest.mark.parametrize(
    "head",
    [
        '{"a": 1}\n{"a": 2}\n',
        '{"messages": [{"role": "user"}], "label": "a"}\n{"messages": []}\n',
        '{"a": "one line"}',
        '{"tags": ["a", "b"]}',
        '{"a": 1, "b": "cut',
        "[]",
        "",
    ],
)
def test_lines_are_not_taken_for_one_object(head: str) -> None:
    """Nor is a table of one row, or a first line that is cut or broken."""
    refuse_json_object(head.encode(), "a.json", is_whole=True)


@pytest.mark.parametrize(
    "head",
    ['{"train": [["a", "b"]]}', '{"train": [{"a": 1}]}', '{\n "train": 1}', '{"train": [\n 1]}'],
)
def test_one_object_is_refused(head: str) -> None:
    """With a way to get at its rows that a shell takes."""
    with pytest.raises(CorpusError) as caught:
        refuse_json_object(head.encode(), "a.json", is_whole=True)

    assert str(caught.value) == (
        "The file is one JSON object, with the field 'train', and no lines or array of objects.\n"
        "  at a.json\n"
        "  Write the rows in it as an array of objects, or as lines: jq -c '.[\"train\"][]'."
    )
