"""What all tests share: one real cluster for the whole session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import hypothesis
import pytest
from distributed import Client, LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

# No deadline: the first example of a property compiles kernels.
hypothesis.settings.register_profile("lancetnic", deadline=None, print_blob=True)
hypothesis.settings.load_profile("lancetnic")


@pytest.fixture(scope="session")
def cluster_2x1() -> Iterator[LocalCluster]:
    """Two worker processes of one thread each; scheduler and dashboard on loopback."""
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        memory_limit="1GiB",
    ) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def client(cluster_2x1: LocalCluster) -> Iterator[Client]:
    """Connect to the two processes of the session; not the current client."""
    with Client(cluster_2x1, set_as_default=False) as connected:
        yield connected
