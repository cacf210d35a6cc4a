"""The processes of a run -> the most memory they took, to be shown beside the budget.

Counts what cannot be dropped: pages of files (libraries, memory-mapped shards) are the kernel's
to take back, and are left out where the operating system tells them apart. It measures only; what
happens to a worker above its limit is Dask's business (``local.py``).
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["MemoryWatch"]

# Which children there are is asked once in so many samples: it costs more than to read them.
_SAMPLES_PER_SEARCH = 5


class MemoryWatch:
    """Sample the memory of this process and all its children while a block runs.

    A peak shorter than the interval can be missed. One sample of ten processes takes 0.5 ms, so
    the default interval costs under 1 % of a core. A process that ends or appears meanwhile, or
    that may not be read, counts as nothing; sampling never raises.

    Parameters
    ----------
    interval_seconds : float, default=0.2
        Time between two samples, in seconds.

    Attributes
    ----------
    current_bytes : int
        The sum over all processes when they were last sampled.
    peak_bytes : int
        The largest sum over all processes at one moment.
    client_peak_bytes : int
        The most of this process.
    workers_peak_bytes : int
        The largest sum over its children at one moment. 0 if there were none, as with a cluster
        on other machines.

    Examples
    --------
    >>> with MemoryWatch() as watch:
    ...     table = bytearray(1 << 20)
    >>> watch.peak_bytes >= watch.client_peak_bytes > 0
    True
    >>> 0 < watch.current_bytes <= watch.peak_bytes
    True
    """

    def __init__(self, *, interval_seconds: float = 0.2) -> None:
        self.interval_seconds = interval_seconds
        self.current_bytes = 0
        self.peak_bytes = 0
        self.client_peak_bytes = 0
        self.workers_peak_bytes = 0
        self._process = psutil.Process()
        self._children: list[int] = []
        self._num_samples = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._sample()
        self._thread = threading.Thread(
            target=self._run, name="lancetnic-memory-watch", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._sample()

    def _run(self) -> None:
        while not self._stop.wait(self.interval_seconds):
            self._sample()

    def _sample(self) -> None:
        if self._num_samples % _SAMPLES_PER_SEARCH == 0:
            self._children = _descendants(self._process.pid)
        self._num_samples += 1
        client_bytes = _held_bytes(self._process.pid)
        workers_bytes = sum(map(_held_bytes, self._children))
        self.client_peak_bytes = max(self.client_peak_bytes, client_bytes)
        self.workers_peak_bytes = max(self.workers_peak_bytes, workers_bytes)
        self.current_bytes = client_bytes + workers_bytes
        self.peak_bytes = max(self.peak_bytes, self.current_bytes)


def _held_bytes(pid: int) -> int:
    """Return anonymous and shared memory of a process in bytes; resident where that is unknown."""
    if sys.platform == "linux":
        try:
            status = Path(f"/proc/{pid}/status").read_bytes()
        except OSError:  # it has ended
            return 0
        return sum(
            1024 * int(line.split()[1])
            for line in status.splitlines()
            if line.startswith((b"RssAnon:", b"RssShmem:"))
        )
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _descendants(pid: int) -> list[int]:
    """List the children of a process, theirs and so on."""
    if not Path(f"/proc/{pid}/task/{pid}/children").exists():  # not Linux, or not in this kernel
        try:
            return [child.pid for child in psutil.Process(pid).children(recursive=True)]
        except psutil.Error:
            return []
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def _children(pid: int) -> list[int]:
    """Read the children that each thread of a process has started."""
    children: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208  names only, 1 ms less
    except OSError:
        return []
    for thread in threads:
        try:
            text = Path(f"/proc/{pid}/task/{thread}/children").read_bytes()
        except OSError:  # the thread has ended
            continue
        children += map(int, text.split())
    return children
