"""Rows a second of whole epochs by choice of threads, alone and beside a process that spins.

    python threads_by_turns.py '{"rounds": 3, "num_cpus": 2, "train": {"train_path": "a.csv", …}}'

One run, each epoch in another way, by turns: the package's own choice; the same with two threads
of torch; and sums and update by parallel kernels of Numba, with one or two threads of Numba and
of torch, which needs ``NUMBA_NUM_THREADS=2`` in the environment. A first round compiles and warms
up. This process, its workers and the neighbour share `num_cpus` processors, however many the
machine has.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Iterator

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


class Way(NamedTuple):
    """A choice of threads.

    Parameters
    ----------
    kernels : str
        "as shipped", or "in parallel" for those of Numba: see `sparse_step.kernels_of`.
    torch_threads : int or None
        None leaves the choice to the package.
    numba_threads : int, default=1
        Used by parallel kernels only; those of the package have one thread.
    """

    kernels: str
    torch_threads: int | None
    numba_threads: int = 1


WAYS = {
    "ours": Way("as shipped", None),
    "ours, torch 2": Way("as shipped", 2),
    "numba 1 x torch 1": Way("in parallel", 1, 1),
    "numba 2 x torch 1": Way("in parallel", 1, 2),
    "numba 1 x torch 2": Way("in parallel", 2, 1),
    "numba 2 x torch 2": Way("in parallel", 2, 2),
}


@contextmanager
def taking(way: Way, model: Any) -> Iterator[None]:
    """Train a model in a way inside of the block."""
    import numba
    import torch
    from sparse_step import kernels_of

    from lancetnic_dask.models.sparse_linear import SparseLinear
    from lancetnic_dask.training import loop, scoring

    if way.torch_threads is None:
        yield
        return
    before = torch.get_num_threads()
    with ExitStack() as stack:
        stack.enter_context(kernels_of(way.kernels))
        if way.kernels == "in parallel":
            # The parallel update reads gradients that are written down.
            for layer in model.modules():
                if isinstance(layer, SparseLinear):
                    stack.enter_context(mock.patch.object(layer, "keeps_factors", new=False))
        for module in (loop, scoring):
            stack.enter_context(mock.patch.object(module, "one_torch_thread", nullcontext))
        torch.set_num_threads(way.torch_threads)
        numba.set_num_threads(way.numba_threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def take_turns(rounds: int) -> list[tuple[str, bool]]:
    """Return the way of each epoch, and whether a neighbour is busy meanwhile."""
    warm_up = [(name, False) for name in WAYS]
    return warm_up + [
        (name, busy) for _ in range(rounds) for name in WAYS for busy in (False, True)
    ]


def train(turns: list[tuple[str, bool]], options: dict[str, Any]) -> list[float]:
    """Train, an epoch a turn; return the rows a second of each."""
    from sparse_step import busy_neighbour

    from lancetnic_dask import Classification
    from lancetnic_dask.models import ScalpelMC
    from lancetnic_dask.pipeline import epochs

    pipeline: Any = epochs
    train_epoch, left = pipeline.train_epoch, iter(turns)

    def train_in_turn(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        name, busy = next(left)
        with busy_neighbour(start=busy), taking(WAYS[name], trainer.model):
            return train_epoch(trainer, *args, **kwargs)

    pipeline.train_epoch = train_in_turn
    classifier = Classification(
        "text", None, "label", max_features=options.pop("max_features", None)
    )
    run = classifier.train(
        ScalpelMC, val_path=None, num_epochs=len(turns), progress=False, **options
    )
    return [entry["rows_per_second"] for entry in run.history]


def main() -> None:
    """Measure as asked."""
    options = json.loads(sys.argv[1])
    if hasattr(os, "sched_setaffinity"):  # not on macOS
        cpus = sorted(os.sched_getaffinity(0))[: options["num_cpus"]]
        os.sched_setaffinity(0, cpus)
    turns = take_turns(options["rounds"])
    speeds = train(turns, options["train"])
    by_way: dict[str, dict[str, list[float]]] = {name: {"alone": [], "beside": []} for name in WAYS}
    measured = list(zip(turns, speeds, strict=True))[len(WAYS) :]
    for (name, busy), speed in measured:
        by_way[name]["beside" if busy else "alone"].append(speed)
    print(json.dumps(by_way))


if __name__ == "__main__":
    main()
