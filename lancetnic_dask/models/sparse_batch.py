"""Rows of text and numeric features -> the value that a sparse model's forward takes.

Only the value and its shapes stand here. The layer that multiplies it is in ``sparse_linear``;
what cuts a shard group into batches is in ``training``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    import numpy.typing as npt

__all__ = ["SparseRows", "tensor_over"]


@dataclass(frozen=True, slots=True)
class SparseRows:
    """Some rows of the corpus: weighted terms in CSR form, and numeric features beside them.

    The entries of row ``r`` are ``indices[indptr[r]:indptr[r + 1]]`` with the ``values`` at the
    same places. A column stands at most once in a row; the columns of a row are in any order.
    A row without any term is an empty range.

    Parameters
    ----------
    indptr : array of shape (num_rows + 1,), dtype=int64
        Where the entries of each row start; the first is 0, the last num_entries.
    indices : array of shape (num_entries,), dtype=int32
        Column of each entry, from 0 on.
    values : array of shape (num_entries,), dtype=float32
        Weight of each entry.
    numeric : array of shape (num_rows, num_numeric), dtype=float32
        Numeric features; num_numeric is 0 where the table has none.

    Examples
    --------
    >>> import numpy as np
    >>> rows = SparseRows(
    ...     np.array([0, 2, 2]), np.array([3, 1], np.int32), np.array([0.6, 0.8], np.float32),
    ...     numeric=np.array([[1.5], [-2.0]], np.float32),
    ... )
    >>> rows.num_rows
    2
    >>> rows.to_dense(4).tolist()[1]
    [0.0, 0.0, 0.0, 0.0, -2.0]
    """

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]
    numeric: npt.NDArray[np.float32]

    @property
    def num_rows(self) -> int:
        """Rows, the empty ones too."""
        return len(self.indptr) - 1

    def rows_between(self, start: int, stop: int) -> SparseRows:
        """Return the rows ``start:stop``, over the same memory; fewer where there are fewer."""
        indptr = self.indptr[start : stop + 1]
        first, last = int(indptr[0]), int(indptr[-1])
        return SparseRows(
            indptr - first,
            self.indices[first:last],
            self.values[first:last],
            numeric=self.numeric[start:stop],
        )

    def to_dense(self, num_text_features: int) -> torch.Tensor:
        """Write all features out, for a model whose first layer is dense.

        Parameters
        ----------
        num_text_features : int
            Text columns that the vocabulary has.

        Returns
        -------
        torch.Tensor of shape (num_rows, num_text_features + num_numeric), dtype=float32
            Text columns first, then the numeric ones.

        Notes
        -----
        Takes 4 bytes a cell: 128 rows over 80,000 columns are 41 MB.
        """
        num_numeric = self.numeric.shape[1]
        shape = (self.num_rows, num_text_features + num_numeric)
        dense = torch.zeros(shape, dtype=torch.float32, device="cpu")
        indptr = tensor_over(self.indptr)
        row_of_entry = torch.repeat_interleave(indptr.diff())
        dense[row_of_entry, tensor_over(self.indices).long()] = tensor_over(self.values)
        dense[:, num_text_features:] = tensor_over(self.numeric)
        return dense


def tensor_over(array: npt.NDArray[Any]) -> torch.Tensor:
    """Return a tensor over the memory of an array, or over a copy of a read-only one."""
    # torch knows no read-only memory: it warns, and a write into a mapped file would crash.
    return torch.from_numpy(array if array.flags.writeable else array.copy())
