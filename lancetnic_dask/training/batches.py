"""Shard group -> batches of sparse rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from lancetnic_dask.jit import kernel
from lancetnic_dask.models.sparse_batch import SparseRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lancetnic_dask.features.weighting import EncodedRows

__all__ = ["Batch", "iter_batches", "num_batches", "take_rows"]


@dataclass(frozen=True)
class Batch:
    """Rows of one step.

    Parameters
    ----------
    rows : SparseRows
        Weighted terms and numbers.
    target : torch.Tensor of shape (num_rows,), dtype=int64
        Class numbers.
    """

    rows: SparseRows
    target: torch.Tensor

    @property
    def num_rows(self) -> int:
        """Rows in the batch."""
        return len(self.target)


def num_batches(num_rows: int, batch_size: int) -> int:
    """Return the steps that rows are spread over."""
    return -(-num_rows // batch_size)


def iter_batches(rows: EncodedRows, order: np.ndarray, batch_size: int) -> Iterator[Batch]:
    """Cut rows into batches of nearly equal size.

    Sizes differ by at most one and never exceed `batch_size`: no batch is left with a single
    row, which would break batch normalization, unless there is but one row.

    Parameters
    ----------
    rows : EncodedRows
        Of a shard group.
    order : ndarray of shape (num_rows,), dtype=int64
        Permutation of the rows.
    batch_size : int
        Rows in a batch at most.

    Yields
    ------
    Batch
        Every row once.
    """
    if len(order):
        for chosen in np.array_split(order, num_batches(len(order), batch_size)):
            yield take_rows(rows, chosen)


def take_rows(rows: EncodedRows, chosen: np.ndarray) -> Batch:
    """Copy chosen rows (positions int64) into a batch."""
    indptr, indices, values = gather_entries(rows.indptr, rows.indices, rows.values, chosen)
    target = rows.target[chosen] if len(rows.target) else np.empty(0, np.int64)
    return Batch(
        SparseRows(indptr=indptr, indices=indices, values=values, numeric=rows.numeric[chosen]),
        torch.from_numpy(target),
    )


@kernel()
def gather_entries(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Copy chosen rows of a CSR matrix.

    Parameters
    ----------
    indptr : ndarray of shape (num_rows + 1,), dtype=int64
    indices : ndarray of shape (nnz,), dtype=int32
    values : ndarray of shape (nnz,), dtype=float32
        The matrix.
    chosen : ndarray of shape (num_chosen,), dtype=int64
        Rows, in the wanted order.

    Returns
    -------
    indptr, indices, values
        The rows, same dtypes.
    """
    taken_indptr = np.zeros(len(chosen) + 1, np.int64)
    for position in range(len(chosen)):
        row = chosen[position]
        taken_indptr[position + 1] = taken_indptr[position] + indptr[row + 1] - indptr[row]
    taken_indices = np.empty(taken_indptr[-1], np.int32)
    taken_values = np.empty(taken_indptr[-1], np.float32)
    for position in range(len(chosen)):
        start = indptr[chosen[position]]
        first = taken_indptr[position]
        for offset in range(taken_indptr[position + 1] - first):
            taken_indices[first + offset] = indices[start + offset]
            taken_values[first + offset] = values[start + offset]
    return taken_indptr, taken_indices, taken_values
