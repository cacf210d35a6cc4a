"""A function and many items -> results, with few of them on the cluster at a time."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from distributed import Client, LocalCluster

from lancetnic_dask.cluster.submit import run_bounded
from lancetnic_dask.errors import Location, RecordError, SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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


class Counted:
    """A result that is counted in a file from when it is made until the cluster drops it."""

    def __init__(self, folder: str) -> None:
        self.file = Path(folder, f"{os.getpid()}-{id(self)}-{time.monotonic_ns()}")
        self.file.touch()

    def __del__(self) -> None:
        self.file.unlink(missing_ok=True)

    def __reduce__(self) -> tuple[type[str], tuple[()]]:
        return (str, ())  # the copy that travels to the client is not counted


def make_counted(folder: str) -> Counted:
    """Make one result, which lives until its worker is told to forget it."""
    return Counted(folder)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("max_in_flight", [1, 3, 100])
def test_every_item_comes_back_once(client: Client, *, ordered: bool, max_in_flight: int) -> None:
    """Whatever is in flight, each item gives one result under its index; in order if asked."""
    pairs = list(
        run_bounded(
            client,
            double,
            ((number,) for number in range(10)),
            max_in_flight=max_in_flight,
            ordered=ordered,
            key_prefix="lancetnic-double",
        )
    )

    assert (pairs if ordered else sorted(pairs)) == [(index, 2 * index) for index in range(10)]


def test_the_number_in_flight_may_change(client: Client) -> None:
    """It is asked for before each call, so that workers which join get work."""
    read: list[int] = []
    allowed = 1

    def items() -> Iterator[tuple[int]]:
        for number in range(100):
            read.append(number)
            yield (number,)

    results = run_bounded(
        client, double, items(), max_in_flight=lambda: allowed, key_prefix="lancetnic-x"
    )
    next(results)
    read_with_one = len(read)
    allowed = 5
    next(results)
    results.close()

    assert (read_with_one, len(read)) == (2, 7)


@pytest.mark.system
def test_workers_that_join_get_work_while_we_wait(tmp_path: Path) -> None:
    """The first call may be long: the others do not wait for its end."""
    with (
        LocalCluster(
            n_workers=0, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        results = run_bounded(
            client,
            touch_and_wait,
            [(number, str(tmp_path)) for number in range(2)],
            max_in_flight=lambda: max(1, len(client.nthreads())),
            key_prefix="lancetnic-wait",
            worker_timeout_seconds=60,
            stall_timeout_seconds=60,
        )
        thread = threading.Thread(target=cluster.scale, args=(2,))
        thread.start()

        assert list(results) == [(0, 0), (1, 1)]
        thread.join()


def touch_and_wait(number: int, folder: str) -> int:
    """Run until the other call has been started too."""
    Path(folder, str(number)).touch()
    poll(Path(folder, str(1 - number)).exists, seconds=50)
    return number


@pytest.mark.parametrize("max_in_flight", [0, lambda: 0])
def test_at_least_one_must_be_in_flight(client: Client, max_in_flight: Any) -> None:
    """Zero would wait for ever."""
    with pytest.raises(SettingError, match="max_in_flight must be at least 1, and is 0"):
        next(
            run_bounded(
                client, double, [(1,)], max_in_flight=max_in_flight, key_prefix="lancetnic-x"
            )
        )


def test_no_items_give_no_results(client: Client) -> None:
    """An empty corpus is no error here."""
    assert list(run_bounded(client, double, [], max_in_flight=2, key_prefix="lancetnic-x")) == []


def test_unordered_yields_what_is_done_first(client: Client, tmp_path: Path) -> None:
    """A slow first item does not hold up the others; ordered, it would."""
    (tmp_path / "1").touch()
    results = run_bounded(
        client,
        wait_for_file,
        [(0, str(tmp_path)), (1, str(tmp_path))],
        max_in_flight=2,
        ordered=False,
        key_prefix="lancetnic-wait",
    )

    assert next(results) == (1, 1)
    (tmp_path / "0").touch()
    assert list(results) == [(0, 0)]


def test_items_are_read_only_as_results_are_used(client: Client) -> None:
    """A plan of a million partitions is never held as a million arguments."""
    read: list[int] = []

    def items() -> Iterator[tuple[int]]:
        for number in range(100):
            read.append(number)
            yield (number,)

    results = run_bounded(client, double, items(), max_in_flight=3, key_prefix="lancetnic-x")
    for _ in range(5):
        next(results)
    results.close()

    assert len(read) == 8


@pytest.mark.system
@pytest.mark.parametrize(("workers", "threads"), [(1, 1), (1, 4), (2, 2), (4, 1)])
def test_no_more_results_than_allowed_are_alive(
    tmp_path: Path, *, workers: int, threads: int
) -> None:
    """The fault of task graphs shows with several threads only, so all shapes are tried."""
    max_in_flight = 2
    most = 0

    def num_alive() -> int:
        return len(list(tmp_path.iterdir()))

    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for _ in run_bounded(
            client,
            make_counted,
            [(str(tmp_path),)] * 40,
            max_in_flight=max_in_flight,
            key_prefix="lancetnic-counted",
        ):
            most = max(most, num_alive())
            # A worker drops a result when it is told to, and each is told on its own connection.
            poll(lambda: num_alive() <= max_in_flight)

    assert 1 <= most <= max_in_flight + workers


def test_tasks_have_names_that_can_be_read(client: Client, tmp_path: Path) -> None:
    """The dashboard groups them by the prefix, without the random part."""
    results = run_bounded(
        client,
        wait_for_file,
        [(number, str(tmp_path)) for number in range(3)],
        max_in_flight=2,
        key_prefix="lancetnic-tokenize",
    )
    (tmp_path / "0").touch()
    next(results)

    def prefixes(dask_scheduler: Any) -> list[str]:
        return [task.prefix.name for task in dask_scheduler.tasks.values()]

    poll(lambda: client.run_on_scheduler(prefixes) == ["lancetnic-tokenize"] * 2)
    (tmp_path / "1").touch()
    (tmp_path / "2").touch()
    results.close()


def test_stopping_early_cancels_what_is_in_flight(client: Client, tmp_path: Path) -> None:
    """A generator that is closed leaves nothing on the scheduler."""
    results = run_bounded(
        client,
        wait_for_file,
        [(number, str(tmp_path)) for number in range(5)],
        max_in_flight=3,
        key_prefix="lancetnic-wait",
    )
    (tmp_path / "0").touch()
    next(results)
    results.close()
    for number in range(5):
        (tmp_path / str(number)).touch()

    poll(lambda: is_idle(client))


def test_the_event_loop_may_close_what_an_error_left_open(client: Client, tmp_path: Path) -> None:
    """Python's search for cycles runs in any thread, Dask's own too; pytest sees what it leaves."""
    results = run_bounded(
        client,
        wait_for_file,
        [(number, str(tmp_path)) for number in range(2)],
        max_in_flight=2,
        key_prefix="lancetnic-wait",
    )
    (tmp_path / "0").touch()
    next(results)
    is_closed = threading.Event()

    def close_in_the_loop() -> None:
        results.close()
        is_closed.set()

    assert client.loop is not None
    client.loop.add_callback(close_in_the_loop)
    assert is_closed.wait(timeout=10)
    (tmp_path / "1").touch()
    gc.collect()  # a coroutine that nobody awaits says so here

    poll(lambda: is_idle(client))


def fail_with_record_error(number: int) -> int:
    """Fail as a reader of partitions does."""
    if number == 2:
        raise RecordError("'x' is not a number.", Location("a.csv", row=7, column="price"))
    return number


def fail_with_value_error(number: int) -> int:
    """Fail as a bug would."""
    if number == 2:
        raise ValueError("odd")
    return number


def test_our_own_errors_pass_unchanged(client: Client) -> None:
    """Text, place and class are as they were raised on the worker; what came before is kept."""
    results = run_bounded(
        client,
        fail_with_record_error,
        [(number,) for number in range(6)],
        max_in_flight=3,
        key_prefix="lancetnic-read",
    )

    assert [next(results), next(results)] == [(0, 0), (1, 1)]
    with pytest.raises(RecordError) as caught:
        next(results)
    assert str(caught.value) == "'x' is not a number.\n  at a.csv, row 7, column 'price'"
    assert not hasattr(caught.value, "__notes__")
    poll(lambda: is_idle(client))


def test_other_errors_name_the_item(client: Client) -> None:
    """A bug in a task keeps its class and gets a note on where it happened."""
    with pytest.raises(ValueError, match="odd") as caught:
        list(
            run_bounded(
                client,
                fail_with_value_error,
                [(number,) for number in range(6)],
                max_in_flight=3,
                key_prefix="lancetnic-read",
                describe=lambda index: Location("a.csv", byte=100 * index),
            )
        )

    assert caught.value.__notes__ == ["in a task on a.csv, byte 200"]
