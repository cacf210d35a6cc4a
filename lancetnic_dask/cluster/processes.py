"""A nanny -> worker processes that start from any script and outlive Ctrl-C, but not the client.

What Dask's nanny does, with five differences, at the first start and at every restart:

- A script without ``if __name__ == "__main__"`` works: a spawned process would import the main
  module again, and with it start another cluster. Here the main module looks like a prompt's
  while a process starts.
- Ctrl-C in a terminal goes to every process of the group. Ours ignore it, so that the client can
  finish its step and save.
- One thread each for OpenMP, BLAS and Numba, whatever the user's environment says: parallelism
  comes from the number of workers.
- The client's environment is put back: Dask would leave OMP_NUM_THREADS=1 in it, and torch,
  imported later, would read that.
- The memory thresholds are ours. They travel with the nanny: what is set in the client's
  configuration while a cluster starts is gone when a worker is started again.

That no worker outlives a killed client needs nothing of ours: Dask's workers hold a pipe whose
other end closes with the client, and exit at once.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import ModuleType
from typing import TYPE_CHECKING, Any

import dask.config
from distributed import Nanny
from distributed.core import Status

from lancetnic_dask.cluster.sizes import WORKER_TERMINATE_FRACTION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from distributed import Worker

__all__ = ["WORKER_ENVIRONMENT", "WORKER_MEMORY", "ShieldedNanny", "dask_setup"]

WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}

_LATE = {"NUMBA_NUM_THREADS"}

# Our tasks hold one partition and keep little, so there is nothing to spill, and a pause would
# wait for memory that never comes back. What is left is the restart of a worker that has gone wild.
WORKER_MEMORY = {
    "target": False,
    "spill": False,
    "pause": False,
    "terminate": WORKER_TERMINATE_FRACTION,
}


class ShieldedNanny(Nanny):
    """Start and restart a worker process as the module's docstring tells."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Whole, not the thresholds alone: Dask merges the top level only.
        memory = {"worker": {"memory": WORKER_MEMORY}}
        kwargs["config"] = {
            "distributed": dask.config.merge(dask.config.get("distributed"), memory)
        }
        # The nanny itself reads its share of them here, and asks nobody later.
        with dask.config.set({"distributed.worker.memory.terminate": WORKER_TERMINATE_FRACTION}):
            super().__init__(*args, **kwargs)
        # Before the process starts: BLAS reads these when it is loaded, and distributed loads it.
        # While it starts they stand in our own environment too, which Numba reads whenever it
        # compiles: its number of threads must not change there.
        early = {name: WORKER_ENVIRONMENT[name] for name in WORKER_ENVIRONMENT.keys() - _LATE}
        self.pre_spawn_env.update(early)
        self.env.update(WORKER_ENVIRONMENT)

    async def instantiate(self) -> Status:
        """Start the process, and wait until the worker is registered."""
        _block_interrupts()
        with _SPAWNING.entered(self.pre_spawn_env):
            return await super().instantiate()


def dask_setup(worker: Worker) -> None:
    """Prepare a worker: Dask calls this in each one that preloads this module.

    It ignores Ctrl-C (needed where signal masks are not inherited, as on Windows; elsewhere the
    mask does it, from the first instruction on), and keeps two messages out of its log.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def is_news(record: logging.LogRecord) -> bool:
        message = str(record.msg)
        if message.startswith("Compute Failed"):  # the client raises it, and knows the place
            return False
        # Seen on a busy machine: a heartbeat that meets its own worker closing, with a traceback.
        return worker.status == Status.running or "heartbeat" not in message

    logging.getLogger("distributed.worker").addFilter(is_news)


def _block_interrupts() -> None:
    """Block Ctrl-C in the thread of the event loop, from which new processes inherit the mask.

    The main thread goes on to receive it. The mask stays: that thread handles no signals.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        return
    if threading.current_thread() is threading.main_thread():
        return
    # Starting the tracker unblocks SIGINT in the calling thread, so it must be up before.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


class _PromptMain(ModuleType):
    """The main module as a spawning process should see it: with neither file nor spec.

    Everything else is that of the real one, which stays as it is: code that runs meanwhile in
    other threads still finds ``__file__`` among its globals.
    """

    def __init__(self, main: ModuleType) -> None:
        super().__init__("__main__")
        self.__dict__["_main"] = main

    def __getattr__(self, name: str) -> Any:
        if name == "__file__":
            raise AttributeError(name)
        return getattr(self.__dict__["_main"], name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.__dict__["_main"], name, value)


class _Spawning:
    """What differs in the client's process while any worker process starts; put back after.

    Several nannies start at once, on one or several event loops: the first one in changes, the
    last one out restores.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_starting = 0
        self._main: ModuleType | None = None
        self._environment: dict[str, str | None] = {}

    @contextmanager
    def entered(self, variables: Iterable[str]) -> Iterator[None]:
        """Hide the main module, and remember the environment variables that Dask will set."""
        with self._lock:
            self._num_starting += 1
            for name in variables:
                self._environment.setdefault(name, os.environ.get(name))
            if self._main is None:
                self._main = sys.modules["__main__"]
                sys.modules["__main__"] = _PromptMain(self._main)
        try:
            yield
        finally:
            with self._lock:
                self._num_starting -= 1
                if self._num_starting == 0:
                    self._restore()

    def _restore(self) -> None:
        if self._main is not None:
            sys.modules["__main__"] = self._main
            self._main = None
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._environment.clear()


_SPAWNING = _Spawning()
