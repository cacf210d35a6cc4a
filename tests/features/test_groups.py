"""The order of training: each row once an epoch, mixed, and by (seed, epoch, group) alone."""

from __future__ import annotations

import gc
import threading
import weakref
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancetnic_dask.features import groups as groups_module
from lancetnic_dask.features.groups import ReadAhead, iter_groups, row_order, shard_groups
from lancetnic_dask.features.weighting import EncodedRows

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from lancetnic_dask.features.groups import FetchRows, Side

NUM_SHARDS = st.integers(1, 60)
GROUP_SIZES = st.integers(1, 20)
SEEDS = st.sampled_from([0, 1, 42, 2**31, 2**32, 2**63 - 1])
WAIT_SECONDS = 30


def rows_numbered(start: int, num_rows: int) -> EncodedRows:
    """Make rows whose target is their number in the corpus."""
    return EncodedRows(
        indptr=np.arange(num_rows + 1),
        indices=np.arange(start, start + num_rows, dtype=np.int32),
        values=np.ones(num_rows, np.float32),
        numeric=np.empty((num_rows, 0), np.float32),
        target=np.arange(start, start + num_rows),
    )


def fetch_of(sizes: Sequence[int]) -> FetchRows:
    """Return a source of shards of these sizes, whose rows are numbered through."""
    starts = np.cumsum([0, *sizes])

    def fetch(shards: Sequence[int], side: Side) -> Generator[EncodedRows, None, None]:
        assert side == "training"
        for shard in shards:
            yield rows_numbered(int(starts[shard]), sizes[shard])

    return fetch


def epoch_of(sizes: Sequence[int], epoch: int, group_size: int = 4, seed: int = 42) -> list[int]:
    """Return the numbers of the rows in the order of training."""
    return [
        int(group.rows.target[row])
        for group in iter_groups(
            fetch_of(sizes), len(sizes), group_size=group_size, random_state=seed, epoch=epoch
        )
        for row in group.order
    ]


@given(num_shards=NUM_SHARDS, group_size=GROUP_SIZES, seed=SEEDS, epoch=st.integers(0, 1000))
def test_every_shard_is_in_one_group(
    num_shards: int, group_size: int, seed: int, epoch: int
) -> None:
    """No group is larger than asked, and none is much smaller than another."""
    groups = shard_groups(num_shards, group_size=group_size, random_state=seed, epoch=epoch)

    assert sorted(np.concatenate(groups).tolist()) == list(range(num_shards))
    sizes = [len(group) for group in groups]
    assert max(sizes) <= group_size
    assert max(sizes) - min(sizes) <= 1
    assert len(groups) == -(-num_shards // group_size)


@given(
    sizes=st.lists(st.integers(0, 6), min_size=1, max_size=20), group_size=GROUP_SIZES, seed=SEEDS
)
def test_every_row_comes_once_an_epoch(sizes: list[int], group_size: int, seed: int) -> None:
    """Also where shards have no training row."""
    for epoch in range(3):
        assert sorted(epoch_of(sizes, epoch, group_size, seed)) == list(range(sum(sizes)))


def test_groups_without_a_row_are_left_out_and_the_others_keep_their_index() -> None:
    """The order of a group depends on its index, not on what its neighbours hold."""
    sizes = [5 if shard == 3 else 0 for shard in range(8)]
    groups = list(iter_groups(fetch_of(sizes), 8, group_size=1, random_state=0, epoch=0))

    order = np.concatenate(shard_groups(8, group_size=1, random_state=0, epoch=0)).tolist()
    assert [group.index for group in groups] == [order.index(3)]
    expected = row_order(5, random_state=0, epoch=0, group=order.index(3))
    assert groups[0].order.tolist() == expected.tolist()


def test_order_is_that_of_seed_epoch_and_group_for_ever() -> None:
    """A model is resumed and compared in the same order: never change these."""
    groups = shard_groups(10, group_size=4, random_state=42, epoch=3)

    assert [group.tolist() for group in groups] == [[8, 0, 3, 1], [2, 5, 7], [6, 9, 4]]
    assert row_order(8, random_state=42, epoch=3, group=1).tolist() == [3, 4, 1, 0, 2, 6, 5, 7]
    assert row_order(8, random_state=42, epoch=3, group=1).dtype == np.int64


def test_epochs_seeds_and_groups_all_give_other_orders() -> None:
    """And no two of them the same by adding up: (1, 2) is not (2, 1)."""
    seeds, few = (0, 1, 2, 2**32), range(3)
    orders = {
        tuple(row_order(50, random_state=seed, epoch=epoch, group=group).tolist())
        for seed, epoch, group in product(seeds, few, few)
    }
    assert len(orders) == 36

    shards = {
        tuple(np.concatenate(shard_groups(50, group_size=7, random_state=s, epoch=e)).tolist())
        for s, e in product(seeds, few)
    }
    assert len(shards) == 12
    assert not shards & orders


def test_few_shards_are_shuffled_as_one() -> None:
    """Up to group_size shards, each row is as likely at each place."""
    sizes = [10] * 4
    places = np.array([np.argsort(epoch_of(sizes, epoch)) for epoch in range(300)])

    # The mean place of each row over 300 epochs: 19.5, with a deviation of 11.5 / sqrt(300).
    assert np.abs(places.mean(axis=0) - 19.5).max() < 4.5 * 11.5 / np.sqrt(300)
    assert len({tuple(row) for row in places.tolist()}) == 300


def test_file_sorted_by_label_is_mixed() -> None:
    """Every group is a random sample of the file: no stretch of an epoch lacks a class."""
    num_shards, rows_per_shard = 128, 25
    order = np.array(epoch_of([rows_per_shard] * num_shards, 0, group_size=16))
    label = order >= num_shards * rows_per_shard // 2  # the second half of the file

    by_stretch = label.reshape(-1, 50).mean(axis=1)
    assert by_stretch.min() > 0.1
    assert by_stretch.max() < 0.9
    assert abs(np.corrcoef(np.arange(len(order)), order)[0, 1]) < 0.3


class Item:
    """Something large."""


def numbers(count: int) -> Generator[int, None, None]:
    """Yield 0 .. count - 1."""
    yield from range(count)


def threads_left() -> list[str]:
    """Return the reading threads that are alive."""
    return [t.name for t in threading.enumerate() if t.name == "lancetnic-read-ahead"]


@settings(deadline=None)
@given(count=st.integers(0, 20))
def test_items_read_ahead_come_in_order(count: int) -> None:
    """And the thread ends with them."""
    assert list(ReadAhead(numbers(count))) == list(range(count))
    assert threads_left() == []


def test_next_item_is_made_while_one_is_in_use() -> None:
    """It does not wait for being asked for."""
    made_second = threading.Event()

    def source() -> Generator[int, None, None]:
        yield 1
        made_second.set()
        yield 2

    items = ReadAhead(source())
    assert next(items) == 1
    assert made_second.wait(WAIT_SECONDS)
    assert list(items) == [2]


def test_at_most_two_items_exist_at_once() -> None:
    """The one in use and the next one, however fast the source is."""
    alive: weakref.WeakSet[Item] = weakref.WeakSet()
    most = []
    making = threading.Semaphore(0)

    def source() -> Generator[Item, None, None]:
        for _ in range(10):
            item = Item()
            alive.add(item)
            most.append(len(alive))
            making.release()
            yield item
            del item

    items = ReadAhead(source())
    for used in range(10):
        item = next(items)
        while used < 9 and len(most) < used + 2:  # the next one is made meanwhile
            assert making.acquire(timeout=WAIT_SECONDS)
        while making.acquire(timeout=0.01):  # and a third one is not
            assert len(most) <= used + 2
        del item
    items.close()
    gc.collect()

    assert max(most) == 2
    assert len(alive) == 0


def test_error_of_the_source_is_raised_after_the_items_before_it() -> None:
    """Where the item is asked for, with the line of the source in its traceback."""

    def source() -> Generator[int, None, None]:
        yield 1
        raise LookupError("shard 2")

    items = ReadAhead(source())
    assert next(items) == 1
    with pytest.raises(LookupError, match="shard 2") as caught:
        next(items)

    assert caught.traceback[-1].name == "source"
    assert threads_left() == []
    with pytest.raises(StopIteration):
        next(items)


def test_closing_early_ends_the_thread_and_closes_the_source_there() -> None:
    """A generator that waits in a thread can only be closed by it."""
    closed_by = []

    def source() -> Generator[int, None, None]:
        try:
            yield from range(100)
        finally:
            closed_by.append(threading.current_thread().name)

    items = ReadAhead(source())
    assert next(items) == 0
    items.close()

    assert closed_by == ["lancetnic-read-ahead"]
    assert threads_left() == []


def test_first_item_is_made_before_it_is_asked_for() -> None:
    """And one that nobody asks for is given up with the thread."""
    in_first = threading.Event()
    is_closed = []

    def source() -> Generator[int, None, None]:
        try:
            in_first.set()
            yield 1
        finally:
            is_closed.append(True)

    items = ReadAhead(source())
    assert in_first.wait(WAIT_SECONDS)
    items.close()

    assert is_closed == [True]
    assert threads_left() == []
    assert list(items) == []


def test_closing_waits_for_the_item_in_the_making() -> None:
    """The source may use a client that is closed next."""
    go_on, in_second = threading.Event(), threading.Event()
    closed = threading.Event()

    def source() -> Generator[int, None, None]:
        try:
            yield 1
            in_second.set()
            assert go_on.wait(WAIT_SECONDS)
            yield 2
        finally:
            closed.set()

    items = ReadAhead(source())
    assert next(items) == 1
    assert in_second.wait(WAIT_SECONDS)
    timer = threading.Timer(0.2, go_on.set)
    timer.start()
    items.close()

    assert closed.is_set()
    assert threads_left() == []
    timer.join()


def test_source_that_hangs_does_not_keep_the_owner_from_ending(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A cluster that hangs must be closed: its error then ends the thread and closes the source."""
    monkeypatch.setattr(groups_module, "_STOP_SECONDS", 0.05)
    cluster_closed, in_second, source_closed = (threading.Event() for _ in range(3))

    def source() -> Generator[int, None, None]:
        try:
            yield 1
            in_second.set()
            assert cluster_closed.wait(WAIT_SECONDS)
            raise ConnectionError
        finally:
            source_closed.set()

    items = ReadAhead(source())
    assert next(items) == 1
    assert in_second.wait(WAIT_SECONDS)
    (reader,) = (t for t in threading.enumerate() if t.name == "lancetnic-read-ahead")
    items.close()
    assert [record.getMessage() for record in caplog.records] == [
        "reading ahead did not stop in 0.05 s; it is left behind"
    ]

    cluster_closed.set()
    reader.join(WAIT_SECONDS)
    assert not reader.is_alive()
    assert source_closed.is_set()
