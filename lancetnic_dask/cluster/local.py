"""A client, cluster, address or nothing -> a Dask client, for the time of a run.

What the workers may take is decided in ``budget.py``, how their processes are started in
``processes.py``, and how work is handed to them in ``submit.py``. Clusters on other machines are
made by Dask's own classes and come in as an argument.
"""

from __future__ import annotations

import os
import re
import socket
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import dask.config
from distributed import Client, LocalCluster, get_worker, worker_client

from lancetnic_dask.cluster.processes import ShieldedNanny
from lancetnic_dask.config import setting
from lancetnic_dask.errors import ClusterError, SettingError, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from distributed.deploy.cluster import Cluster

    from lancetnic_dask.cluster.budget import MemoryBudget

__all__ = ["starts_cluster", "use_client"]

# The second is what tasks need: half a second that a worker would otherwise take with its first.
_PRELOADED = (ShieldedNanny.__module__, "lancetnic_dask.features.counts")
# A worker that dies twice with the same partition will die again; once may be bad luck.
_ALLOWED_FAILURES = 1


_ADDRESS = re.compile(r"((tcp|ws)://)?(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):[0-9]{1,5}")


@contextmanager
def use_client(
    client: Client | Cluster | str | None,
    *,
    budget: MemoryBudget,
    dashboard_address: str | None = None,
    temporary_folder: str | os.PathLike[str] | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> Iterator[Client]:
    """Yield the Dask client to work with; close afterwards what was made for it, nothing else.

    The first of these that there is: the argument; inside a Dask task, a client to that task's
    scheduler; the current client; a cluster on this machine, made of processes with one thread
    each, as many and as large as the budget says. That one listens on loopback only, ignores
    Ctrl-C until it is closed, and ends with this process, even if that is killed.

    Within the block the client is the current one. The address of its dashboard is
    ``client.dashboard_link``.

    Whoever can connect to a Dask scheduler can run code as its owner, and a started cluster asks
    for no password: on a machine with other users' accounts, such as a shared login node, these
    can reach it over loopback while it runs. There, pass a client of a cluster with TLS, such as
    ``Client(LocalCluster(security=True))``, which needs the package ``cryptography``; its
    dashboard stays open to them even so.

    Parameters
    ----------
    client : Client, Cluster, str or None
        A Dask client; a cluster object (anything with ``get_client``); or the address of a
        scheduler, such as "tcp://10.0.0.5:8786". None takes the current client, or starts a
        cluster.
    budget : MemoryBudget
        Number and limit of the workers, should a cluster be started.
    dashboard_address : str or None, default=None
        host:port of the dashboard, should a cluster be started. A busy port is replaced by a free
        one. None takes ``lancetnic.cluster.dashboard-address``.
    temporary_folder : str, os.PathLike or None, default=None
        Where the workers of a started cluster keep their files. None takes Dask's
        ``temporary-directory``, or the system's folder for temporary files.
    meanwhile : callable, optional
        Called here while the processes of a started cluster start; otherwise not. What it raises
        ends the start.

    Yields
    ------
    Client
        A connected, synchronous client.

    Raises
    ------
    SettingError
        If ``client`` is none of these, is asynchronous, or if ``dashboard_address`` is not
        host:port.
    ClusterError
        If the client is closed, no scheduler answers, or the workers do not start in time.
    """
    if client is None:
        found = _current_client()
        starting = _started(budget, dashboard_address, temporary_folder, meanwhile)
        context = starting if found is None else found
    elif isinstance(client, Client):
        context = nullcontext(client)
    elif isinstance(client, str):
        context = _connected(client)
    elif hasattr(client, "get_client"):
        context = _client_of(client)
    else:
        raise SettingError(
            f"client={quoted(client)} is neither a Dask client, a cluster nor an address.",
            None,
            "Pass a distributed.Client, a cluster object, 'tcp://host:8786', or None.",
        )
    with context as usable:
        _check_usable(usable)
        with usable.as_current():
            yield usable


def starts_cluster(client: Client | Cluster | str | None) -> bool:
    """Tell whether `use_client` would start a cluster of our own.

    Parameters
    ----------
    client : Client, Cluster, str or None
        What `use_client` would be given.

    Returns
    -------
    bool
        False where there is one already: the argument's, that of the task that runs in this
        thread, or the current client's.
    """
    return client is None and not _is_in_task() and _current_or_none() is None


def _check_usable(client: Client) -> None:
    if client.asynchronous:
        raise SettingError(
            "client= is an asynchronous Dask client.",
            None,
            "Pass one that was made with asynchronous=False.",
        )
    if client.status != "running":
        raise ClusterError(
            f"The Dask client is {client.status}, not running.", None, "Make a new Client."
        )


def _current_client() -> AbstractContextManager[Client] | None:
    """Find the client of the task that runs in this thread, or the current one."""
    if _is_in_task():
        # Gives this task's thread back meanwhile: one worker of one thread would wait for itself.
        inside: AbstractContextManager[Client] = worker_client()
        return inside
    current = _current_or_none()
    return None if current is None else nullcontext(current)


def _is_in_task() -> bool:
    try:
        get_worker()
    except ValueError:
        return False
    return True


def _current_or_none() -> Client | None:
    try:
        current: Client = Client.current()
    except ValueError:
        return None
    return current


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    # Checked here: a Client that was made half keeps the process for minutes when it ends.
    if not _ADDRESS.fullmatch(address):
        raise SettingError(
            f"client={quoted(address)} is not the address of a scheduler.",
            None,
            "Pass something like 'tcp://10.0.0.5:8786'; for TLS pass a Client.",
        )
    try:
        client = Client(address, timeout=setting("cluster.start-timeout"), set_as_default=False)
    except ValueError as error:
        raise SettingError(
            f"client={quoted(address)} is not the address of a scheduler.",
            None,
            "Pass something like 'tcp://10.0.0.5:8786'.",
        ) from error
    except OSError as error:  # TimeoutError is one
        raise ClusterError(
            f"No Dask scheduler answers at {quoted(address)}: {error}",
            None,
            "Check that it runs and that this machine reaches it; for TLS pass a Client.",
        ) from error
    with client:
        yield client


@contextmanager
def _client_of(cluster: Cluster) -> Iterator[Client]:
    """Ask a cluster for its client; close it only if the cluster made it for us."""
    if getattr(cluster, "asynchronous", False):
        raise SettingError(
            "client= is an asynchronous cluster.",
            None,
            "Pass one that was made with asynchronous=False.",
        )
    before = _current_or_none()
    try:
        client = cluster.get_client()
    except (OSError, RuntimeError, ValueError) as error:
        raise ClusterError(
            f"The cluster {quoted(cluster)} gives no client: {error}",
            None,
            "Check that it is running.",
        ) from error
    try:
        yield client
    finally:
        if client is not before:
            client.close()


@contextmanager
def _started(
    budget: MemoryBudget,
    dashboard_address: str | None,
    temporary_folder: str | os.PathLike[str] | None,
    meanwhile: Callable[[], object],
) -> Iterator[Client]:
    """Start a cluster on this machine as the budget says, and close it whatever happens."""
    timeout_seconds = setting("cluster.start-timeout")
    address = _free_address(dashboard_address or setting("cluster.dashboard-address"))
    with _starting(
        n_workers=budget.num_workers,
        threads_per_worker=1,
        memory_limit=budget.worker_limit_bytes,
        host="127.0.0.1",
        dashboard_address=address,
        worker_class=ShieldedNanny,
        scheduler_kwargs={"allowed_failures": _ALLOWED_FAILURES},
        death_timeout=timeout_seconds,
        preload=[*dask.config.get("distributed.worker.preload"), *_PRELOADED],
        local_directory=None if temporary_folder is None else os.fspath(temporary_folder),
    ) as starting:
        meanwhile()
        try:
            cluster = starting.result()
        except (OSError, RuntimeError) as error:  # TimeoutError is an OSError
            raise ClusterError(
                f"{budget.num_workers} workers did not start in {timeout_seconds:g} s: {error}",
                None,
                "See the log above; a slow machine may need a longer "
                "lancetnic.cluster.start-timeout in Dask's configuration.",
            ) from error
    try:
        with Client(cluster, timeout=timeout_seconds, set_as_default=False) as client:
            yield client
    finally:
        cluster.close()


@contextmanager
def _starting(**options: Any) -> Iterator[Future[LocalCluster]]:
    """Start a LocalCluster or nothing: what is raised meanwhile waits until it is up, to close it.

    Interrupted in its constructor, Dask forgets the processes that it has begun to start, and
    ``close`` finds none. So it runs in a thread, where no KeyboardInterrupt is raised.
    """
    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor(1, thread_name_prefix="lancetnic-start") as executor,
    ):
        # Two runs that start at once can both have found the dashboard's port free.
        warnings.filterwarnings("ignore", r"\s*Port \d+ is already in use", UserWarning)
        starting = executor.submit(lambda: LocalCluster(**options))
        try:
            yield starting
        except BaseException:
            # By the thread that starts it, for which the way out waits: also after another Ctrl-C.
            starting.add_done_callback(_close_started)
            raise


def _close_started(starting: Future[LocalCluster]) -> None:
    """Close a cluster that has started after all; one whose start failed Dask has closed."""
    if starting.exception() is None:
        starting.result().close()


def _free_address(address: str) -> str:
    """Return host:port, with port 0 (any) if that port is busy.

    Dask would do the same, but with a warning that means nothing to a user with two runs.
    """
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdecimal() and int(port) < 1 << 16):
        raise SettingError(
            f"The dashboard address {quoted(address)} is not host:port.",
            None,
            "Pass '127.0.0.1:8787', or port 0 for any; without a host, Dask would listen on "
            "every interface.",
        )
    with socket.socket() as probe:
        if os.name == "posix":  # as Dask binds; elsewhere it would hide that the port is busy
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return f"{host}:0"
    return address
