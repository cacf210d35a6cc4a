"""What of torch all threads share - default dtype and device, generators - taken for a while.

What a caller has set doesn't reach a model of ours, and nothing of it stays changed.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["kept_random_state", "plain_torch"]

# Held while torch's global generators are ours: two trainings take turns.
_GENERATORS = threading.RLock()


class _Users:
    """Who is inside `plain_torch`, and the default dtype before the first of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.dtype_before = torch.float32


_USERS = _Users()


@contextmanager
def plain_torch() -> Iterator[None]:
    """Use float32, the processor and gradients by default, and give the caller's defaults back.

    May be entered again inside, and from several threads at once, none of which waits.
    """
    with ExitStack() as stack:
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        with _USERS.lock:
            # All threads share the default: the first sets it, the last gives it back.
            if _USERS.count == 0:
                _USERS.dtype_before = torch.get_default_dtype()
            _USERS.count += 1
            torch.set_default_dtype(torch.float32)
        stack.callback(_leave)
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.enable_grad())
        yield


def _leave() -> None:
    with _USERS.lock:
        _USERS.count -= 1
        if _USERS.count == 0:
            torch.set_default_dtype(_USERS.dtype_before)


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
