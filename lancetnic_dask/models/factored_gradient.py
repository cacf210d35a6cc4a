"""The gradient of a sparse layer's weight as the product it is, until an optimizer applies it.

The gradient of ``rows @ weight`` is ``rows.T @ output_gradient``: two small factors, whose product
has a row of numbers for each touched column. Row-wise Adagrad works that product out row by row
and changes the weights at once, so the product is never in memory: 1.4 to 1.7 times as fast as
writing it down first, and 3.5 times as fast as what torch offers. Whoever needs it written down -
to clip it, to give it to another optimizer - asks for row-sparse gradients, which are the default
of `SparseLinear`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from lancetnic_dask.models.sparse_batch import tensor_over

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lancetnic_dask.models.sparse_kernels import ColumnGroups

__all__ = ["GradientFactors", "add_factors", "forget_factors", "has_factors", "take_factors",
           "weighted_sums"]  # fmt: skip

_ATTRIBUTE = "grad_factors"


class GradientFactors(NamedTuple):
    """The gradient that one use of a weight left.

    Parameters
    ----------
    groups : ColumnGroups
        The entries of the batch, grouped by column.
    output_gradient : Tensor of shape (num_rows, width)
        Gradient of the layer's output, of the weight's dtype; contiguous.
    """

    groups: ColumnGroups
    output_gradient: torch.Tensor

    @property
    def columns(self) -> torch.Tensor:
        """The touched rows of the weight, ascending, dtype=int64."""
        return torch.from_numpy(self.groups.columns).long()

    def row_sums(self) -> torch.Tensor:
        """Work the product out: the gradient of each touched row, (num_touched, width)."""
        # The forward again, with rows and columns exchanged.
        return weighted_sums(
            self.output_gradient,
            torch.from_numpy(self.groups.starts),
            tensor_over(self.groups.rows),
            tensor_over(self.groups.values),
        )

    def row_sparse(self, num_rows: int) -> torch.Tensor:
        """Write the product down as a row-sparse gradient of shape (num_rows, width)."""
        shape = (num_rows, self.output_gradient.shape[1])
        # Unique and ascending by construction, so torch need not look.
        return torch.sparse_coo_tensor(
            self.columns.unsqueeze(0),
            self.row_sums(),
            shape,
            is_coalesced=True,
            check_invariants=False,
        )


def add_factors(weight: torch.Tensor, factors: GradientFactors) -> None:
    """Leave factors on a weight; with those that it has they add up, as ``grad`` does."""
    kept: tuple[GradientFactors, ...] = getattr(weight, _ATTRIBUTE, ())
    setattr(weight, _ATTRIBUTE, (*kept, factors))


def has_factors(weight: torch.Tensor) -> bool:
    """Tell whether a weight has factors of its gradient."""
    return hasattr(weight, _ATTRIBUTE)


def take_factors(weight: torch.Tensor) -> tuple[GradientFactors, ...]:
    """Return the factors of a weight's gradient, one for each use, and take them away."""
    kept: tuple[GradientFactors, ...] = getattr(weight, _ATTRIBUTE, ())
    if kept:
        delattr(weight, _ATTRIBUTE)
    return kept


def forget_factors(param_groups: Iterable[dict[str, Any]]) -> None:
    """Take the factors away from all parameters of an optimizer's groups."""
    for group in param_groups:
        for parameter in group["params"]:
            take_factors(parameter)


def weighted_sums(
    table: torch.Tensor, starts: torch.Tensor, indices: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    """Return for each range of entries the sum of ``values[entry] * table[indices[entry]]``.

    Parameters
    ----------
    table : Tensor of shape (num_table_rows, width)
        What is summed.
    starts : Tensor of shape (num_sums + 1,), dtype=int32
        Where the entries of each sum start.
    indices : Tensor of shape (num_entries,), dtype=int32
        Row of the table.
    values : Tensor of shape (num_entries,)
        Its factor.

    Returns
    -------
    Tensor of shape (num_sums, width)
        One sum a range, in the order of its entries.
    """
    return nn.functional.embedding_bag(
        indices,
        table,
        starts,
        mode="sum",
        per_sample_weights=values.to(table.dtype),
        include_last_offset=True,
    )
