"""Models as users of lancetnic write them: its constructor, dense rows."""

from __future__ import annotations

import torch
from torch import nn

from lancetnic_dask.models import SparseLinear, SparseRows

__all__ = ["OwnDense", "OwnHalf", "OwnSparse"]


class OwnDense(nn.Module):
    """Batch norm (a count in int64), dropout, tied weights and a buffer of whole numbers."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int, num_classes: int, dropout: float
    ) -> None:
        super().__init__()
        self.first = nn.Linear(input_size, hidden_size)
        self.norm = nn.BatchNorm1d(hidden_size)
        self.dropout = nn.Dropout(dropout)
        middle = nn.Linear(hidden_size, hidden_size)
        self.middle = nn.ModuleList([middle] * num_layers)
        self.last = nn.Linear(hidden_size, num_classes)
        self.shift: torch.Tensor
        # Needs real memory: can't be built without.
        self.register_buffer("shift", torch.tensor([int(torch.ones(3).sum().item())]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Score rows of shape (num_rows, input_size)."""
        x = torch.relu(self.norm(self.first(x)))
        for layer in self.middle:
            x = torch.relu(layer(self.dropout(x)))
        scores: torch.Tensor = self.last(x) + self.shift
        return scores


class OwnSparse(nn.Module):
    """A first layer of the package's; takes its options too."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        num_classes: int,
        dropout: float,
        *,
        num_numeric: int = 0,
        dense_grad: bool = False,
    ) -> None:
        super().__init__()
        del num_layers, dropout
        self.first = SparseLinear(
            input_size, hidden_size, num_numeric=num_numeric, dense_grad=dense_grad
        )
        self.last = nn.Linear(hidden_size, num_classes)

    def forward(self, rows: SparseRows) -> torch.Tensor:
        """Score sparse rows."""
        scores: torch.Tensor = self.last(torch.relu(self.first(rows)))
        return scores


class OwnHalf(nn.Module):
    """Looks at a weight a second time, and scores in bfloat16."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int, num_classes: int, dropout: float
    ) -> None:
        super().__init__()
        del hidden_size, num_layers, dropout
        self.first = nn.Linear(input_size, num_classes)
        self.weights = [self.first.weight]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Score rows by the second reference."""
        return (x @ self.weights[0].T).to(torch.bfloat16)
