"""A function and many items -> their results, with a bounded number on the cluster at a time.

Never one task graph over the corpus: a scheduler loads root data faster than it is used (36-39 of
40 partitions were held by two workers), and nothing but submitting less prevents it.
"""

from __future__ import annotations

import logging
import queue
import time
import uuid
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from distributed import KilledWorker
from distributed.comm.core import CommClosedError

from lancetnic_dask.errors import ClusterError, LancetnicError, SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from distributed import Client, Future

    from lancetnic_dask.errors import Location

__all__ = ["run_bounded"]

logger = logging.getLogger(__name__)

R = TypeVar("R")

# How long a silent wait for results lasts before we look whether there are workers at all.
_LOOK_SECONDS = 5.0

# The nanny's report that it restarted a worker for its memory comes by another way than the
# failure of the task, so it may come a little later.
_REPORT_SECONDS = 2.0


def run_bounded(
    client: Client,
    function: Callable[..., R],
    items: Iterable[tuple[Any, ...]],
    *,
    max_in_flight: int | Callable[[], int],
    key_prefix: str,
    ordered: bool = True,
    describe: Callable[[int], Location | str] | None = None,
    worker_timeout_seconds: float = 300.0,
    stall_timeout_seconds: float = 1800.0,
) -> Generator[tuple[int, R], None, None]:
    """Call a function on the workers for each item, with few calls on the cluster at a time.

    ``items`` is read as results are used, never ahead. A result is released before the next item
    is submitted, so that the cluster holds ``max_in_flight`` of them at most, whatever the number
    of workers and threads (and for some milliseconds the one that its worker has not yet been
    told to drop). A call whose worker was lost is repeated on
    another one as often as the cluster allows. On an error, and when the caller stops early, what
    is in flight is given up.

    No wait lasts for ever: it ends when there has been no worker that works (one that Dask has
    paused for its memory does not) for ``worker_timeout_seconds``, and when no call at all has
    come to its end for ``stall_timeout_seconds``, as with a call that hangs.

    Parameters
    ----------
    client : Client
        A synchronous Dask client.
    function : callable
        Runs on a worker, and may run twice for the same item.
    items : Iterable[tuple]
        Arguments of each call.
    max_in_flight : int or callable
        Calls that are submitted and whose results have not been fetched, at least 1. A callable
        is asked before each call is submitted, and every few seconds of waiting, so that workers
        which join get work; it may ask the scheduler.
    key_prefix : str
        Name of the tasks on the dashboard, such as "lancetnic-tokenize".
    ordered : bool, default=True
        Yield in the order of the items. False yields as results come.
    describe : callable or None, default=None
        Gives the place that an item stands for, from its index, for error messages.
    worker_timeout_seconds : float, default=300.0
        How long to wait while the cluster has no worker, or only paused ones.
    stall_timeout_seconds : float, default=1800.0
        How long to wait while no call ends. More than the slowest call can take, and than other
        users' work can hold up ours on a shared cluster.

    Yields
    ------
    tuple[int, R]
        Index of the item, from 0, and its result.

    Raises
    ------
    SettingError
        If ``max_in_flight`` is below 1.
    ClusterError
        If workers died with an item (it says whether memory was the cause), the cluster has had
        no worker for too long, no call has ended for too long, data that a call needs was lost
        with its worker, or the connection to the scheduler is lost.
    Exception
        What the function raised, unchanged but for a note that names the item; errors of this
        package come without.
    """
    window = _Window(
        client=client,
        function=function,
        items=items,
        max_in_flight=max_in_flight if callable(max_in_flight) else lambda: max_in_flight,
        key=f"{key_prefix}-{uuid.uuid4().hex}",
        place=describe or (lambda index: f"{key_prefix}, item {index}"),
        worker_timeout_seconds=worker_timeout_seconds,
        stall_timeout_seconds=stall_timeout_seconds,
    )
    try:
        window.fill()
        while window.futures:
            index, result = window.take(ordered=ordered)
            window.fill()
            yield index, result
            del result
    finally:
        window.release()


class _Window:
    """The calls in flight, in the order of their items."""

    def __init__(
        self,
        *,
        client: Client,
        function: Callable[..., Any],
        items: Iterable[tuple[Any, ...]],
        max_in_flight: Callable[[], int],
        key: str,
        place: Callable[[int], Location | str],
        worker_timeout_seconds: float,
        stall_timeout_seconds: float,
    ) -> None:
        self.client = client
        self.function = function
        self.remaining = enumerate(items)
        self.max_in_flight = max_in_flight
        self.key = key
        self.place = place
        self.worker_timeout_seconds = worker_timeout_seconds
        self.stall_timeout_seconds = stall_timeout_seconds
        self.look_seconds = min(_LOOK_SECONDS, worker_timeout_seconds, stall_timeout_seconds)
        self.has_warned = False
        self.futures: dict[int, Future[Any]] = {}
        self.finished: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.done: set[int] = set()

    def fill(self) -> None:
        """Submit calls, as many as may be in flight now."""
        while len(self.futures) < self._limit():
            for index, item in self.remaining:
                self.submit(index, item)
                break
            else:
                return

    def _limit(self) -> int:
        try:
            limit = self.max_in_flight()
        except (CommClosedError, OSError) as error:
            raise self._lost_scheduler(next(iter(self.futures), 0)) from error
        if limit < 1:
            raise SettingError(f"max_in_flight must be at least 1, and is {limit!r}.")
        return limit

    def submit(self, index: int, item: tuple[Any, ...]) -> None:
        """Put one call on the cluster; its key is new, so nothing is taken from another run."""
        future = self.client.submit(self.function, *item, key=(self.key, index), pure=False)
        future.add_done_callback(lambda _: self.finished.put(index))  # failed and lost ones too
        self.futures[index] = future

    def take(self, *, ordered: bool) -> tuple[int, Any]:
        """Wait for the first call (or any), fetch its result, and free it on the cluster."""
        index = self._wait_for(next(iter(self.futures)) if ordered else None)
        future = self.futures[index]
        try:
            result = future.result()
        except LancetnicError:
            raise
        except KilledWorker as error:
            raise self._worker_death(index, error) from error
        except CancelledError as error:
            raise self._cancelled(index, error) from error
        except CommClosedError as error:
            raise self._lost_scheduler(index) from error
        except Exception as error:
            error.add_note(f"in a task on {self.place(index)}")
            raise
        # Released before the next call is submitted: both messages go the same way, in order.
        del self.futures[index]
        future.release()
        return index, result

    def release(self) -> None:
        """Give up what is in flight. A call that runs ends on its own; its result is dropped.

        The scheduler forgets what nobody holds. `Client.cancel` would wait for the event loop,
        and this may run in the loop's own thread: Python closes a generator that an error holds
        wherever it looks for cycles.
        """
        for future in self.futures.values():
            future.release()
        self.futures.clear()

    def _wait_for(self, index: int | None) -> int:
        """Wait for this call, or for any; give up as the docstring of `run_bounded` tells."""
        worked = progressed = time.monotonic()
        while not self.done or (index is not None and index not in self.done):
            try:
                self.done.add(self.finished.get(timeout=self.look_seconds))
                worked = progressed = time.monotonic()
            except queue.Empty:
                workers = self._workers()
                if "running" in workers:
                    worked = time.monotonic()
                    self.fill()
                elif not self.has_warned:
                    self.has_warned = True
                    logger.warning(
                        "waiting for a worker: none of the cluster's %d works; at most %g s",
                        len(workers),
                        self.worker_timeout_seconds,
                    )
                place = self.place(min(self.futures) if index is None else index)
                if time.monotonic() - worked > self.worker_timeout_seconds:
                    raise self._no_workers(place, workers) from None
                if time.monotonic() - progressed > self.stall_timeout_seconds:
                    raise self._stalled(place, workers) from None
        found = min(self.done) if index is None else index
        self.done.remove(found)
        return found

    def _workers(self) -> list[str]:
        """Return the status of each worker; none while the scheduler does not answer."""
        try:
            # Without the argument some versions of Dask tell of five workers only.
            workers = self.client.scheduler_info(n_workers=-1)["workers"]
        except (CommClosedError, OSError):  # reconnecting
            return []
        return [str(worker["status"]) for worker in workers.values()]

    def _no_workers(self, place: Location | str, workers: list[str]) -> ClusterError:
        if not workers:
            return ClusterError(
                f"The cluster has had no worker for {self.worker_timeout_seconds:g} s.",
                place,
                "Look at the workers' logs, start workers, and run again.",
            )
        return ClusterError(
            f"No worker has worked for {self.worker_timeout_seconds:g} s: all {len(workers)} are "
            f"{' or '.join(sorted(set(workers)))}.",
            place,
            "Dask pauses a worker that is short of memory: pass a smaller partition_bytes=, or "
            "start workers with more memory, and run again.",
        )

    def _stalled(self, place: Location | str, workers: list[str]) -> ClusterError:
        paused = f", {workers.count('paused')} of them paused" if "paused" in workers else ""
        return ClusterError(
            f"No task has ended for {self.stall_timeout_seconds:g} s, with {len(self.futures)} on "
            f"a cluster of {len(workers)} worker(s){paused}.",
            place,
            "Look at the dashboard for what the workers do. If they are only slow, or busy with "
            "other work, set a longer lancetnic.cluster.stall-timeout in Dask's configuration.",
        )

    def _cancelled(self, index: int, error: CancelledError) -> ClusterError:
        """Tell why a call was cancelled; only newer versions of Dask say."""
        reason = getattr(error, "reason", None)
        # Lost before the call was submitted, and while it waited or ran.
        if reason in {"lost dependencies", "already forgotten"}:
            return ClusterError(
                f"Data that task {index} needs was lost together with the worker that held it.",
                self.place(index),
                "Look at the log of that worker, and run again.",
            )
        if reason in {"scheduler-connection-lost", "unknown", None}:
            return self._lost_scheduler(index)
        return ClusterError(
            f"Task {index} was cancelled on the cluster: {reason}.",
            self.place(index),
            "Look at the scheduler's log for who did it, and run again.",
        )

    def _lost_scheduler(self, index: int) -> ClusterError:
        return ClusterError(
            f"The connection to the scheduler was lost, or task {index} was cancelled there.",
            self.place(index),
            "Check that the scheduler runs, and run again.",
        )

    def _worker_death(self, index: int, error: KilledWorker) -> ClusterError:
        deaths = error.allowed_failures + 1
        times = {1: "once", 2: "twice"}.get(deaths, f"{deaths} times")
        # Dask blames each call that the worker had, also those that waited behind the one that
        # ran. Calls start in the order of their items, and _wait_for returns the first of them.
        place = self.place(index)
        rss_bytes = self._restarted_at(error.last_worker.address)
        if rss_bytes is None:
            return ClusterError(
                f"A worker died {times} with the same task: crashed, or was killed from outside.",
                place,
                "Look at the workers' logs; a native library that crashes leaves its name there.",
            )
        limit_bytes = error.last_worker.memory_limit
        return ClusterError(
            f"A worker was stopped {times} with the same task, because it took "
            f"{rss_bytes / 2**20:.0f} MiB of the {limit_bytes / 2**20:.0f} MiB of memory it may.",
            place,
            "Pass a smaller partition_bytes= or a larger memory=, or set fewer workers with "
            "lancetnic.cluster.workers in Dask's configuration.",
        )

    def _restarted_at(self, worker_address: str) -> int | None:
        """Find at how many resident bytes the nanny stopped this worker; None if it did not."""
        deadline = time.monotonic() + _REPORT_SECONDS
        while True:
            with suppress(OSError, CommClosedError):
                for _, event in self.client.get_events("worker-restart-memory"):
                    if event["worker"] == worker_address:
                        return int(event["rss"])
            if time.monotonic() > deadline:
                return None
            time.sleep(0.1)
