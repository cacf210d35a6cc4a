"""Bytes of cells -> text; which texts are empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancetnic_dask.corpus.encodings import encoding_advice
from lancetnic_dask.errors import EncodingError

if TYPE_CHECKING:
    from lancetnic_dask.corpus.sieve import Sieve

__all__ = ["PADDING", "decode_cells", "is_empty", "trim"]

# Unicode white space, and NUL: some programs fill cells of a fixed width with it.
PADDING = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\0"
)
_STARTS_PADDING = np.isin(np.arange(256), [character.encode()[0] for character in PADDING])
_SAMPLE_BYTES = 1 << 16
_BYTES_AROUND = 20


def decode_cells(sieve: Sieve, cells: pa.Array, name: str, encoding: str) -> pa.Array:
    """Turn bytes into text.

    Cells that aren't text are emptied and their rows dropped; or, if the sieve has it so, what is
    no text in them becomes U+FFFD and is counted.

    Parameters
    ----------
    sieve : Sieve
        Of the rows.
    cells : pyarrow.LargeBinaryArray
        One for each row.
    name : str
        The column, for messages.
    encoding : str
        UTF-8, or one with a byte for each character.

    Returns
    -------
    pyarrow.LargeStringArray
        One for each row.

    Raises
    ------
    EncodingError
        If the sieve's policy is 'error' and a cell of a row that is still kept is not text.
    """
    try:
        return _decode_whole(cells, encoding)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        values: list[bytes] = cells.to_pylist()
        if sieve.encoding_errors == "replace":
            return _replace(sieve, values, encoding)
        faults = [_first_fault(value, encoding) for value in values]
        is_bad = np.array([fault is not None for fault in faults])
        first = sieve.drop(is_bad, f"bytes that are not {encoding}", name)
        if first is not None:
            fault = faults[first] or 0
            wrong = [value for value, bad in zip(values, is_bad, strict=True) if bad]
            raise EncodingError(
                f"Byte {values[first][fault]:#04x} is not {encoding}: "
                f"{_around(values[first], fault)}.",
                sieve.rows.location(first, name),
                sieve.fix(encoding_advice(b"\n".join(wrong)[:_SAMPLE_BYTES], wrong=encoding)),
            ) from None
        emptied = [b"" if bad else value for value, bad in zip(values, is_bad, strict=True)]
        return _decode_whole(pa.array(emptied, pa.large_binary()), encoding)


def trim(texts: pa.Array) -> pa.Array:
    """Return texts without the padding around them."""
    return pc.utf8_trim(texts, PADDING)


def is_empty(texts: pa.Array) -> np.ndarray:
    """Return True (num_rows,) where there is nothing but padding.

    Few texts begin with padding, and only these are looked into: half the time of trimming all.
    """
    if not len(texts):
        return np.zeros(0, dtype=bool)
    _, offsets_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    starts, stops = offsets[:-1], offsets[1:]
    found: np.ndarray = starts == stops
    if found.all():
        return found
    data = np.frombuffer(data_buffer, np.uint8)
    # The last text may be empty: then it starts where the bytes end.
    begins = _STARTS_PADDING[data[np.minimum(starts, len(data) - 1)]]
    doubtful = np.flatnonzero(begins & ~found)
    if len(doubtful):
        found[doubtful] = np.asarray(pc.equal(trim(texts.take(pa.array(doubtful))), ""))
    return found


def _replace(sieve: Sieve, values: list[bytes], encoding: str) -> pa.Array:
    """Decode with U+FFFD for what is no text, and count these but not those that were there."""
    texts = [value.decode(encoding, "replace") for value in values]
    sieve.num_replaced += sum(
        text.count("\ufffd") - value.decode(encoding, "ignore").count("\ufffd")
        for text, value in zip(texts, values, strict=True)
    )
    return pa.array(texts, pa.large_string())


def _decode_whole(cells: pa.Array, encoding: str) -> pa.Array:
    cells = cells.cast(pa.large_binary())
    if encoding == "utf-8":
        texts = cells.view(pa.large_string())
        texts.validate(full=True)
        return texts
    # One byte a character: the offsets move by the UTF-8 length of what stands before them.
    _, offsets_buffer, data_buffer = cells.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[cells.offset : cells.offset + len(cells) + 1]
    data = np.frombuffer(data_buffer or b"", np.uint8)[offsets[0] : offsets[-1]]
    decoded = data.tobytes().decode(encoding)
    lengths = np.array(
        [len(bytes([byte]).decode(encoding, "replace").encode()) for byte in range(256)], np.uint8
    )
    # moved (num_bytes + 1,): the largest array here, so no wider than it must be
    moved = np.zeros(len(data) + 1, np.int32 if 3 * len(data) < 2**31 else np.int64)
    np.cumsum(lengths[data], out=moved[1:])
    return pa.LargeStringArray.from_buffers(
        len(cells),
        pa.py_buffer(moved[offsets - offsets[0]].astype(np.int64)),
        pa.py_buffer(decoded.encode()),
    )


def _first_fault(value: bytes, encoding: str) -> int | None:
    """Return where the first byte stands that is not in the encoding."""
    try:
        value.decode(encoding)
    except UnicodeDecodeError as error:
        return error.start
    return None


def _around(value: bytes, fault: int) -> str:
    """Show the bytes around a fault."""
    start, stop = max(0, fault - _BYTES_AROUND), fault + _BYTES_AROUND
    before, after = "…" if start else "", "…" if stop < len(value) else ""
    return f"{before}{value[start:stop]!r}{after}"
