"""What the stages of one run share: the cluster, the cache, the budget and the clock."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dask.config

from lancetnic_dask.cluster.submit import run_bounded
from lancetnic_dask.config import setting

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from pathlib import Path

    import torch
    from distributed import Client, Future

    from lancetnic_dask.cluster.budget import MemoryBudget
    from lancetnic_dask.errors import Location
    from lancetnic_dask.features.cache import ShardCache
    from lancetnic_dask.pipeline.interrupts import InterruptReport
    from lancetnic_dask.pipeline.request import FitRequest
    from lancetnic_dask.run.console import Console

__all__ = ["RunContext"]


@dataclass
class RunContext:
    """What the stages of one run share.

    Parameters
    ----------
    request : FitRequest
        What was asked for.
    client : Client
        Runs the tasks.
    budget : MemoryBudget
        What they may take.
    cache : ShardCache
        Where shards are kept, and what a run needs for a while.
    console : Console
        For the person at the terminal.
    device : torch.device
        Where the model is trained.
    report : InterruptReport
        Told of the run's folder.
    seconds : dict of str to float
        Wall time by stage.
    num_workers : int
        Workers that there were when the run began.
    """

    request: FitRequest
    client: Client
    budget: MemoryBudget
    cache: ShardCache
    console: Console
    device: torch.device
    report: InterruptReport
    seconds: dict[str, float] = field(default_factory=dict)
    num_workers: int = 0

    @property
    def shard_cache(self) -> ShardCache | None:
        """Where shards are kept; None if they are made anew each time."""
        return self.cache if self.request.uses_cache else None

    @property
    def matplotlib_folder(self) -> Path:
        """Where matplotlib keeps its files."""
        return self.cache.folder / "matplotlib"

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the wall time of a block to a stage."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add_seconds(stage, time.perf_counter() - started)

    def add_seconds(self, stage: str, seconds: float) -> None:
        """Add wall time to a stage."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def map_tasks(
        self,
        function: Callable[..., Any],
        items: Iterable[tuple[Any, ...]],
        *,
        name: str,
        describe: Callable[[int], Location | str] | None = None,
    ) -> Generator[Any, None, None]:
        """Run tasks on the workers, a bounded number at a time, in order (`MapTasks`)."""
        for _, result in run_bounded(
            self.client,
            function,
            items,
            max_in_flight=self._in_flight,
            key_prefix=f"lancetnic-{name}",
            describe=describe,
            stall_timeout_seconds=setting("cluster.stall-timeout"),
        ):
            yield result

    def share(self, value: Any) -> Future[Any]:
        """Put a value on the cluster once, for many tasks.

        It is the result of a task: unlike scattered data, the scheduler makes it again when the
        worker that held it is lost, and brings it to workers that join later.
        """
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GiB"}):
            return self.client.submit(_itself, value, pure=False)

    def _in_flight(self) -> int:
        """Return how many partitions may be in flight on the workers that there are now."""
        num_threads: int = sum(self.client.nthreads().values())
        return max(1, self.budget.partitions_per_thread * num_threads)


def _itself(value: Any) -> Any:
    return value
