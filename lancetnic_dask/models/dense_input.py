"""SparseRows -> a network of the user's that reads all columns written out, batch by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import torch
from torch import nn

if TYPE_CHECKING:
    from lancetnic_dask.models.sparse_batch import SparseRows

__all__ = ["DENSE_SCORING_ROWS", "DenseInput"]

DENSE_SCORING_ROWS: Final = 64
"""Rows that are written out at once when nothing is trained: over 250,000 columns 64 MB."""


class DenseInput(nn.Module):
    """A network that takes a dense tensor, behind the input that all models of the package take.

    Parameters
    ----------
    network : nn.Module
        Takes a tensor float32 of shape (num_rows, input_size): text columns first, then the
        numeric ones.
    num_text_features : int
        Text columns of the vocabulary.

    Examples
    --------
    >>> import numpy as np
    >>> from lancetnic_dask.models import SparseRows
    >>> rows = SparseRows(
    ...     np.array([0, 1]), np.array([2], np.int32), np.array([0.5], np.float32),
    ...     numeric=np.array([[7.0]], np.float32),
    ... )
    >>> DenseInput(nn.Identity(), num_text_features=3)(rows)
    tensor([[0.0000, 0.0000, 0.5000, 7.0000]])
    """

    def __init__(self, network: nn.Module, *, num_text_features: int) -> None:
        super().__init__()
        self.network = network
        self.num_text_features = num_text_features

    def forward(self, rows: SparseRows) -> torch.Tensor:
        """Return what the network returns.

        Outside of training the rows go through it in slices of `DENSE_SCORING_ROWS`, so that
        scoring takes no more memory than a step.

        Parameters
        ----------
        rows : SparseRows
            Weighted terms and numbers.

        Returns
        -------
        Tensor of shape (num_rows, num_classes)
            Scores before softmax.
        """
        if self.training or rows.num_rows <= DENSE_SCORING_ROWS:
            return self._forward(rows)
        starts = range(0, rows.num_rows, DENSE_SCORING_ROWS)
        return torch.cat(
            [
                self._forward(rows.rows_between(start, start + DENSE_SCORING_ROWS))
                for start in starts
            ]
        )

    def _forward(self, rows: SparseRows) -> torch.Tensor:
        first = next(self.network.parameters(), None)
        dense = rows.to_dense(self.num_text_features)
        return cast(
            "torch.Tensor", self.network(dense if first is None else dense.to(first.device))
        )
