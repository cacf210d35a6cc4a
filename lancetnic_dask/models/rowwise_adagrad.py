"""Row-sparse gradients -> changed rows: Adagrad with one number of state a row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast, overload

import numpy as np
import torch

from lancetnic_dask.errors import SettingError, quoted
from lancetnic_dask.models.factored_gradient import forget_factors, take_factors
from lancetnic_dask.models.sparse_kernels import update_rows, update_rows_by_factors
from lancetnic_dask.models.sparse_linear import row_gradient

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from torch.optim.optimizer import ParamsT

__all__ = ["RowWiseAdagrad"]

_LEAST_EPS = 1e-30  # far above what float32 rounds to zero


class RowWiseAdagrad(torch.optim.Optimizer):
    """Adagrad whose step size is shared by a row: for the weights of a term.

    For each row ``r`` with gradient ``g`` ::

        sum[r] += mean(g ** 2)
        weight[r] -= lr * g / (sqrt(sum[r]) + eps)

    A row without a gradient is left as it is, so a row-sparse gradient and the same gradient
    written out give the same weights, bit for bit.

    Parameters
    ----------
    params : iterable of Parameter, of (name, Parameter) or of dict
        Matrices to train, each row one unit; or groups of them with options of their own.
    lr : float, default=0.035
        Step size. The first step of a row changes its weights by about ``lr`` whatever the size
        of its gradient, and later ones by less; hence the size, 35 times that of Adam.
    eps : float, default=1e-10
        Keeps the division from zero; 1e-30 or more.

    Raises
    ------
    SettingError
        If ``lr`` is below 0, ``eps`` below 1e-30, one of them infinite or not a number, or a
        parameter no matrix.

    Notes
    -----
    State: ``sum``, one number a row in float32, 1 / width of what `torch.optim.Adagrad` keeps.
    The cost of a step follows the touched rows. It is the exact row-wise Adagrad of FBGEMM
    (``EXACT_ROWWISE_ADAGRAD``) and of torchrec's ``RowWiseAdagrad`` without weight decay;
    torchrec's takes no sparse gradients. lr and eps: ``benchmarks/sparse_step.py --sweep``.

    References
    ----------
    J. Duchi, E. Hazan, Y. Singer: Adaptive Subgradient Methods for Online Learning and
    Stochastic Optimization. JMLR 12 (2011), 2121-2159.
    M. Naumov et al.: Deep Learning Recommendation Model for Personalization and Recommendation
    Systems. arXiv:1906.00091 (2019); FBGEMM, ``fbgemm_gpu/codegen/genscript/optimizers.py``.

    Examples
    --------
    >>> weight = torch.nn.Parameter(torch.zeros(3, 2))
    >>> optimizer = RowWiseAdagrad([weight], lr=0.5)
    >>> weight[1].sum().backward()
    >>> optimizer.step()
    >>> weight.tolist()
    [[0.0, 0.0], [-0.5, -0.5], [0.0, 0.0]]
    """

    def __init__(self, params: ParamsT, lr: float = 0.035, *, eps: float = 1e-10) -> None:
        super().__init__(params, {"lr": lr, "eps": eps})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own; refuse what cannot be trained."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        _check_option("lr", group["lr"], least=0)
        _check_option("eps", group["eps"], least=_LEAST_EPS)
        for parameter in group["params"]:
            if parameter.dim() != 2:
                raise SettingError(
                    f"A parameter of shape {tuple(parameter.shape)} has no rows.",
                    None,
                    "Give it to another optimizer, such as Adam.",
                )

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Apply the gradients.

        Parameters
        ----------
        closure : callable, default=None
            Computes the loss and the gradients anew, and returns the loss.

        Returns
        -------
        float or None
            What ``closure`` returned.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    self._update(parameter, lr=float(group["lr"]), eps=group["eps"])
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002 - as torch has it
        """Forget the gradients, and the factors of gradients."""
        super().zero_grad(set_to_none)
        forget_factors(self.param_groups)

    def _update(self, parameter: torch.Tensor, *, lr: float, eps: float) -> None:
        """Take one step on one matrix."""
        factors = take_factors(parameter)
        gradient = parameter.grad
        if parameter.numel() == 0 or (gradient is None and not factors):
            return
        state = self.state[parameter]
        if not state:
            state["sum"] = torch.zeros(len(parameter), device=parameter.device)
        if gradient is None and len(factors) == 1 and _has_kernel(parameter):
            groups, output_gradient = factors[0]
            update_rows_by_factors(
                parameter.numpy(),
                state["sum"].numpy(),
                groups.columns,
                groups.starts,
                groups.rows,
                groups.values,
                output_gradient.numpy(),
                np.float32(lr),
                np.float32(eps),
            )
            return
        for one in factors:  # a weight that was used more than once: the uses add up
            written = one.row_sparse(len(parameter))
            gradient = written if gradient is None else gradient + written
        self._update_by_gradient(parameter, cast("torch.Tensor", gradient), lr=lr, eps=eps)

    def _update_by_gradient(
        self, parameter: torch.Tensor, gradient: torch.Tensor, *, lr: float, eps: float
    ) -> None:
        square_sums = self.state[parameter]["sum"]
        if gradient.is_sparse:
            rows, gradients = row_gradient(gradient)
        else:
            rows, gradients = torch.arange(len(parameter), device=parameter.device), gradient
        if _has_kernel(parameter):
            update_rows(
                parameter.numpy(),
                square_sums.numpy(),
                rows.numpy(),
                gradients.contiguous().numpy(),
                np.float32(lr),
                np.float32(eps),
            )
        else:
            update_with_torch(parameter, square_sums, rows, gradients, lr=lr, eps=eps)


def _has_kernel(parameter: torch.Tensor) -> bool:
    return parameter.device.type == "cpu" and parameter.dtype == torch.float32


def update_with_torch(
    weight: torch.Tensor,
    square_sums: torch.Tensor,
    rows: torch.Tensor,
    gradients: torch.Tensor,
    *,
    lr: float,
    eps: float,
) -> None:
    """Do what the kernel does, for any device and dtype, in place.

    Parameters
    ----------
    weight : Tensor of shape (num_rows, width)
        Changed in place.
    square_sums : Tensor of shape (num_rows,)
        Sum of the mean squared gradients; changed in place.
    rows : Tensor of shape (num_touched,), dtype=int64
        The rows to change, each once.
    gradients : Tensor of shape (num_touched, width)
        Their gradients.
    lr, eps : float
        Step size; what keeps the division from zero.
    """
    mean_squares = gradients.square().mean(dim=1).to(square_sums.dtype)
    sums = square_sums.index_select(0, rows) + mean_squares
    square_sums.index_copy_(0, rows, sums)
    steps = (lr / (sums.sqrt() + eps)).to(weight.dtype)
    # Unique rows: no two entries of this sum meet, so its order does not matter.
    weight.index_add_(0, rows, gradients * steps.unsqueeze(1), alpha=-1)


def _check_option(name: str, value: object, *, least: float) -> None:
    """Refuse an option that is no finite number from ``least`` on."""
    number = value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value
    if not isinstance(number, int | float) or not least <= number < math.inf:
        raise SettingError(f"{name} is {quoted(value)}; it must be a number, {least} or more.")
