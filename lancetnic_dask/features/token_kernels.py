"""UTF-8 bytes -> codes of terms: the kernels behind `tokenize.py`, and their hash table.

The table is exact, and made of two arrays.

- ``words`` uint64 is a row of records, in the order of codes. A record is one word that holds
  size and code of the term, 32 bits each, then ``size`` words with its UTF-8 bytes, the first
  lowest, 0 behind the last.
- ``slots`` uint64 are a power of two in number. A slot holds half of the hash, then 1 + the
  index of the record; 0 is a free one. At most half of them are taken.

Equal hashes cost time, never exactness: all bytes are compared. The kernels stand in one file
since numba's cache only notices a change in the file of the kernel that is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lancetnic_dask.features.arrow_text import load_word
from lancetnic_dask.features.unicode_tables import CONTEXTUAL_LETTER
from lancetnic_dask.jit import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "CODES_FULL",
    "CONTEXTUAL",
    "DONE",
    "SLOTS_FULL",
    "WORDS_FULL",
    "grow_slots",
    "rename_codes",
    "scan_rows",
    "unpack_terms",
]

_MIN_LETTERS: Final = 2  # r"\b\w\w+\b"

# Why the kernel came back.
DONE, CODES_FULL, SLOTS_FULL, WORDS_FULL, CONTEXTUAL = range(5)

_BYTE_BITS = np.uint64(8)
_WORD_BITS = np.uint64(64)
_HALF_BITS = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)
_HASH_FACTOR = np.uint64(0xFF51AFD7ED558CCD)
_HASH_SEED = np.uint64(0x9E3779B97F4A7C15)

# Bytes that are added to each lane of a word: the sum reaches 0x80 from a certain byte on.
_SEVEN = np.uint64(7)
_LOW_BITS = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)
_FROM_UPPER_A, _AFTER_UPPER_Z = np.uint64(0x3F) * _LOW_BITS, np.uint64(0x25) * _LOW_BITS
_FROM_LOWER_A, _AFTER_LOWER_Z = np.uint64(0x1F) * _LOW_BITS, np.uint64(0x05) * _LOW_BITS
_FROM_0, _AFTER_9 = np.uint64(0x50) * _LOW_BITS, np.uint64(0x46) * _LOW_BITS
_FROM_UNDERSCORE, _AFTER_UNDERSCORE = np.uint64(0x21) * _LOW_BITS, np.uint64(0x20) * _LOW_BITS


@kernel()
def scan_rows(  # noqa: C901, PLR0912, PLR0915 - see its docstring
    utf8: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    validity: NDArray[np.uint8],
    first_bit: int,
    letters: NDArray[np.uint32],
    row: int,
    position: int,
    row_offsets: NDArray[np.int64],
    num_before: int,
    codes: NDArray[np.int32],
    num_codes: int,
    slots: NDArray[np.uint64],
    words: NDArray[np.uint64],
    num_words: int,
    num_terms: int,
    hash_mask: np.uint64,
) -> tuple[int, int, int, int, int, int]:
    """Tokenize from a place on, up to the end or to a token that there is no room for.

    Returns why it came back, then where to go on (position -1: the start of the row; else
    the start of a token), then the number of codes in this segment, of words and of terms.
    Fills row_offsets (num_rows,): tokens up to the end of each row. Frees the GIL.

    One long function, since passing arrays on to one that reads a token made numba count
    their references at each token: 156 instead of 221 MB/s.
    """
    # "a" at "A" if texts are lower-cased, else "A": 0x20 or 0
    case_bit = np.uint64(letters[0x41] ^ np.uint32(0x41))
    while row < row_offsets.size:
        stop = offsets[row + 1]
        if position < 0:
            position = offsets[row]
            bit = first_bit + row
            if validity.size > 0 and not validity[bit >> 3] >> (bit & 7) & 1:
                position = stop
        while position < stop:
            # One token into words[num_words + 1:]: if it is a new term, it stays there.
            outcome, token_start, num_letters, end = DONE, position, 0, num_words + 1
            word, used_bits, hashed = np.uint64(0), np.uint64(0), _HASH_SEED
            token_stop = stop  # or where an ASCII character is known to end the token
            while position < token_stop:
                if end + 1 >= words.size:  # room for this word and the last
                    outcome = WORDS_FULL
                    break
                if utf8[position] < 0x80 and position + 8 <= stop:
                    value, width = _ascii_letters(load_word(utf8, position), case_bit)
                    num_letters += width
                    bits = _BYTE_BITS * np.uint64(width)
                    if width < 8 and utf8[position + width] < 0x80:
                        token_stop = position + width
                else:
                    code_point, width = _decode(utf8, position)
                    value = np.uint64(letters[code_point] if code_point < letters.size else 0)
                    if value == CONTEXTUAL_LETTER:
                        outcome = CONTEXTUAL
                        break
                    num_letters += 1 if value else 0
                    bits = _letter_bits(value)
                if value == 0:
                    position += width
                    break
                position += width
                word |= value << used_bits
                used_bits += bits
                if used_bits >= _WORD_BITS:
                    words[end] = word
                    hashed = _mix_word(hashed, word)
                    end += 1
                    used_bits -= _WORD_BITS
                    # Shifting by all 64 bits is undefined.
                    word = value >> (bits - used_bits) if used_bits else np.uint64(0)
            if token_stop < stop:
                position = token_stop + 1
            if outcome == DONE and num_letters >= _MIN_LETTERS:
                if used_bits:
                    words[end] = word
                    hashed = _mix_word(hashed, word)
                    end += 1
                tag = hashed * _HASH_FACTOR >> _HALF_BITS & hash_mask
                slot, code = _find_term(slots, words, tag, num_words, end - num_words - 1)
                if num_codes == codes.size:
                    outcome = CODES_FULL
                elif code < 0 and 2 * (num_terms + 1) > slots.size:
                    outcome = SLOTS_FULL
                else:
                    if code < 0:
                        code = np.int64(num_terms)
                        size = np.uint64(end - num_words - 1)
                        words[num_words] = size << _HALF_BITS | np.uint64(code)
                        slots[slot] = tag << _HALF_BITS | np.uint64(num_words + 1)
                        num_words, num_terms = end, num_terms + 1
                    codes[num_codes] = code
                    num_codes += 1
            if outcome != DONE:
                return outcome, row, token_start, num_codes, num_words, num_terms
        row_offsets[row] = num_before + num_codes
        row += 1
        position = -1
    return DONE, row, position, num_codes, num_words, num_terms


@kernel()
def _ascii_letters(eight: np.uint64, case_bit: np.uint64) -> tuple[np.uint64, int]:
    """ASCII word characters at the head of 8 bytes, the first lowest, and their number.

    One byte a lane, no loop: a sum sets the high bit of each lane whose byte is large enough.
    """
    seven_bit = eight & ~_HIGH_BITS
    is_upper = seven_bit + _FROM_UPPER_A & ~(seven_bit + _AFTER_UPPER_Z)
    is_lower = seven_bit + _FROM_LOWER_A & ~(seven_bit + _AFTER_LOWER_Z)
    is_digit = seven_bit + _FROM_0 & ~(seven_bit + _AFTER_9)
    is_underscore = seven_bit + _FROM_UNDERSCORE & ~(seven_bit + _AFTER_UNDERSCORE)
    is_other = (~(is_upper | is_lower | is_digit | is_underscore) | eight) & _HIGH_BITS
    first_other = is_other & (~is_other + _ONE)
    before = (first_other >> _SEVEN) - _ONE  # all ones if there is no other
    width = np.int64((before & _LOW_BITS) * _LOW_BITS >> np.uint64(56))
    lowered = eight | ((is_upper & _HIGH_BITS) >> _SEVEN) * case_bit
    return lowered & before, width  # type: ignore[return-value]  # int64 is the int of kernels


@kernel()
def _decode(utf8: NDArray[np.uint8], position: int) -> tuple[np.int64, int]:
    """Code point at a position of valid UTF-8, and its number of bytes."""
    first = np.int64(utf8[position])
    if first < 0x80:
        return first, 1
    second = utf8[position + 1] & 0x3F
    if first < 0xE0:
        return (first & 0x1F) << 6 | second, 2
    third = utf8[position + 2] & 0x3F
    if first < 0xF0:
        return (first & 0x0F) << 12 | second << 6 | third, 3
    return (first & 0x07) << 18 | second << 12 | third << 6 | (utf8[position + 3] & 0x3F), 4


@kernel()
def _letter_bits(letter: np.uint64) -> np.uint64:
    """Bits of a packed letter, whole bytes."""
    if letter >> np.uint64(16):
        return np.uint64(32) if letter >> np.uint64(24) else np.uint64(24)
    return np.uint64(16) if letter >> _BYTE_BITS else _BYTE_BITS


@kernel()
def _mix_word(hashed: np.uint64, word: np.uint64) -> np.uint64:
    """One step of the term hash: the same on all machines and in all processes."""
    hashed = (hashed ^ word) * _HASH_FACTOR
    return hashed ^ hashed >> _HALF_BITS


@kernel()
def _find_term(
    slots: NDArray[np.uint64], words: NDArray[np.uint64], tag: np.uint64, record: int, size: int
) -> tuple[np.uint64, np.int64]:
    """Slot and code of the term that stands behind words[record]; a free slot, -1 if new."""
    last_slot = np.uint64(slots.size) - _ONE
    slot = tag & last_slot
    while slots[slot] != 0:
        if slots[slot] >> _HALF_BITS == tag:
            known = np.int64(slots[slot] & _LOW_HALF) - 1
            is_same = np.int64(words[known] >> _HALF_BITS) == size
            i = 1
            while is_same and i <= size:
                is_same = words[known + i] == words[record + i]
                i += 1
            if is_same:
                return slot, np.int64(words[known] & _LOW_HALF)
        slot = (slot + _ONE) & last_slot
    return slot, np.int64(-1)


@kernel()
def grow_slots(slots: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Twice the slots; a slot holds all that is needed to find its new place."""
    grown = np.zeros(2 * slots.size, dtype=np.uint64)
    last_slot = np.uint64(grown.size) - _ONE
    for entry in slots:
        if entry:
            slot = entry >> _HALF_BITS & last_slot
            while grown[slot]:
                slot = (slot + _ONE) & last_slot
            grown[slot] = entry
    return grown


@kernel()
def unpack_terms(
    words: NDArray[np.uint64], num_terms: int
) -> tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.uint64]]:
    """Offsets int64 (num_terms + 1,) and UTF-8 bytes of the terms, without their padding.

    Then the first 8 bytes of each term, the first highest: numbers in the order of the terms.
    """
    prefixes = np.empty(num_terms, dtype=np.uint64)
    offsets = np.zeros(num_terms + 1, dtype=np.int64)
    record = np.int64(0)
    for term in range(num_terms):
        size = np.int64(words[record] >> _HALF_BITS)
        record += size + 1
        prefix, first_word = np.uint64(0), words[record - size]
        for i in range(8):
            byte = first_word >> np.uint64(8 * i) & np.uint64(0xFF)
            prefix = prefix << np.uint64(8) | byte
        prefixes[term] = prefix
        last_word = words[record - 1]
        padding = 0
        while last_word >> np.uint64(56 - 8 * padding) == 0:  # no term holds the byte 0
            padding += 1
        offsets[term + 1] = offsets[term] + 8 * size - padding
    utf8 = np.empty(offsets[-1], dtype=np.uint8)
    record = np.int64(0)
    for term in range(num_terms):
        for i in range(offsets[term + 1] - offsets[term]):
            word = words[record + 1 + (i >> 3)]
            utf8[offsets[term] + i] = word >> np.uint64(8 * (i & 7)) & np.uint64(0xFF)
        record += np.int64(words[record] >> _HALF_BITS) + 1
    return offsets, utf8, prefixes


@kernel()
def rename_codes(
    codes: NDArray[np.int32], new_codes: NDArray[np.int32], renamed: NDArray[np.int32]
) -> None:
    """Fill renamed int32 (num_tokens,), which may be codes itself. Frees the GIL.

    `numpy.take` would copy the codes as int64 first.
    """
    for i in range(codes.size):
        renamed[i] = new_codes[codes[i]]
