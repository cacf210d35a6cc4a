"""SparseRows -> class scores: the fully connected classifier of lancetnic."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from torch import nn

from lancetnic_dask.errors import SettingError
from lancetnic_dask.models.sparse_linear import SparseLinear

if TYPE_CHECKING:
    import torch

    from lancetnic_dask.models.sparse_batch import SparseRows

__all__ = ["ScalpelMC"]


class ScalpelMC(nn.Module):
    """Linear, ReLU and dropout, ``num_layers`` times, then one linear layer to the classes.

    The same network as lancetnic 4.1.0's ``ScalpelMC``, with the same starting distribution; the
    first layer reads sparse rows.

    Parameters
    ----------
    input_size : int
        Text columns and numeric columns together; 1 or more.
    hidden_size : int
        Width of each hidden layer; 1 or more.
    num_layers : int
        Hidden layers; 1 or more.
    num_classes : int
        Classes; 2 or more.
    dropout : float
        Share of each hidden layer's outputs set to zero while training; from 0 to below 1.
    num_numeric : int, default=0
        How many of ``input_size``, the last ones, are numeric.
    dense_grad : bool, default=False
        As in `SparseLinear`: needed by some optimizers, see
        `lancetnic_dask.models.optimizers.needs_dense_grad`.

    Raises
    ------
    SettingError
        If an option is out of its range.

    Examples
    --------
    >>> ScalpelMC(input_size=10, hidden_size=4, num_layers=1, num_classes=3, dropout=0.2)
    ScalpelMC(
      (model): Sequential(
        (0): SparseLinear(in_features=10, out_features=4, num_numeric=0, bias=True, dense_grad=False)
        (1): ReLU()
        (2): Dropout(p=0.2, inplace=False)
        (3): Linear(in_features=4, out_features=3, bias=True)
      )
    )
    """  # noqa: E501 - the printed model is as wide as it is

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
        _check_at_least("input_size", input_size, 1)
        _check_at_least("hidden_size", hidden_size, 1)
        _check_at_least("num_layers", num_layers, 1)
        _check_at_least("num_classes", num_classes, 2)
        if not 0 <= dropout < 1:
            raise SettingError(f"dropout is {dropout}; it must be from 0 to below 1.")
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.num_classes = num_classes
        layers: list[nn.Module] = [
            SparseLinear(input_size, hidden_size, num_numeric=num_numeric, dense_grad=dense_grad),
            nn.ReLU(),
            nn.Dropout(dropout),
        ]
        for _ in range(num_layers - 1):
            layers += [nn.Linear(hidden_size, hidden_size), nn.ReLU(), nn.Dropout(dropout)]
        self.model = nn.Sequential(*layers, nn.Linear(hidden_size, num_classes))

    def forward(self, rows: SparseRows | torch.Tensor) -> torch.Tensor:
        """Score the classes.

        Parameters
        ----------
        rows : SparseRows or Tensor of shape (num_rows, input_size)
            Sparse rows, or all columns written out.

        Returns
        -------
        Tensor of shape (num_rows, num_classes)
            Scores before softmax.
        """
        return cast("torch.Tensor", self.model(rows))


def _check_at_least(name: str, value: int, least: int) -> None:
    """Refuse a size below its least value."""
    if value < least:
        raise SettingError(f"{name} is {value}; it must be {least} or more.")
