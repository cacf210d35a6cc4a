"""Documents -> term codes: exactly the tokens of scikit-learn's `TfidfVectorizer` defaults.

A kernel goes over the UTF-8 bytes of the Arrow buffers once: it lower-cases by table, cuts at
word boundaries and finds each token's code in a hash table. The rare rows whose lower case
depends on context go through `str.lower` first. N-grams and stop words come later, from codes:
`ngrams.py`. Which column a term has is told by the vocabulary: `term_lookup.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancetnic_dask.features.arrow_text import TextView, iter_views, string_array
from lancetnic_dask.features.token_kernels import (
    CODES_FULL,
    CONTEXTUAL,
    DONE,
    SLOTS_FULL,
    grow_slots,
    rename_codes,
    scan_rows,
    unpack_terms,
)
from lancetnic_dask.features.unicode_tables import packed_letters

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TOKENIZER_VERSION", "TokenizedText", "Tokenizer"]

# Belongs into fingerprints beside `UNICODE_VERSION`: raised when a text gives other tokens.
TOKENIZER_VERSION: Final = 1

_FIRST_SEGMENT, _LAST_SEGMENT = 1 << 12, 1 << 20  # tokens
_FIRST_SLOTS, _FIRST_WORDS = 1 << 12, 1 << 12


@dataclass(frozen=True, eq=False)
class TokenizedText:
    """The tokens of one text column of one partition.

    Parameters
    ----------
    codes : ndarray of shape (num_tokens,), dtype=int32
        Index of each token's term in `terms`.
    row_offsets : ndarray of shape (num_rows + 1,), dtype=int64
        Row ``i`` has the tokens ``codes[row_offsets[i]:row_offsets[i + 1]]``.
    terms : pa.StringArray
        Each term that occurs, once, sorted by UTF-8 bytes. That is the order of code points,
        thus of Python's ``str`` and of scikit-learn's vocabulary.
    """

    codes: NDArray[np.int32]
    row_offsets: NDArray[np.int64]
    terms: pa.StringArray


class Tokenizer:
    r"""Cut the texts of one partition into tokens, batch by batch.

    Tokens are the matches of ``(?u)\b\w\w+\b`` in the text after `str.lower`. The result does
    not depend on how the rows were cut into batches.

    Parameters
    ----------
    lowercase : bool, default=True
        Whether texts are lower-cased first.

    Notes
    -----
    Beside the result, memory holds at most 4 MiB of codes, and 16 to 32 bytes a term in the
    hash table. Equal hashes cost time, never exactness: the bytes of terms are compared.

    Examples
    --------
    >>> import pyarrow as pa
    >>> tokenizer = Tokenizer()
    >>> tokenizer.add(pa.array(["The cat and THE dog", None, "I am a cat"]))
    >>> text = tokenizer.finish()
    >>> text.terms.to_pylist()
    ['am', 'and', 'cat', 'dog', 'the']
    >>> text.codes.tolist(), text.row_offsets.tolist()
    ([4, 2, 1, 4, 3, 0, 2], [0, 5, 5, 7])
    """

    def __init__(self, *, lowercase: bool = True) -> None:
        self._lowercase = lowercase
        self._start()

    def add(self, texts: pa.StringArray | pa.LargeStringArray | pa.ChunkedArray) -> None:
        """Add the next rows.

        Parameters
        ----------
        texts : pa.StringArray, pa.LargeStringArray or pa.ChunkedArray of these
            Valid UTF-8; a null counts as an empty text.

        Raises
        ------
        TypeError
            If the array is of another type.
        """
        for view in iter_views(texts):
            row_offsets = np.empty(view.offsets.size - 1, dtype=np.int64)
            self._scan(view, row_offsets, lowercase=self._lowercase)
            self._row_offsets.append(row_offsets)

    def finish(self) -> TokenizedText:
        """Give the tokens of all rows that were added, and start again with none.

        Raises
        ------
        BudgetError
            If the terms take 2 GiB or more.
        """
        offsets, utf8, prefixes = unpack_terms(self._words, self._num_terms)
        terms = string_array(offsets, utf8)
        order = _sorted_positions(terms, prefixes)
        # ranks int32 (num_terms,): code by first occurrence -> code by order of bytes
        ranks = np.empty(self._num_terms, dtype=np.int32)
        ranks[order] = np.arange(self._num_terms, dtype=np.int32)
        row_offsets = np.concatenate([np.zeros(1, dtype=np.int64), *self._row_offsets])
        codes = np.empty(row_offsets[-1], dtype=np.int32)
        segments = [*self._segments, self._codes[: self._num_codes]]
        self._start()
        start = 0
        for i, segment in enumerate(segments):
            rename_codes(segment, ranks, codes[start : start + segment.size])
            start += segment.size
            segments[i] = segment[:0].copy()  # given back at once: never two copies of all
        return TokenizedText(codes, row_offsets, terms.take(_as_indices(order)))

    def _start(self) -> None:
        """Forget all rows."""
        self._row_offsets: list[NDArray[np.int64]] = []
        self._segments: list[NDArray[np.int32]] = []  # full ones; codes by first occurrence
        self._num_before = 0  # tokens in full segments
        self._codes = np.empty(_FIRST_SEGMENT, dtype=np.int32)
        self._num_codes = 0
        # A slot: half of the hash, then 1 + index of the term's record in words; 0 is free.
        self._slots = np.zeros(_FIRST_SLOTS, dtype=np.uint64)
        # A record: size and code, 32 bits each; `size` words of 8 bytes, the first lowest.
        self._words = np.empty(_FIRST_WORDS, dtype=np.uint64)
        self._num_words = 0
        self._num_terms = 0
        self._hash_mask = np.uint64(0xFFFFFFFF)  # tests let hashes collide

    def _scan(
        self,
        view: TextView,
        row_offsets: NDArray[np.int64],
        *,
        lowercase: bool,
        position: int = -1,
    ) -> None:
        """Add the tokens of all rows; of the first from `position` on if that is not -1."""
        letters = packed_letters(lowercase=lowercase)
        row = 0
        while True:
            outcome, row, position, *sizes = scan_rows(
                view.utf8,
                view.offsets,
                view.validity,
                view.first_bit,
                letters,
                row,
                position,
                row_offsets,
                self._num_before,
                self._codes,
                self._num_codes,
                self._slots,
                self._words,
                self._num_words,
                self._num_terms,
                self._hash_mask,
            )
            self._num_codes, self._num_words, self._num_terms = sizes
            if outcome == DONE:
                return
            if outcome == CONTEXTUAL:
                self._scan_contextual(view, row, position, row_offsets[row : row + 1])
                row, position = row + 1, -1
            else:
                self._grow(outcome)

    def _scan_contextual(
        self, view: TextView, row: int, position: int, row_offsets: NDArray[np.int64]
    ) -> None:
        """Finish a row by way of `str.lower`; its tokens before `position` have been added.

        They are right: no character outside `CONTEXTUAL_CODE_POINTS` depends on its context.
        """
        start, stop = view.offsets[row], view.offsets[row + 1]
        lowered = view.utf8[start:stop].tobytes().decode().lower().encode()
        before = view.utf8[start:position].tobytes().decode().lower().encode()
        utf8 = np.frombuffer(lowered, dtype=np.uint8)
        offsets = np.array([0, utf8.size])
        offsets.flags.writeable = False
        validity = np.zeros(0, dtype=np.uint8)
        validity.flags.writeable = False
        self._scan(
            TextView(offsets, utf8, validity, 0),
            row_offsets,
            lowercase=False,
            position=len(before),
        )

    def _grow(self, outcome: int) -> None:
        """Make room for what the kernel could not place; it goes on with the same token."""
        if outcome == CODES_FULL:
            self._segments.append(self._codes)
            self._num_before += self._num_codes
            self._codes = np.empty(min(2 * self._codes.size, _LAST_SEGMENT), dtype=np.int32)
            self._num_codes = 0
        elif outcome == SLOTS_FULL:
            self._slots = grow_slots(self._slots)
        else:
            self._words = np.concatenate([self._words, np.empty_like(self._words)])


def _sorted_positions(terms: pa.StringArray, prefixes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Positions of the terms in the order of their bytes, int64 (num_terms,).

    Numbers are sorted ten times as fast as strings, so Arrow only gets the terms whose first
    8 bytes, prefixes (num_terms,), are those of another: sorted, they fill their own places.
    """
    order = np.argsort(prefixes)
    is_equal = prefixes[order[1:]] == prefixes[order[:-1]]
    is_tied = np.concatenate([is_equal, [False]]) | np.concatenate([[False], is_equal])
    is_tied = is_tied[: order.size]
    tied = order[is_tied]
    sorted_ties = pc.array_sort_indices(terms.take(_as_indices(tied)))
    order[is_tied] = tied[np.frombuffer(sorted_ties.buffers()[1], np.uint64, tied.size)]
    return order


def _as_indices(positions: NDArray[np.int64]) -> pa.Int64Array:
    """Return an Arrow array over positions: `pa.array` imports pandas, 0.3 s for one string."""
    return pa.Array.from_buffers(pa.int64(), positions.size, [None, pa.py_buffer(positions)])
