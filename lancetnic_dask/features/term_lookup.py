"""Sorted terms, sorted vocabulary -> the column of each term.

No hash table is built and nothing is copied, so that looking up the few terms of one text costs
microseconds, whatever the size of the vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lancetnic_dask.features.arrow_text import text_view
from lancetnic_dask.jit import kernel

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["lookup_terms"]


def lookup_terms(terms: pa.StringArray, vocabulary: pa.StringArray) -> NDArray[np.int32]:
    """Find the column of each term.

    Parameters
    ----------
    terms, vocabulary : pa.StringArray
        Distinct terms without nulls, each sorted by their UTF-8 bytes.

    Returns
    -------
    ndarray of shape (num_terms,), dtype=int32
        Index of each term in the vocabulary, -1 where it is not there.

    Notes
    -----
    Galloping search: O(T log(V / T)) comparisons for T terms in a vocabulary of V.

    Examples
    --------
    >>> import pyarrow as pa
    >>> lookup_terms(pa.array(["cat", "emu"]), pa.array(["bee", "cat", "dog"])).tolist()
    [1, -1]
    """
    term_view, vocabulary_view = text_view(terms), text_view(vocabulary)
    columns = np.empty(len(terms), dtype=np.int32)
    _lookup(
        term_view.offsets, term_view.utf8, vocabulary_view.offsets, vocabulary_view.utf8, columns
    )
    return columns


@kernel()
def _lookup(
    term_offsets: NDArray[np.int64],
    term_utf8: NDArray[np.uint8],
    vocabulary_offsets: NDArray[np.int64],
    vocabulary_utf8: NDArray[np.uint8],
    columns: NDArray[np.int32],
) -> None:
    """Fill columns int32 (num_terms,). Frees the GIL."""
    size = vocabulary_offsets.size - 1
    low = 0  # all terms of the vocabulary before are smaller than the term at hand
    for term in range(columns.size):
        start, stop = term_offsets[term], term_offsets[term + 1]
        step, high = 1, low
        while high < size and _is_less(
            vocabulary_utf8,
            vocabulary_offsets[high],
            vocabulary_offsets[high + 1],
            term_utf8,
            start,
            stop,
        ):
            low = high + 1
            high += step
            step *= 2
        high = min(high, size)
        while low < high:
            middle = (low + high) // 2
            if _is_less(
                vocabulary_utf8,
                vocabulary_offsets[middle],
                vocabulary_offsets[middle + 1],
                term_utf8,
                start,
                stop,
            ):
                low = middle + 1
            else:
                high = middle
        found = low < size and not _is_less(
            term_utf8,
            start,
            stop,
            vocabulary_utf8,
            vocabulary_offsets[low],
            vocabulary_offsets[low + 1],
        )
        columns[term] = low if found else -1


@kernel()
def _is_less(
    left_utf8: NDArray[np.uint8],
    left_start: int,
    left_stop: int,
    right_utf8: NDArray[np.uint8],
    right_start: int,
    right_stop: int,
) -> bool:
    """Whether left stands before right in the order of bytes."""
    shared = min(left_stop - left_start, right_stop - right_start)
    for i in range(shared):
        left, right = left_utf8[left_start + i], right_utf8[right_start + i]
        if left != right:
            return bool(left < right)
    return bool(left_stop - left_start < right_stop - right_start)
