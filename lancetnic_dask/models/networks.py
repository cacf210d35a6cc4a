"""A model class and sizes -> a network that reads SparseRows.

The package's own models take sparse rows and some options more. A class of the user's needs no
more than lancetnic's constructor; what can go wrong with one is looked for in `trial`, before
anything long begins.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from lancetnic_dask.errors import SettingError
from lancetnic_dask.models.dense_input import DenseInput
from lancetnic_dask.models.plain_torch import kept_random_state, plain_torch
from lancetnic_dask.models.registry import MODELS, is_users_class
from lancetnic_dask.models.sparse_linear import SparseLinear

__all__ = [
    "NetworkPlan",
    "NetworkSize",
    "build_abstract",
    "build_network",
    "measure_network",
    "said",
    "state_template",
]

_CONSTRUCTOR = "(input_size, hidden_size, num_layers, num_classes, dropout)"


@dataclass(frozen=True, kw_only=True)
class NetworkPlan:
    """All that a network is made with.

    Parameters
    ----------
    model_class : subclass of nn.Module
        One of the package's models, or a class of the user's with lancetnic's constructor.
    input_size : int
        Text columns and numeric columns together.
    num_numeric : int
        How many of these, the last ones, are numeric.
    hidden_size, num_layers, num_classes, dropout
        As in `TrainingSettings`; num_classes is the number of scores of a row.
    """

    model_class: type[nn.Module]
    input_size: int
    num_numeric: int
    hidden_size: int
    num_layers: int
    num_classes: int
    dropout: float


class NetworkSize(NamedTuple):
    """What a network holds.

    Parameters
    ----------
    sparse_rows, sparse_cols : int
        Shape of the weights of its `SparseLinear`; of several the rows of all, and the most
        columns that one has.
    other_weights : int
        All other weights, counted in float32.
    buffer_bytes : int
        What is kept but not trained.
    reads_dense_rows : bool
        Whether rows are written out for it.
    """

    sparse_rows: int
    sparse_cols: int
    other_weights: int
    buffer_bytes: int
    reads_dense_rows: bool


def build_network(plan: NetworkPlan, *, dense_grad: bool = False) -> nn.Module:
    """Build a network; a class of the user's that reads dense rows is put behind `DenseInput`.

    A class that holds a `SparseLinear` gets sparse rows. Weights are float32 and on the
    processor, whatever the caller has made torch's defaults.

    Parameters
    ----------
    plan : NetworkPlan
        What to build.
    dense_grad : bool, default=False
        Whether the optimizer needs dense gradients of a `SparseLinear`.

    Returns
    -------
    nn.Module
        Takes `SparseRows`.

    Raises
    ------
    SettingError
        If the class of a user can't be made, or its layers don't fit.
    """
    with plain_torch():
        return _build(plan, dense_grad=dense_grad)


def measure_network(plan: NetworkPlan) -> NetworkSize | None:
    """Return what a network holds, without taking memory for it.

    Parameters
    ----------
    plan : NetworkPlan
        What would be built.

    Returns
    -------
    NetworkSize or None
        None for a class of the user's whose constructor needs real numbers.

    Raises
    ------
    SettingError
        If the package has no such network.
    """
    network = build_abstract(plan)
    if network is None:
        return None
    sparse = [layer.weight for layer in network.modules() if isinstance(layer, SparseLinear)]
    is_sparse = {id(weight) for weight in sparse}
    other_bytes = sum(_bytes_of(one) for one in network.parameters() if id(one) not in is_sparse)
    return NetworkSize(
        sparse_rows=sum(len(weight) for weight in sparse),
        sparse_cols=max((weight.shape[1] for weight in sparse), default=0),
        other_weights=-(-other_bytes // 4),
        buffer_bytes=sum(map(_bytes_of, network.buffers())),
        reads_dense_rows=isinstance(network, DenseInput),
    )


def state_template(plan: NetworkPlan) -> dict[str, torch.Tensor]:
    """Return names, shapes and dtypes of a network's state, as tensors without memory.

    Weights are `nn.Parameter`, buffers plain tensors. A class of the user's whose constructor
    needs real numbers is built in memory for that.

    Raises
    ------
    SettingError
        If there is no such network.
    """
    network = build_abstract(plan)
    if network is None:
        with kept_random_state(torch.device("cpu")):
            network = build_network(plan)
    return {
        name: nn.Parameter(one.to("meta"), requires_grad=False)
        if isinstance(one, nn.Parameter)
        else one.to("meta")
        for name, one in network.state_dict(keep_vars=True).items()
    }


def said(error: Exception) -> str:
    """Return the kind of an error and its first line, as the end of a sentence."""
    first_line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first_line.removesuffix('.')}."


def build_abstract(plan: NetworkPlan) -> nn.Module | None:
    """Build a network whose weights have shapes but neither values nor memory.

    Parameters
    ----------
    plan : NetworkPlan
        What would be built.

    Returns
    -------
    nn.Module or None
        None for a class of the user's whose constructor needs real numbers.

    Raises
    ------
    SettingError
        If the package has no such network.
    """
    if not is_users_class(plan.model_class):
        with plain_torch(), torch.device("meta"):
            return _build(plan, dense_grad=False)
    try:
        # A constructor may draw numbers of its own.
        with kept_random_state(torch.device("cpu")), plain_torch(), torch.device("meta"):
            return _build(plan, dense_grad=False)
    except SettingError:
        return None


def _bytes_of(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _build(plan: NetworkPlan, *, dense_grad: bool) -> nn.Module:
    sizes = (plan.input_size, plan.hidden_size, plan.num_layers, plan.num_classes, plan.dropout)
    options = {"num_numeric": plan.num_numeric, "dense_grad": dense_grad}
    if not is_users_class(plan.model_class):
        return plan.model_class(*sizes, **options)
    network = _build_own(plan.model_class, sizes, options)
    if any(isinstance(layer, SparseLinear) for layer in network.modules()):
        return network
    return DenseInput(network, num_text_features=plan.input_size - plan.num_numeric)


def _build_own(
    model_class: type[nn.Module], sizes: tuple[Any, ...], options: dict[str, Any]
) -> nn.Module:
    name = model_class.__name__
    try:
        known = inspect.signature(model_class).parameters
        # One that is made of a model of the package may pass on what it doesn't name itself.
        passes_on = issubclass(model_class, tuple(MODELS.values())) and any(
            one.kind is one.VAR_KEYWORD for one in known.values()
        )
        taken = {name: options[name] for name in options if passes_on or name in known}
        network = model_class(*sizes, **taken)
    except Exception as error:  # whatever the user's code raises
        raise SettingError(
            f"{name} cannot be made with {_CONSTRUCTOR}: {said(error)}",
            None,
            f"Give {name}.__init__ these parameters, in this order; a model too large for the "
            "memory needs a smaller hidden_size=.",
        ) from error
    if any(isinstance(one, nn.UninitializedParameter) for one in network.parameters()):
        raise SettingError(
            f"{name} has layers without sizes, such as nn.LazyLinear.",
            None,
            "Give each layer its sizes: the constructor gets input_size.",
        )
    return network
