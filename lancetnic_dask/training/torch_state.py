"""A place in training -> the state of torch there: all randomness follows from it.

That is (seed, epoch, group, step); weights are drawn from the seed alone.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from lancetnic_dask.models.plain_torch import kept_random_state, plain_torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    import numpy.typing as npt

__all__ = ["running_norms", "seed_torch", "seeded_weights", "step_seeds"]

# Streams of randomness beside those of the features (groups.py uses 1 and 2).
_WEIGHT_STREAM = 3
_DROPOUT_STREAM = 4


def seeded_weights(random_state: int) -> AbstractContextManager[None]:
    """Seed the weights that a model is made with, and put torch's random state back after."""
    return _seeded(int(_torch_seeds((random_state, _WEIGHT_STREAM, 0, 0, 0), 1)[0]))


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    cpu = torch.device("cpu")
    with kept_random_state(cpu), plain_torch(), cpu:
        seed_torch(seed, cpu)
        yield


def step_seeds(
    random_state: int, *, epoch: int, group: int, num_steps: int
) -> npt.NDArray[np.uint64]:
    """Return the seeds of torch for the dropout of each step of a group, 63 bits each.

    That of a step doesn't depend on how many steps there are.
    """
    return _torch_seeds((random_state, _DROPOUT_STREAM, epoch, group), num_steps)


@contextmanager
def running_norms(model: nn.Module) -> Iterator[None]:
    """Let batch norms use their running means and variances: one row has no variance."""
    norms = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    for norm in norms:
        norm.eval()
    try:
        yield
    finally:
        for norm in norms:
            norm.train()


def seed_torch(seed: int, device: torch.device) -> None:
    """Seed the CPU's generator and that of the device: 1 µs, against 160 for `manual_seed`."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(seed)


def _torch_seeds(place: tuple[int, ...], count: int) -> npt.NDArray[np.uint64]:
    """Return seeds of 63 bits for a place in training."""
    states = np.random.SeedSequence(place).generate_state(count, np.uint64)
    return states.astype(np.uint64) >> np.uint64(1)
