"""A JSON array of objects -> JSON Lines, an object at a time.

Each element is found by Python's own parser and copied as it is written, so numbers keep every
digit; a streaming parser such as ijson gives values, which would have to be written anew, and
holds an element of any size.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING

from lancetnic_dask.errors import CorpusError, Location, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["is_json_array", "iter_elements", "refuse_json_object"]

_WHITE_SPACE = re.compile(r"[ \t\r\n]*")
# Numbers are not looked at, however many digits they have.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)
_LINE_ENDS = str.maketrans("\r\n", "  ")
_FIELD = re.compile(r'"((?:[^"\\]|\\.)*)"\s*:')
# A cut element is looked at again only when so much more has come.
_GROWTH = 2


def is_json_array(head: bytes) -> bool:
    """Tell whether a file of JSON begins as an array."""
    return head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")


def refuse_json_object(head: bytes, url: str, *, is_whole: bool) -> None:
    """Raise CorpusError if a file of JSON is one object, and neither lines nor an array.

    Parameters
    ----------
    head : bytes
        From the start of the file.
    url : str
        For the message.
    is_whole : bool
        Whether that is all of it.
    """
    text = head.removeprefix(codecs.BOM_UTF8).decode("utf-8", "ignore").lstrip()
    line, _, rest = text.partition("\n")
    if rest.strip():
        # Of an object on several lines the first is not whole.
        is_one = line.startswith("{") and line.rstrip().endswith(("{", "[", ","))
    else:
        is_one = is_whole and _holds_rows(line)
    if not is_one:
        return
    first = _FIELD.search(text)
    name = "rows" if first is None else first[1]
    raise CorpusError(
        f"The file is one JSON object, with the field {quoted(name)}, and no lines or array of "
        "objects.",
        url,
        "Write the rows in it as an array of objects, or as lines: "
        f"jq -c '.[{json.dumps(name)}][]'.",
    )


def _holds_rows(line: str) -> bool:
    """Tell whether a line is an object of lists of lists or of objects."""
    try:
        found = _DECODER.decode(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and any(
        isinstance(value, list) and value and isinstance(value[0], (list, dict))
        for value in found.values()
    )


def iter_elements(texts: Iterator[str], *, url: str, max_row_bytes: int) -> Iterator[str]:
    r"""Yield the objects of a JSON array, each on one line.

    Memory is bounded by `max_row_bytes` and the pieces of text.

    Parameters
    ----------
    texts : iterator of str
        The file, in pieces.
    url : str
        For messages.
    max_row_bytes : int
        Characters that an object may have, at most.

    Yields
    ------
    str
        As written, but for line ends between its parts, and with one at its end.

    Raises
    ------
    CorpusError
        If it is no array of objects, is cut short, or an object is too long.

    Examples
    --------
    >>> pieces = iter(['[{"a": 1.0},', ' {"a":\n 2}]'])
    >>> list(iter_elements(pieces, url="a.json", max_row_bytes=100))
    ['{"a": 1.0}\n', '{"a":  2}\n']
    """
    reader = _Buffer(texts)
    number = 0
    reader.expect("[", "The file is no JSON array", url)
    if reader.peek() == "]":
        reader.position += 1
    else:
        while True:
            number += 1
            yield _element(reader, number, url, max_row_bytes).translate(_LINE_ENDS) + "\n"
            if reader.peek() == "]":
                reader.position += 1
                break
            reader.expect(",", f"There is no comma after element {number}", url)
    if reader.peek():
        raise CorpusError(
            f"Something follows the end of the JSON array: {quoted(reader.rest[:20])}.", url
        )


def _element(reader: _Buffer, number: int, url: str, max_row_bytes: int) -> str:
    if reader.peek() not in ("{", ""):
        raise CorpusError(
            f"Element {number} of the JSON array is no object: {quoted(reader.rest[:20])}.",
            url,
            'Each element must be an object, such as {"text": "…", "label": "…"}.',
        )
    while True:
        size = len(reader.text) - reader.position
        try:
            _, stop = _DECODER.raw_decode(reader.text, reader.position)
            size = stop - reader.position
        except (ValueError, RecursionError) as error:
            if size > max_row_bytes:
                raise _too_long(number, url, max_row_bytes) from error
            if reader.grow(max(1, (_GROWTH - 1) * size)):
                continue
            raise CorpusError(
                f"Element {number} of the JSON array is broken, or the file ends within it: "
                f"{error}.",
                Location(url, row=number),
                "Correct it, or fetch the file again.",
            ) from error
        if size > max_row_bytes:
            raise _too_long(number, url, max_row_bytes)
        found = reader.text[reader.position : stop]
        reader.position = stop
        return found


def _too_long(number: int, url: str, max_row_bytes: int) -> CorpusError:
    return CorpusError(
        f"Element {number} of the JSON array is broken, or longer than {max_row_bytes} characters.",
        Location(url, row=number),
        "Correct it, or pass a larger max_row_bytes.",
    )


class _Buffer:
    """Text that has come and is not yet used."""

    def __init__(self, texts: Iterator[str]) -> None:
        self._texts = texts
        self.text = ""
        self.position = 0

    @property
    def rest(self) -> str:
        """What is not yet used."""
        return self.text[self.position :]

    def peek(self) -> str:
        """Return the next character that is no white space; none at the end."""
        while True:
            match = _WHITE_SPACE.match(self.text, self.position)
            self.position = match.end() if match else self.position
            if self.position < len(self.text):
                return self.text[self.position]
            if not self.grow(1):
                return ""

    def expect(self, character: str, what: str, url: str) -> None:
        """Pass over a character, which must be there."""
        found = self.peek()
        if found != character:
            raise CorpusError(
                f"{what}: "
                + (f"{quoted(self.rest[:20])} stands there." if found else "the file ends there."),
                url,
                "Correct the file, or fetch it again.",
            )
        self.position += 1

    def grow(self, num_chars: int) -> bool:
        """Take so many characters more, if there are; tell whether any came."""
        pieces = [self.rest]
        num_new = 0
        for text in self._texts:
            pieces.append(text)
            num_new += len(text)
            if num_new >= num_chars:
                break
        self.text, self.position = "".join(pieces), 0
        return num_new > 0
