"""A client, cluster, address or nothing -> a Dask client, and no process left behind.

How scripts, prompts and signals are survived is tested in ``test_processes.py``.
"""

from __future__ import annotations

import contextvars
import gc
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask.config
import psutil
import pytest
from distributed import Client, LocalCluster, get_worker

from lancetnic_dask.cluster.budget import MemoryBudget, decide_budget
from lancetnic_dask.cluster.limits import MemoryLimit
from lancetnic_dask.cluster.local import starts_cluster, use_client
from lancetnic_dask.errors import ClusterError, SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ANY_PORT = "127.0.0.1:0"


@pytest.fixture(scope="module")
def budget() -> MemoryBudget:
    """Two small workers, whatever the machine."""
    return decide_budget(
        "2GiB",
        limit=MemoryLimit(bytes=4 << 30, source="physical"),
        num_cpus=2,
        partition_bytes=1 << 20,
        group_size=2,
        model_bytes_bound=1 << 20,
        num_workers=2,
    )


@pytest.fixture(scope="module")
def scratch_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the workers of ``started`` keep their files."""
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture(scope="module")
def started(budget: MemoryBudget, scratch_folder: Path) -> Iterator[Client]:
    """Start one cluster of our own for the tests that only look at it."""
    manager = use_client(
        None, budget=budget, dashboard_address=ANY_PORT, temporary_folder=scratch_folder
    )
    # In a context of its own, so that it is not the current client of the other tests.
    context = contextvars.copy_context()
    yield context.run(manager.__enter__)
    context.run(manager.__exit__, None, None, None)


def test_a_started_cluster_is_as_the_budget_says(started: Client, budget: MemoryBudget) -> None:
    """Number, threads and limit of the workers come from the budget, and nothing spills."""

    def memory(dask_worker: Any) -> tuple[int, tuple[object, ...]]:
        manager = dask_worker.memory_manager
        return manager.memory_limit, (
            manager.memory_target_fraction,
            manager.memory_spill_fraction,
            manager.memory_pause_fraction,
        )

    assert list(started.nthreads().values()) == [1, 1]
    assert (
        list(started.run(memory).values())
        == [(budget.worker_limit_bytes, (False, False, False))] * 2
    )


@pytest.mark.system
def test_a_worker_that_was_killed_comes_back_as_it_was(
    budget: MemoryBudget, caplog: pytest.LogCaptureFixture
) -> None:
    """A restarted one neither spills nor pauses, and the nanny's threshold is that of the first.

    With Dask's own thresholds it would pause at 80 % of its limit, and wait for ever.
    """
    caplog.set_level("CRITICAL")  # Dask logs the death that we cause

    def thresholds(dask_worker: Any) -> tuple[int, object, object, object]:
        manager = dask_worker.memory_manager
        return (
            os.getpid(),
            manager.memory_target_fraction,
            manager.memory_spill_fraction,
            manager.memory_pause_fraction,
        )

    one = replace(budget, num_workers=1)
    with (
        dask.config.set({"distributed.worker.memory.terminate": False}),
        use_client(None, budget=one, dashboard_address=ANY_PORT) as client,
    ):
        [(pid, *first)] = client.run(thresholds).values()
        cluster: Any = client.cluster
        nanny_fractions = [
            nanny.memory_manager.memory_terminate_fraction for nanny in cluster.workers.values()
        ]
        os.kill(pid, signal.SIGKILL)
        new_pid, *second = client.submit(look_again, pid, thresholds, retries=9).result(timeout=60)

    assert new_pid != pid
    assert first == second == [False] * 3
    assert nanny_fractions == [0.95]


def look_again(old_pid: int, thresholds: Callable[[Any], tuple[Any, ...]]) -> tuple[Any, ...]:
    """Tell the thresholds of the worker that runs this, unless it is the dying one."""
    if os.getpid() == old_pid:
        raise ProcessLookupError(old_pid)
    return thresholds(get_worker())


def test_workers_are_light_and_single_threaded(started: Client) -> None:
    """No torch, one thread for every numeric library, although the workers loaded our code."""

    def look() -> tuple[bool, bool, list[str | None]]:
        names = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"]
        return (
            "torch" in sys.modules,
            "lancetnic_dask.cluster" in sys.modules,
            [os.environ.get(name) for name in names],
        )

    assert list(started.run(look).values()) == [(False, True, ["1"] * 4)] * 2


def test_everything_listens_on_loopback_only(started: Client) -> None:
    """Scheduler, workers and dashboards cannot be reached from other machines."""
    own = psutil.Process()
    hosts = {
        connection.laddr.ip
        for process in [own, *own.children(recursive=True)]
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    }

    assert hosts <= {"127.0.0.1", "::1"}
    assert started.dashboard_link.startswith("http://127.0.0.1:")


def test_workers_keep_their_files_in_the_folder_given(
    started: Client, scratch_folder: Path
) -> None:
    """Nothing is written into the current folder."""

    def folder(dask_worker: Any) -> str:
        return str(dask_worker.local_directory)

    assert all(scratch_folder in Path(path).parents for path in started.run(folder).values())


def test_a_started_cluster_is_the_current_one_within_the_block(
    started: Client, budget: MemoryBudget
) -> None:
    """A nested call works on the cluster that there is, and does not close it."""
    with started.as_current(), use_client(None, budget=budget) as nested:
        assert nested is started

    assert started.status == "running"


@pytest.mark.system
def test_nothing_of_the_process_is_changed(budget: MemoryBudget) -> None:
    """Environment, main module and Dask's configuration of the client are as they were.

    Dask itself would leave OMP_NUM_THREADS=1, which torch reads when it is imported.
    """
    environment, main = dict(os.environ), sys.modules["__main__"]
    configuration = dask.config.get("distributed")
    folders = set(Path.cwd().iterdir())

    with use_client(None, budget=budget, dashboard_address=ANY_PORT) as client:
        pids = list(client.run(os.getpid).values())
        within = (dict(os.environ), sys.modules["__main__"], dask.config.get("distributed"))

    # The marker of the process is Dask's, set once by each import of multiprocessing in it.
    for seen in (within[0], dict(os.environ)):
        assert {name: value for name, value in seen.items() if name != "__DASK_PARENT_PID"} == {
            name: value for name, value in environment.items() if name != "__DASK_PARENT_PID"
        }
    assert within[1] is sys.modules["__main__"] is main
    assert within[2] == dask.config.get("distributed") == configuration
    assert set(Path.cwd().iterdir()) == folders
    assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.system
# Dask leaves the socket of the busy port to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("is_race", [False, True])
def test_a_busy_dashboard_port_is_replaced(
    budget: MemoryBudget, monkeypatch: pytest.MonkeyPatch, *, is_race: bool
) -> None:
    """A second run gets a free port, without a warning (which would fail this test).

    Also one that found the port free a moment before another run took it.
    """
    if is_race:
        monkeypatch.setattr("lancetnic_dask.cluster.local._free_address", lambda address: address)
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]

        with use_client(None, budget=budget, dashboard_address=f"127.0.0.1:{port}") as client:
            link = client.dashboard_link

    assert link.startswith("http://127.0.0.1:")
    assert f":{port}/" not in link
    gc.collect()  # here, not in a test that knows nothing of it


@pytest.mark.parametrize("address", [":8787", "8787", "localhost", "127.0.0.1:x", "h:70000"])
def test_a_dashboard_address_without_host_or_port_is_refused(
    budget: MemoryBudget, address: str
) -> None:
    """Dask would take it as 'every interface'."""
    with (
        pytest.raises(SettingError, match="is not host:port"),
        use_client(None, budget=budget, dashboard_address=address),
    ):
        pass


@pytest.mark.system
def test_a_start_that_fails_is_one_error(budget: MemoryBudget, tmp_path: Path) -> None:
    """Workers that cannot come up are reported as ours, and leave no process."""
    file = tmp_path / "file"
    file.touch()
    before = set(multiprocessing.active_children())
    with (
        pytest.raises(ClusterError, match="did not start"),
        use_client(
            None, budget=budget, dashboard_address=ANY_PORT, temporary_folder=file / "below"
        ),
    ):
        pass

    assert set(multiprocessing.active_children()) == before


@pytest.mark.system
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError("the user's")])
def test_what_is_raised_meanwhile_waits_for_the_start_and_ends_it(
    budget: MemoryBudget, error: type[BaseException] | BaseException
) -> None:
    """It comes out as it is, and no process is left."""
    before = set(multiprocessing.active_children())

    def fail() -> None:
        deadline = time.monotonic() + 30
        while set(multiprocessing.active_children()) == before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert set(multiprocessing.active_children()) > before
        raise error

    with (
        pytest.raises(KeyboardInterrupt if error is KeyboardInterrupt else RuntimeError) as caught,
        use_client(None, budget=budget, dashboard_address=ANY_PORT, meanwhile=fail),
    ):
        pass

    assert caught.value is error or caught.type is error
    assert set(multiprocessing.active_children()) == before


def test_nothing_is_done_meanwhile_if_nothing_is_started(
    client: Client, budget: MemoryBudget
) -> None:
    """A given client is there at once."""

    def fail() -> None:
        raise AssertionError("called")

    with use_client(client, budget=budget, meanwhile=fail) as used:
        assert used is client


def test_it_is_known_beforehand_whether_a_cluster_is_started(client: Client) -> None:
    """Only then are the workers' sizes ours to decide."""
    assert starts_cluster(None)
    assert not starts_cluster(client)
    assert not starts_cluster("tcp://10.0.0.5:8786")
    with client.as_current():
        assert not starts_cluster(None)
    assert not client.submit(starts_cluster, None, pure=False).result()


def test_a_client_is_used_and_left_open(client: Client, budget: MemoryBudget) -> None:
    """Whoever made it closes it."""
    with use_client(client, budget=budget) as used:
        assert used is client
        assert Client.current() is client

    assert client.status == "running"


def test_the_current_client_is_used(client: Client, budget: MemoryBudget) -> None:
    """Without an argument a run goes where the caller's other work goes."""
    with client.as_current(), use_client(None, budget=budget) as used:
        assert used is client


def test_a_cluster_object_is_used_and_left_open(
    cluster_2x1: LocalCluster, budget: MemoryBudget
) -> None:
    """The client that was made for it is closed, the cluster is not."""
    with use_client(cluster_2x1, budget=budget) as used:
        assert used.submit(sum, [1, 2]).result() == 3

    assert used.status == "closed"
    assert cluster_2x1.status.name == "running"


def test_the_client_that_a_cluster_has_is_left_open(
    client: Client, cluster_2x1: LocalCluster, budget: MemoryBudget
) -> None:
    """A cluster that is current gives the caller's own client, which is not ours to close."""
    with client.as_current(), use_client(cluster_2x1, budget=budget) as used:
        assert used is client

    assert client.status == "running"


def test_an_address_is_connected_to(cluster_2x1: LocalCluster, budget: MemoryBudget) -> None:
    """The connection is closed again."""
    with use_client(cluster_2x1.scheduler_address, budget=budget) as used:
        assert used.submit(sum, [1, 2]).result() == 3

    assert used.status == "closed"


def test_an_address_where_nobody_answers_is_an_error(budget: MemoryBudget) -> None:
    """It ends after the start timeout, and shows the address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"

        with (
            dask.config.set({"lancetnic.cluster.start-timeout": "0.5s"}),
            pytest.raises(ClusterError, match=f"No Dask scheduler answers at '{address}'"),
            use_client(address, budget=budget),
        ):
            pass


@pytest.mark.parametrize("wrong", [7, {"a": 1}, "nonsense://x:1"])
def test_what_is_no_client_is_refused(budget: MemoryBudget, wrong: Any) -> None:
    """The value is shown, and what may be passed."""
    with pytest.raises(SettingError, match="client="), use_client(wrong, budget=budget):
        pass


def test_a_closed_client_is_refused(cluster_2x1: LocalCluster, budget: MemoryBudget) -> None:
    """Work on it would wait for ever."""
    closed = Client(cluster_2x1, set_as_default=False)
    closed.close()

    with (
        pytest.raises(ClusterError, match="is closed, not running"),
        use_client(closed, budget=budget),
    ):
        pass


def test_inside_a_task_the_same_cluster_is_used(client: Client, budget: MemoryBudget) -> None:
    """All threads may run such tasks at once: each gives its thread back while it waits."""

    def scheduler_of(any_client: Any) -> str:
        return str(any_client.scheduler.address)

    def outer(budget: MemoryBudget, number: int) -> tuple[int, str]:
        with use_client(None, budget=budget) as inside:
            return int(inside.submit(pow, number, 2, pure=False).result()), scheduler_of(inside)

    futures = [client.submit(outer, budget, number, pure=False) for number in range(4)]
    address = scheduler_of(client)

    assert client.gather(futures) == [(number**2, address) for number in range(4)]


@pytest.mark.system
def test_it_works_outside_of_the_main_thread(budget: MemoryBudget) -> None:
    """No signal handler is needed, so any thread may start a cluster."""
    results: list[int] = []

    def run() -> None:
        with use_client(None, budget=budget, dashboard_address=ANY_PORT) as client:
            results.append(client.submit(sum, [1, 2]).result())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(timeout=60)

    assert results == [3]


@pytest.mark.parametrize(
    "address", ["nonsense", "", "http://10.0.0.5:8786", "tls://10.0.0.5:8786", "tcp://[::1", "a:b"]
)
def test_what_is_no_address_is_refused_before_a_client_is_made(
    budget: MemoryBudget, address: str
) -> None:
    """A Client that was made half would keep the process for two minutes when it ends."""
    with pytest.raises(SettingError) as caught, use_client(address, budget=budget):
        pass

    assert str(caught.value) == (
        f"client={address!r} is not the address of a scheduler.\n"
        "  Pass something like 'tcp://10.0.0.5:8786'; for TLS pass a Client."
    )
