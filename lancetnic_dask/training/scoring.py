"""Rows -> scores of the classes, in slices that depend on nothing but the order of the rows.

Validation and prediction both score here, so that a model gives a row the same scores in both.
What the scores mean - a loss, a class, a probability - is up to the caller.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from lancetnic_dask.models.plain_torch import plain_torch
from lancetnic_dask.training.batches import take_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from lancetnic_dask.features.weighting import EncodedRows

__all__ = ["SCORING_ROWS", "one_torch_thread", "score_rows"]

SCORING_ROWS: Final = 512
"""Rows that are scored at once: fixed, as a product's last bits may depend on its shape."""


def score_rows(network: nn.Module, rows: EncodedRows) -> Iterator[tuple[int, torch.Tensor]]:
    """Score rows slice by slice, in their order.

    Every slice has `SCORING_ROWS` rows but the last, which has what is left. No gradient is
    kept, and torch works with one thread while it scores; between slices both are as the caller
    has them.

    Parameters
    ----------
    network : nn.Module
        Takes `SparseRows`, returns logits; in the mode (``eval``) that the caller wants.
    rows : EncodedRows
        With or without targets; no rows give no slice.

    Yields
    ------
    start : int
        Position of the first row of the slice.
    logits : Tensor of shape (num_rows_of_slice, num_classes)
        On the device of the network.
    """
    for start in range(0, rows.num_rows, SCORING_ROWS):
        batch = take_rows(rows, np.arange(start, min(start + SCORING_ROWS, rows.num_rows)))
        # Not around the loop: what a generator has entered also holds for its caller meanwhile.
        with plain_torch(), torch.no_grad(), one_torch_thread():
            logits = network(batch.rows)
        yield start, logits


class _Users:
    """Who is inside `one_torch_thread`, and how many threads there were before the first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.num_threads_before = 1
        self.this_thread = threading.local()


_USERS = _Users()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Give torch one thread, and its old number back: its pool fights with the sparse kernels.

    Measured with a busy neighbour on two cores: 38,000 rows/s with two threads each, 47,000 so.
    May be entered again inside, and from several threads at once.
    """
    users = _USERS
    if getattr(users.this_thread, "is_inside", False):
        yield
        return
    with users.lock:
        # The number belongs to a thread, but a thread takes the one that was set last anywhere
        # when it first asks. So one that comes in second may see the 1 of the first; and one that
        # had not asked before it sets its own would take another's later.
        number = torch.get_num_threads()
        if users.count == 0:
            users.num_threads_before = number
        users.count += 1
        torch.set_num_threads(1)
    users.this_thread.is_inside = True
    try:
        yield
    finally:
        users.this_thread.is_inside = False
        with users.lock:
            users.count -= 1
            torch.set_num_threads(users.num_threads_before)
