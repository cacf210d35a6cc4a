"""Feature columns -> row hash; row hash, key -> train or validation.

The split depends on nothing but a row's own features and the key: neither on files, partitions
or workers, nor on what other rows there are. Equal rows always fall on the same side.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import numpy as np

from lancetnic_dask.errors import SettingError
from lancetnic_dask.features.arrow_text import iter_views, load_word
from lancetnic_dask.jit import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["hash_rows", "is_validation"]

# The domain keeps these keys apart from those of any shuffle of the same random_state.
_KEY_DOMAIN: Final = "lancetnic_dask split 1"

_SEEDS = np.array([0x243F6A8885A308D3, 0x13198A2E03707344], dtype=np.uint64)  # digits of pi
_FIRST_FACTOR = np.uint64(0x87C37B91114253D5)  # odd, half of the bits set: as in MurmurHash3
_SECOND_FACTOR = np.uint64(0x4CF5AD432745937F)
_FIRST_FINAL = np.uint64(0xFF51AFD7ED558CCD)
_SECOND_FINAL = np.uint64(0xC4CEB9FE1A85EC53)
_EIGHT = np.uint64(8)
_SHIFT_33 = np.uint64(33)
_CANONICAL_NAN = np.uint64(0x7FF8000000000000)


def hash_rows(
    text_columns: Sequence[pa.StringArray | pa.LargeStringArray | pa.ChunkedArray],
    numeric: NDArray[np.float64],
) -> NDArray[np.uint64]:
    """Hash the feature columns of each row to 128 bits.

    The hash depends on the values alone: not on the offsets and cuts of the arrays, nor on
    the machine. A null text counts as an empty one, all NaNs as one, -0.0 as 0.0.

    Parameters
    ----------
    text_columns : sequence of pa.StringArray, pa.LargeStringArray or pa.ChunkedArray of these
        Text columns, as they are tokenized.
    numeric : ndarray of shape (num_rows, num_columns), dtype=float64
        Numeric columns after their cast.

    Returns
    -------
    ndarray of shape (num_rows, 2), dtype=uint64
        Two lanes that share no constant.

    Raises
    ------
    ValueError
        If the columns differ in their number of rows.
    TypeError
        If a text column is of another type.

    Notes
    -----
    Each lane takes 8 bytes a step; the length of a text goes before its bytes, so that
    ("ab", "c") and ("a", "bc") differ. Made against chance, not against people who look for
    collisions.

    Examples
    --------
    >>> import pyarrow as pa
    >>> row_hash = hash_rows([pa.array(["a", "b", "a"])], np.array([[0.0], [0.0], [-0.0]]))
    >>> bool((row_hash[0] == row_hash[2]).all()), bool((row_hash[0] == row_hash[1]).any())
    (True, False)
    """
    num_rows = len(numeric)
    row_hash = np.empty((num_rows, 2), dtype=np.uint64)
    row_hash[:] = _SEEDS
    for i, texts in enumerate(text_columns):
        if len(texts) != num_rows:
            message = f"Text column {i} has {len(texts)} rows, the numeric columns {num_rows}."
            raise ValueError(message)
        row = 0
        for view in iter_views(texts):
            rows = row_hash[row : row + view.offsets.size - 1]
            _absorb_texts(view.utf8, view.offsets, view.validity, view.first_bit, rows)
            row += len(rows)
    _absorb_numbers(np.ascontiguousarray(numeric, dtype=np.float64).view(np.uint64), row_hash)
    return row_hash


def is_validation(
    row_hash: NDArray[np.uint64], *, split_ratio: float, random_state: int
) -> NDArray[np.bool_]:
    """Tell which rows are for validation; the others are for training.

    Of distinct rows, the fraction is close to `split_ratio`. Another `random_state` gives an
    independent split. A greater `split_ratio` adds rows and takes none away.

    Parameters
    ----------
    row_hash : ndarray of shape (num_rows, 2), dtype=uint64
        What `hash_rows` gave.
    split_ratio : float
        Fraction of the rows for validation, 0 to 1; 0 gives none, 1 gives all.
    random_state : int
        Key of the split.

    Returns
    -------
    ndarray of shape (num_rows,), dtype=bool
        True for validation.

    Raises
    ------
    SettingError
        If split_ratio is not between 0 and 1.

    Examples
    --------
    >>> row_hash = hash_rows([], np.arange(10_000.0).reshape(-1, 1))
    >>> int(is_validation(row_hash, split_ratio=0.2, random_state=42).sum())
    2086
    """
    if not 0 <= split_ratio <= 1:
        raise SettingError(
            f"split_ratio={split_ratio!r} is not between 0 and 1.",
            None,
            "Pass the fraction of rows for validation, such as 0.2.",
        )
    digest = hashlib.blake2b(f"{_KEY_DOMAIN}:{int(random_state)}".encode(), digest_size=16)
    keys = np.frombuffer(digest.digest(), dtype="<u8").astype(np.uint64)
    # A float64 holds each multiple of 2**-53 below 1: the comparison is exact.
    return _keyed_fraction(row_hash, keys[0], keys[1]) < split_ratio


@kernel()
def _absorb_texts(
    utf8: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    validity: NDArray[np.uint8],
    first_bit: int,
    row_hash: NDArray[np.uint64],
) -> None:
    """Mix one text column into row_hash uint64 (num_rows, 2). Frees the GIL."""
    for row in range(row_hash.shape[0]):
        start, stop = offsets[row], offsets[row + 1]
        bit = first_bit + row
        if validity.size > 0 and not validity[bit >> 3] >> (bit & 7) & 1:
            stop = start
        length = np.uint64(stop - start)
        first = _first_step(row_hash[row, 0], length)
        second = _second_step(row_hash[row, 1], length)
        position = start
        while position + 8 <= stop:
            word = load_word(utf8, position)
            first, second = _first_step(first, word), _second_step(second, word)
            position += 8
        if position < stop:
            word = np.uint64(0)
            while stop > position:  # the rest, the first byte lowest, 0 behind
                stop -= 1
                word = word << _EIGHT | np.uint64(utf8[stop])
            first, second = _first_step(first, word), _second_step(second, word)
        row_hash[row, 0], row_hash[row, 1] = first, second


@kernel()
def _absorb_numbers(numeric: NDArray[np.uint64], row_hash: NDArray[np.uint64]) -> None:
    """Mix the bits of numeric (num_rows, num_columns) in, then finish. Frees the GIL."""
    for row in range(row_hash.shape[0]):
        first, second = row_hash[row, 0], row_hash[row, 1]
        for column in range(numeric.shape[1]):
            bits = numeric[row, column]
            magnitude = bits & np.uint64(0x7FFFFFFFFFFFFFFF)
            if magnitude > np.uint64(0x7FF0000000000000):
                bits = _CANONICAL_NAN
            elif magnitude == 0:
                bits = magnitude  # -0.0 is 0.0
            first, second = _first_step(first, bits), _second_step(second, bits)
        row_hash[row, 0], row_hash[row, 1] = _final(first), _final(second)


@kernel()
def _keyed_fraction(
    row_hash: NDArray[np.uint64], first_key: np.uint64, second_key: np.uint64
) -> NDArray[np.float64]:
    """Uniform multiples of 2**-53 in [0, 1), float64 (num_rows,). Frees the GIL."""
    fractions = np.empty(row_hash.shape[0], dtype=np.float64)
    for row in range(fractions.size):
        mixed = _final(row_hash[row, 0] ^ first_key)
        mixed = _final(mixed + (row_hash[row, 1] ^ second_key))
        fractions[row] = np.float64(mixed >> np.uint64(11)) * 2.0**-53
    return fractions


@kernel()
def _first_step(state: np.uint64, word: np.uint64) -> np.uint64:
    """One step of the first lane: a permutation of the state for each word."""
    state = (state ^ word * _SECOND_FACTOR) * _FIRST_FACTOR
    return state ^ state >> np.uint64(29)


@kernel()
def _second_step(state: np.uint64, word: np.uint64) -> np.uint64:
    """One step of the second lane: rotated and added, where the first shifts and xors."""
    state += (word ^ word >> np.uint64(32)) * _FIRST_FINAL
    return (state << np.uint64(27) | state >> np.uint64(37)) * _SECOND_FINAL


@kernel()
def _final(state: np.uint64) -> np.uint64:
    """Let each bit of the state touch all bits of the result: MurmurHash3's finalizer."""
    state = (state ^ state >> _SHIFT_33) * _FIRST_FINAL
    state = (state ^ state >> _SHIFT_33) * _SECOND_FINAL
    return state ^ state >> _SHIFT_33
