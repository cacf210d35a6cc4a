"""Bytes of a CSV file -> record boundaries and row counts, from every start state, composed.

A block that starts anywhere in a file is scanned without knowing whether it starts inside
quotes: for every state of the machine at once. Once all blocks are scanned, on any worker and
in any order, the true states follow by looking up each block's end state in turn. No byte is
guessed at, so the cuts are exact for every dialect; a newline in quotes is no boundary.

What a cell holds is not looked at here: see ``csv_parse``. The machine is in ``dialect``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from lancetnic_dask.corpus.dialect import (
    NEXT_STATE,
    NUM_STATES,
    START_RECORD,
    STARTS_ROW,
    build_machine,
)
from lancetnic_dask.jit import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BlockRows", "BlockScan", "ByteRange", "compose", "cut_partitions", "scan_block"]

ByteSource: TypeAlias = bytes | bytearray | memoryview | npt.NDArray[np.uint8]

# Bytes between two looks at which scans have met; what is noted of them stays in the L1 cache.
WINDOW_BYTES: Final = 4096
_WORD_BYTES: Final = 8

# Arithmetic on eight flags in one word; numba turns uint64 with int64 into float64.
_ZERO: Final = np.uint64(0)
_ONE: Final = np.uint64(1)
_ONE_PER_BYTE: Final = np.uint64(0x0101_0101_0101_0101)
_TOP_BYTE: Final = np.uint64(56)

# An entry of `_Steps`; the shift is taken modulo 64, which is what processors do by themselves.
_STATE_SHIFT: Final = np.uint64(3)
_SHIFT_MASK: Final = np.uint64(0x3F)
_ROW_BIT: Final = np.uint64(0x40)


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


class _Steps(NamedTuple):
    """The state machine as shifts: one takes a cycle, where looking up a state takes five.

    A step is a word with an entry of eight bits for each state: the next state times eight,
    which is where the entry of that state lies in the next step, and whether a row starts.

    of_byte uint64 (256,): step of each byte.
    of_gap uint64 (2,): step of no byte, and of any number of bytes without a meaning.
    special uint8 (NUM_SPECIAL or one more,): the bytes with a meaning.
    """

    of_byte: npt.NDArray[np.uint64]
    of_gap: npt.NDArray[np.uint64]
    special: npt.NDArray[np.uint8]


class _Scratch(NamedTuple):
    """Arrays for a call of `_scan`: creating them in there takes a second to compile.

    flags uint8 (WINDOW_BYTES,): whether each byte of a window is special, and words uint64
    (WINDOW_BYTES // 8,) the same memory. offsets uint64 (WINDOW_BYTES // 8,): words that have any.
    leader int64 (NUM_STATES,): the scan that stands for this one, being in the same state.
    end_state uint8, num_rows int64 (NUM_STATES,): what a leader's scan of a window gave.
    """

    flags: npt.NDArray[np.uint8]
    words: npt.NDArray[np.uint64]
    offsets: npt.NDArray[np.uint64]
    leader: npt.NDArray[np.int64]
    end_state: npt.NDArray[np.uint8]
    num_rows: npt.NDArray[np.int64]


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
    words = np.empty(WINDOW_BYTES // _WORD_BYTES, np.uint64)
    scratch = _Scratch(
        flags=words.view(np.uint8),
        words=words,
        offsets=np.empty_like(words),
        leader=np.arange(NUM_STATES, dtype=np.int64),
        end_state=np.empty_like(end_state),
        num_rows=np.empty_like(num_rows),
    )
    steps = _build_steps(table.tobytes())
    _scan(as_byte_array(data), steps, end_state, num_rows, first_row, scratch)
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


@lru_cache(maxsize=16)
def _build_steps(table_bytes: bytes) -> _Steps:
    """Pack a table, the bytes of uint8 (NUM_STATES, 256), once: it takes as long as 300 kB."""
    table = np.frombuffer(table_bytes, np.uint8).reshape(NUM_STATES, 256)
    machine = build_machine(table)
    stay = np.arange(NUM_STATES, dtype=np.uint8)
    entries = np.column_stack([table, stay, machine.ordinary_entries]).astype(np.uint64)
    packed = (entries & np.uint64(NEXT_STATE)) << _STATE_SHIFT
    packed[entries & np.uint64(STARTS_ROW) != 0] |= _ROW_BIT
    shifts = stay.astype(np.uint64) << _STATE_SHIFT
    words = np.bitwise_or.reduce(packed << shifts[:, np.newaxis], axis=0)
    return _Steps(of_byte=words[:256], of_gap=words[256:], special=machine.special)


@kernel()
def _scan(
    data: npt.NDArray[np.uint8],
    steps: _Steps,
    state: npt.NDArray[np.uint8],
    num_rows: npt.NDArray[np.int64],
    first_row: npt.NDArray[np.int64],
    scratch: _Scratch,
) -> None:
    """Advance state, num_rows, first_row (NUM_STATES,) over data uint8 (num_bytes,)."""
    leader, end_state = scratch.leader, scratch.end_state
    for start in range(0, data.size, WINDOW_BYTES):
        window = data[start : start + WINDOW_BYTES]
        _flag_special(window, steps.special, scratch.flags)
        num_offsets = _list_words(scratch.words[: window.size // _WORD_BYTES], scratch.offsets)
        offsets = scratch.offsets[:num_offsets]
        for s in range(NUM_STATES):
            if leader[s] == s:
                end_state[s], scratch.num_rows[s] = _scan_window(window, offsets, steps, state[s])
        for s in range(NUM_STATES):
            rows_in_window = scratch.num_rows[leader[s]]
            num_rows[s] += rows_in_window
            if first_row[s] < 0 and rows_in_window > 0:
                first_row[s] = start + _find_first_row(window, steps, state[s])
            state[s] = end_state[leader[s]]
        for s in range(NUM_STATES):
            for earlier in range(s, -1, -1):
                if state[earlier] == state[s]:
                    leader[s] = earlier


@kernel()
def _list_words(words: npt.NDArray[np.uint64], offsets: npt.NDArray[np.uint64]) -> int:
    """Write the byte offset of each word that is not 0, and return how many there are.

    Without a branch on the word: it would be mispredicted at every other one of some texts.
    """
    count = 0
    for i in range(words.size):
        offsets[count] = _WORD_BYTES * i
        count += words[i] != _ZERO
    return count


@kernel()
def _scan_window(
    window: npt.NDArray[np.uint8], offsets: npt.NDArray[np.uint64], steps: _Steps, start_state: int
) -> tuple[np.uint64, np.int64]:
    """Return the state after a window and the number of rows that start in it.

    offsets uint64 (at most WINDOW_BYTES // 8,): words that hold special bytes. No branch depends
    on what a byte is, so that a special one costs as much as any other, about a cycle.
    """
    entry = np.uint64(start_state) << _STATE_SHIFT
    rows = _ZERO  # in units of _ROW_BIT
    stop = _ZERO
    for offset in offsets:
        entry = steps.of_gap[np.uint8(offset > stop)] >> (entry & _SHIFT_MASK)
        rows += entry & _ROW_BIT
        # Unsigned: for a signed index numba tests each time whether it counts from the end.
        for k in range(_WORD_BYTES):
            entry = steps.of_byte[window[offset + np.uint64(k)]] >> (entry & _SHIFT_MASK)
            rows += entry & _ROW_BIT
        stop = offset + np.uint64(_WORD_BYTES)
    tail = window.size - window.size % _WORD_BYTES
    entry = steps.of_gap[np.uint8(tail > stop)] >> (entry & _SHIFT_MASK)
    rows += entry & _ROW_BIT
    for k in range(tail, window.size):
        entry = steps.of_byte[window[k]] >> (entry & _SHIFT_MASK)
        rows += entry & _ROW_BIT
    return (entry & _SHIFT_MASK) >> _STATE_SHIFT, np.int64(rows // _ROW_BIT)


@kernel()
def _find_first_row(window: npt.NDArray[np.uint8], steps: _Steps, start_state: int) -> int:
    """Return the offset in a window of the first byte that starts a row, or -1."""
    entry = np.uint64(start_state) << _STATE_SHIFT
    for k in range(window.size):
        entry = steps.of_byte[window[k]] >> (entry & _SHIFT_MASK)
        if entry & _ROW_BIT:
            return k
    return -1


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
    for sixth in special[5:]:  # in a loop of its own, so that most dialects need not compare it
        for i in range(window.size):
            flags[i] |= window[i] == sixth
