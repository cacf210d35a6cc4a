"""A model class and sizes -> a network that reads SparseRows.

The package's own models take sparse rows and some options more. A class of the user's needs no
more than lancetnic's constructor; what it takes and returns is tried here before anything long
begins, so that a fault in it is told with its class and not in the middle of a run.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from lancetnic_dask.errors import SettingError, quoted
from lancetnic_dask.models.dense_input import DenseInput
from lancetnic_dask.models.registry import is_own
from lancetnic_dask.models.sparse_batch import SparseRows
from lancetnic_dask.models.sparse_linear import SparseLinear

__all__ = ["NetworkPlan", "build_network", "count_parameters", "state_template", "try_class"]

_CONSTRUCTOR = "(input_size, hidden_size, num_layers, num_classes, dropout)"
# Not 1: a layer that squeezes, or a batch norm, hides faults there.
_TRIED_ROWS = 2
_TRIED_COLUMNS = 16
_TRIED_CLASSES = 3


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


def build_network(plan: NetworkPlan, *, dense_grad: bool = False) -> nn.Module:
    """Build a network; a class of the user's that reads dense rows is put behind `DenseInput`.

    A class that holds a `SparseLinear` gets sparse rows.

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
    sizes = (plan.input_size, plan.hidden_size, plan.num_layers, plan.num_classes, plan.dropout)
    options = {"num_numeric": plan.num_numeric, "dense_grad": dense_grad}
    if not is_own(plan.model_class):
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
        return model_class(*sizes, **{key: options[key] for key in options if key in known})
    except Exception as error:  # whatever the user's code raises
        raise SettingError(
            f"{name} cannot be made with {_CONSTRUCTOR}: {_said(error)}",
            None,
            f"Give {name}.__init__ these parameters, in this order.",
        ) from error


def try_class(plan: NetworkPlan) -> None:
    """Build a class of the user's small, and score two rows with it.

    Does nothing for the package's models. Draws from torch's random state.

    Parameters
    ----------
    plan : NetworkPlan
        Its input and classes are replaced by small ones.

    Raises
    ------
    SettingError
        If it can't be made, can't score, or doesn't return a score for each class.
    """
    if not is_own(plan.model_class):
        return
    small = replace(plan, input_size=_TRIED_COLUMNS + plan.num_numeric, num_classes=_TRIED_CLASSES)
    network = build_network(small).eval()
    rows = SparseRows(
        np.arange(_TRIED_ROWS + 1),
        np.arange(_TRIED_ROWS, dtype=np.int32),
        np.ones(_TRIED_ROWS, np.float32),
        numeric=np.zeros((_TRIED_ROWS, plan.num_numeric), np.float32),
    )
    name, wanted = plan.model_class.__name__, (_TRIED_ROWS, _TRIED_CLASSES)
    advice = (
        f"Let {name}.forward take rows of input_size columns and return num_classes scores, "
        "before softmax, for each."
    )
    try:
        with torch.no_grad():
            scores = network(rows)
    except Exception as error:  # whatever the user's code raises
        raise SettingError(f"{name} cannot score rows: {_said(error)}", None, advice) from error
    if not isinstance(scores, torch.Tensor):
        raise SettingError(f"{name} returns {quoted(scores)}, not a tensor.", None, advice)
    if tuple(scores.shape) != wanted or not scores.is_floating_point():
        raise SettingError(
            f"For {_TRIED_ROWS} rows and {_TRIED_CLASSES} classes {name} returns {scores.dtype} "
            f"of shape {tuple(scores.shape)}; it must be float of shape {wanted}.",
            None,
            advice,
        )


def count_parameters(plan: NetworkPlan) -> tuple[int, int]:
    """Return the numbers of weights in sparse layers, and of all others; takes no memory for them.

    A class of the user's is built with few columns twice, and a weight more for each column is
    added up: its constructor may do things that need real memory.
    """
    if not is_own(plan.model_class):
        return _count(_abstract(plan))
    few = (plan.num_numeric + _TRIED_COLUMNS, plan.num_numeric + 2 * _TRIED_COLUMNS)
    with torch.random.fork_rng(devices=[]):
        low, high = (_count(build_network(replace(plan, input_size=size))) for size in few)
    columns = plan.input_size - few[0]
    sparse, other = (
        a + (b - a) * columns // _TRIED_COLUMNS for a, b in zip(low, high, strict=True)
    )
    return max(sparse, 0), max(other, 0)


def state_template(plan: NetworkPlan) -> dict[str, torch.Tensor]:
    """Return names, shapes and dtypes of a network's state, as tensors without memory.

    Raises
    ------
    SettingError
        If there is no such network.
    """
    return {name: one.to("meta") for name, one in _abstract(plan).state_dict().items()}


def _count(network: nn.Module) -> tuple[int, int]:
    sparse = {
        id(layer.weight): layer.weight.numel()
        for layer in network.modules()
        if isinstance(layer, SparseLinear)
    }
    return sum(sparse.values()), sum(
        one.numel() for one in network.parameters() if id(one) not in sparse
    )


def _abstract(plan: NetworkPlan) -> nn.Module:
    """Build a network without memory; one of the user's that can't be built so with memory."""
    try:
        with torch.device("meta"):
            return build_network(plan)
    except SettingError:
        if not is_own(plan.model_class):
            raise
    with torch.random.fork_rng(devices=[]):
        return build_network(plan)


def _said(error: Exception) -> str:
    first_line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first_line.removesuffix('.')}."
