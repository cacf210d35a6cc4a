"""What the stages of one run share: the cluster, the cache, the budget and the clock."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lancetnic_dask.cluster.submit import run_bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from distributed import Client

    from lancetnic_dask.cluster.budget import MemoryBudget
    from lancetnic_dask.errors import Location
    from lancetnic_dask.features.cache import ShardCache
    from lancetnic_dask.pipeline.request import FitRequest
    from lancetnic_dask.run.console import Console

__all__ = ["Bench"]


@dataclass
class Bench:
    """What the stages of one run share: the cluster, the cache, and the clock."""

    request: FitRequest
    client: Client
    budget: MemoryBudget
    cache: ShardCache
    console: Console
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def shard_cache(self) -> ShardCache | None:
        """Where shards are kept; None if they are made anew each time."""
        return self.cache if self.request.uses_cache else None

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the wall time of a block to a stage."""
        started = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - started
            self.seconds[stage] = self.seconds.get(stage, 0.0) + elapsed

    def map_tasks(
        self,
        function: Callable[..., Any],
        items: Iterable[tuple[Any, ...]],
        *,
        name: str,
        describe: Callable[[int], Location | str] | None = None,
    ) -> Iterator[Any]:
        """Run tasks on the workers, a bounded number at a time, in order (`MapTasks`)."""
        per_thread = self.budget.max_in_flight // self.budget.num_workers
        num_threads = sum(self.client.nthreads().values())
        for _, result in run_bounded(
            self.client,
            function,
            items,
            max_in_flight=max(1, per_thread * num_threads),
            key_prefix=f"lancetnic-{name}",
            describe=describe,
        ):
            yield result
