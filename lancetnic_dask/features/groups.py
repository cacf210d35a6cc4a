"""(seed, epoch, group) -> shards and rows in the order of training.

Each epoch permutes the shards and takes them in groups; the rows of a group are permuted
together. Up to `group_size` shards this is a full shuffle; beyond, every group is a random
sample of the corpus, so a file sorted by label trains well. The order depends on
(seed, epoch, group) alone: not on workers, memory or cache.
"""

from __future__ import annotations

import logging
import queue
import threading
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, Self, TypeVar, cast

import numpy as np

from lancetnic_dask.features.build import ShardRecipe, obtain_shard
from lancetnic_dask.features.counts import validation_rows
from lancetnic_dask.features.weighting import (
    EncodedRows,
    FittedFeatures,
    concatenate_rows,
    encode_rows,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from lancetnic_dask.corpus.plan import PartitionPlan
    from lancetnic_dask.features.cache import ShardCache
    from lancetnic_dask.features.shard import TokenShard
    from lancetnic_dask.settings import SplitSettings

__all__ = [
    "FetchRows",
    "ReadAhead",
    "ShardGroup",
    "Side",
    "encode_partition",
    "encode_side",
    "iter_groups",
    "row_order",
    "shard_groups",
]

T = TypeVar("T")
Side = Literal["training", "validation"]

# Streams of randomness: the first number after the seed. Tuples of one length, because
# SeedSequence pads with zeros and would take (1,) and (1, 0) for the same.
_SHARD_STREAM = 1
_ROW_STREAM = 2

# A cluster that hangs must not keep Ctrl-C from closing it: what is read ahead needs it.
_STOP_SECONDS = 10.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ShardGroup:
    """Rows that are shuffled together.

    Parameters
    ----------
    index : int
        Position in the epoch, from 0.
    rows : EncodedRows
        Training rows of the group's shards, one shard after the other.
    order : ndarray of shape (num_rows,), dtype=int64
        Permutation of the rows.
    """

    index: int
    rows: EncodedRows
    order: np.ndarray


class FetchRows(Protocol):
    """Yields the rows of shards, in the order asked for."""

    def __call__(self, shards: Sequence[int], side: Side) -> Generator[EncodedRows, None, None]:
        """Yield the rows of one side of each shard.

        Parameters
        ----------
        shards : sequence of int
            Positions of partitions in the plan.
        side : {'training', 'validation'}
            Which rows.

        Yields
        ------
        EncodedRows
            One for each shard.
        """
        ...


def encode_partition(
    part: PartitionPlan,
    recipe: ShardRecipe,
    split: SplitSettings | None,
    storage_options: Mapping[str, Any] | None,
    cache: ShardCache | None,
    features: FittedFeatures,
    side: Side,
) -> EncodedRows:
    """Return one side of a partition as weighted rows, with or without a cache.

    Parameters
    ----------
    part, recipe, storage_options, cache
        As in `obtain_shard`.
    split : SplitSettings or None
        Which rows validate; None means none of them.
    features : FittedFeatures
        What turns terms into weights.
    side : {'training', 'validation'}
        Which rows; in the order of the file.

    Returns
    -------
    EncodedRows
        The rows of that side.
    """
    return encode_side(obtain_shard(part, recipe, storage_options, cache), split, features, side)


def encode_side(
    shard: TokenShard, split: SplitSettings | None, features: FittedFeatures, side: Side
) -> EncodedRows:
    """Return one side of a shard as weighted rows; parameters as in `encode_partition`."""
    validates = validation_rows(shard, split)
    chosen = np.flatnonzero(validates if side == "validation" else ~validates)
    return encode_rows(shard, chosen, features)


def shard_groups(
    num_shards: int, *, group_size: int, random_state: int, epoch: int
) -> list[np.ndarray]:
    """Cut a permutation of the shards into groups.

    Parameters
    ----------
    num_shards : int
        Shards of the corpus.
    group_size : int
        Shards in a group at most.
    random_state : int
        Seed.
    epoch : int
        From 0.

    Returns
    -------
    list of ndarray, dtype=int64
        Every shard once; sizes differ by at most one, so that no group is left with a few rows.

    Examples
    --------
    >>> [group.tolist() for group in shard_groups(5, group_size=3, random_state=0, epoch=0)]
    [[1, 4, 3], [0, 2]]
    """
    rng = np.random.default_rng((random_state, _SHARD_STREAM, epoch, 0))
    num_groups = -(-num_shards // group_size)
    return np.array_split(rng.permutation(num_shards), num_groups)


def row_order(num_rows: int, *, random_state: int, epoch: int, group: int) -> np.ndarray:
    """Return the order of a group's rows: a permutation int64 (num_rows,)."""
    return np.random.default_rng((random_state, _ROW_STREAM, epoch, group)).permutation(num_rows)


def iter_groups(
    fetch: FetchRows,
    num_shards: int,
    *,
    group_size: int,
    random_state: int,
    epoch: int,
) -> Generator[ShardGroup, None, None]:
    """Yield the training rows of an epoch, group by group.

    Parameters
    ----------
    fetch : FetchRows
        Where the rows come from.
    num_shards, group_size, random_state, epoch
        As in `shard_groups`.

    Yields
    ------
    ShardGroup
        Groups without a training row are left out.
    """
    groups = shard_groups(num_shards, group_size=group_size, random_state=random_state, epoch=epoch)
    for index, shards in enumerate(groups):
        parts = list(fetch([int(shard) for shard in shards], "training"))
        rows = concatenate_rows(parts)
        if rows.num_rows:
            order = row_order(rows.num_rows, random_state=random_state, epoch=epoch, group=index)
            yield ShardGroup(index, rows, order)


class ReadAhead(Generic[T]):
    """Makes the next item in a background thread while the one in hand is used.

    The first item is made at once. At most two items exist at a time. An error of the source is
    raised where the item is asked for.

    Parameters
    ----------
    items : generator
        The source; it runs in the thread alone and is closed there.
    """

    def __init__(self, items: Generator[T, None, None]) -> None:
        self._reader = _Reader(items)
        self._is_open = True
        self._reader.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        outcome = _END
        try:
            if self._is_open:
                outcome = self._reader.take()
        finally:
            if outcome is _END:  # or an error
                self.close()
        if outcome is _END:
            raise StopIteration
        return cast("T", outcome)

    def close(self) -> None:
        """End the thread as soon as the item in the making is done.

        If that takes longer than some seconds (a worker that hangs), it ends by itself later.
        """
        if self._is_open:
            self._is_open = False
            self._reader.stop()


class _Reader(threading.Thread):
    """The thread behind `ReadAhead`: makes one item each time one was taken."""

    def __init__(self, items: Generator[Any, None, None]) -> None:
        super().__init__(name="lancetnic-read-ahead", daemon=True)
        self._items = items
        self._made: queue.Queue[Any] = queue.Queue(maxsize=1)
        # Without a permit the thread would start on a third item while it waits for the queue.
        self._permits = threading.Semaphore(1)
        self._stopped = False

    def run(self) -> None:
        with closing(self._items):
            outcome: Any = None
            while outcome is not _END and not isinstance(outcome, _Failure):
                outcome = None
                self._permits.acquire()
                if self._stopped:
                    return
                try:
                    outcome = next(self._items, _END)
                except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
                    outcome = _Failure(error)
                self._made.put(outcome)

    def take(self) -> Any:
        """Wait for an item, and let the thread make the next one."""
        outcome = self._made.get()
        if isinstance(outcome, _Failure):
            raise outcome.error
        self._permits.release()
        return outcome

    def stop(self) -> None:
        """End the thread after the item that it may be making."""
        self._stopped = True
        self._permits.release()
        self.join(_STOP_SECONDS)
        if self.is_alive():
            logger.warning("reading ahead did not stop in %g s; it is left behind", _STOP_SECONDS)


@dataclass(frozen=True)
class _Failure:
    error: BaseException


_END = object()
