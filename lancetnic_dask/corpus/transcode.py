"""Bytes in any encoding -> text, piece by piece, with the place of what is no text."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Any

from lancetnic_dask.corpus.encodings import encoding_advice
from lancetnic_dask.errors import EncodingError, Location

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lancetnic_dask.corpus.formats import EncodingErrors

__all__ = ["TranscodedText", "transcode"]

_PIECE_BYTES = 1 << 20
_BYTES_BEFORE, _BYTES_AFTER = 6, 8
_SAMPLE_BYTES = 2048
# A file that has been right for so long is in the encoding, and damaged in one place.
_ENOUGH_TELLING_BYTES = 256
_NEWLINE = "\n"
_REPLACEMENT = "\ufffd"
_SURROGATES = re.compile("[\ud800-\udfff]")


def transcode(
    source: Any, encoding: str, encoding_errors: EncodingErrors, url: str
) -> TranscodedText:
    """Read a file as text, piece by piece, without a byte order mark.

    Parameters
    ----------
    source : file
        With ``read(num_bytes)``, which returns nothing at the end only.
    encoding : str
        As `checked_encoding` returns it.
    encoding_errors : {'strict', 'replace'}
        What becomes of bytes that are no text.
    url : str
        For messages.

    Returns
    -------
    TranscodedText
        An iterator of str that can be written as UTF-8.

    Raises
    ------
    EncodingError
        From the iterator. Under 'strict': with byte, line and what the encoding may be. Under
        both: if the file lacks the byte order mark that its encoding needs.
    """
    return TranscodedText(source, encoding, encoding_errors, url)


class TranscodedText:
    """Pieces of text, and how much of those so far was none.

    Attributes
    ----------
    num_replaced : int
        Characters that became U+FFFD. One that stood in the file as such is none.
    """

    def __init__(
        self, source: Any, encoding: str, encoding_errors: EncodingErrors, url: str
    ) -> None:
        self.num_replaced = 0
        self._source = source
        self._encoding = encoding
        self._errors = encoding_errors
        self._url = url
        # Of the pieces that were decoded.
        self._num_bytes = self._num_lines = self._num_characters = 0
        self._decoder = codecs.getincrementaldecoder(encoding)(encoding_errors)
        self._texts = self._iter_texts()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._texts)

    def _iter_texts(self) -> Iterator[str]:
        is_start = is_more = True
        while is_more:
            data = self._source.read(_PIECE_BYTES)
            is_more = bool(data)
            text = self._decode(data)
            self._num_bytes += len(data)
            self._num_lines += text.count(_NEWLINE)
            self._num_characters += len(text)
            if is_start and text:
                text = text.removeprefix("\ufeff")
                is_start = False
            if text:
                yield text

    def _decode(self, data: bytes) -> str:
        state = self._decoder.getstate()
        try:
            text = self._decoder.decode(data, not data)
        except UnicodeDecodeError as error:
            raise self._explained(error, state, data) from None
        except UnicodeError as error:  # what Python says of UTF-16 and UTF-32 without a mark
            raise EncodingError(
                f"The file does not start with the byte order mark of {self._encoding}.",
                self._url,
                f"Pass encoding='{self._encoding}-le', '{self._encoding}-be' or another one.",
            ) from error
        if self._errors == "replace" and _REPLACEMENT in text:
            in_file = _decoded(self._encoding, "ignore", state, data, is_end=not data)
            self.num_replaced += text.count(_REPLACEMENT) - in_file.count(_REPLACEMENT)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            # Python's UTF-7 lets halves of pairs through; nothing can be written of them.
            if self._errors == "strict":
                line = self._num_lines + text[: error.start].count("\n") + 1
                raise EncodingError(
                    f"Line {line:,} is not {self._encoding}: it holds half a surrogate pair.",
                    self._url,
                    "Correct it, or pass encoding_errors='replace'.",
                ) from None
            text, num_halves = _SURROGATES.subn(_REPLACEMENT, text)
            self.num_replaced += num_halves
        return text

    def _explained(self, error: UnicodeDecodeError, state: Any, data: bytes) -> EncodingError:
        # What is kept of the piece before is a part of one character.
        start = error.start - len(state[0])
        before = _decoded(self._encoding, "strict", state, data[: max(start, 0)], is_end=False)
        # Characters of two bytes and more tell of the encoding; a mere byte of ASCII doesn't.
        num_telling = self._num_bytes + start - self._num_characters - len(before)
        is_damaged = num_telling >= _ENOUGH_TELLING_BYTES
        return EncodingError(
            f"Line {self._num_lines + before.count(_NEWLINE) + 1:,} is not {self._encoding}: "
            f"{_around(error)!r}.",
            Location(self._url, byte=self._num_bytes + start),
            "The text before it is: correct these bytes, or pass encoding_errors='replace'."
            if is_damaged
            else f"{encoding_advice(_sample(error), wrong=self._encoding)}.",
        )


def _decoded(encoding: str, errors: str, state: Any, data: bytes, *, is_end: bool) -> str:
    """Decode a piece of the file as it is where the decoder had that state."""
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    decoder.setstate(state)
    return decoder.decode(data, is_end)


def _around(error: UnicodeDecodeError) -> bytes:
    return error.object[max(0, error.start - _BYTES_BEFORE) : error.start + _BYTES_AFTER]


def _sample(error: UnicodeDecodeError) -> bytes:
    """Return bytes around the fault, from the start of a line where there is one."""
    start = max(0, error.start - _SAMPLE_BYTES)
    line = error.object.find(b"\n", start, error.start) + 1
    return error.object[line or start : error.start + _SAMPLE_BYTES]
