"""The processes of a run -> the most memory they took."""

from __future__ import annotations

import mmap
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from lancetnic_dask.cluster.memory_watch import MemoryWatch

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20

# Takes 100 MiB, says so, and waits to be told to end.
CHILD = "import sys; held = bytearray(b'x') * (100 << 20); print('ready', flush=True); input()"
# Has such a child of its own, as a nanny's worker could.
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


def wait_until_seen(watch: MemoryWatch, workers_bytes: int) -> None:
    """Wait until the watch has seen its children at this size."""
    deadline = time.monotonic() + 20
    while watch.workers_peak_bytes < workers_bytes:
        assert time.monotonic() < deadline, watch.workers_peak_bytes
        time.sleep(0.02)


@pytest.mark.parametrize("code", [CHILD, PARENT], ids=["child", "grandchild"])
def test_children_count_as_workers_even_after_they_ended(code: str) -> None:
    """Peaks stay, by role and in all, for children and for theirs."""
    with MemoryWatch(interval_seconds=0.02) as watch:
        others_bytes = watch.workers_peak_bytes  # the session's cluster, if it runs
        with subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            wait_until_seen(watch, others_bytes + 100 * MIB)
            process.communicate(b"\n", timeout=20)

    assert 100 * MIB <= watch.workers_peak_bytes - others_bytes < 200 * MIB
    assert watch.peak_bytes >= watch.workers_peak_bytes + 5 * MIB
    assert watch.peak_bytes <= watch.workers_peak_bytes + watch.client_peak_bytes


def test_the_client_is_sampled_at_both_ends() -> None:
    """Even a block shorter than the interval has a peak."""
    with MemoryWatch(interval_seconds=60) as watch:
        held = bytearray(b"x") * (64 * MIB)
        before = watch.client_peak_bytes

    assert watch.client_peak_bytes >= before + len(held) - MIB
    assert watch.workers_peak_bytes <= watch.peak_bytes - before


def test_current_bytes_fall_again_while_the_peak_stays() -> None:
    """They are those of the last sample, of all processes."""
    with MemoryWatch(interval_seconds=60) as watch:
        held = bytearray(b"x") * (256 * MIB)
        watch._sample()
        held_bytes = watch.current_bytes
        del held

    assert held_bytes == watch.peak_bytes
    assert 0 < watch.current_bytes < watch.peak_bytes - 128 * MIB


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells file pages apart")
def test_pages_of_a_mapped_file_do_not_count(tmp_path: Path) -> None:
    """Memory-mapped shards are the kernel's to drop, so they are not part of the peak."""
    file = tmp_path / "shard"
    file.write_bytes(bytes(64 * MIB))
    with file.open("rb") as opened, MemoryWatch(interval_seconds=60) as watch:
        before = watch.client_peak_bytes
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        assert sum(mapped[:: mmap.PAGESIZE]) == 0  # reads every page

    mapped.close()
    assert watch.client_peak_bytes < before + 32 * MIB


def test_watching_costs_under_one_percent_of_a_core() -> None:
    """At the default interval the thread's own time is small beside the time that passes."""
    watch = MemoryWatch()
    with watch:
        before = time.thread_time()
        for _ in range(100):
            watch._sample()
        seconds_each = (time.thread_time() - before) / 100

    assert seconds_each / watch.interval_seconds < 0.01


def test_the_thread_ends_with_the_block() -> None:
    """Nothing goes on sampling after the block, also when it fails."""
    watch = MemoryWatch(interval_seconds=0.01)
    with pytest.raises(KeyError), watch:
        raise KeyError

    assert watch._thread is not None
    assert not watch._thread.is_alive()
