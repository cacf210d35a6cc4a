"""A class of the user's -> tried on a few rows: its mistakes are told before a file is read.

The trial takes the real hidden sizes, as they may depend on each other, but few columns. The
number of classes is not known yet: `check_scores` compares the real network with it.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from lancetnic_dask.errors import SettingError, quoted
from lancetnic_dask.models.networks import build_network, measure_network, said
from lancetnic_dask.models.optimizers import make_optimizer, needs_dense_grad
from lancetnic_dask.models.plain_torch import plain_torch
from lancetnic_dask.models.registry import is_users_class
from lancetnic_dask.models.sparse_batch import SparseRows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from lancetnic_dask.models.networks import NetworkPlan

__all__ = ["KEPT_DTYPES", "check_scores", "try_class"]

KEPT_DTYPES: Final[Mapping[torch.dtype, str]] = MappingProxyType({
    torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
})  # fmt: skip
"""What a model's file can hold, and what safetensors calls it."""

_TRIED_COLUMNS = 16
_TRIED_CLASSES = 3
# A trial of more would be no trial: 1 GiB of weights.
_MOST_WEIGHTS = 1 << 28


def try_class(plan: NetworkPlan, optim_name: str, *, has_texts: bool = True) -> None:
    """Build a class of the user's with few columns, take a training step and score rows with it.

    Does nothing for the package's models. Draws from torch's random state. A class that is
    larger than a gigabyte even so is left to the memory budget.

    Parameters
    ----------
    plan : NetworkPlan
        Its input and classes are replaced by small ones.
    optim_name : str
        What will train it.
    has_texts : bool, default=True
        Whether there are text columns.

    Raises
    ------
    SettingError
        If it can't be made, trained or scored with, or keeps what a model's file can't hold.
    """
    if not is_users_class(plan.model_class):
        return
    num_texts = _TRIED_COLUMNS if has_texts else 0
    small = replace(plan, input_size=num_texts + plan.num_numeric, num_classes=_TRIED_CLASSES)
    size = measure_network(small)
    if size is not None and size.other_weights > _MOST_WEIGHTS:
        return
    network = build_network(small, dense_grad=needs_dense_grad(optim_name))
    before = _check_state(plan, network)
    if not any(one.requires_grad for one in network.parameters()):
        raise SettingError(f"{_name(plan)} has no weight that can be trained.")
    make_optimizer(network, optim_name)
    _train_step(small, network)
    # One row too: what is squeezed out of one is missed only in prediction.
    for num_rows in (2, 1):
        _scores_of(small, network.eval(), num_rows)
    if _check_state(plan, network) != before:
        raise SettingError(
            f"{_name(plan)} makes layers or buffers in forward.", None, "Make them in __init__."
        )


def check_scores(plan: NetworkPlan, network: nn.Module) -> None:
    """Compare what a class of the user's returns with the classes that there are.

    Parameters
    ----------
    plan : NetworkPlan
        The real one.
    network : nn.Module
        Built by it; in the mode (``train``) that it is given back in.

    Raises
    ------
    SettingError
        If it can't score rows of the real size, or returns another number of scores.
    """
    if not is_users_class(plan.model_class):
        return
    scores = _scores_of(plan, network.eval(), 2)
    network.train()
    if scores.shape[1] != plan.num_classes:
        raise _refusal(
            plan,
            f"For {plan.num_classes} classes {_name(plan)} returns {scores.shape[1]} scores a row.",
        )


def _scores_of(plan: NetworkPlan, network: nn.Module, num_rows: int) -> torch.Tensor:
    try:
        with plain_torch(), torch.no_grad():
            scores = network(_make_rows(plan, num_rows))
    except Exception as error:  # whatever the user's code raises
        what = f"{_name(plan)} cannot score {num_rows} row(s): {said(error)}"
        raise _refusal(plan, what) from error
    return _checked(plan, scores, num_rows)


def _train_step(plan: NetworkPlan, network: nn.Module) -> None:
    try:
        with plain_torch():
            scores = network.train()(_make_rows(plan, 2))
            torch.autograd.backward(_checked(plan, scores, 2).sum())
    except SettingError:
        raise
    except Exception as error:  # whatever the user's code raises
        raise _refusal(plan, f"{_name(plan)} cannot be trained: {said(error)}") from error
    finally:
        network.zero_grad(set_to_none=True)


def _checked(plan: NetworkPlan, scores: object, num_rows: int) -> torch.Tensor:
    """Return scores if they are a tensor of floats with a row for each row."""
    if not isinstance(scores, torch.Tensor):
        raise _refusal(plan, f"{_name(plan)} returns {quoted(scores)}, not a tensor.")
    if scores.dim() != 2 or len(scores) != num_rows or not scores.is_floating_point():
        raise _refusal(
            plan,
            f"For {num_rows} row(s) {_name(plan)} returns {scores.dtype} of shape "
            f"{tuple(scores.shape)}; it must be float of shape ({num_rows}, num_classes).",
        )
    return scores


def _check_state(plan: NetworkPlan, network: nn.Module) -> list[tuple[str, torch.Size]]:
    """Return names and shapes of what is kept, if a model's file can hold it."""
    state = network.state_dict()
    for name, value in state.items():
        kind = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
        if kind not in KEPT_DTYPES:
            raise SettingError(
                f"{_name(plan)} keeps {name.removeprefix('network.')!r} as {kind}, which a model's "
                "file cannot hold.",
                None,
                "Register it with persistent=False, or make it a tensor of numbers.",
            )
    return [(name, value.shape) for name, value in state.items()]


def _make_rows(plan: NetworkPlan, num_rows: int) -> SparseRows:
    """Return rows of one word each; of none, where there are no text columns."""
    num_words = num_rows if plan.input_size > plan.num_numeric else 0
    return SparseRows(
        np.minimum(np.arange(num_rows + 1), num_words),
        np.zeros(num_words, np.int32),
        np.ones(num_words, np.float32),
        numeric=np.zeros((num_rows, plan.num_numeric), np.float32),
    )


def _refusal(plan: NetworkPlan, what: str) -> SettingError:
    return SettingError(
        what,
        None,
        f"Let {_name(plan)}.forward take rows of input_size columns and return num_classes scores, "
        "before softmax, for each.",
    )


def _name(plan: NetworkPlan) -> str:
    return plan.model_class.__name__
