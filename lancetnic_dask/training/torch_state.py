"""What of torch is global (generators, defaults), taken for a while and given back.

All randomness of a step follows from (seed, epoch, group, step); what a caller has set doesn't
reach a training, and nothing of it stays changed.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

__all__ = ["kept_random_state", "plain_torch", "running_norms", "seed_step", "seeded_weights"]

# Streams of randomness beside those of the features (groups.py uses 1 and 2).
_WEIGHT_STREAM = 3
_DROPOUT_STREAM = 4

# Held while torch's global generators and defaults are ours: two trainings take turns.
_GENERATORS = threading.RLock()


def seeded_weights(random_state: int) -> AbstractContextManager[None]:
    """Seed the weights that a model is made with, and put torch's random state back after."""
    return _seeded(_torch_seed(random_state, _WEIGHT_STREAM, 0, 0, 0))


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    cpu = torch.device("cpu")
    with kept_random_state(cpu), plain_torch(), cpu:
        _seed_torch(seed, cpu)
        yield


def seed_step(
    random_state: int, *, epoch: int, group: int, step: int, device: torch.device
) -> None:
    """Seed torch for the dropout of one step."""
    _seed_torch(_torch_seed(random_state, _DROPOUT_STREAM, epoch, group, step), device)


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


@contextmanager
def plain_torch() -> Iterator[None]:
    """Compute as if the caller had left torch's defaults alone, and give them back."""
    with _GENERATORS:
        dtype = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        try:
            with torch.inference_mode(mode=False), torch.enable_grad():
                yield
        finally:
            torch.set_default_dtype(dtype)


@contextmanager
def kept_random_state(device: torch.device) -> Iterator[None]:
    """Put the state of torch's global generators back: layers and dropout take no other.

    `torch.random.fork_rng` would read those of all GPUs, and start a context on each. All threads
    share the generators, so that two trainings take turns.
    """
    with _GENERATORS:
        cpu_state = torch.get_rng_state()
        cuda_state = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        try:
            yield
        finally:
            torch.set_rng_state(cpu_state)
            if cuda_state is not None:
                torch.cuda.set_rng_state(cuda_state, device)


def _seed_torch(seed: int, device: torch.device) -> None:
    """Seed the CPU's generator and that of the device: 1 µs, against 160 for `manual_seed`."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(seed)


def _torch_seed(random_state: int, stream: int, epoch: int, group: int, step: int) -> int:
    """Return a seed of 63 bits for a place in training."""
    sequence = np.random.SeedSequence((random_state, stream, epoch, group, step))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
