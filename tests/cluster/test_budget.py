"""A limit and a few sizes -> bytes of each part, or a refusal with its arithmetic."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancetnic_dask.cluster.budget import MemoryBudget, decide_budget
from lancetnic_dask.cluster.limits import MemoryLimit
from lancetnic_dask.cluster.sizes import worker_limit
from lancetnic_dask.errors import BudgetError, SettingError

MIB = 1 << 20
GIB = 1 << 30


def decide(total: int | str | None = None, **changes: Any) -> MemoryBudget:
    """Decide for a laptop of 16 GiB and 4 CPUs, but for what is said."""
    arguments: dict[str, Any] = {
        "limit": MemoryLimit(bytes=16 * GIB, source="physical"),
        "num_cpus": 4,
        "partition_bytes": 16 * MIB,
        "group_size": 16,
        "model_bytes_bound": GIB,
    }
    return decide_budget(total, **(arguments | changes))


def used_bytes(budget: MemoryBudget) -> int:
    """Sum what the budget gives away."""
    return (
        budget.reserve_bytes
        + budget.client_bytes
        + budget.groups_bytes
        + budget.model_bytes
        + budget.num_workers * budget.worker_limit_bytes
    )


@given(
    ram=st.integers(256 * MIB, 256 * GIB),
    source=st.sampled_from(["physical", "cgroup"]),
    asked_share=st.none() | st.floats(0.05, 1),
    num_cpus=st.integers(1, 128),
    partition_bytes=st.integers(1, 64 * MIB),
    group_size=st.integers(1, 64),
    model_bytes_bound=st.integers(0, 8 * GIB),
    num_workers=st.none() | st.integers(1, 16),
)
def test_the_parts_never_exceed_the_total(
    *,
    ram: int,
    source: Any,
    asked_share: float | None,
    num_cpus: int,
    partition_bytes: int,
    group_size: int,
    model_bytes_bound: int,
    num_workers: int | None,
) -> None:
    """Either it is refused, or all parts fit the total and the total fits the machine."""
    try:
        budget = decide(
            None if asked_share is None else int(ram * asked_share),
            limit=MemoryLimit(bytes=ram, source=source),
            num_cpus=num_cpus,
            partition_bytes=partition_bytes,
            group_size=group_size,
            model_bytes_bound=model_bytes_bound,
            num_workers=num_workers,
        )
    except BudgetError:
        return

    assert used_bytes(budget) + budget.spare_bytes == budget.total_bytes <= ram
    assert budget.spare_bytes >= 0
    assert budget.total_bytes <= 16 * GIB or asked_share is not None
    assert 1 <= budget.num_workers <= max(num_cpus, num_workers or 1)
    assert budget.num_workers <= budget.max_in_flight <= 2 * budget.num_workers
    assert 0 <= budget.model_bytes <= model_bytes_bound
    # The nanny's threshold leaves a worker its libraries and the scratch of one partition.
    assert 0.95 * budget.worker_limit_bytes >= 320 * MIB + 20 * partition_bytes


@pytest.mark.parametrize(
    ("ram", "limit_source", "total", "total_bytes", "source"),
    [
        (8 * GIB, "physical", None, 8 * GIB, "physical"),
        (64 * GIB, "physical", None, 16 * GIB, "default"),
        (6 * GIB, "cgroup", None, 6 * GIB, "cgroup"),
        (64 * GIB, "physical", "32GiB", 32 * GIB, "asked"),
        (16 * GIB, "physical", 4 * GIB, 4 * GIB, "asked"),
    ],
)
def test_the_total_is_what_was_asked_or_the_smallest_limit(
    *, ram: int, limit_source: Any, total: int | str | None, total_bytes: int, source: str
) -> None:
    """16 GiB, RAM and control group are limits; only the user goes beyond the first."""
    budget = decide(total, limit=MemoryLimit(bytes=ram, source=limit_source))

    assert (budget.total_bytes, budget.source) == (total_bytes, source)


def test_a_laptop_keeps_room_for_its_desktop() -> None:
    """A quarter of the RAM is left, unless there is enough beyond the total or the user asked."""
    small = decide(limit=MemoryLimit(bytes=8 * GIB, source="physical"))
    large = decide(limit=MemoryLimit(bytes=64 * GIB, source="physical"))
    asked = decide("8GiB", limit=MemoryLimit(bytes=8 * GIB, source="physical"))
    grouped = decide(limit=MemoryLimit(bytes=8 * GIB, source="cgroup"))

    assert small.reserve_bytes == 2 * GIB
    assert large.reserve_bytes == asked.reserve_bytes == grouped.reserve_bytes == 512 * MIB


def test_more_memory_changes_no_group_and_no_partition() -> None:
    """What decides the order of rows comes out of any budget as it went in."""
    shapes = {
        (budget.partition_bytes, budget.group_size)
        for budget in (decide("3GiB"), decide("16GiB"), decide(num_cpus=1))
    }

    assert shapes == {(16 * MIB, 16)}


def test_bigrams_take_twice_the_rows() -> None:
    """Each term length that is counted adds its columns to the rows."""
    assert decide("4GiB", terms_per_token=2).groups_bytes == 2 * decide("4GiB").groups_bytes


@pytest.mark.parametrize(
    ("terms_per_token", "measured"), [(1, 17.4), (1, 19.6), (2, 10.6), (3, 23.1), (5, 50.3)]
)
def test_a_worker_holds_what_was_measured(*, terms_per_token: int, measured: float) -> None:
    """Bytes of scratch for each byte of text: short rows, and n-grams of several lengths."""
    limit = worker_limit(16 * MIB, terms_per_token=terms_per_token, in_flight=1)

    assert 0.95 * limit - 320 * MIB > measured * 16 * MIB
    assert 0.95 * limit - 320 * MIB < 2.7 * measured * 16 * MIB


def test_workers_that_compile_take_more() -> None:
    """Where machine code cannot be kept, each worker pays for the compiler."""
    tight: dict[str, Any] = {"group_size": 1, "partition_bytes": MIB, "num_workers": 1}

    assert decide("1GiB", **tight).num_workers == 1
    with pytest.raises(BudgetError, match="worker"):
        decide("1GiB", **tight, workers_compile=True)


def test_workers_take_no_more_than_serves_them() -> None:
    """What is beyond stays for groups of rows that are larger than the average."""
    budget = decide()

    assert budget.worker_limit_bytes < GIB
    assert budget.spare_bytes > 6 * GIB


def test_workers_of_another_cluster_are_not_counted() -> None:
    """Their memory is on other machines: model and groups may take all that is here."""
    budget = decide("2GiB", has_workers=False, model_bytes_bound=8 * GIB)

    assert budget.num_workers == budget.worker_limit_bytes == budget.max_in_flight == 0
    assert budget.model_bytes == 2 * GIB - (128 + 450 + 768) * MIB
    assert budget.partitions_per_thread == 2
    assert {"num_workers", "worker_limit_bytes"}.isdisjoint(budget.as_dict())
    assert str(budget) == (
        "memory budget (asked for)                              2.00 GiB\n"
        "  left for others                                       128 MiB\n"
        "  client process                                        450 MiB\n"
        "  two groups of 16 shards                               768 MiB\n"
        "  model, optimizer, checkpoint copy                     702 MiB\n"
        "  in flight: at most 2 x 16 MiB of text a thread of the cluster"
    )


def test_too_little_memory_without_workers_names_none() -> None:
    """The arithmetic has no line for workers that are not there."""
    with pytest.raises(BudgetError) as caught:
        decide("1GiB", has_workers=False)

    assert "worker" not in str(caught.value)


def test_asking_for_more_than_the_machine_has_is_refused() -> None:
    """It is an error that says what there is, not a clamp."""
    with pytest.raises(BudgetError) as caught:
        decide("32GiB")

    assert str(caught.value) == (
        "memory='32GiB' is 32.00 GiB, but the machine has 16.00 GiB.\n"
        "  Pass memory='16384MiB' or less."
    )


def test_too_little_memory_is_refused_with_the_arithmetic() -> None:
    """The error shows each item, what is missing, and which arguments help."""
    with pytest.raises(BudgetError) as caught:
        decide("1GiB")

    assert str(caught.value) == (
        "1.00 GiB of memory is too little to train:\n"
        "memory budget (asked for)                              1.00 GiB\n"
        "  left for others                                        64 MiB\n"
        "  client process                                        450 MiB\n"
        "  two groups of 16 shards                               768 MiB\n"
        "  1 worker(s) at least                                  699 MiB\n"
        "missing, before any model                               957 MiB\n"
        "  Pass a smaller group_size= (now 16) or partition_bytes= (now 16 MiB), or a larger "
        "memory=. max_features= and hidden_size= change only the model, which is not counted here."
    )


def test_workers_that_do_not_fit_are_refused() -> None:
    """A number of workers that was asked for is not silently lowered."""
    assert decide("5GiB", num_workers=2).num_workers == 2

    with pytest.raises(BudgetError, match=r"lancetnic\.cluster\.workers=1"):
        decide("4GiB", num_workers=16)


def test_a_smaller_group_makes_it_fit() -> None:
    """The advice in the error is true."""
    assert decide("1GiB", group_size=1, partition_bytes=MIB).num_workers == 1


@pytest.mark.parametrize("total", ["much", 0, -1, "0GiB", []])
def test_a_total_that_is_no_size_is_refused(total: Any) -> None:
    """Words, zero and negative numbers are setting errors that show the value."""
    with pytest.raises(SettingError, match="memory="):
        decide(total)


@pytest.mark.parametrize("total", [8, "16", 4095])
def test_a_size_without_its_unit_is_told_so(total: Any) -> None:
    """Whoever passes 8 means 8 GiB."""
    with pytest.raises(SettingError) as caught:
        decide(total)

    assert str(caught.value) == (
        f"memory={total!r} is {int(total)} bytes.\n"
        f"  Pass a size with its unit, such as '{int(total)}GiB'."
    )


@pytest.mark.parametrize("name", ["num_cpus", "partition_bytes", "group_size", "num_workers"])
def test_numbers_below_one_are_refused(name: str) -> None:
    """Each is named with its value."""
    with pytest.raises(SettingError, match=f"{name} must be at least 1, and is 0"):
        decide(**{name: 0})


def test_a_model_within_its_room_passes() -> None:
    """Exactly the room is enough."""
    budget = decide()

    budget.check_model(lambda _: budget.model_bytes, num_features=1000)


def test_a_model_may_take_what_no_part_needs() -> None:
    """A model larger than its bound must not be refused while gigabytes are left."""
    budget = decide("8GiB")
    room = budget.model_bytes + budget.spare_bytes
    assert budget.spare_bytes > 0

    budget.check_model(lambda _: room, num_features=10)
    with pytest.raises(BudgetError):
        budget.check_model(lambda _: room + 1, num_features=10)
    with pytest.raises(BudgetError):  # groups of short rows took some of it before
        budget.check_model(lambda _: room, num_features=10, group_bytes=budget.groups_bytes + 1)


def with_capped_gradient(num_features: int) -> int:
    """Say what a model takes whose gradient stops growing at 40,000 rows."""
    return 1_000_000 + 1024 * num_features + 1024 * min(num_features, 40_000)


def test_a_model_too_large_is_refused_with_the_features_that_fit() -> None:
    """The figure in the error fits, a tenth more does not, though the bytes are no line."""
    budget = decide("2GiB")

    with pytest.raises(BudgetError) as caught:
        budget.check_model(with_capped_gradient, num_features=250_000)

    assert str(caught.value) == (
        "The model with 250000 features takes 284 MiB with its gradients, optimizer state and "
        "checkpoint copy, but the memory budget has 3 MiB for it:\n"
        f"{budget}\n"
        "  max_features=1000 would fit. Pass a smaller hidden_size= or group_size=, or a larger "
        "memory=."
    )


@given(room=st.integers(0, 300 * MIB), num_features=st.integers(1, 300_000))
def test_the_features_advised_fit(*, room: int, num_features: int) -> None:
    """Always, and not far below what would: a tenth and one more do not."""
    budget = replace(decide("2GiB"), model_bytes=room)
    budget = replace(budget, total_bytes=budget.total_bytes - budget.spare_bytes)
    try:
        budget.check_model(with_capped_gradient, num_features=num_features)
    except BudgetError as error:
        advised = re.search(r"max_features=(\d+)", error.fix)
        fitting = int(advised[1]) if advised else 0
    else:
        return

    assert fitting < num_features
    if fitting:
        assert with_capped_gradient(fitting) <= room
    assert with_capped_gradient(fitting + fitting // 10 + 1) > room


def test_no_features_are_promised_where_none_would_fit() -> None:
    """A model whose other layers alone are too large names the other arguments only."""
    with pytest.raises(BudgetError) as caught:
        decide("2GiB").check_model(lambda number: 4 * GIB + number, num_features=1000)

    assert caught.value.fix == "Pass a smaller hidden_size= or group_size=, or a larger memory=."


def test_groups_within_their_room_pass() -> None:
    """Exactly the room is enough, and what nobody needs is part of it."""
    budget = decide()
    room = budget.groups_bytes + budget.spare_bytes

    budget.check_groups(room, group_size=16, largest_shard_bytes=room // 32)
    with pytest.raises(BudgetError):
        budget.check_groups(room + 1, group_size=16, largest_shard_bytes=room // 32)


def test_groups_of_short_rows_are_refused_with_the_size_that_fits() -> None:
    """Rows of two numbers take 5.3 bytes for each byte of text, against 1.5 on average."""
    budget = decide("4GiB", model_bytes_bound=64 * MIB)
    shard_bytes = 85 * MIB

    with pytest.raises(BudgetError) as caught:
        budget.check_groups(32 * shard_bytes, group_size=16, largest_shard_bytes=shard_bytes)

    assert str(caught.value) == (
        "Two groups of 16 shards take 2.66 GiB as rows of numbers, but the memory budget has "
        f"{shown(budget.groups_bytes + budget.spare_bytes)} for them:\n"
        f"{budget}\n"
        "  Pass group_size=1, which would fit, or a larger memory=."
    )


def shown(size: int) -> str:
    """Show MiB as the budget does."""
    return f"{size / MIB:.0f} MiB"


@given(
    total=st.integers(2 * GIB, 16 * GIB),
    num_cpus=st.integers(1, 16),
    bytes_of_text=st.floats(1.5, 7),
)
def test_the_group_size_advised_fits_in_the_next_run(
    *, total: int, num_cpus: int, bytes_of_text: float
) -> None:
    """A smaller group gives its memory to no worker: whoever follows the advice gets through."""
    shard_bytes = int(bytes_of_text * 16 * MIB)
    group_size, partition_bytes = 16, 16 * MIB
    changes: dict[str, Any] = {"num_cpus": num_cpus}
    try:
        budget = decide(total, **changes)
        budget.check_groups(
            2 * group_size * shard_bytes, group_size=group_size, largest_shard_bytes=shard_bytes
        )
    except BudgetError as error:
        advised = dict(re.findall(r"(\w+)=(\d+)", error.fix))
        if "too little to train" in error.what:
            return
    else:
        return

    group_size = int(advised["group_size"])
    partition_bytes = int(advised.get("partition_bytes", partition_bytes))
    next_shard_bytes = int(bytes_of_text * partition_bytes)
    changes |= {"group_size": group_size, "partition_bytes": partition_bytes}
    decide(total, **changes).check_groups(
        2 * group_size * next_shard_bytes,
        group_size=group_size,
        largest_shard_bytes=next_shard_bytes,
    )


def test_the_table_shows_every_item() -> None:
    """It is what a user sees before a run."""
    assert str(decide(num_cpus=2)) == (
        "memory budget (the machine's memory)                  16.00 GiB\n"
        "  left for others                                      4.00 GiB\n"
        "  client process                                        450 MiB\n"
        "  two groups of 16 shards                              1.00 GiB\n"
        "  model, optimizer, checkpoint copy                    1.00 GiB\n"
        "  2 workers of 905 MiB                                 1.77 GiB\n"
        "  not needed                                           7.79 GiB\n"
        "  in flight: at most 4 x 16 MiB of text"
    )


def test_the_items_go_through_json() -> None:
    """A run folder keeps the budget, in bytes."""
    budget = decide()

    assert MemoryBudget(**json.loads(json.dumps(budget.as_dict()))) == budget
