"""A memory limit and a few sizes -> who may take how many bytes.

Pure arithmetic over integers: the total is chosen in ``total.py``, the measured sizes stand in
``sizes.py``, the workers are started in ``local.py``, those of a cluster that is there
already are looked at in ``workers.py``, and ``memory_watch.py`` measures what is really used.
The budget sets how many workers there are and how many partitions are in flight. It never changes
which rows make a partition or a group, nor the model: those are the same on every machine.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from lancetnic_dask.cluster.sizes import (
    CLIENT_BASE_BYTES,
    csr_bytes,
    csr_most_bytes,
    largest_fitting,
    shown_bytes,
    worker_limit,
)
from lancetnic_dask.cluster.total import decide_reserve, decide_total
from lancetnic_dask.errors import BudgetError, SettingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lancetnic_dask.cluster.limits import MemoryLimit

__all__ = ["MemoryBudget", "decide_budget"]

_MIB = 1 << 20

# One group is trained on while the next one is read.
GROUPS_IN_MEMORY = 2

# Groups get this share of the total, if their rows may need it, even where the average is less.
# So a smaller group_size frees memory for rows that are larger than the average, not for workers.
GROUPS_SHARE = 1 / 16

# A worker gets so many times what two partitions in flight need, if there is so much. More would
# serve nobody there, and groups of short rows may need it.
WORKER_COMFORT = 1.25


@dataclass(frozen=True, kw_only=True)
class MemoryBudget:
    """Bytes of each part of a run; together they stay within ``total_bytes``.

    Parameters
    ----------
    total_bytes : int
        All that the client and its local workers may take, and the reserve.
    source : {"asked", "default", "physical", "cgroup"}
        Where the total comes from: the user, the default of 16 GiB, the machine's RAM, or a
        control group.
    reserve_bytes : int
        Left free: room for the desktop where the total is the machine's RAM, else a margin.
    client_bytes : int
        The client's process with its libraries, the scheduler and the dashboard.
    groups_bytes : int
        Two groups of shards as CSR rows, by an average; `check_groups` judges the real ones.
    model_bytes : int
        Room for weights, gradients, optimizer state and one checkpoint copy.
    num_workers : int
        Worker processes of our own, of one thread each. 0 on a cluster that was there before.
    worker_limit_bytes : int
        Limit of each worker, given to Dask. At 95 % of it a worker is restarted.
    partitions_per_thread : int
        Partitions that are submitted and not yet used up for each thread of the cluster, 1 or 2.
    partition_bytes : int
        Text in one partition, in bytes, as given.
    group_size : int
        Shards in one group, as given.
    """

    total_bytes: int
    source: Literal["asked", "default", "physical", "cgroup"]
    reserve_bytes: int
    client_bytes: int
    groups_bytes: int
    model_bytes: int
    num_workers: int
    worker_limit_bytes: int
    partitions_per_thread: int
    partition_bytes: int
    group_size: int

    @property
    def max_in_flight(self) -> int:
        """Partitions in flight on our own workers; on another cluster, count its threads."""
        return self.partitions_per_thread * self.num_workers

    @property
    def spare_bytes(self) -> int:
        """What no part was given. Groups of short rows, and then the model, may take it."""
        given = self.reserve_bytes + self.client_bytes + self.groups_bytes + self.model_bytes
        return self.total_bytes - given - self.num_workers * self.worker_limit_bytes

    def check_model(
        self, model_bytes: Callable[[int], int], *, num_features: int, group_bytes: int = 0
    ) -> None:
        """Refuse a model that does not fit, as soon as its size is known.

        Parameters
        ----------
        model_bytes : callable
            ``model_bytes(num_features)`` says what weights, gradients, optimizer state and
            checkpoint copy take in bytes. It never falls as the number grows.
        num_features : int
            Features of the real model. Of several text columns the most that one has, if
            ``model_bytes`` counts them for each: what is advised is a ``max_features``.
        group_bytes : int, default=0
            What two groups take, as in `check_groups`; what they leave is the model's too.

        Raises
        ------
        BudgetError
            If the model is larger than its room and what no part needs. It holds the arithmetic,
            and the largest ``max_features`` that would fit, if there is one.
        """
        room_bytes = self.model_bytes + self.spare_bytes
        room_bytes -= max(0, group_bytes - self.groups_bytes)
        needed_bytes = model_bytes(num_features)
        if needed_bytes <= room_bytes:
            return
        fitting = largest_fitting(model_bytes, room_bytes, stop=num_features)
        advice = f"max_features={fitting} would fit. " if fitting else ""
        described = f" with {num_features} features" if num_features else ""
        raise BudgetError(
            f"The model{described} takes {shown_bytes(needed_bytes)} with its gradients, optimizer "
            f"state and checkpoint copy, but the memory budget has "
            f"{shown_bytes(room_bytes)} for it:\n{self.table()}",
            None,
            f"{advice}Pass a smaller hidden_size= or group_size=, or a larger memory=.",
        )

    def check_groups(self, group_bytes: int, *, group_size: int, largest_shard_bytes: int) -> None:
        """Refuse groups that do not fit, as soon as the rows are counted.

        Parameters
        ----------
        group_bytes : int
            Upper bound of the two largest groups together, as encoded rows, in bytes.
        group_size : int
            Shards in one group.
        largest_shard_bytes : int
            The most that one shard takes as encoded rows, in bytes.

        Raises
        ------
        BudgetError
            If they are larger than ``self.groups_bytes`` and ``self.spare_bytes`` together. It
            holds the arithmetic, and the largest ``group_size`` that surely fits; if none does,
            the ``partition_bytes`` that would with groups of one shard.
        """
        room_bytes = self.groups_bytes + self.spare_bytes
        if group_bytes <= room_bytes:
            return
        one_bytes = GROUPS_IN_MEMORY * largest_shard_bytes
        # What the next run gives to smaller groups at least; what is spare now, workers may take.
        sure_bytes = min(room_bytes, _share(self.total_bytes))
        fitting = min(group_size - 1, sure_bytes // one_bytes)
        if fitting:
            fix = f"Pass group_size={fitting}, which would fit, or a larger memory=."
        else:
            smaller = largest_fitting(
                lambda size: -(-one_bytes * size // self.partition_bytes),
                sure_bytes,
                stop=self.partition_bytes,
            )
            fix = (
                f"Not even group_size=1 fits: it takes {shown_bytes(one_bytes)}. Pass "
                f"partition_bytes={smaller} with it, or a larger memory=."
            )
        raise BudgetError(
            f"Two groups of {group_size} shards take {shown_bytes(group_bytes)} as rows of "
            f"numbers, but the memory budget has {shown_bytes(room_bytes)} for them:\n"
            f"{self.table()}",
            None,
            fix,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the items by name, as JSON can hold them; sizes in bytes.

        Those of workers are left out where we have none of our own.
        """
        items = asdict(self)
        if not self.num_workers:
            del items["num_workers"], items["worker_limit_bytes"]
        return items

    def table(self) -> str:
        """Return the arithmetic, one item a line, the sizes in MiB or GiB."""
        lines = _table_head(
            self.total_bytes, self.source, self.reserve_bytes, self.groups_bytes, self.group_size
        )
        lines.append(_line("  model, optimizer, checkpoint copy", self.model_bytes))
        text = f"{shown_bytes(self.partition_bytes)} of text"
        if self.num_workers:
            each = f"s of {shown_bytes(self.worker_limit_bytes)}" if self.num_workers > 1 else ""
            workers_bytes = self.num_workers * self.worker_limit_bytes
            lines.append(_line(f"  {self.num_workers} worker{each}", workers_bytes))
            in_flight = f"at most {self.max_in_flight} x {text}"
        else:
            in_flight = f"at most {self.partitions_per_thread} x {text} a thread of the cluster"
        if self.spare_bytes >= _MIB:
            lines.append(_line("  not needed", self.spare_bytes))
        return "\n".join([*lines, f"  in flight: {in_flight}"])

    def __str__(self) -> str:
        return self.table()


_SOURCES = {
    "asked": "asked for",
    "default": "default",
    "physical": "the machine's memory",
    "cgroup": "limit of the control group",
}


def decide_budget(
    total: int | str | None,
    *,
    limit: MemoryLimit,
    num_cpus: int,
    partition_bytes: int,
    group_size: int,
    model_bytes_bound: int,
    num_workers: int | None = None,
    terms_per_token: int = 1,
    has_workers: bool = True,
    workers_compile: bool = False,
) -> MemoryBudget:
    """Divide the memory between desktop, client, model and workers.

    The same arguments give the same budget; nothing is asked of the machine.

    Parameters
    ----------
    total : int, str or None
        Bytes that the run may take, as int or as "8GiB". None takes the smallest of 16 GiB and
        ``limit``.
    limit : MemoryLimit
        What the machine has, from ``available_memory``.
    num_cpus : int
        CPUs that may be used, from ``available_cpus``: the most workers that are started.
    partition_bytes : int
        Text in one partition, in bytes.
    group_size : int
        Shards whose rows are shuffled together.
    model_bytes_bound : int
        Upper bound of the model with gradients, optimizer state and checkpoint copy, in bytes,
        while the vocabulary is not known. The model gets it if it leaves room for one worker,
        else what is left; ``MemoryBudget.check_model`` judges the real one.
    num_workers : int or None, default=None
        Worker processes. None takes as many as CPUs and memory allow.
    terms_per_token : int, default=1
        Term lengths that are counted: 2 for ``ngram_range=(1, 2)``. CSR rows grow by it, and
        from 3 on what a worker needs.
    has_workers : bool, default=True
        Whether we start workers on this machine. False for a cluster that is there already
        (``local.starts_cluster``): its workers' memory is not ours to divide
        (``workers.check_workers`` looks at it), and ``num_workers`` has no meaning.
    workers_compile : bool, default=False
        Whether each worker compiles the kernels itself, because machine code cannot be kept on
        disk.

    Returns
    -------
    MemoryBudget
        The bytes of each part; their sum is at most ``total_bytes``.

    Raises
    ------
    SettingError
        If ``total`` is not a size, or a number is below its least value.
    BudgetError
        If more is asked for than the machine has, or the client and the workers (one, if
        ``num_workers`` is None) do not fit.
    """
    for name, value, least in [
        ("num_cpus", num_cpus, 1),
        ("partition_bytes", partition_bytes, 1),
        ("group_size", group_size, 1),
        ("model_bytes_bound", model_bytes_bound, 0),
        ("num_workers", 1 if num_workers is None else num_workers, 1),
        ("terms_per_token", terms_per_token, 1),
    ]:
        if value < least:
            raise SettingError(f"{name} must be at least {least}, and is {value!r}.")
    total_bytes, source = decide_total(total, limit)
    reserve_bytes = decide_reserve(total_bytes, source, limit)
    num_shards = GROUPS_IN_MEMORY * group_size
    groups_bytes = max(
        num_shards * csr_bytes(partition_bytes, terms_per_token),
        min(num_shards * csr_most_bytes(partition_bytes, terms_per_token), _share(total_bytes)),
    )
    one_each, two_each = (
        worker_limit(
            partition_bytes,
            terms_per_token=terms_per_token,
            in_flight=in_flight,
            compiles=workers_compile,
        )
        for in_flight in (1, 2)
    )
    shared_bytes = total_bytes - reserve_bytes - CLIENT_BASE_BYTES - groups_bytes
    least_workers = (1 if num_workers is None else num_workers) if has_workers else 0
    spare_bytes = shared_bytes - least_workers * one_each
    if spare_bytes < 0:
        lines = _table_head(total_bytes, source, reserve_bytes, groups_bytes, group_size)
        if least_workers:
            label = f"  {least_workers} worker(s) at least"
            lines.append(_line(label, least_workers * one_each))
        lines.append(_line("missing, before any model", -spare_bytes))
        arithmetic = "\n".join(lines)
        fewer = "lancetnic.cluster.workers=1, " if least_workers > 1 else ""
        raise BudgetError(
            f"{shown_bytes(total_bytes)} of memory is too little to train:\n{arithmetic}",
            None,
            f"Pass {fewer}a smaller group_size= (now {group_size}) or partition_bytes= "
            f"(now {shown_bytes(partition_bytes)}), or a larger memory=. max_features= and "
            "hidden_size= change only the model, which is not counted here.",
        )
    model_bytes = min(model_bytes_bound, spare_bytes)
    count, limit_bytes = least_workers, 0
    if has_workers:
        workers_bytes = shared_bytes - model_bytes
        if num_workers is None:
            count = min(num_cpus, workers_bytes // one_each)
        limit_bytes = min(workers_bytes // count, int(WORKER_COMFORT * two_each))
    return MemoryBudget(
        total_bytes=total_bytes,
        source=source,
        reserve_bytes=reserve_bytes,
        client_bytes=CLIENT_BASE_BYTES,
        groups_bytes=groups_bytes,
        model_bytes=model_bytes,
        num_workers=count,
        worker_limit_bytes=limit_bytes,
        partitions_per_thread=1 if has_workers and limit_bytes < two_each else 2,
        partition_bytes=partition_bytes,
        group_size=group_size,
    )


def _share(total_bytes: int) -> int:
    """Return what groups get at least, if they may need it."""
    return int(total_bytes * GROUPS_SHARE)


def _table_head(
    total_bytes: int, source: str, reserve_bytes: int, groups_bytes: int, group_size: int
) -> list[str]:
    return [
        _line(f"memory budget ({_SOURCES[source]})", total_bytes),
        _line("  left for others", reserve_bytes),
        _line("  client process", CLIENT_BASE_BYTES),
        _line(f"  two groups of {group_size} shards", groups_bytes),
    ]


def _line(label: str, size: int) -> str:
    return f"{label:<52}{shown_bytes(size):>11}"
