"""A cluster that is there already -> whether its workers can hold one partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lancetnic_dask.cluster.sizes import largest_fitting, shown_bytes, worker_limit
from lancetnic_dask.errors import BudgetError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["check_workers"]

# Where nothing else is configured, Dask pauses a worker at 80 % of its limit, and may wait there
# for memory that never comes back.
_USABLE_FRACTION = 0.80


def check_workers(client: Client, *, partition_bytes: int, terms_per_token: int = 1) -> None:
    """Refuse a cluster whose smallest worker cannot hold a partition for each of its threads.

    Workers without a limit pass, and so does a cluster that has no worker yet.

    Parameters
    ----------
    client : Client
        A synchronous Dask client.
    partition_bytes : int
        Text in one partition, in bytes.
    terms_per_token : int, default=1
        Term lengths that are counted: 2 for ``ngram_range=(1, 2)``.

    Raises
    ------
    BudgetError
        If a worker is too small. It names the one with the least memory for a thread, and the
        ``partition_bytes`` that would fit, if there is one.
    """

    def needed_bytes(size: int, num_threads: int) -> int:
        return worker_limit(
            size,
            terms_per_token=terms_per_token,
            in_flight=2,
            num_threads=num_threads,
            compiles=True,  # on its machine no kernel may have been compiled before
            usable_fraction=_USABLE_FRACTION,
        )

    short = {
        address: (limit_bytes, num_threads)
        for address, (limit_bytes, num_threads) in _limits(client).items()
        if limit_bytes < needed_bytes(partition_bytes, num_threads)
    }
    if not short:
        return
    address, (limit_bytes, num_threads) = min(
        short.items(), key=lambda item: item[1][0] / item[1][1]
    )
    fitting = largest_fitting(
        lambda size: needed_bytes(size, num_threads), limit_bytes, stop=partition_bytes
    )
    advice = f"Pass partition_bytes={fitting}, which would fit, or start" if fitting else "Start"
    needed = shown_bytes(needed_bytes(partition_bytes, num_threads))
    raise BudgetError(
        f"A worker of the cluster may take {shown_bytes(limit_bytes)}, but needs {needed} for "
        f"{num_threads} thread(s) with a partition of {shown_bytes(partition_bytes)} each.",
        f"worker {address}",
        f"{advice} workers with more memory or fewer threads.",
    )


def _limits(client: Client) -> dict[str, tuple[int, int]]:
    """Return memory limit in bytes and threads of each worker that has a limit, by address."""
    # Without the argument some versions of Dask tell of five workers only.
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return {
        address: (int(worker["memory_limit"]), int(worker["nthreads"]))
        for address, worker in workers.items()
        if worker["memory_limit"]
    }
