"""Bytes of a CSV file -> record boundaries and row counts, from every start state, composed.

A block that starts anywhere in a file is scanned without knowing whether it starts inside
quotes: for every state of the machine at once. Once all blocks are scanned, on any worker and
in any order, the true states follow by looking up each block's end state in turn. No byte is
guessed at, so the cuts are exact for every dialect; a newline in quotes is no boundary.

What a cell holds is not looked at here: see ``csv_parse``. The machine is in ``dialect``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancetnic_dask.corpus.dialect import (
    NEXT_STATE,
    NUM_STATES,
    START_RECORD,
    STARTS_ROW,
    Machine,
    build_machine,
)
from lancetnic_dask.jit import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BlockRows", "BlockScan", "ByteRange", "compose", "cut_partitions", "scan_block"]

ByteSource: TypeAlias = bytes | bytearray | memoryview | npt.NDArray[np.uint8]

# Bytes between two looks at which scans have met; flags and positions stay in the L1 cache.
WINDOW_BYTES: Final = 4096

# Arithmetic on eight flags in one word; numba turns uint64 with int64 into float64.
_ZERO: Final = np.uint64(0)
_ONE: Final = np.uint64(1)
_ONE_PER_BYTE: Final = np.uint64(0x0101_0101_0101_0101)
_TOP_BYTE: Final = np.uint64(56)


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockScan:
    """What a block of bytes does to the machine, for each state it may start in.

    Parameters
    ----------
    end_state : ndarray of shape (NUM_STATES,), dtype=uint8
        State after the block, by state before it.
    num_rows : ndarray of shape (NUM_STATES,), dtype=int64
        Rows whose first byte is in the block.
    first_row : ndarray of shape (NUM_STATES,), dtype=int64
        Offset in the block of the first of these bytes; -1 where no row starts.
    """

    end_state: npt.NDArray[np.uint8]
    num_rows: npt.NDArray[np.int64]
    first_row: npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class BlockRows:
    """The rows that start in a block, its true start state being known.

    Parameters
    ----------
    start_state : int
        State before the block.
    first_row : int
        Offset in the block of the first row that starts in it, or -1.
    num_rows : int
        Rows that start in the block.
    """

    start_state: int
    first_row: int
    num_rows: int


@dataclass(frozen=True, kw_only=True)
class ByteRange:
    """A part of a file that holds whole rows and parses on its own.

    Parameters
    ----------
    start_byte : int
        Offset in the file of the first byte of the first row.
    stop_byte : int
        Offset after the last byte.
    num_rows : int
        Rows in the range, at least one.
    """

    start_byte: int
    stop_byte: int
    num_rows: int


def scan_block(data: ByteSource, table: npt.NDArray[np.uint8]) -> BlockScan:
    """Run the machine over a block from every start state.

    Frees the GIL and gives the same answer each time. Scans that have met go on as one, and
    one ordinary byte leaves at most two apart: inside and outside quotes.

    Parameters
    ----------
    data : bytes-like or ndarray of dtype uint8
        The block, cut anywhere.
    table : ndarray of shape (NUM_STATES, 256), dtype=uint8
        From `lancetnic_dask.corpus.dialect.transition_table`.

    Returns
    -------
    BlockScan
        End state, rows and first row by start state.
    """
    end_state = np.arange(NUM_STATES, dtype=np.uint8)
    num_rows = np.zeros(NUM_STATES, np.int64)
    first_row = np.full(NUM_STATES, -1, np.int64)
    _scan(as_byte_array(data), build_machine(table), end_state, num_rows, first_row)
    return BlockScan(end_state=end_state, num_rows=num_rows, first_row=first_row)


def compose(scans: Sequence[BlockScan], *, start_state: int = START_RECORD) -> list[BlockRows]:
    """Find the true start state of each block, and thence its rows.

    Parameters
    ----------
    scans : Sequence[BlockScan]
        Scans of neighbouring blocks, in the order of the file.
    start_state : int, default=0
        State before the first block; 0 (``START_RECORD``) at the start of a file.

    Returns
    -------
    list[BlockRows]
        One for each block.
    """
    composed = []
    state = start_state
    for scan in scans:
        composed.append(
            BlockRows(
                start_state=state,
                first_row=int(scan.first_row[state]),
                num_rows=int(scan.num_rows[state]),
            )
        )
        state = int(scan.end_state[state])
    return composed


def cut_partitions(
    scans: Sequence[BlockScan], block_starts: Sequence[int], stop_byte: int
) -> list[ByteRange]:
    r"""Cut scanned blocks into byte ranges that start and end on a record boundary.

    A range goes from the first row start in one block to that in the next block that has one;
    blocks in which no row starts belong to the range before. Blank lines belong to it too, and
    those before the first row to none.

    Parameters
    ----------
    scans : Sequence[BlockScan]
        Scans of neighbouring blocks, in the order of the file.
    block_starts : Sequence[int]
        Offset of each block in the file. At the first of them a record must start: skip the
        byte order mark and the header before.
    stop_byte : int
        Offset after the last block.

    Returns
    -------
    list[ByteRange]
        In the order of the file, without gaps; empty if there is no row.

    Examples
    --------
    >>> from lancetnic_dask.corpus.dialect import CsvDialect, transition_table
    >>> table = transition_table(CsvDialect())
    >>> blocks = [b'a,"1', b'\n2"\nb,', b"3\n"]
    >>> scans = [scan_block(block, table) for block in blocks]
    >>> for byte_range in cut_partitions(scans, [0, 4, 10], stop_byte=12):
    ...     print(byte_range)
    ByteRange(start_byte=0, stop_byte=8, num_rows=1)
    ByteRange(start_byte=8, stop_byte=12, num_rows=1)
    """
    cuts = [
        (block_start + rows.first_row, rows.num_rows)
        for block_start, rows in zip(block_starts, compose(scans), strict=True)
        if rows.num_rows
    ]
    return [
        ByteRange(start_byte=start, stop_byte=stop, num_rows=num_rows)
        for (start, num_rows), (stop, _) in pairwise([*cuts, (stop_byte, 0)])
    ]


def as_byte_array(data: ByteSource) -> npt.NDArray[np.uint8]:
    """View bytes as a read-only array without a copy: one kind of array, one compilation."""
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array


@kernel()
def _scan(
    data: npt.NDArray[np.uint8],
    machine: Machine,
    state: npt.NDArray[np.uint8],
    num_rows: npt.NDArray[np.int64],
    first_row: npt.NDArray[np.int64],
) -> None:
    """Advance state, num_rows, first_row (NUM_STATES,) over data uint8 (num_bytes,)."""
    flags = np.empty(WINDOW_BYTES, np.uint8)
    positions = np.empty(WINDOW_BYTES, np.int64)
    # leader (NUM_STATES,): the scan that stands for this one, being in the same state
    leader = np.arange(NUM_STATES)
    rows_in_window = np.zeros(NUM_STATES, np.int64)
    first_in_window = np.zeros(NUM_STATES, np.int64)
    for start in range(0, data.size, WINDOW_BYTES):
        window = data[start : start + WINDOW_BYTES]
        num_positions = find_special(window, machine.special, flags, positions)
        for s in range(NUM_STATES):
            if leader[s] == s:
                state[s], rows_in_window[s], first_in_window[s] = _scan_window(
                    window, positions[:num_positions], machine, state[s]
                )
        for s in range(NUM_STATES):
            state[s] = state[leader[s]]
            num_rows[s] += rows_in_window[leader[s]]
            if first_row[s] < 0 and first_in_window[leader[s]] >= 0:
                first_row[s] = start + first_in_window[leader[s]]
        for s in range(NUM_STATES):
            for earlier in range(s, -1, -1):
                if state[earlier] == state[s]:
                    leader[s] = earlier


@kernel()
def _scan_window(
    window: npt.NDArray[np.uint8],
    positions: npt.NDArray[np.int64],
    machine: Machine,
    start_state: int,
) -> tuple[int, int, int]:
    """Return end state, number of rows that start, offset of the first (or -1)."""
    state = start_state & NEXT_STATE
    num_rows = 0
    first_row = -1
    run_start = 0
    for position in positions:
        if position > run_start:
            entry = machine.ordinary_entries[state]
            if entry & STARTS_ROW:
                num_rows += 1
                if first_row < 0:
                    first_row = run_start
            state = entry & NEXT_STATE
        entry = machine.table[state, window[position]]
        if entry & STARTS_ROW:
            num_rows += 1
            if first_row < 0:
                first_row = position
        state = entry & NEXT_STATE
        run_start = position + 1
    if window.size > run_start:
        entry = machine.ordinary_entries[state]
        if entry & STARTS_ROW:
            num_rows += 1
            if first_row < 0:
                first_row = run_start
        state = entry & NEXT_STATE
    return state, num_rows, first_row


@kernel()
def find_special(
    window: npt.NDArray[np.uint8],
    special: npt.NDArray[np.uint8],
    flags: npt.NDArray[np.uint8],
    positions: npt.NDArray[np.int64],
) -> int:
    """Write the positions of special bytes in a window, in order, and return their number.

    window uint8 (up to WINDOW_BYTES,); flags uint8 and positions int64 (WINDOW_BYTES,) are
    scratch and result. Ordinary text costs next to nothing: comparing is vectorized, and then
    eight bytes without any special one are one comparison. For little-endian processors.
    """
    _flag_special(window, special, flags)
    num_words = (window.size + 7) // 8
    flags[window.size : 8 * num_words] = 0
    words = flags.view(np.uint64)
    count = 0
    for i in range(num_words):
        word = words[i]
        while word != _ZERO:
            rest = word & (word - _ONE)
            # The ones below the lowest flag, one in each byte, added up in the top byte.
            below = ((word ^ rest) - _ONE) & _ONE_PER_BYTE
            positions[count] = 8 * i + np.int64((below * _ONE_PER_BYTE) >> _TOP_BYTE)
            count += 1
            word = rest
    return count


@kernel()
def _flag_special(
    window: npt.NDArray[np.uint8], special: npt.NDArray[np.uint8], flags: npt.NDArray[np.uint8]
) -> None:
    """Set flags[i] to 1 where window[i] is one of the special bytes, else to 0.

    A function of its own over whole arrays: with an offset into the data, inside a loop over
    windows, it is not vectorized (1.3 against 30 GB/s).
    """
    a, b, c, d, e = special[0], special[1], special[2], special[3], special[4]
    for i in range(window.size):
        x = window[i]
        flags[i] = (x == a) | (x == b) | (x == c) | (x == d) | (x == e)
