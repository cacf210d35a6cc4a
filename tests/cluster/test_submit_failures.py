"""Workers that die, pause or hang, and a scheduler that goes away: each ends in one error."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from distributed import Client, LocalCluster
from distributed.core import Status

from lancetnic_dask.cluster import submit
from lancetnic_dask.cluster.submit import run_bounded
from lancetnic_dask.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.system


def poll(condition: Callable[[], bool], *, seconds: float = 20) -> None:
    """Wait until a condition holds; fail when it does not for long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def double(number: int) -> int:
    """Stand for any task."""
    return 2 * number


def wait_for_file(number: int, folder: str) -> int:
    """Run until the file of this number is there."""
    poll(Path(folder, str(number)).exists)
    return number


def is_idle(client: Client) -> bool:
    """Tell whether the scheduler holds no task of any kind."""

    def has_no_task(dask_scheduler: Any) -> bool:
        return not dask_scheduler.tasks

    return bool(client.run_on_scheduler(has_no_task))


def kill_own_worker(number: int, marker: str | None = None) -> int:
    """Die by SIGKILL at item 2: each time, or once if there is a marker file to remove."""
    if number == 2 and (marker is None or Path(marker).exists()):
        if marker is not None:
            Path(marker).unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def take_too_much(number: int) -> int:
    """Take memory at item 2 until the nanny steps in."""
    held = []
    while number == 2:
        held.append(b"x" * (16 << 20))
        time.sleep(0.01)
    return number


@pytest.fixture(scope="module")
def mortal_client() -> Iterator[Client]:
    """Connect to a cluster whose workers may die."""
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit="300MiB",
            scheduler_kwargs={"allowed_failures": 1},
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def test_lost_data_is_not_taken_for_a_lost_scheduler(mortal_client: Client) -> None:
    """Data sent to one worker dies with it, before a call is submitted or while it waits."""
    mortal_client.wait_for_workers(2, timeout=30)
    pids = mortal_client.run(os.getpid)
    address = next(iter(pids))
    [data] = mortal_client.scatter([1], workers=[address], hash=False)
    lost = "Data that task 0 needs was lost together with the worker that held it"

    for pid in (pids[address], 0):  # the second time the data is gone already
        with pytest.raises(ClusterError, match=lost):
            next(
                run_bounded(
                    mortal_client,
                    kill_and_wait,
                    [(data, pid)],
                    max_in_flight=1,
                    key_prefix="lancetnic-kill",
                )
            )
    poll(lambda: address not in mortal_client.nthreads())
    mortal_client.wait_for_workers(2, timeout=30)


def kill_and_wait(data: int, pid: int) -> int:
    """Kill the worker that holds the data, from wherever this runs."""
    if pid:
        os.kill(pid, signal.SIGKILL)
        time.sleep(60)
    return data


def test_a_worker_lost_once_is_no_error(mortal_client: Client, tmp_path: Path) -> None:
    """The item is repeated on another worker, and the results are the same."""
    marker = tmp_path / "marker"
    marker.touch()

    pairs = list(
        run_bounded(
            mortal_client,
            kill_own_worker,
            [(number, str(marker)) for number in range(6)],
            max_in_flight=2,
            key_prefix="lancetnic-kill",
        )
    )

    assert pairs == [(number, number) for number in range(6)]
    assert not marker.exists()


def test_an_item_that_kills_workers_is_named(mortal_client: Client) -> None:
    """Dask's KilledWorker becomes an error with the place."""
    with pytest.raises(ClusterError) as caught:
        list(
            run_bounded(
                mortal_client,
                kill_own_worker,
                [(number,) for number in range(6)],
                max_in_flight=2,
                key_prefix="lancetnic-kill",
                describe=lambda index: f"partition {index} of a.csv",
            )
        )

    assert str(caught.value) == (
        "A worker died twice with the same task: crashed, or was killed from outside.\n"
        "  at partition 2 of a.csv\n"
        "  Look at the workers' logs; a native library that crashes leaves its name there."
    )


def test_memory_is_named_as_the_cause(mortal_client: Client) -> None:
    """The nanny's report tells memory from other deaths."""
    with pytest.raises(ClusterError) as caught:
        list(
            run_bounded(
                mortal_client,
                take_too_much,
                [(number,) for number in range(6)],
                max_in_flight=2,
                key_prefix="lancetnic-eat",
                describe=lambda index: f"partition {index} of a.csv",
            )
        )

    assert "was stopped twice with the same task, because it took" in caught.value.what
    assert "of the 300 MiB of memory it may" in caught.value.what
    assert caught.value.where == "partition 2 of a.csv"
    assert "partition_bytes=" in caught.value.fix


def test_a_task_that_hangs_is_given_up(client: Client, tmp_path: Path) -> None:
    """The wait ends with the place of the oldest call, and how to wait longer."""
    with pytest.raises(ClusterError) as caught:
        list(
            run_bounded(
                client,
                wait_for_file,
                [(number, str(tmp_path)) for number in range(2)],
                max_in_flight=2,
                key_prefix="lancetnic-hang",
                stall_timeout_seconds=0.5,
            )
        )

    assert str(caught.value) == (
        "No task has ended for 0.5 s, with 2 on a cluster of 2 worker(s).\n"
        "  at lancetnic-hang, item 0\n"
        "  Look at the dashboard for what the workers do. If they are only slow, or busy with "
        "other work, set a longer lancetnic.cluster.stall-timeout in Dask's configuration."
    )
    for number in range(2):
        (tmp_path / str(number)).touch()
    poll(lambda: is_idle(client))


def test_tasks_that_end_keep_a_run_alive(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the time without any end that counts, not how long the awaited call takes."""
    monkeypatch.setattr(submit, "_LOOK_SECONDS", 0.1)
    results = run_bounded(
        client,
        sleep_long_first,
        [(number,) for number in range(12)],
        max_in_flight=12,
        key_prefix="lancetnic-turn",
        stall_timeout_seconds=2,
    )

    assert len(list(results)) == 12


def sleep_long_first(number: int) -> int:
    """Take longer at item 0 than is allowed without an end; meanwhile others come to theirs."""
    time.sleep(4 if number == 0 else 0.5)
    return number


def test_workers_that_are_paused_for_good_are_no_workers(tmp_path: Path) -> None:
    """Dask gives a paused worker no task; a run whose workers all are would wait for ever."""

    def pause(dask_worker: Any) -> None:
        dask_worker.status = Status.paused

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.run(pause)
        with pytest.raises(ClusterError) as caught:
            next(
                run_bounded(
                    client,
                    wait_for_file,
                    [(0, str(tmp_path))],
                    max_in_flight=1,
                    key_prefix="lancetnic-x",
                    worker_timeout_seconds=0.5,
                )
            )

    assert caught.value.what == "No worker has worked for 0.5 s: all 2 are paused."
    assert "partition_bytes=" in caught.value.fix


def test_a_cluster_without_workers_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """Waiting is said, and ends with an error once the time allowed is over."""
    with (
        LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
        pytest.raises(ClusterError, match=r"has had no worker for 0\.1 s"),
    ):
        next(
            run_bounded(
                client,
                double,
                [(1,)],
                max_in_flight=1,
                key_prefix="lancetnic-x",
                worker_timeout_seconds=0.1,
            )
        )

    assert caplog.text.count("waiting for a worker: none of the cluster's 0 works") == 1


def test_a_scheduler_that_goes_away_is_an_error() -> None:
    """A run does not wait for a cluster that was closed under it."""
    cluster = LocalCluster(
        n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    )
    with Client(cluster, set_as_default=False) as client:
        results = run_bounded(
            client, time.sleep, [(0,), (60,)], max_in_flight=2, key_prefix="lancetnic-sleep"
        )
        next(results)
        closing = threading.Thread(target=cluster.close)
        closing.start()

        with pytest.raises(ClusterError, match="connection to the scheduler was lost"):
            next(results)
        closing.join(timeout=30)
