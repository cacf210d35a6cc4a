"""SparseRows -> the output of a linear layer, at a cost that follows the terms in the batch.

Also the gradient that the layer leaves behind, and how to read it. What applies that gradient
is in ``rowwise_adagrad`` and ``optimizers``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from lancetnic_dask.errors import SettingError
from lancetnic_dask.models.factored_gradient import (
    GradientFactors,
    add_factors,
    weighted_sums,
)
from lancetnic_dask.models.sparse_batch import SparseRows, tensor_over
from lancetnic_dask.models.sparse_kernels import ColumnCounter

if TYPE_CHECKING:
    from torch.autograd.function import FunctionCtx

__all__ = ["SparseLinear", "row_gradient"]


class SparseLinear(nn.Module):
    """A linear layer over text columns, then numeric columns, that reads sparse rows.

    Equal to ``nn.Linear(in_features, out_features)`` on the two written side by side: same
    start (distribution of the weights), same output, same gradient.

    Parameters
    ----------
    in_features : int
        Text columns and numeric columns together.
    out_features : int
        Width of the output.
    num_numeric : int, default=0
        How many of ``in_features``, the last ones, are numeric.
    bias : bool, default=True
        Whether to add a learned bias.
    dense_grad : bool, default=False
        Leave a dense gradient on ``weight``, for optimizers that change every weight in every
        step. Otherwise it is row-sparse: the touched rows and their gradients.

    Attributes
    ----------
    weight : Parameter of shape (in_features - num_numeric, out_features)
        Row ``c`` holds the weights of text column ``c``. This is the transpose of what
        ``nn.Linear`` keeps: a term then reads and changes one stretch of memory, not
        ``out_features`` places that are ``4 * in_features`` bytes apart.
    numeric_weight : Parameter of shape (num_numeric, out_features), or None
        The same for the numeric columns.
    bias : Parameter of shape (out_features,), or None
    counter : ColumnCounter
        Groups the entries of a batch by column; holds nothing between steps.
    keeps_factors : bool
        Leave the factors of the gradient (`GradientFactors`) for `RowWiseAdagrad` on a CPU, and
        no ``weight.grad``. False unless whoever steps the optimizer sets it.

    Raises
    ------
    SettingError
        If a size is out of range.

    Notes
    -----
    The result does not depend on the number of threads: each output is one sum in the order of
    the entries. On a GPU the backward of torch is used as it is, which gives no such promise.
    """

    weight: nn.Parameter
    numeric_weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        num_numeric: int = 0,
        bias: bool = True,
        dense_grad: bool = False,
    ) -> None:
        super().__init__()
        _check_sizes(in_features, out_features, num_numeric)
        num_text = in_features - num_numeric
        self.in_features = in_features
        self.out_features = out_features
        self.num_numeric = num_numeric
        self.dense_grad = dense_grad
        self.keeps_factors = False
        self.weight = nn.Parameter(torch.empty(num_text, out_features))
        self.numeric_weight = (
            nn.Parameter(torch.empty(num_numeric, out_features)) if num_numeric else None
        )
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None
        self.counter = ColumnCounter(num_text)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights from torch's current random numbers, in place."""
        # What kaiming_uniform_ with a = sqrt(5) comes to in nn.Linear, without a transposed copy.
        bound = 1 / math.sqrt(self.in_features)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, rows: SparseRows | torch.Tensor) -> torch.Tensor:
        """Multiply.

        Parameters
        ----------
        rows : SparseRows or Tensor of shape (..., in_features)
            Sparse rows, or all columns written out.

        Returns
        -------
        Tensor of shape (num_rows, out_features)
            For a dense input (..., out_features).

        Raises
        ------
        SettingError
            If the rows have another number of numeric columns than the layer.
        IndexError
            If a column is not in the layer.
        """
        if isinstance(rows, torch.Tensor):
            return self._forward_dense(rows)
        if rows.numeric.shape[1] != self.num_numeric:
            raise SettingError(
                f"The rows have {rows.numeric.shape[1]} numeric columns, "
                f"the layer has {self.num_numeric}.",
                None,
                "Build the model for the columns of this corpus.",
            )
        if self.weight.is_cuda:
            out = bag_with_torch_gradient(self.weight, rows, dense_grad=self.dense_grad)
        else:
            product = _TextProduct.apply(self.weight, rows, self)  # type: ignore[no-untyped-call]
            out = cast("torch.Tensor", product)
        if self.numeric_weight is not None:
            numeric = tensor_over(rows.numeric).to(self.weight)
            out = torch.addmm(out, numeric, self.numeric_weight)
        return out if self.bias is None else out + self.bias

    def _forward_dense(self, columns: torch.Tensor) -> torch.Tensor:
        """Multiply columns that are written out; torch differentiates."""
        out = columns[..., : self.weight.shape[0]] @ self.weight
        if self.numeric_weight is not None:
            out = out + columns[..., self.weight.shape[0] :] @ self.numeric_weight
        return out if self.bias is None else out + self.bias

    def extra_repr(self) -> str:
        """Name the sizes in the printed model."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"num_numeric={self.num_numeric}, bias={self.bias is not None}, "
            f"dense_grad={self.dense_grad}"
        )


def row_gradient(gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Read a row-sparse gradient: each touched row once, ascending, and its gradient.

    Parameters
    ----------
    gradient : sparse COO tensor of shape (num_rows, width)
        The ``grad`` of a parameter; after accumulation it may hold a row more than once.

    Returns
    -------
    rows : Tensor of shape (num_touched,), dtype=int64
        The touched rows.
    sums : Tensor of shape (num_touched, width)
        Their gradients. No copy if the rows were unique: writing here changes the gradient.
    """
    # The private accessors are what torch's own sparse optimizers use. Autograd drops the mark
    # "coalesced" when it stores a gradient (torch 2.13), and coalescing anew would sort and copy.
    rows = gradient._indices()[0]  # noqa: SLF001
    if gradient.is_coalesced() or bool((rows[1:] > rows[:-1]).all()):
        return rows, gradient._values()  # noqa: SLF001
    merged = gradient.coalesce()
    return merged.indices()[0], merged.values()


def bag_with_torch_gradient(
    weight: torch.Tensor, rows: SparseRows, *, dense_grad: bool
) -> torch.Tensor:
    """Multiply sparse rows where torch's own backward serves: on a GPU."""
    return nn.functional.embedding_bag(
        tensor_over(rows.indices).to(weight.device),
        weight,
        tensor_over(rows.indptr).to(weight.device, torch.int32),
        mode="sum",
        sparse=not dense_grad,
        per_sample_weights=tensor_over(rows.values).to(weight),
        include_last_offset=True,
    )


class _TextProduct(torch.autograd.Function):
    """Sparse text columns times weight on the CPU, with a backward of touched rows only."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, weight: torch.Tensor, rows: SparseRows, layer: SparseLinear
    ) -> torch.Tensor:
        context = cast("Any", ctx)
        context.rows, context.layer = rows, layer
        try:
            return weighted_sums(
                weight.detach(),
                tensor_over(rows.indptr).int(),
                tensor_over(rows.indices),
                tensor_over(rows.values),
            )
        except RuntimeError as error:
            if "not in the valid range" not in str(error):
                raise
            message = f"A column of the rows is not among the {len(weight)} of the layer."
            raise IndexError(message) from error

    @staticmethod
    @once_differentiable
    def backward(
        ctx: FunctionCtx, grad_output: torch.Tensor
    ) -> tuple[torch.Tensor | None, None, None]:
        context = cast("Any", ctx)
        layer, rows = context.layer, context.rows
        groups = layer.counter.group(rows.indptr, rows.indices, rows.values)
        factors = GradientFactors(groups, grad_output.contiguous())
        if layer.keeps_factors:
            add_factors(layer.weight, factors)
            return None, None, None
        if layer.dense_grad:
            gradient = grad_output.new_zeros(layer.weight.shape)
            return gradient.index_copy_(0, factors.columns, factors.row_sums()), None, None
        return factors.row_sparse(len(layer.weight)), None, None


def _check_sizes(in_features: int, out_features: int, num_numeric: int) -> None:
    """Refuse sizes that make no layer."""
    for name, size in (("in_features", in_features), ("out_features", out_features)):
        if size < 1:
            raise SettingError(f"{name} is {size}; it must be 1 or more.")
    if not 0 <= num_numeric <= in_features:
        raise SettingError(
            f"num_numeric is {num_numeric}; it must be between 0 and in_features, {in_features}."
        )
