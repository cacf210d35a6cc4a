"""Term codes -> codes of word n-grams, without stop words.

Works on codes alone: texts are not read again, and an n-gram is the pair of its first n - 1
words and its last, so equal n-grams are found by comparing integers, never by a hash alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from lancetnic_dask.errors import SettingError
from lancetnic_dask.features.arrow_text import string_array, text_view
from lancetnic_dask.features.term_lookup import lookup_terms
from lancetnic_dask.features.token_kernels import rename_codes
from lancetnic_dask.features.tokenize import TokenizedText
from lancetnic_dask.jit import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["expand_terms"]

_HALF_BITS = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_FIRST_SLOTS = 1 << 10


def expand_terms(
    text: TokenizedText, *, ngram_range: tuple[int, int], stop_words: frozenset[str]
) -> TokenizedText:
    """Replace tokens by their word n-grams, exactly as scikit-learn does.

    Stop words go first; an n-gram is n tokens that then stand side by side in a row, joined by
    one space.

    Parameters
    ----------
    text : TokenizedText
        Tokens of one column of one partition; not changed.
    ngram_range : tuple of two ints
        Least and greatest n; (1, 1) keeps single words.
    stop_words : frozenset of str
        Tokens to leave out; see `resolve_stop_words`.

    Returns
    -------
    TokenizedText
        In each row first all n-grams of the least n from left to right, then those of the next.
        The same object if there is nothing to do.

    Raises
    ------
    SettingError
        If not 1 <= least n <= greatest n.
    BudgetError
        If the terms take 2 GiB or more.

    Notes
    -----
    O(T N) time for T tokens and N = greatest n. Beside the result, memory holds 4 bytes a token
    and about 50 bytes a distinct n-gram.

    Examples
    --------
    >>> from lancetnic_dask.features.tokenize import Tokenizer
    >>> tokenizer = Tokenizer()
    >>> tokenizer.add(pa.array(["big red the dog"]))
    >>> pairs = expand_terms(
    ...     tokenizer.finish(), ngram_range=(1, 2), stop_words=frozenset(["the"])
    ... )
    >>> pairs.terms.take(pairs.codes).to_pylist()
    ['big', 'red', 'dog', 'big red', 'red dog']
    """
    min_n, max_n = ngram_range
    if not 1 <= min_n <= max_n:
        raise SettingError(
            f"ngram_range={ngram_range!r} is not a range of n-gram lengths.",
            None,
            "Pass two whole numbers, the first at least 1 and the second not below it.",
        )
    if stop_words:
        text = _drop_terms(text, stop_words)
    return text if max_n == 1 else _expand(text, min_n, max_n)


def _drop_terms(text: TokenizedText, stop_words: frozenset[str]) -> TokenizedText:
    """Leave out all tokens that are stop words, and their terms."""
    words = sorted(word.encode() for word in stop_words)
    # Arrow arrays over numpy's, as `pa.array` imports pandas: 0.3 s for one string.
    offsets = np.cumsum([0, *map(len, words)])
    found = lookup_terms(
        string_array(offsets, np.frombuffer(b"".join(words), np.uint8)), text.terms
    )
    is_kept = np.ones(len(text.terms), dtype=np.bool_)
    is_kept[found[found >= 0]] = False
    if is_kept.all():
        return text
    # code -> code among the terms that are kept, -1 for stop words
    new_codes = np.where(is_kept, np.cumsum(is_kept) - 1, -1).astype(np.int32)
    codes, row_offsets = _keep_codes(text.codes, text.row_offsets, new_codes)
    for array in (codes, row_offsets):  # as a shard's are: one kind of array, one compilation
        array.flags.writeable = False
    kept = np.flatnonzero(is_kept)
    indices = pa.Array.from_buffers(pa.int64(), kept.size, [None, pa.py_buffer(kept)])
    return TokenizedText(codes, row_offsets, text.terms.take(indices))


@kernel()
def _keep_codes(
    codes: NDArray[np.int32], row_offsets: NDArray[np.int64], new_codes: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Rename codes, leave out those that become -1. Frees the GIL."""
    num_kept = 0
    for code in codes:
        num_kept += new_codes[code] >= 0
    kept = np.empty(num_kept, dtype=np.int32)
    kept_offsets = np.zeros(row_offsets.size, dtype=np.int64)
    at = 0
    for row in range(row_offsets.size - 1):
        for i in range(row_offsets[row], row_offsets[row + 1]):
            code = new_codes[codes[i]]
            if code >= 0:
                kept[at] = code
                at += 1
        kept_offsets[row + 1] = at
    return kept, kept_offsets


class _Grams(NamedTuple):
    """Distinct n-grams of all lengths, the shorter first, those of one length in order.

    parents int32 (num_grams,): index of the n-gram without its last word, -1 for single words;
    last_codes int32 (num_grams,): code of the last word; first_kept: the first n-gram of the
    least length that is asked for.
    """

    parents: NDArray[np.int32]
    last_codes: NDArray[np.int32]
    first_kept: int


def _expand(text: TokenizedText, min_n: int, max_n: int) -> TokenizedText:
    """All n-grams from min_n to max_n > 1."""
    longest = int(np.diff(text.row_offsets).max(initial=0))
    if min_n > longest:  # in no time, however long the n-grams
        return TokenizedText(np.empty(0, np.int32), np.zeros_like(text.row_offsets), text.terms[:0])
    max_n = min(max_n, longest)
    row_offsets = _gram_offsets(text.row_offsets, min_n, max_n)
    codes = np.empty(row_offsets[-1], dtype=np.int32)
    # at_token int32 (num_tokens,): the n-gram of the present length that begins at each token
    at_token = text.codes.copy()
    num_terms = len(text.terms)
    parents = [np.full(num_terms, -1, dtype=np.int32)]
    last_codes = [np.arange(num_terms, dtype=np.int32)]
    first, num_grams, first_kept = 0, num_terms, 0
    for n in range(1, max_n + 1):
        if n > 1:
            pairs = _number_pairs(at_token, text.codes, text.row_offsets, n)
            order = np.argsort(pairs)
            ranks = np.empty(order.size, dtype=np.int32)
            ranks[order] = np.arange(order.size, dtype=np.int32)
            _rename(at_token, text.row_offsets, n, ranks)
            pairs = pairs[order]
            parents.append((first + (pairs >> _HALF_BITS)).astype(np.int32))
            last_codes.append((pairs & _LOW_HALF).astype(np.int32))
            first, num_grams = num_grams, num_grams + order.size
        if n == min_n:
            first_kept = first
        if n >= min_n:
            _write_level(at_token, text.row_offsets, n, min_n, first, row_offsets, codes)
    grams = _Grams(np.concatenate(parents), np.concatenate(last_codes), first_kept)
    view = text_view(text.terms)
    places, offsets = _place(*grams, view.offsets)
    rename_codes(codes, places, codes)
    utf8 = _join_words(*grams, view.offsets, view.utf8, places, offsets)
    return TokenizedText(codes, row_offsets, string_array(offsets, utf8))


def _gram_offsets(row_offsets: NDArray[np.int64], min_n: int, max_n: int) -> NDArray[np.int64]:
    """Offsets of rows of n-grams: a row of L tokens has L - n + 1 of length n, if above 0."""
    lengths = np.diff(row_offsets)
    counts = sum(np.maximum(lengths - n + 1, 0) for n in range(min_n, max_n + 1))
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])


@kernel()
def _number_pairs(
    at_token: NDArray[np.int32],
    codes: NDArray[np.int32],
    row_offsets: NDArray[np.int64],
    n: int,
) -> NDArray[np.uint64]:
    """Turn the (n - 1)-gram at each token into the n-gram there, numbered as first seen.

    Returns pairs uint64 (num_pairs,): number of the (n - 1)-gram, then code of the last word.
    What stands at the last n - 1 tokens of a row means nothing afterwards. Frees the GIL.
    """
    slots = np.full(_FIRST_SLOTS, -1, dtype=np.int32)
    pairs = np.empty(_FIRST_SLOTS // 2, dtype=np.uint64)
    num_pairs = 0
    for row in range(row_offsets.size - 1):
        for i in range(row_offsets[row], row_offsets[row + 1] - n + 1):
            pair = np.uint64(at_token[i]) << _HALF_BITS | np.uint64(codes[i + n - 1])
            slot = _find_pair(slots, pairs, pair)
            if slots[slot] < 0:
                if num_pairs == pairs.size:
                    pairs, slots = _grow_pairs(pairs)
                    slot = _find_pair(slots, pairs, pair)
                slots[slot] = num_pairs
                pairs[num_pairs] = pair
                num_pairs += 1
            at_token[i] = slots[slot]
    return pairs[:num_pairs].copy()


@kernel()
def _find_pair(slots: NDArray[np.int32], pairs: NDArray[np.uint64], pair: np.uint64) -> np.int64:
    """Slot of the pair, or the free one where it belongs."""
    hashed = (pair ^ pair >> _HALF_BITS) * _HASH_FACTOR
    slot = np.int64(hashed >> _HALF_BITS) & (slots.size - 1)
    while slots[slot] >= 0 and pairs[slots[slot]] != pair:
        slot = (slot + 1) & (slots.size - 1)
    return slot


@kernel()
def _grow_pairs(pairs: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """Room for twice the pairs, and four slots for each of now."""
    grown = np.empty(2 * pairs.size, dtype=np.uint64)
    grown[: pairs.size] = pairs
    slots = np.full(4 * pairs.size, -1, dtype=np.int32)
    for i in range(pairs.size):
        slots[_find_pair(slots, grown, grown[i])] = i
    return grown, slots


@kernel()
def _rename(
    at_token: NDArray[np.int32],
    row_offsets: NDArray[np.int64],
    n: int,
    ranks: NDArray[np.int32],
) -> None:
    """Give n-grams the numbers of their ranks. Frees the GIL."""
    for row in range(row_offsets.size - 1):
        for i in range(row_offsets[row], row_offsets[row + 1] - n + 1):
            at_token[i] = ranks[at_token[i]]


@kernel()
def _write_level(
    at_token: NDArray[np.int32],
    row_offsets: NDArray[np.int64],
    n: int,
    min_n: int,
    first: int,
    gram_offsets: NDArray[np.int64],
    grams: NDArray[np.int32],
) -> None:
    """Write the n-grams of each row behind the shorter ones. Frees the GIL."""
    for row in range(row_offsets.size - 1):
        start, stop = row_offsets[row], row_offsets[row + 1]
        at = gram_offsets[row]
        for shorter in range(min_n, n):
            at += max(stop - start - shorter + 1, 0)
        for i in range(start, stop - n + 1):
            grams[at] = first + at_token[i]
            at += 1


@kernel()
def _place(
    parents: NDArray[np.int32],
    last_codes: NDArray[np.int32],
    first_kept: int,
    term_offsets: NDArray[np.int64],
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Place of each n-gram in the order of bytes, and the offsets of their bytes there.

    The space is less than any byte of a word, so that order is the one of a dictionary: an
    n-gram, then all that begin with it. Frees the GIL.
    """
    num_grams = parents.size
    # sizes int32 (num_grams,): terms in the tree below each n-gram, itself included if kept
    sizes = np.zeros(num_grams, dtype=np.int32)
    for gram in range(num_grams - 1, -1, -1):
        sizes[gram] += gram >= first_kept
        if parents[gram] >= 0:
            sizes[parents[gram]] += sizes[gram]
    places = np.empty(num_grams, dtype=np.int32)
    next_places = np.empty(num_grams, dtype=np.int32)  # for the next that begins with it
    lengths = np.empty(num_grams, dtype=np.int64)
    offsets = np.zeros(num_grams - first_kept + 1, dtype=np.int64)
    next_root = 0
    for gram in range(num_grams):
        parent, last = parents[gram], last_codes[gram]
        lengths[gram] = term_offsets[last + 1] - term_offsets[last]
        if parent < 0:
            places[gram] = next_root
            next_root += sizes[gram]
        else:
            lengths[gram] += lengths[parent] + 1
            places[gram] = next_places[parent]
            next_places[parent] += sizes[gram]
        is_kept = gram >= first_kept
        next_places[gram] = places[gram] + is_kept
        if is_kept:
            offsets[places[gram] + 1] = lengths[gram]
    return places, np.cumsum(offsets)


@kernel()
def _join_words(
    parents: NDArray[np.int32],
    last_codes: NDArray[np.int32],
    first_kept: int,
    term_offsets: NDArray[np.int64],
    term_utf8: NDArray[np.uint8],
    places: NDArray[np.int32],
    offsets: NDArray[np.int64],
) -> NDArray[np.uint8]:
    """UTF-8 bytes of the n-grams, each at its place, written from its last word backwards."""
    utf8 = np.empty(offsets[-1], dtype=np.uint8)
    for gram in range(first_kept, parents.size):
        at = offsets[places[gram] + 1]
        prefix = gram
        while True:
            start, stop = term_offsets[last_codes[prefix]], term_offsets[last_codes[prefix] + 1]
            at -= stop - start
            utf8[at : at + stop - start] = term_utf8[start:stop]
            prefix = parents[prefix]
            if prefix < 0:
                break
            at -= 1
            utf8[at] = 0x20
    return utf8
