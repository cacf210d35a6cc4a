"""A cluster that is there already -> refused if its smallest worker cannot hold a partition."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from distributed import Client, LocalCluster

from lancetnic_dask.cluster.workers import check_workers
from lancetnic_dask.errors import BudgetError

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20


class ToldCluster:
    """Stand for the client of a cluster whose workers are as told: limit in MiB, threads."""

    def __init__(self, *workers: tuple[int | None, int]) -> None:
        self.workers = {
            f"tcp://10.0.0.{number}:1": {
                "memory_limit": None if limit is None else limit * MIB,
                "nthreads": num_threads,
            }
            for number, (limit, num_threads) in enumerate(workers, start=1)
        }

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        """Tell as the scheduler does."""
        assert n_workers == -1
        return {"workers": self.workers}


def check(*workers: tuple[int | None, int], partition_bytes: int = 16 * MIB) -> None:
    """Check a cluster of such workers."""
    check_workers(ToldCluster(*workers), partition_bytes=partition_bytes)  # type: ignore[arg-type]


def test_the_smallest_worker_is_named_with_what_fits() -> None:
    """Two threads on a worker work on two partitions at once."""
    with pytest.raises(BudgetError) as caught:
        check((4096, 2), (1024, 1), (1400, 2), (None, 64))

    assert str(caught.value) == (
        "A worker of the cluster may take 1.37 GiB, but needs 1.44 GiB for 2 thread(s) with a "
        "partition of 16 MiB each.\n"
        "  at worker tcp://10.0.0.3:1\n"
        "  Pass partition_bytes=15000000, which would fit, or start workers with more memory or "
        "fewer threads."
    )


def test_the_partitions_advised_fit() -> None:
    """Whoever follows the advice gets through; a tenth more would not."""
    with pytest.raises(BudgetError) as caught:
        check((800, 1))
    advised = re.search(r"partition_bytes=(\d+)", caught.value.fix)
    assert advised is not None

    check((800, 1), partition_bytes=int(advised[1]))
    with pytest.raises(BudgetError):
        check((800, 1), partition_bytes=int(advised[1]) * 11 // 10)


def test_a_worker_without_room_for_the_libraries_gets_no_such_advice() -> None:
    """No partition is small enough."""
    with pytest.raises(BudgetError) as caught:
        check((400, 1))

    assert caught.value.fix == "Start workers with more memory or fewer threads."


def test_workers_without_a_limit_pass() -> None:
    """So does a cluster that has no worker yet."""
    check((None, 8))
    check()


@pytest.fixture(scope="module")
def small_client() -> Iterator[Client]:
    """Connect to a real cluster of six small workers, more than some versions of Dask tell of."""
    with (
        LocalCluster(
            n_workers=6,
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
            memory_limit="700MiB",
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.mark.system
def test_a_real_cluster_is_looked_at(small_client: Client) -> None:
    """Address and limit come from the scheduler."""
    addresses = small_client.nthreads().keys()

    with pytest.raises(BudgetError, match="may take 700 MiB") as caught:
        check_workers(small_client, partition_bytes=16 * MIB)

    assert str(caught.value.where).removeprefix("worker ") in addresses
    check_workers(small_client, partition_bytes=MIB)
