"""Raw cells -> columns by role: text, numbers, labels; rows that can't be used are set aside.

A column's type never depends on which partition was seen first: everything arrives as bytes and
is cast by the role that the user gave it. Only a cell with nothing but white space (or NULs) is
missing; ``NA``, ``null`` and ``None`` are words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancetnic_dask.corpus.encodings import encoding_advice
from lancetnic_dask.errors import EncodingError, Location, RecordError, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lancetnic_dask.corpus.formats import EncodingErrors
    from lancetnic_dask.corpus.readers import RawRows
    from lancetnic_dask.settings import BadRowPolicy, ColumnRoles

__all__ = [
    "NUMBER",
    "PADDING",
    "CastRows",
    "SetAside",
    "cast_rows",
    "decode_rows",
    "merge_set_aside",
]

# What is a number, and what around it is nothing: prediction reads cells by the same two.
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_NOTHING = "neither a word nor a number"
_SAMPLE_BYTES = 1 << 16
_OR_SKIP = ", or leave such rows out with on_bad_rows='skip'"
# Unicode white space, and NUL: some programs fill cells of a fixed width with it.
PADDING = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\0"
)


@dataclass(frozen=True)
class SetAside:
    """Rows that were read but not used, for one reason.

    Parameters
    ----------
    reason : str
        Why, in a few words that follow "rows with …".
    count : int
        How many.
    first : Location
        Where the first one is.
    """

    reason: str
    count: int
    first: Location


@dataclass(frozen=True)
class CastRows:
    """Rows that can be used.

    Parameters
    ----------
    texts : list of pyarrow.LargeStringArray
        One array of (num_rows,) for each text column; a missing cell is empty.
    numeric : ndarray of shape (num_rows, num_data_columns), dtype=float64
        A missing cell is NaN.
    labels : pyarrow.LargeStringArray or None
        Labels as written; None without a label column.
    set_aside : list of SetAside
        What of the raw rows is not here, each reason once.
    num_replaced : int, default=0
        Characters that were no text and became U+FFFD, in rows that are used or not.
    """

    texts: list[pa.Array]
    numeric: np.ndarray
    labels: pa.Array | None
    set_aside: list[SetAside]
    num_replaced: int = 0

    @property
    def num_rows(self) -> int:
        """Rows that can be used."""
        return len(self.numeric)


class _Sieve:
    """Notes why rows are set aside; each row counts for its first reason only.

    `way_out` goes on the sentence that tells how to mend a row; empty where rows can't be skipped.
    """

    def __init__(
        self,
        rows: RawRows,
        policy: BadRowPolicy,
        *,
        encoding_errors: EncodingErrors = "strict",
        way_out: str = "",
    ) -> None:
        self.rows = rows
        self.policy = policy
        self.encoding_errors = encoding_errors
        self.way_out = way_out
        self.num_replaced = 0
        self.keep = np.ones(rows.num_rows, dtype=bool)
        self.found: dict[str, SetAside] = {}

    def drop(self, is_bad: np.ndarray, reason: str, column: str | None = None) -> int | None:
        """Drop rows; return the first one if the policy makes it an error."""
        bad = np.flatnonzero(is_bad & self.keep)
        if not len(bad):
            return None
        if self.policy == "error":
            return int(bad[0])
        self.drop_quietly(is_bad, reason, column)
        return None

    def fix(self, ways: str) -> str:
        """Return the ways to mend a row, and the way out, as one sentence."""
        return f"{ways}{self.way_out}."

    def drop_quietly(self, is_bad: np.ndarray, reason: str, column: str | None = None) -> None:
        """Drop rows that are no error under any policy."""
        bad = np.flatnonzero(is_bad & self.keep)
        if len(bad):
            self.keep[bad] = False
            places = [self.rows.location(int(bad[0]), column)]
            count = len(bad)
            if reason in self.found:  # in another column, perhaps further down
                places.append(self.found[reason].first)
                count += self.found[reason].count
            first = min(places, key=lambda place: place.row or 0)
            self.found[reason] = SetAside(reason, count, first)


def cast_rows(
    rows: RawRows,
    roles: ColumnRoles,
    *,
    encoding: str,
    policy: BadRowPolicy,
    encoding_errors: EncodingErrors = "strict",
) -> CastRows:
    """Give raw cells the types of their roles.

    Parameters
    ----------
    rows : RawRows
        Cells of `roles.names`, in that order.
    roles : ColumnRoles
        What each column is.
    encoding : str
        Of the cells.
    policy : {'error', 'skip'}
        What to do with a row that can't be used.
    encoding_errors : {'strict', 'replace'}, default='strict'
        Whether a cell that is not text makes its row a bad one.

    Returns
    -------
    CastRows
        The rows that can be used. Rows with neither a word nor a number are set aside under
        both policies: there is nothing to learn from.

    Raises
    ------
    RecordError
        Under 'error': a row that is no record, with too few or too many cells or longer than the
        limit, a cell that is no number or infinite, a missing label.
    EncodingError
        Under 'error': a cell that is not text in the encoding.
    """
    sieve = _Sieve(rows, policy, encoding_errors=encoding_errors, way_out=_OR_SKIP)
    _check_shape(sieve)
    sieve.drop_quietly(_is_header(rows, roles.names, encoding), "the header once more")
    num_texts = len(roles.text_columns)
    num_inputs = num_texts + len(roles.data_columns)
    texts = [
        _decode(sieve, cells, name, encoding)
        for cells, name in zip(rows.cells[:num_texts], roles.text_columns, strict=True)
    ]
    numbers = [
        _parse_numbers(sieve, _decode(sieve, cells, name, encoding), name)
        for cells, name in zip(rows.cells[num_texts:num_inputs], roles.data_columns, strict=True)
    ]
    numeric = np.stack(numbers, axis=1) if numbers else np.empty((rows.num_rows, 0))
    labels = None
    if roles.label_column is not None:
        labels = _decode(sieve, rows.cells[num_inputs], roles.label_column, encoding)
    # Before the labels: a line of nothing but separators is no error.
    sieve.drop_quietly(_is_blank(texts, numeric), _NOTHING)
    if labels is not None:
        _require_labels(sieve, labels, roles.label_column)
    if not sieve.keep.all():
        mask = pa.array(sieve.keep)
        texts = [text.filter(mask) for text in texts]
        numeric = numeric[sieve.keep]
        labels = None if labels is None else labels.filter(mask)
    return CastRows(texts, numeric, labels, list(sieve.found.values()), sieve.num_replaced)


def decode_rows(
    rows: RawRows,
    names: Sequence[str],
    *,
    encoding: str,
    encoding_errors: EncodingErrors = "strict",
) -> pa.Table:
    """Give raw cells names and nothing else: every record, every column as text.

    Parameters
    ----------
    rows : RawRows
        Cells of the named columns, in that order.
    names : sequence of str
        Names of the columns.
    encoding : str
        Of the cells.
    encoding_errors : {'strict', 'replace'}, default='strict'
        Whether a cell that is not text is an error.

    Returns
    -------
    pyarrow.Table
        Large_string columns; a line of white space among JSON Lines is left out.

    Raises
    ------
    RecordError, EncodingError
        For a row that is no record, or of another shape than the header, or a cell that is not
        text.
    """
    sieve = _Sieve(rows, "error", encoding_errors=encoding_errors)
    _check_shape(sieve)
    texts = [
        _decode(sieve, cells, name, encoding) for cells, name in zip(rows.cells, names, strict=True)
    ]
    table = pa.table(texts, names=list(names))
    return table if rows.is_blank is None else table.filter(pa.array(~rows.is_blank))


def merge_set_aside(parts: Iterable[SetAside]) -> list[SetAside]:
    """Add up what was set aside, by reason; the first place of the first part stays.

    Parameters
    ----------
    parts : iterable of SetAside
        In the order of the corpus.

    Returns
    -------
    list of SetAside
        One for each reason, in the order in which the reasons came up.
    """
    merged: dict[str, SetAside] = {}
    for part in parts:
        known = merged.get(part.reason)
        count = part.count + (known.count if known else 0)
        merged[part.reason] = SetAside(part.reason, count, known.first if known else part.first)
    return list(merged.values())


def _check_shape(sieve: _Sieve) -> None:
    rows = sieve.rows
    if rows.is_blank is not None:
        sieve.drop_quietly(rows.is_blank, _NOTHING)
    first = sieve.drop(rows.is_too_long, "more bytes than max_row_bytes")
    if first is not None:
        raise RecordError(
            "The row is longer than max_row_bytes; perhaps a quote is never closed.",
            rows.location(first),
            sieve.fix("Close the quote, pass quotechar=None or a larger max_row_bytes"),
        )
    first = sieve.drop(rows.num_fields != rows.num_columns, "too few or too many cells")
    if first is not None:
        raise RecordError(
            f"The row has {rows.num_fields[first]} cells and the header {rows.num_columns}.",
            rows.location(first),
            sieve.fix("Check quotes and separators there"),
        )
    _check_broken(sieve)


def _check_broken(sieve: _Sieve) -> None:
    """Set aside, or tell of, records that could not be read as such."""
    rows = sieve.rows
    for index, reason in sorted(rows.broken.items()):
        if rows.is_too_long[index]:  # not kept, so that it is nothing else
            continue
        is_this = np.zeros(rows.num_rows, np.bool_)
        is_this[index] = True
        if sieve.drop(is_this, f"what cannot be read: {reason}") is not None:
            raise RecordError(
                f"The row cannot be read: {reason}.", rows.location(index), sieve.fix("Correct it")
            )


def _decode(sieve: _Sieve, cells: pa.Array, name: str, encoding: str) -> pa.Array:
    """Turn bytes into text; cells that aren't text are emptied and their rows dropped."""
    try:
        return _decode_whole(cells, encoding)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        values = cells.to_pylist()
        if sieve.encoding_errors == "replace":
            texts = [value.decode(encoding, "replace") for value in values]
            sieve.num_replaced += sum(
                text.count("\ufffd") - value.decode(encoding, "ignore").count("\ufffd")
                for text, value in zip(texts, values, strict=True)
            )
            return pa.array(texts, pa.large_string())
        bad = [_undecodable(value, encoding) for value in values]
        is_bad = np.array([byte is not None for byte in bad])
        first = sieve.drop(is_bad, f"bytes that are not {encoding}", name)
        if first is not None:
            raise EncodingError(
                f"Byte {bad[first]:#04x} is not {encoding}: {quoted(values[first])}.",
                sieve.rows.location(first, name),
                sieve.fix(_advice(values, bad, encoding)),
            ) from None
        emptied = [
            b"" if byte is not None else value for value, byte in zip(values, bad, strict=True)
        ]
        return _decode_whole(pa.array(emptied, pa.large_binary()), encoding)


def _advice(values: list[bytes], bad: list[int | None], encoding: str) -> str:
    """Return which encoding the cells may be in, without the full stop."""
    wrong = [value for value, byte in zip(values, bad, strict=True) if byte is not None]
    return encoding_advice(b"\n".join(wrong)[:_SAMPLE_BYTES], wrong=encoding).rstrip(".")


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


def _undecodable(value: bytes, encoding: str) -> int | None:
    """Return the first byte that is not in the encoding."""
    try:
        value.decode(encoding)
    except UnicodeDecodeError as error:
        return value[error.start]
    return None


def _parse_numbers(sieve: _Sieve, texts: pa.Array, name: str) -> np.ndarray:
    """Parse a column to float64 (num_rows,); missing is NaN."""
    trimmed = pc.utf8_trim(texts, PADDING)
    is_missing = pc.equal(trimmed, "")
    is_number = pc.match_substring_regex(trimmed, NUMBER)
    is_bad = np.asarray(pc.and_not(pc.invert(is_number), is_missing))
    first = sieve.drop(is_bad, f"no number in column {name!r}", name)
    if first is not None:
        raise RecordError(
            f"{quoted(texts[first].as_py())} is not a number.",
            sieve.rows.location(first, name),
            sieve.fix("Correct it, empty the cell"),
        )
    # The parser of older versions of Arrow knows no plus sign.
    digits = pc.if_else(is_number, pc.utf8_ltrim(trimmed, "+"), pa.scalar(None, pa.large_string()))
    numbers = np.asarray(pc.fill_null(pc.cast(digits, pa.float64()), np.nan))
    first = sieve.drop(np.isinf(numbers), f"an infinite number in column {name!r}", name)
    if first is not None:
        raise RecordError(
            f"{quoted(texts[first].as_py())} is too large for a number.",
            sieve.rows.location(first, name),
            sieve.fix("Correct it, empty the cell"),
        )
    return np.where(np.isinf(numbers), np.nan, numbers)


def _require_labels(sieve: _Sieve, labels: pa.Array, name: str | None) -> None:
    first = sieve.drop(_is_empty(labels), "no label", name)
    if first is not None:
        raise RecordError(
            "The label is missing.",
            sieve.rows.location(first, name),
            sieve.fix("Fill it in"),
        )


def _is_header(rows: RawRows, names: Sequence[str], encoding: str) -> np.ndarray:
    """Return True (num_rows,) where every cell is its column's name: files joined by ``cat``."""
    repeats = np.ones(rows.num_rows, dtype=bool)
    for cells, name in zip(rows.cells, names, strict=True):
        if repeats.any():
            repeats &= np.asarray(pc.equal(cells, name.encode(encoding)))
    return repeats


def _is_blank(texts: list[pa.Array], numeric: np.ndarray) -> np.ndarray:
    """Return True (num_rows,) where every text is white space and every number is missing."""
    blank: np.ndarray = np.isnan(numeric).all(axis=1)
    for text in texts:
        if not blank.any():
            break
        blank &= _is_empty(text)
    return blank


def _is_empty(texts: pa.Array) -> np.ndarray:
    """Return True (num_rows,) where there is nothing but padding."""
    return np.asarray(pc.equal(pc.utf8_trim(texts, PADDING), ""))
