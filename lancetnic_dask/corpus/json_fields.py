"""Lines of JSON -> cells of the wanted fields, as text.

A field is taken by its name, so keys may come in any order and be absent. Numbers are given as
they are written: ``1.0`` stays ``1.0``, and no digit of a long one is lost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["Fields", "field_names", "read_fields"]

_WHITE_SPACE = b" \t\r\n"
_STRING = msgspec.json.Decoder(str)
_DICT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
# The first half of a pair without the second one.
_LONE_SURROGATE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
_NAMED_CONSTANTS = re.compile(rb"\b(?:NaN|-?Infinity)\b")


@dataclass(frozen=True)
class Fields:
    """The wanted fields of some lines.

    Parameters
    ----------
    cells : list of pyarrow.LargeBinaryArray
        One of (num_lines,) for each field: UTF-8, empty where it is absent or null.
    broken : dict of int to str
        Lines that are no JSON object, and why.
    is_blank : ndarray of shape (num_lines,), dtype=bool
        Lines of white space.
    """

    cells: list[pa.LargeBinaryArray]
    broken: dict[int, str]
    is_blank: np.ndarray


def read_fields(lines: pa.LargeBinaryArray, paths: Sequence[str]) -> Fields:
    r"""Read fields from lines that hold one JSON object each.

    Parameters
    ----------
    lines : pyarrow.LargeBinaryArray of shape (num_lines,)
        Without line ends.
    paths : sequence of str
        Names of fields. ``user.name`` is the field ``user.name``, or else ``name`` of the object
        ``user``; a number stands for a place in an array, from 0.

    Returns
    -------
    Fields
        A string gives its text; a number its digits; true and false these words; an object or
        an array its JSON.

    Examples
    --------
    >>> lines = pa.array([b'{"text": "a\\nb", "stars": 1.0}', b"{,}"], pa.large_binary())
    >>> fields = read_fields(lines, ["text", "stars"])
    >>> [column.to_pylist() for column in fields.cells]
    [[b'a\nb', b''], [b'1.0', b'']]
    >>> fields.broken
    {1: 'it is no JSON (object keys must be strings (byte 1))'}
    """
    decoder = _decoder(tuple(paths))
    columns: list[list[bytes]] = [[] for _ in paths]
    broken: dict[int, str] = {}
    is_blank = np.zeros(len(lines), np.bool_)
    empty = [b""] * len(paths)
    for index, line in enumerate(lines.to_pylist()):
        row = empty
        try:
            row = [_text_of(raw) for raw in decoder(line)]
        except (ValueError, RecursionError) as error:
            if line.strip(_WHITE_SPACE):
                broken[index] = _reason(line, error)
            else:
                is_blank[index] = True
        for column, cell in zip(columns, row, strict=True):
            column.append(cell)
    return Fields([pa.array(column, pa.large_binary()) for column in columns], broken, is_blank)


def field_names(lines: Iterable[bytes]) -> tuple[str, ...]:
    """Return the names of the fields of some lines, in the order in which they come up.

    Parameters
    ----------
    lines : iterable of bytes
        A sample; what is no JSON object is passed over.

    Returns
    -------
    tuple of str
        Fields within objects as ``user.name``.
    """
    names: dict[str, None] = {}
    for line in lines:
        try:
            _add_names(line, "", names)
        except (ValueError, RecursionError):  # the row will be told of when it is read
            continue
    return tuple(names)


def _add_names(raw: bytes, prefix: str, names: dict[str, None]) -> None:
    for key, value in _DICT.decode(raw).items():
        inner = bytes(value)
        if inner[:1] == b"{" and inner[1:].lstrip(_WHITE_SPACE)[:1] != b"}":
            _add_names(inner, f"{prefix}{key}.", names)
        else:
            names[f"{prefix}{key}"] = None


@cache
def _decoder(paths: tuple[str, ...]) -> Callable[[bytes], list[bytes]]:
    """Return what takes a line and yields the JSON of each wanted field, empty if absent."""
    roots = {path.partition(".")[0] for path in paths} | set(paths)
    fields = {name: f"field_{at}" for at, name in enumerate(sorted(roots))}
    line_type = msgspec.defstruct(
        "Line",
        [(attribute, msgspec.Raw, msgspec.Raw(b"")) for attribute in fields.values()],
        rename={attribute: name for name, attribute in fields.items()},
        gc=False,
    )
    decode = msgspec.json.Decoder(line_type).decode
    attributes = [fields[path] for path in paths]
    if not any("." in path for path in paths):

        def flat(line: bytes) -> list[bytes]:
            found = decode(line)
            return [bytes(getattr(found, attribute)) for attribute in attributes]

        return flat

    places = [
        (attribute, fields[root], rest)
        for attribute, (root, _, rest) in zip(
            attributes, (path.partition(".") for path in paths), strict=True
        )
    ]

    def nested(line: bytes) -> list[bytes]:
        found = decode(line)
        return [
            bytes(getattr(found, attribute))
            or (_follow(bytes(getattr(found, root)), rest) if rest else b"")
            for attribute, root, rest in places
        ]

    return nested


def _follow(raw: bytes, path: str) -> bytes:
    """Return the JSON at a path within a value; empty if there is none."""
    if raw[:1] == b"{":
        members = _DICT.decode(raw)
        if path in members:
            return bytes(members[path])
        key, _, rest = path.partition(".")
        inner = members.get(key)
    elif raw[:1] == b"[":
        key, _, rest = path.partition(".")
        items = _LIST.decode(raw)
        inner = items[int(key)] if key.isdecimal() and int(key) < len(items) else None
    else:
        return b""
    if inner is None:
        return b""
    return _follow(bytes(inner), rest) if rest else bytes(inner)


def _text_of(raw: bytes) -> bytes:
    """Return the text of a JSON value."""
    if raw[:1] == b'"':
        return _STRING.decode(raw).encode()
    if raw[:1] in (b"{", b"["):
        raw.decode()  # else bytes that are no text would pass unseen
    return b"" if raw == b"null" else raw


def _reason(line: bytes, error: Exception) -> str:
    """Say why a line is no JSON object, to follow "The row cannot be read: "."""
    message = str(error).removeprefix("JSON is malformed: ")
    if isinstance(error, UnicodeDecodeError) or "UTF-8" in message:
        return "it holds bytes that are not UTF-8"
    if isinstance(error, RecursionError):
        message = "objects nested too deeply"
    elif _LONE_SURROGATE.search(line) is not None:
        message = "half of a character, a lone surrogate"
    elif "truncated" in message:
        return "it is JSON that is cut short"
    elif line.lstrip(_WHITE_SPACE)[:1] != b"{":
        return "it is no JSON object"
    elif _NAMED_CONSTANTS.search(line) is not None:
        message = "NaN and Infinity are no numbers there, null is missing"
    return f"it is no JSON ({message})"
