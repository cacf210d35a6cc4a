"""A memory limit and a few sizes -> who may take how many bytes.

Pure arithmetic over integers: what the machine has is found in ``limits.py``, the workers are
started in ``local.py``, what is really used is measured in ``memory_watch.py``. The budget sets
how many workers there are and how many partitions are in flight. It never changes which rows make
a partition or a group, nor the model, so those are the same on every machine.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import floor, log10
from typing import TYPE_CHECKING, Any, Literal

from lancetnic_dask.errors import BudgetError, SettingError, quoted

if TYPE_CHECKING:
    from lancetnic_dask.cluster.limits import MemoryLimit

__all__ = ["WORKER_TERMINATE_FRACTION", "MemoryBudget", "decide_budget"]

_MIB = 1 << 20
_GIB = 1 << 30

# More would train no faster: the order of rows and the size of groups do not depend on it.
DEFAULT_TOTAL_BYTES = 16 * _GIB

# A desktop with a browser takes 2-4 GiB and does not grow with the machine. Of a small machine
# we leave a quarter.
DESKTOP_MIN_BYTES, DESKTOP_MAX_BYTES = 1 * _GIB, 4 * _GIB

# Where the total is a promise to us alone (a cgroup, or asked for): kernel buffers, page tables,
# the interpreter's slack.
MARGIN_MIN_BYTES, MARGIN_MAX_BYTES = 64 * _MIB, 512 * _MIB
MARGIN_SHARE = 1 / 16

# Anonymous bytes of a client with torch (one Adam step done), numba, arrow, pandas, dask.dataframe,
# the scheduler of two workers and its dashboard opened once: 355 MiB (562 resident; the rest are
# pages of libraries, which the kernel can drop). torch 2.13 (CPU), distributed 2026.8, Linux
# x86-64. The rest is for an open dashboard and our own compiled kernels.
CLIENT_BASE_BYTES = 450 * _MIB

# Resident bytes of a worker with numba (a kernel compiled), arrow, pandas and dask.dataframe:
# 313 MiB, of which 174 anonymous. Resident, because the nanny judges by that.
WORKER_BASE_BYTES = 320 * _MIB

# Scratch of one partition being read and tokenized, for each of its bytes. 10 measured for Arrow
# (read_csv, utf8_lower, split, dictionary_encode) on 16 MiB of package descriptions.
SCRATCH_PER_TEXT_BYTE = 12

# CSR rows (int32 column, float32 value) for each byte of text. Measured: 1.29 for package
# descriptions (7.1 bytes of text for each token), 0.5 for source code; 2.8 for chat lines of
# three short words. With bigrams 2.08 in all, so less than twice.
CSR_PER_TEXT_BYTE = 1.5

# One group is trained on while the next one is read.
GROUPS_IN_MEMORY = 2

# The nanny restarts a worker above this share of its limit; the other thresholds are turned off.
WORKER_TERMINATE_FRACTION = 0.95


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
        Two groups of shards as CSR rows.
    model_bytes : int
        Room for weights, gradients, optimizer state and one checkpoint copy.
    num_workers : int
        Worker processes, of one thread each.
    worker_limit_bytes : int
        Limit of each worker, given to Dask. At 95 % of it a worker is restarted.
    max_in_flight : int
        Partitions that are submitted and not yet used up, 1 or 2 for each worker.
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
    max_in_flight: int
    partition_bytes: int
    group_size: int

    def check_model(
        self, model_bytes: int, *, bytes_per_feature: int = 0, num_features: int = 0
    ) -> None:
        """Refuse a model that does not fit, as soon as its size is known.

        Parameters
        ----------
        model_bytes : int
            Weights, gradients, optimizer state and checkpoint copy of the real model, in bytes.
        bytes_per_feature : int, default=0
            Bytes of these that one more column takes. 0 where they do not depend on columns.
        num_features : int, default=0
            Columns of the real model.

        Raises
        ------
        BudgetError
            If the model is larger than ``self.model_bytes``. It holds the arithmetic, and the
            largest ``max_features`` that would fit, if there is one.
        """
        if model_bytes <= self.model_bytes:
            return
        fix = "Pass a smaller hidden_size= or group_size=, or a larger memory=."
        if bytes_per_feature > 0:
            fixed_bytes = model_bytes - bytes_per_feature * num_features
            fitting = _round_down((self.model_bytes - fixed_bytes) // bytes_per_feature)
            if fitting > 0:
                fix = f"max_features={fitting} would fit. {fix}"
        described = f" with {num_features} columns" if num_features else ""
        raise BudgetError(
            f"The model{described} takes {_shown(model_bytes)} with its gradients, optimizer state "
            f"and checkpoint copy, but the memory budget has {_shown(self.model_bytes)} for it:\n"
            f"{self.table()}",
            None,
            fix,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the items by name, as JSON can hold them; sizes in bytes."""
        return asdict(self)

    def table(self) -> str:
        """Return the arithmetic, one item a line, the sizes in MiB or GiB."""
        each = f"s of {_shown(self.worker_limit_bytes)}" if self.num_workers > 1 else ""
        lines = _table_head(
            self.total_bytes, self.source, self.reserve_bytes, self.groups_bytes, self.group_size
        )
        lines += [
            _line("  model, optimizer, checkpoint copy", self.model_bytes),
            _line(f"  {self.num_workers} worker{each}", self.num_workers * self.worker_limit_bytes),
            f"  in flight: at most {self.max_in_flight} x {_shown(self.partition_bytes)} of text",
        ]
        return "\n".join(lines)

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
        Term lengths that are counted: 2 for ``ngram_range=(1, 2)``. CSR rows grow by it.

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
    total_bytes, source = _decide_total(total, limit)
    reserve_bytes = _decide_reserve(total_bytes, source, limit)
    kept_bytes = int(partition_bytes * CSR_PER_TEXT_BYTE * terms_per_token)
    groups_bytes = GROUPS_IN_MEMORY * group_size * kept_bytes
    worker_least = _worker_limit(partition_bytes, kept_bytes, in_flight=1)

    shared_bytes = total_bytes - reserve_bytes - CLIENT_BASE_BYTES - groups_bytes
    least_workers = 1 if num_workers is None else num_workers
    spare_bytes = shared_bytes - least_workers * worker_least
    if spare_bytes < 0:
        lines = _table_head(total_bytes, source, reserve_bytes, groups_bytes, group_size)
        lines += [
            _line(f"  {least_workers} worker(s) at least", least_workers * worker_least),
            _line("missing, before any model", -spare_bytes),
        ]
        arithmetic = "\n".join(lines)
        fewer = "num_workers=1, " if least_workers > 1 else ""
        raise BudgetError(
            f"{_shown(total_bytes)} of memory is too little to train:\n{arithmetic}",
            None,
            f"Pass {fewer}a smaller group_size= (now {group_size}) or partition_bytes= "
            f"(now {_shown(partition_bytes)}), or a larger memory=. max_features= and hidden_size= "
            "change only the model, which is not counted here.",
        )
    model_bytes = min(model_bytes_bound, spare_bytes)
    workers_bytes = shared_bytes - model_bytes
    fitting_workers = min(num_cpus, workers_bytes // worker_least)
    count = fitting_workers if num_workers is None else num_workers
    worker_limit_bytes = workers_bytes // count
    has_room_for_two = worker_limit_bytes >= _worker_limit(partition_bytes, kept_bytes, in_flight=2)
    return MemoryBudget(
        total_bytes=total_bytes,
        source=source,
        reserve_bytes=reserve_bytes,
        client_bytes=CLIENT_BASE_BYTES,
        groups_bytes=groups_bytes,
        model_bytes=model_bytes,
        num_workers=count,
        worker_limit_bytes=worker_limit_bytes,
        max_in_flight=2 * count if has_room_for_two else count,
        partition_bytes=partition_bytes,
        group_size=group_size,
    )


def _decide_total(
    total: int | str | None, limit: MemoryLimit
) -> tuple[int, Literal["asked", "default", "physical", "cgroup"]]:
    if total is None:
        if limit.bytes > DEFAULT_TOTAL_BYTES:
            return DEFAULT_TOTAL_BYTES, "default"
        return limit.bytes, limit.source
    asked_bytes = _parse_size(total)
    if asked_bytes > limit.bytes:
        raise BudgetError(
            f"memory={total!r} is {_shown(asked_bytes)}, but {_HAS[limit.source]} "
            f"{_shown(limit.bytes)}.",
            None,
            f"Pass memory={str(limit.bytes // _MIB) + 'MiB'!r} or less.",
        )
    return asked_bytes, "asked"


_HAS = {"physical": "the machine has", "cgroup": "its control group allows"}


def _parse_size(total: int | str) -> int:
    from dask.utils import parse_bytes

    try:
        size = int(parse_bytes(total))
    except (AttributeError, TypeError, ValueError) as error:  # neither number nor text
        raise SettingError(
            f"memory={quoted(total)} is not a size.", None, "Pass bytes, or text like '8GiB'."
        ) from error
    if size <= 0:
        raise SettingError(f"memory={quoted(total)} must be above zero.")
    return size


def _decide_reserve(total_bytes: int, source: str, limit: MemoryLimit) -> int:
    """Choose what is left free, in bytes: memory beyond the total is room for the desktop too."""
    margin_bytes = min(max(int(total_bytes * MARGIN_SHARE), MARGIN_MIN_BYTES), MARGIN_MAX_BYTES)
    if source == "asked" or limit.source != "physical":
        return margin_bytes
    desktop_bytes = min(max(limit.bytes // 4, DESKTOP_MIN_BYTES), DESKTOP_MAX_BYTES)
    return max(margin_bytes, desktop_bytes - (limit.bytes - total_bytes))


def _worker_limit(partition_bytes: int, kept_bytes: int, *, in_flight: int) -> int:
    """Return the least limit of a worker that has one partition at work and others waiting."""
    needed = WORKER_BASE_BYTES + partition_bytes * SCRATCH_PER_TEXT_BYTE + in_flight * kept_bytes
    return int(needed / WORKER_TERMINATE_FRACTION) + 1


def _round_down(number: int) -> int:
    """Round down to two digits: a figure that can be remembered and surely fits."""
    if number < 100:
        return number
    unit = int(10 ** (floor(log10(number)) - 1))
    return number // unit * unit


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
    return f"{label:<52}{_shown(size):>11}"


def _shown(size: int) -> str:
    return f"{size / _GIB:.2f} GiB" if size >= _GIB else f"{size / _MIB:.0f} MiB"
