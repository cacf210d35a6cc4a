"""The name of an optimizer and a model -> one optimizer; clipping; bytes that training takes.

Row-sparse gradients make the difference here: some optimizers of torch cannot read them, and
torch cannot clip them.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from inspect import unwrap
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import torch

from lancetnic_dask.errors import SettingError, quoted, suggestion
from lancetnic_dask.models.factored_gradient import forget_factors, has_factors, take_factors
from lancetnic_dask.models.rowwise_adagrad import RowWiseAdagrad
from lancetnic_dask.models.sparse_linear import SparseLinear, row_gradient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from torch import nn

__all__ = [
    "OPTIMIZERS",
    "JoinedOptimizer",
    "clip_gradients",
    "factors_kept",
    "make_optimizer",
    "needs_dense_grad",
    "optimizer_bytes",
]

_ROW_WISE_LR = 0.035
_ADAM_LR = 0.001  # also lancetnic's default learning rate for every optimizer
_BYTES = 4  # of a float32


class _Textbook(NamedTuple):
    """A torch optimizer, and what it needs.

    ``state_values`` are kept for each weight, ``step_values`` live while one parameter is stepped
    (torch 2.13 steps on the CPU one parameter after the other; measured), beside the gradient,
    which may have to be dense.
    """

    build: Callable[..., torch.optim.Optimizer]
    state_values: int
    step_values: int
    needs_dense_grad: bool


# Without momentum and weight decay, SGD leaves a row of zero gradient as it is: what it does to a
# row-sparse gradient is exactly what it does to the dense one. So would Adagrad, but on a sparse
# gradient torch's warns about unchecked invariants (2.13), and it is slower than row-wise Adagrad.
_TEXTBOOK: Mapping[str, _Textbook] = MappingProxyType(
    {
        "Adam": _Textbook(torch.optim.Adam, 2, 2, needs_dense_grad=True),
        "AdamW": _Textbook(torch.optim.AdamW, 2, 2, needs_dense_grad=True),
        "RAdam": _Textbook(torch.optim.RAdam, 2, 2, needs_dense_grad=True),
        "SGD": _Textbook(torch.optim.SGD, 0, 0, needs_dense_grad=False),
        "RMSprop": _Textbook(torch.optim.RMSprop, 1, 1, needs_dense_grad=True),
        "Adadelta": _Textbook(torch.optim.Adadelta, 2, 2, needs_dense_grad=True),
        "Adagrad": _Textbook(torch.optim.Adagrad, 1, 1, needs_dense_grad=True),
    }
)

OPTIMIZERS = ("auto", *_TEXTBOOK)
"""The names that ``optim_name`` takes, in any case."""


def make_optimizer(
    model: nn.Module, optim_name: str = "auto", learning_rate: float | None = None
) -> torch.optim.Optimizer:
    """Make the optimizer for all parameters of a model.

    Parameters
    ----------
    model : nn.Module
        The model to train.
    optim_name : str, default="auto"
        "auto" trains the weights of each `SparseLinear` by `RowWiseAdagrad` and everything else
        by Adam. A name of ``OPTIMIZERS``, in any case, trains all parameters by that one.
    learning_rate : float, default=None
        None means each optimizer's own default. Under "auto" these are 0.035 (row-wise Adagrad)
        and 0.001 (Adam); another value is Adam's, and row-wise Adagrad gets 35 times as much, so
        that lancetnic's default 0.001 means the defaults too.

    Returns
    -------
    torch.optim.Optimizer
        One optimizer, whose state goes on bit for bit after ``load_state_dict``.

    Raises
    ------
    SettingError
        If there is no optimizer of that name, the learning rate is not above 0, or the optimizer
        needs dense gradients and the model gives row-sparse ones.
    """
    name = _known_name(optim_name)
    if learning_rate is not None and not 0 < learning_rate < float("inf"):
        raise SettingError(f"learning_rate is {learning_rate}; it must be above 0 and finite.")
    sparse_layers = [module for module in model.modules() if isinstance(module, SparseLinear)]
    if name == "auto":
        return _make_auto(model, sparse_layers, learning_rate)
    if needs_dense_grad(name) and not all(layer.dense_grad for layer in sparse_layers):
        raise SettingError(
            f"{name} changes every weight in every step; this model gives row-sparse gradients.",
            None,
            "Build the model with dense_grad=True, or use optim_name='auto'.",
        )
    options = {} if learning_rate is None else {"lr": learning_rate}
    return _TEXTBOOK[name].build(model.parameters(), **options)


@contextmanager
def factors_kept(model: nn.Module, optim_name: str) -> Iterator[None]:
    """Let sparse layers leave the factors of their gradients, where the optimizer works with these.

    Parameters
    ----------
    model : nn.Module
        Its `SparseLinear` layers have no ``weight.grad`` within the block, under "auto" on a CPU.
    optim_name : str
        A name of ``OPTIMIZERS``, in any case.
    """
    is_auto = _known_name(optim_name) == "auto"
    layers = [one for one in model.modules() if is_auto and isinstance(one, SparseLinear)]
    for layer in layers:
        layer.keeps_factors = True
    try:
        yield
    finally:
        for layer in layers:
            layer.keeps_factors = False
            take_factors(layer.weight)  # of a step that was not taken


def needs_dense_grad(optim_name: str) -> bool:
    """Tell whether a model must be built with ``dense_grad=True`` for this optimizer.

    Parameters
    ----------
    optim_name : str
        A name of ``OPTIMIZERS``, in any case.

    Returns
    -------
    bool
        False for "auto" and SGD: they give with row-sparse gradients what they give with
        dense ones.

    Raises
    ------
    SettingError
        If there is no optimizer of that name.
    """
    name = _known_name(optim_name)
    return name != "auto" and _TEXTBOOK[name].needs_dense_grad


def optimizer_bytes(
    optim_name: str,
    sparse_rows: int,
    sparse_cols: int,
    other_parameters: int,
    *,
    touched_rows: int | None = None,
) -> int:
    """Say how much memory a training step takes beside the weights, at its peak.

    That is gradients, optimizer state, and what an optimizer makes for itself while it steps: up
    to two more copies of the largest parameter.

    Parameters
    ----------
    optim_name : str
        A name of ``OPTIMIZERS``, in any case.
    sparse_rows, sparse_cols : int
        Shape of the `SparseLinear` weight.
    other_parameters : int
        Values in all other parameters; taken as one, so it may be the largest of all.
    touched_rows : int, default=None
        Rows that one batch touches at most, where the gradient is row-sparse. None means all.

    Returns
    -------
    int
        Bytes, in float32. Left out: step counters (4 bytes a parameter).

    Raises
    ------
    SettingError
        If there is no optimizer of that name.
    """
    name = _known_name(optim_name)
    sparse_values = sparse_rows * sparse_cols
    gradient_values = sparse_values
    index_bytes = 0
    if not needs_dense_grad(name):
        touched = sparse_rows if touched_rows is None else min(touched_rows, sparse_rows)
        gradient_values = touched * sparse_cols
        index_bytes = 8 * touched
    if name == "auto":
        adam = _TEXTBOOK["Adam"]
        state_values = sparse_rows + adam.state_values * other_parameters
        step_values = adam.step_values * other_parameters
    else:
        chosen = _TEXTBOOK[name]
        state_values = chosen.state_values * (sparse_values + other_parameters)
        step_values = chosen.step_values * max(sparse_values, other_parameters)
    kept_values = gradient_values + other_parameters + state_values
    return _BYTES * (kept_values + step_values) + index_bytes


def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float) -> torch.Tensor:
    """Scale all gradients down so that their common norm is ``max_norm`` at most.

    The same as `torch.nn.utils.clip_grad_norm_`, which raises NotImplementedError on a sparse
    gradient (torch 2.13). A gradient that is there as factors is written down.

    Parameters
    ----------
    parameters : iterable of Parameter
        Those without a gradient are passed over.
    max_norm : float
        Above 0; infinity only measures.

    Returns
    -------
    Tensor of shape ()
        The norm before. It is NaN or infinite if any gradient is: one check for all of them.
        Nothing is scaled then.

    Raises
    ------
    SettingError
        If ``max_norm`` is not above 0.
    """
    if not max_norm > 0:
        raise SettingError(f"max_norm is {max_norm}; it must be above 0.")
    gradients = [_gradient_values(p) for p in parameters if p.grad is not None or has_factors(p)]
    if not gradients:
        return torch.zeros(())
    norms = [torch.linalg.vector_norm(gradient) for gradient in gradients]
    norm: torch.Tensor = torch.linalg.vector_norm(
        torch.stack([each.to(norms[0].device) for each in norms])
    )
    if norm > max_norm and bool(torch.isfinite(norm)):
        for gradient in gradients:
            gradient.mul_((max_norm / (norm + 1e-6)).to(gradient.device))
    return norm


class JoinedOptimizer(torch.optim.Optimizer):
    """Several optimizers, each for its own parameters, that act as one.

    Groups and state are those of the parts, not copies: a learning-rate scheduler and
    ``load_state_dict`` on this one act on them, and its ``state_dict`` has torch's usual form.

    Parameters
    ----------
    parts : iterable of torch.optim.Optimizer
        Optimizers that share no parameter and have not stepped yet.
    """

    def __init__(self, parts: Iterable[torch.optim.Optimizer]) -> None:
        self._parts: tuple[torch.optim.Optimizer, ...] = ()
        self._steps: tuple[Callable[[], object], ...] = ()
        parts = tuple(parts)
        super().__init__([group for part in parts for group in part.param_groups], {})
        self._parts = parts
        # Without what torch wraps around each, which is around ours: hooks, and the profiler's
        # mark, 30 µs of a step's 2,000.
        self._steps = tuple(partial(unwrap(type(part).step), part) for part in parts)
        self._share()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse parameters that come later: nothing tells which part should train them."""
        if self._parts:
            raise SettingError(
                "Parameters cannot be added to joined optimizers.",
                None,
                "Add them to the model before the optimizer is made.",
            )
        super().add_param_group(param_group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a saved state, bit for bit."""
        super().load_state_dict(state_dict)
        self._share()

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Apply the gradients with each part; as in `torch.optim.Optimizer`."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for step in self._steps:
                step()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002 - as torch has it
        """Forget the gradients, and the factors of gradients."""
        super().zero_grad(set_to_none)
        forget_factors(self.param_groups)

    def _share(self) -> None:
        """Let each part use this optimizer's state and its share of the groups."""
        start = 0
        for part in self._parts:
            stop = start + len(part.param_groups)
            part.param_groups = self.param_groups[start:stop]
            part.state = self.state
            start = stop


def _make_auto(
    model: nn.Module, sparse_layers: list[SparseLinear], learning_rate: float | None
) -> torch.optim.Optimizer:
    """Make row-wise Adagrad for the sparse layers' weights and Adam for the rest."""
    adam_lr = _ADAM_LR if learning_rate is None else learning_rate
    row_wise = {id(layer.weight): layer.weight for layer in sparse_layers}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in row_wise]
    parts: list[torch.optim.Optimizer] = []
    if row_wise:
        lr = _ROW_WISE_LR * (adam_lr / _ADAM_LR)
        parts.append(RowWiseAdagrad(row_wise.values(), lr=lr))
    if rest:
        # One loop over memory for each parameter, where the plain form makes twelve. It takes
        # neither complex numbers nor strides.
        is_plain = all(one.is_floating_point() and one.is_contiguous() for one in rest)
        parts.append(torch.optim.Adam(rest, lr=adam_lr, fused=is_plain))
    if not parts:
        raise SettingError("The model has no parameters to train.")
    return parts[0] if len(parts) == 1 else JoinedOptimizer(parts)


def _known_name(optim_name: str) -> str:
    """Return the name as ``OPTIMIZERS`` spells it."""
    for name in OPTIMIZERS:
        if name.lower() == optim_name.lower():
            return name
    raise SettingError(
        f"There is no optimizer {quoted(optim_name)}.", None, suggestion(optim_name, OPTIMIZERS)
    )


def _gradient_values(parameter: nn.Parameter) -> torch.Tensor:
    """Return a tensor that holds each value of the gradient once and can be scaled in place."""
    for factors in take_factors(parameter):
        written = factors.row_sparse(len(parameter))
        parameter.grad = written if parameter.grad is None else parameter.grad + written
    gradient = parameter.grad
    if gradient is None:
        return torch.zeros(0)
    if not gradient.is_sparse:
        return gradient
    rows, values = row_gradient(gradient)
    # Over the same values, unless entries of one row had to be merged.
    parameter.grad = torch.sparse_coo_tensor(
        rows.unsqueeze(0), values, gradient.shape, is_coalesced=True, check_invariants=False
    )
    return values
