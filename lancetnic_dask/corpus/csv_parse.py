"""Bytes of record-aligned CSV -> Arrow columns of chosen cells, in bounded memory.

The bytes come in pieces of any size. A row that is not finished waits for the next piece; one
that grows too long is dropped while it streams by and leaves a marked row without cells.

Cells are bytes: whether they are text in some encoding, numbers or missing is not judged here.
Where rows start is decided by the table that ``csv_scan`` uses too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancetnic_dask.corpus.csv_scan import WINDOW_BYTES, ByteSource, as_byte_array, find_special
from lancetnic_dask.corpus.dialect import (
    ACTION,
    APPEND,
    COMMENT,
    CR,
    END_FIELD,
    END_RECORD,
    LF,
    NEXT_STATE,
    START_RECORD,
    STARTS_ROW,
    CsvDialect,
    Machine,
    build_machine,
    closing_bytes,
    transition_table,
)
from lancetnic_dask.jit import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CsvParser", "ParsedRows", "read_record"]

# Where the parser stands between two windows: indices of the cursor, int64 (NUM_CURSOR,).
_STATE: Final = 0
_NUM_BYTES: Final = 1  # bytes passed since the first feed
_ROW: Final = 2  # rows that ended in this feed
_ROW_START: Final = 3  # offset of the unfinished row from the first byte fed
_FIELD: Final = 4  # index in the row of the field that is being read
_SLOT: Final = 5  # index of the wanted column to be filled next; the last is never filled
_TEXT_START: Final = 6  # where in the text the cells of the row start
_TEXT_STOP: Final = 7  # and where they stop so far
_MAX_ROW_BYTES: Final = 8
_NUM_CURSOR: Final = 9

_MAX_FIELDS: Final = int(np.iinfo(np.int32).max)


class _Output(NamedTuple):
    """What the kernels fill.

    wanted int64 (num_slots + 1,): columns to keep in the order of the file, and -1.
    text uint8: the cells of these columns, row by row.
    stops int64 (max_rows + 1, num_slots): where in text each cell stops; it starts where the
    one before stops. The last row that is used is the unfinished one.
    start_byte int64, num_fields int32, is_too_long bool (max_rows,): as in `ParsedRows`.
    """

    wanted: npt.NDArray[np.int64]
    text: npt.NDArray[np.uint8]
    stops: npt.NDArray[np.int64]
    start_byte: npt.NDArray[np.int64]
    num_fields: npt.NDArray[np.int32]
    is_too_long: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False, kw_only=True)
class ParsedRows:
    """The rows that ended in the bytes fed last.

    Parameters
    ----------
    columns : list[pyarrow.LargeBinaryArray]
        One for each chosen column, num_rows cells each: bytes without quotes and escapes, not
        checked to be text. Large, so that no feed is too big for the offsets. A cell that
        the row has not is empty.
    start_byte : ndarray of shape (num_rows,), dtype=int64
        Offset of each row from the first byte ever fed.
    num_fields : ndarray of shape (num_rows,), dtype=int32
        Fields that each row has.
    is_too_long : ndarray of shape (num_rows,), dtype=bool
        Whether the row was longer than ``max_row_bytes``; all its cells are empty then.
    """

    columns: list[pa.LargeBinaryArray]
    start_byte: npt.NDArray[np.int64]
    num_fields: npt.NDArray[np.int32]
    is_too_long: npt.NDArray[np.bool_]

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self.start_byte.size


class CsvParser:
    r"""Parse one record-aligned range of a CSV file, piece by piece.

    The rows, taken together, do not depend on how the bytes are cut into pieces.

    Parameters
    ----------
    dialect : CsvDialect
        The characters with a meaning.
    columns : Sequence[int]
        Index of each column to keep, from 0, in any order.
    max_row_bytes : int
        Bytes that a row may have at most, as it stands in the file, without its line end.

    Notes
    -----
    Holds at most ``max_row_bytes`` of an unfinished row. While a piece is parsed, the wanted
    cells are in memory twice, and each row takes 16 bytes a column and 13 more.

    Examples
    --------
    >>> parser = CsvParser(CsvDialect(), columns=[1], max_row_bytes=100)
    >>> parser.feed(b'1,"two\nlin').num_rows
    0
    >>> parser.feed(b'es"\n2,').columns[0].to_pylist()
    [b'two\nlines']
    >>> parser.finish().columns[0].to_pylist()
    [b'']
    """

    def __init__(self, dialect: CsvDialect, *, columns: Sequence[int], max_row_bytes: int) -> None:
        self._dialect = dialect
        self._machine = build_machine(transition_table(dialect))
        # Cells are written in the order of the file, each column once; -1 is never a field.
        wanted, slot_by_column = np.unique(np.asarray(columns, np.int64), return_inverse=True)
        self._wanted = np.append(wanted, -1)
        self._slot_by_column = [int(slot) for slot in slot_by_column]
        self._cursor = np.zeros(_NUM_CURSOR, np.int64)
        self._cursor[_MAX_ROW_BYTES] = max_row_bytes
        self._text = np.empty(0, np.uint8)
        self._row_stops = np.zeros(wanted.size, np.int64)

    def feed(self, data: ByteSource) -> ParsedRows:
        """Parse the next bytes.

        Parameters
        ----------
        data : bytes-like
            The bytes that follow those fed before.

        Returns
        -------
        ParsedRows
            The rows that end in these bytes, and no others.
        """
        piece = as_byte_array(data)
        self._reserve(piece.size)
        num_slots = self._row_stops.size
        max_rows = _count_line_ends(piece)
        output = _Output(
            wanted=self._wanted,
            text=self._text,
            stops=np.empty((max_rows + 1, num_slots), np.int64),
            start_byte=np.empty(max_rows, np.int64),
            num_fields=np.empty(max_rows, np.int32),
            is_too_long=np.empty(max_rows, np.bool_),
        )
        output.stops[0] = self._row_stops
        _parse_piece(piece, self._machine, self._cursor, output)
        num_rows = int(self._cursor[_ROW])
        cells = [_gather(self._text, output.stops[:num_rows], slot) for slot in range(num_slots)]
        self._keep_unfinished(output.stops[num_rows])
        return ParsedRows(
            columns=[cells[slot] for slot in self._slot_by_column],
            start_byte=output.start_byte[:num_rows].copy(),
            num_fields=output.num_fields[:num_rows].copy(),
            is_too_long=output.is_too_long[:num_rows].copy(),
        )

    def finish(self) -> ParsedRows:
        """End the last row where the range or the file ends; the parser is of no use then.

        Returns
        -------
        ParsedRows
            One row if the data stopped inside one, else none.
        """
        closing = closing_bytes(int(self._cursor[_STATE]), self._dialect)
        # The row is as long as it stands in the file: what closes it is not counted.
        self._cursor[_MAX_ROW_BYTES] += len(closing) - 1
        return self.feed(closing)

    def _reserve(self, num_bytes: int) -> None:
        """Make room for cells; at least doubled, so that small pieces copy little."""
        num_kept = int(self._cursor[_TEXT_STOP])
        if num_kept + num_bytes > self._text.size:
            text = np.empty(max(num_kept + num_bytes, 2 * num_kept), np.uint8)
            text[:num_kept] = self._text[:num_kept]
            self._text = text

    def _keep_unfinished(self, row_stops: npt.NDArray[np.int64]) -> None:
        """Move the text of the unfinished row to the start of the buffer."""
        start, stop = (int(self._cursor[i]) for i in (_TEXT_START, _TEXT_STOP))
        self._text[: stop - start] = self._text[start:stop]
        self._row_stops = row_stops - start
        self._cursor[[_ROW, _TEXT_START, _TEXT_STOP]] = 0, 0, stop - start


def read_record(
    data: bytes | bytearray | memoryview, dialect: CsvDialect, *, is_end: bool = False
) -> tuple[list[bytes], int] | None:
    r"""Read the first record, past blank lines and comments: the header of a file.

    Parameters
    ----------
    data : bytes-like
        Bytes from the start of a record, without a byte order mark.
    dialect : CsvDialect
        The characters with a meaning.
    is_end : bool, default=False
        Whether the file ends where the data ends, so that the record may lack its line end.

    Returns
    -------
    tuple[list[bytes], int] or None
        The cells, and the offset after the line end. None if the data holds no whole record.
        Of a CRLF of which the data has only the CR, the LF remains: a blank line, no row.

    Notes
    -----
    Hundreds of MB/s to find the end; then a loop in Python, over the record only.

    Examples
    --------
    >>> read_record(b'text,"the ""true"" label"\r\n1,2\r\n', CsvDialect())
    ([b'text', b'the "true" label'], 27)
    """
    table = transition_table(dialect)
    stop, state = _end_of_record(as_byte_array(data), table)
    closing = b""
    if stop < 0:
        closing = closing_bytes(state, dialect) if is_end else b""
        if not closing:
            return None
        stop = len(data)
    cells = [bytearray()]
    state = START_RECORD
    for byte in bytes(data[:stop]) + closing:
        entry = int(table[state, byte])
        state = entry & NEXT_STATE
        if entry & ACTION == APPEND:
            cells[-1].append(byte)
        elif entry & ACTION == END_FIELD:
            cells.append(bytearray())
    return [bytes(cell) for cell in cells], stop


@kernel()
def _end_of_record(data: npt.NDArray[np.uint8], table: npt.NDArray[np.uint8]) -> tuple[int, int]:
    """Return the offset after the first record, or -1 if it does not end, and the state."""
    state = START_RECORD
    for position in range(data.size):
        entry = table[state, data[position]]
        state = entry & NEXT_STATE
        if entry & ACTION == END_RECORD:
            stop = position + 1
            is_crlf = data[position] == CR and stop < data.size and data[stop] == LF
            return stop + is_crlf, state
    return -1, state


@kernel()
def _count_line_ends(data: npt.NDArray[np.uint8]) -> int:
    """Count CR and LF: no more rows than that can end in the bytes."""
    count = 0
    for byte in data:
        count += (byte == CR) | (byte == LF)
    return count


@kernel()
def _parse_piece(
    data: npt.NDArray[np.uint8],
    machine: Machine,
    cursor: npt.NDArray[np.int64],
    output: _Output,
) -> None:
    """Advance the cursor over data uint8 (num_bytes,) and write the output."""
    flags = np.empty(WINDOW_BYTES, np.uint8)
    positions = np.empty(WINDOW_BYTES + 1, np.int64)
    for start in range(0, data.size, WINDOW_BYTES):
        window = data[start : start + WINDOW_BYTES]
        num_positions = find_special(window, machine.special, flags, positions)
        positions[num_positions] = window.size
        _parse_window(window, positions[: num_positions + 1], machine, cursor, output)
        cursor[_NUM_BYTES] += window.size
    is_in_row = cursor[_STATE] not in (START_RECORD, COMMENT)
    if is_in_row and cursor[_NUM_BYTES] - cursor[_ROW_START] > cursor[_MAX_ROW_BYTES]:
        # The row can only be dropped, so its cells need not wait for its end.
        cursor[_TEXT_STOP] = cursor[_TEXT_START]


@kernel()
def _parse_window(
    window: npt.NDArray[np.uint8],
    positions: npt.NDArray[np.int64],
    machine: Machine,
    cursor: npt.NDArray[np.int64],
    output: _Output,
) -> None:
    """Parse a window, given where its special bytes are, and its size as the last position."""
    state = cursor[_STATE] & NEXT_STATE
    field, slot, text_stop = cursor[_FIELD], cursor[_SLOT], cursor[_TEXT_STOP]
    run_start = 0
    for position in positions:
        if position > run_start:
            entry = machine.ordinary_entries[state]
            if entry & STARTS_ROW:
                cursor[_ROW_START] = cursor[_NUM_BYTES] + run_start
            state = entry & NEXT_STATE
            # A run that is no text of a cell lies in a comment.
            if entry & APPEND and field == output.wanted[slot]:
                _copy_bytes(window[run_start:position], output.text[text_stop:])
                text_stop += position - run_start
        if position == window.size:
            break
        entry = machine.table[state, window[position]]
        if entry & STARTS_ROW:
            cursor[_ROW_START] = cursor[_NUM_BYTES] + position
        state = entry & NEXT_STATE
        action = entry & ACTION
        # A byte that belongs to the cell is copied with the run after it.
        run_start = position + (action != APPEND)
        if action in (END_FIELD, END_RECORD):
            if field == output.wanted[slot]:
                output.stops[cursor[_ROW], slot] = text_stop
                slot += 1
            field += 1
            if action == END_RECORD:
                cursor[_FIELD], cursor[_SLOT], cursor[_TEXT_STOP] = field, slot, text_stop
                _end_row(cursor[_NUM_BYTES] + position, cursor, output)
                field, slot, text_stop = 0, 0, cursor[_TEXT_STOP]
    cursor[_STATE] = state
    cursor[_FIELD], cursor[_SLOT], cursor[_TEXT_STOP] = field, slot, text_stop


@kernel()
def _end_row(row_stop: int, cursor: npt.NDArray[np.int64], output: _Output) -> None:
    """Complete the row whose line end is at row_stop, and move the cursor to the next one."""
    row = cursor[_ROW]
    is_too_long = row_stop - cursor[_ROW_START] > cursor[_MAX_ROW_BYTES]
    if is_too_long:
        cursor[_SLOT] = 0
        cursor[_TEXT_STOP] = cursor[_TEXT_START]
    # The cells that are missing, or all, are empty.
    output.stops[row, cursor[_SLOT] :] = cursor[_TEXT_STOP]
    output.start_byte[row] = cursor[_ROW_START]
    output.num_fields[row] = min(cursor[_FIELD], _MAX_FIELDS)
    output.is_too_long[row] = is_too_long
    cursor[_ROW] = row + 1
    cursor[_TEXT_START] = cursor[_TEXT_STOP]


def _gather(
    text: npt.NDArray[np.uint8], stops: npt.NDArray[np.int64], slot: int
) -> pa.LargeBinaryArray:
    """Copy the cells of one slot out of the text of all, into a column of just their size."""
    num_rows, num_slots = stops.shape
    # Where a cell starts is where the one before stops, in this row or the row before.
    starts = np.append(0, stops.ravel())[slot:-1:num_slots].copy()
    offsets = np.append(0, np.cumsum(stops[:, slot] - starts))
    cells = np.empty(offsets[-1], np.uint8)
    _copy_cells(text, starts, offsets, cells)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(cells)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), num_rows, buffers)


@kernel()
def _copy_cells(
    text: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    cells: npt.NDArray[np.uint8],
) -> None:
    """Copy the cell at starts[row] in text to offsets[row] in cells, for each row."""
    for row in range(starts.size):
        num_bytes = offsets[row + 1] - offsets[row]
        _copy_bytes(text[starts[row] : starts[row] + num_bytes], cells[offsets[row] :])


@kernel()
def _copy_bytes(source: npt.NDArray[np.uint8], target: npt.NDArray[np.uint8]) -> None:
    """Copy source to the start of target; a function of its own, so that it is vectorized."""
    for k in range(source.size):
        target[k] = source[k]
