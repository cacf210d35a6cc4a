"""Arrow string arrays <-> the numpy views that kernels read and write.

Nothing is copied on the way in. The views keep their Arrow buffers alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from lancetnic_dask.errors import BudgetError
from lancetnic_dask.jit import kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["TextView", "iter_views", "load_word", "string_array", "text_view"]

MAX_TERM_BYTES = 2**31 - 1


class TextView(NamedTuple):
    """The buffers of one string array, its offset in them taken into account.

    Parameters
    ----------
    offsets : ndarray of shape (num_rows + 1,), dtype=int32 or int64
        Row ``i`` is ``utf8[offsets[i]:offsets[i + 1]]``; the first offset may be above 0.
    utf8 : ndarray of shape (num_bytes,), dtype=uint8
        The whole buffer, also of rows that the array leaves out.
    validity : ndarray, dtype=uint8
        Bit ``first_bit + i`` tells whether row ``i`` is valid; empty if all rows are. What
        stands in `utf8` for a null is undefined.
    first_bit : int
        Where the bits of the array begin.
    """

    offsets: NDArray[np.int64]
    utf8: NDArray[np.uint8]
    validity: NDArray[np.uint8]
    first_bit: int


def text_view(texts: pa.StringArray | pa.LargeStringArray) -> TextView:
    """Look at a string array without copying it.

    Raises
    ------
    TypeError
        If it is not a string or large_string array.
    """
    if pa.types.is_string(texts.type):
        dtype: np.dtype[Any] = np.dtype(np.int32)
    elif pa.types.is_large_string(texts.type):
        dtype = np.dtype(np.int64)
    else:
        message = f"Texts are string or large_string arrays, not {texts.type}."
        raise TypeError(message)
    validity, offsets, utf8 = texts.buffers()
    return TextView(
        offsets=_view(offsets, dtype, texts.offset, len(texts) + 1)
        if len(texts)  # an empty array may have no offsets at all
        else _read_only(np.zeros(1, dtype=dtype)),
        utf8=_view(utf8, np.dtype(np.uint8), 0, utf8.size if utf8 is not None else 0),
        validity=_view(validity, np.dtype(np.uint8), 0, validity.size)
        if texts.null_count
        else _read_only(np.zeros(0, dtype=np.uint8)),
        first_bit=texts.offset,
    )


def iter_views(texts: pa.StringArray | pa.LargeStringArray | pa.ChunkedArray) -> Iterator[TextView]:
    """Yield the view of each contiguous array, its offsets as int64: one type for kernels."""
    for contiguous in texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]:
        view = text_view(contiguous)
        yield view._replace(offsets=_read_only(view.offsets.astype(np.int64, copy=False)))


def string_array(offsets: NDArray[np.int64], utf8: NDArray[np.uint8]) -> pa.StringArray:
    """Make a string array over the bytes, without copying them.

    Raises
    ------
    BudgetError
        If there are 2 GiB of bytes or more: the offsets of such an array are 32 bit.
    """
    if utf8.size > MAX_TERM_BYTES:
        raise BudgetError(
            f"The terms of one partition take {utf8.size} bytes; {MAX_TERM_BYTES} is the most.",
            None,
            "Cut the corpus into smaller partitions, or choose a smaller ngram_range.",
        )
    return pa.StringArray.from_buffers(
        offsets.size - 1, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(utf8)
    )


def _view(buffer: pa.Buffer | None, dtype: np.dtype[Any], start: int, count: int) -> NDArray[Any]:
    """Look at `count` items from item `start` on; numpy refuses a buffer of no bytes."""
    if buffer is None or count == 0:
        return _read_only(np.zeros(0, dtype=dtype))
    return _read_only(np.frombuffer(buffer, dtype, count, start * dtype.itemsize))


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Make mapped and allocated memory one type: else kernels are compiled for both."""
    view = array.view()
    view.flags.writeable = False
    return view


@kernel()
def load_word(utf8: NDArray[np.uint8], position: int) -> np.uint64:
    """Eight bytes from a position on, the first lowest; compiled into one load.

    numba's cache does not notice a change here in kernels of other files.
    """
    at = np.uint64(position)
    return (
        np.uint64(utf8[at])
        | np.uint64(utf8[at + np.uint64(1)]) << np.uint64(8)
        | np.uint64(utf8[at + np.uint64(2)]) << np.uint64(16)
        | np.uint64(utf8[at + np.uint64(3)]) << np.uint64(24)
        | np.uint64(utf8[at + np.uint64(4)]) << np.uint64(32)
        | np.uint64(utf8[at + np.uint64(5)]) << np.uint64(40)
        | np.uint64(utf8[at + np.uint64(6)]) << np.uint64(48)
        | np.uint64(utf8[at + np.uint64(7)]) << np.uint64(56)
    )
