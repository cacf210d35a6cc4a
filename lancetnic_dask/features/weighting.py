"""Shard rows + vocabulary -> weighted CSR rows: tf, idf and norm with scikit-learn's numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lancetnic_dask.features.term_lookup import lookup_terms
from lancetnic_dask.jit import kernel

if TYPE_CHECKING:
    from lancetnic_dask.features.moments import Moments
    from lancetnic_dask.features.shard import TokenShard
    from lancetnic_dask.features.terms import Vocabulary
    from lancetnic_dask.features.tokenize import TokenizedText

__all__ = ["EncodedRows", "FittedFeatures", "concatenate_rows", "encode_rows", "standardize"]

# Standard deviations from the mean.
_FARTHEST = 1e6


@dataclass(frozen=True, kw_only=True)
class FittedFeatures:
    """What was learned from the training rows, and what turns rows into numbers.

    Parameters
    ----------
    vocabularies : tuple of Vocabulary
        One for each text column; its terms become consecutive columns of the model's input.
    moments : Moments
        Of the numeric columns, which follow the terms.
    sublinear_tf : bool
        Whether a count tf becomes 1 + ln(tf).
    classes : tuple of str
        Labels in the order of their class numbers.
    """

    vocabularies: tuple[Vocabulary, ...]
    moments: Moments
    sublinear_tf: bool
    classes: tuple[str, ...]

    @property
    def num_terms(self) -> int:
        """Columns of all vocabularies."""
        return sum(len(vocabulary.terms) for vocabulary in self.vocabularies)

    @property
    def num_numeric(self) -> int:
        """Numeric columns."""
        return len(self.moments.mean)

    @property
    def input_size(self) -> int:
        """Columns of the model's input: terms, then numbers."""
        return self.num_terms + self.num_numeric


@dataclass(frozen=True)
class EncodedRows:
    """Rows as a model reads them.

    Parameters
    ----------
    indptr : ndarray of shape (num_rows + 1,), dtype=int64
        Where each row's entries start.
    indices : ndarray of shape (nnz,), dtype=int32
        Columns, distinct within a row, in the order of their first occurrence in the text.
    values : ndarray of shape (nnz,), dtype=float32
        Weights.
    numeric : ndarray of shape (num_rows, num_numeric), dtype=float32
        Standardized numbers; a missing one is 0, the training mean.
    target : ndarray of shape (num_rows,), dtype=int64
        Class numbers; empty without labels, -1 for a label that is no class.
    """

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    numeric: np.ndarray
    target: np.ndarray

    @property
    def num_rows(self) -> int:
        """Rows."""
        return len(self.indptr) - 1


def encode_rows(shard: TokenShard, rows: np.ndarray, features: FittedFeatures) -> EncodedRows:
    """Turn chosen rows of a shard into weighted rows.

    Each text column is weighted and scaled to length 1 on its own, as by one
    `TfidfVectorizer` a column; the columns then stand side by side.

    Parameters
    ----------
    shard : TokenShard
        Of the same recipe as the shards that the features were fitted on.
    rows : ndarray of shape (num_chosen,), dtype=int64
        Positions of the rows, in the wanted order.
    features : FittedFeatures
        Vocabularies, moments and classes.

    Returns
    -------
    EncodedRows
        `num_chosen` rows.
    """
    blocks, first_column = [], 0
    for text, vocabulary in zip(shard.texts, features.vocabularies, strict=True):
        blocks.append(_encode_text(text, rows, vocabulary, first_column, features.sublinear_tf))
        first_column += len(vocabulary.terms)
    indptr, indices, values = _side_by_side(blocks, len(rows))
    return EncodedRows(
        indptr=indptr,
        indices=indices,
        values=values,
        numeric=standardize(shard.numeric[rows], features.moments),
        target=_targets(shard, rows, features.classes),
    )


def standardize(numeric: np.ndarray, moments: Moments) -> np.ndarray:
    """Bring numbers to mean 0 and standard deviation 1 of the training rows.

    A missing number becomes 0, the training mean. Beyond a million standard deviations they are
    cut off: farther out, products with weights would leave the range of float32.

    Parameters
    ----------
    numeric : ndarray of shape (num_rows, num_data_columns), dtype=float64
        Finite, or NaN where missing.
    moments : Moments
        Of the training rows.

    Returns
    -------
    ndarray of shape (num_rows, num_data_columns), dtype=float32
        Finite.
    """
    with np.errstate(over="ignore"):  # beyond float64 is beyond the cut, too
        scaled = (numeric - moments.mean) / moments.scale
    near: np.ndarray = np.nan_to_num(np.clip(scaled, -_FARTHEST, _FARTHEST)).astype(np.float32)
    return near


def concatenate_rows(parts: list[EncodedRows]) -> EncodedRows:
    """Put rows one below the other, and let go of each part as soon as it is copied.

    Parameters
    ----------
    parts : list of EncodedRows
        At least one; the list is emptied, so that both copies never exist at once.

    Returns
    -------
    EncodedRows
        All rows.
    """
    if len(parts) == 1:
        return parts.pop()
    num_rows = sum(part.num_rows for part in parts)
    nnz = sum(len(part.indices) for part in parts)
    indptr = np.zeros(num_rows + 1, np.int64)
    indices = np.empty(nnz, np.int32)
    values = np.empty(nnz, np.float32)
    numeric = np.empty((num_rows, parts[0].numeric.shape[1]), np.float32)
    target = np.empty(sum(len(part.target) for part in parts), np.int64)
    row = entry = 0
    parts.reverse()
    while parts:
        part = parts.pop()
        stop_row, stop_entry = row + part.num_rows, entry + len(part.indices)
        indptr[row + 1 : stop_row + 1] = part.indptr[1:] + entry
        indices[entry:stop_entry] = part.indices
        values[entry:stop_entry] = part.values
        numeric[row:stop_row] = part.numeric
        target[row:stop_row] = part.target
        row, entry = stop_row, stop_entry
    return EncodedRows(indptr, indices, values, numeric, target)


def _encode_text(
    text: TokenizedText,
    rows: np.ndarray,
    vocabulary: Vocabulary,
    first_column: int,
    sublinear_tf: bool,  # noqa: FBT001 - numba and its callers pass by position
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    columns = lookup_terms(text.terms, vocabulary.terms)
    return weigh_rows(
        text.codes, text.row_offsets, rows, columns, vocabulary.idf, first_column, sublinear_tf
    )


@kernel()
def weigh_rows(
    codes: np.ndarray,
    row_offsets: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    idf: np.ndarray,
    first_column: int,
    sublinear_tf: bool,  # noqa: FBT001
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Count, weight and normalize the terms of chosen rows.

    Parameters
    ----------
    codes : ndarray of shape (num_tokens,), dtype=int32
        Terms of the shard in reading order.
    row_offsets : ndarray of shape (num_rows + 1,), dtype=int64
        Where each row's codes start.
    rows : ndarray of shape (num_chosen,), dtype=int64
        Positions of the chosen rows.
    columns : ndarray of shape (num_shard_terms,), dtype=int32
        Code to column; -1 where the term is not in the vocabulary.
    idf : ndarray of shape (num_columns,), dtype=float64
        Weight of each column.
    first_column : int
        Added to each column.
    sublinear_tf : bool
        Whether a count tf becomes 1 + ln(tf).

    Returns
    -------
    indptr int64 (num_chosen + 1,), indices int32 (nnz,), values float32 (nnz,)
        Rows of length 1 (or empty). Sums are made in float64, in the order of the entries.
    """
    bound = 0
    for row in rows:
        bound += row_offsets[row + 1] - row_offsets[row]
    indptr = np.zeros(len(rows) + 1, np.int64)
    indices = np.empty(bound, np.int32)
    weights = np.empty(bound, np.float32)
    # entry_of[column] is where the row in hand keeps the column, if that lies in this row at all.
    entry_of = np.full(len(idf), -1, np.int64)
    entry = 0
    for chosen in range(len(rows)):
        start = entry
        row = rows[chosen]
        for position in range(row_offsets[row], row_offsets[row + 1]):
            column = columns[codes[position]]
            if column < 0:
                continue
            known = entry_of[column]
            if known >= start:
                weights[known] += np.float32(1.0)
            else:
                entry_of[column] = entry
                indices[entry] = column
                weights[entry] = np.float32(1.0)
                entry += 1
        squares = 0.0
        for known in range(start, entry):
            count = np.float64(weights[known])
            weight = (1.0 + np.log(count) if sublinear_tf else count) * idf[indices[known]]
            squares += weight * weight
        length = np.sqrt(squares)
        for known in range(start, entry):
            count = np.float64(weights[known])
            weight = (1.0 + np.log(count) if sublinear_tf else count) * idf[indices[known]]
            weights[known] = np.float32(weight / length)
            indices[known] += first_column
        indptr[chosen + 1] = entry
    return indptr, indices[:entry].copy(), weights[:entry].copy()


def _side_by_side(
    blocks: list[tuple[np.ndarray, np.ndarray, np.ndarray]], num_rows: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Join CSR blocks of the same rows; their columns are already apart."""
    if not blocks:
        return np.zeros(num_rows + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32)
    joined = blocks[0]
    for block in blocks[1:]:
        joined = join_blocks(*joined, *block)
    return joined


@kernel()
def join_blocks(
    left_indptr: np.ndarray,
    left_indices: np.ndarray,
    left_values: np.ndarray,
    right_indptr: np.ndarray,
    right_indices: np.ndarray,
    right_values: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return CSR rows that hold the left entries, then the right ones; shapes as in CSR."""
    indptr = left_indptr + right_indptr
    indices = np.empty(indptr[-1], np.int32)
    values = np.empty(indptr[-1], np.float32)
    for row in range(len(indptr) - 1):
        middle = indptr[row] + left_indptr[row + 1] - left_indptr[row]
        indices[indptr[row] : middle] = left_indices[left_indptr[row] : left_indptr[row + 1]]
        values[indptr[row] : middle] = left_values[left_indptr[row] : left_indptr[row + 1]]
        stop = indptr[row + 1]
        indices[middle:stop] = right_indices[right_indptr[row] : right_indptr[row + 1]]
        values[middle:stop] = right_values[right_indptr[row] : right_indptr[row + 1]]
    return indptr, indices, values


def _targets(shard: TokenShard, rows: np.ndarray, classes: tuple[str, ...]) -> np.ndarray:
    """Return class numbers int64 (num_chosen,); -1 for a label that is no class."""
    if not len(shard.label_codes):
        return np.empty(0, np.int64)
    number_of = {label: number for number, label in enumerate(classes)}
    numbers = np.array([number_of.get(label, -1) for label in shard.label_values], np.int64)
    targets: np.ndarray = numbers[shard.label_codes[rows]]
    return targets
