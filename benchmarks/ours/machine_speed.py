"""What this machine can do at best for the work of one run, on one core and without Dask.

    python machine_speed.py '{"path": "a.csv", "folder": "scratch", "max_features": 50000}'

The whole corpus goes through the package's own functions in this process, with the clock on each
part; batches for the kernels are those that a run trains on. The bounds are simpler than the work:
to read the file, to tokenize texts that are parsed, to merge all counts in memory at once, to
gather and to change the rows of the weights and nothing else, to multiply dense matrices.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from files import forget_pages
from ours.train_ours import StageClock

from lancetnic_dask import Corpus
from lancetnic_dask.cluster.limits import available_cpus
from lancetnic_dask.features import build
from lancetnic_dask.features.cache import ShardCache
from lancetnic_dask.features.counts import count_partition
from lancetnic_dask.features.groups import encode_side, iter_groups
from lancetnic_dask.features.labels import order_labels
from lancetnic_dask.features.tokenize import Tokenizer
from lancetnic_dask.features.vocabulary import build_vocabulary
from lancetnic_dask.features.weighting import FittedFeatures
from lancetnic_dask.jit import kernel
from lancetnic_dask.models import ScalpelMC
from lancetnic_dask.models.sparse_kernels import ColumnCounter
from lancetnic_dask.pipeline.warm import warm_kernels
from lancetnic_dask.settings import ColumnRoles, FeatureSettings, SplitSettings, TrainingSettings
from lancetnic_dask.training.batches import Batch, iter_batches
from lancetnic_dask.training.loop import Trainer

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from lancetnic_dask.features.counts import PartitionCounts
    from lancetnic_dask.features.groups import ShardGroup, Side
    from lancetnic_dask.features.weighting import EncodedRows

MIB = 1 << 20
TURNS = 3
NUM_BATCHES = 300
# One part: the optimizer may do some of what the backward leaves.
LATER = "backward and update"
SETTINGS = TrainingSettings(num_epochs=1)
SPLIT = SplitSettings()
ROLES = ColumnRoles(text_columns=("text",), data_columns=(), label_column="label")
RECIPE = build.ShardRecipe(roles=ROLES, policy="error")


class CountedShards(NamedTuple):
    """What the workers of a run make: kept shards, and their counts."""

    cache: ShardCache
    fingerprints: list[str]
    counts: list[PartitionCounts]
    term_lists: list[Path]


def best_time(function: Callable[[], object]) -> float:
    """Return the least seconds of some calls."""
    seconds = []
    for _ in range(TURNS):
        started = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def read_file(path: Path) -> None:
    """Read a file from its beginning to its end into the same buffer."""
    buffer = bytearray(4 * MIB)
    with path.open("rb", buffering=0) as stream:
        while stream.readinto(buffer):
            pass


def measure_disk(path: Path, folder: Path, num_bytes: int) -> dict[str, float]:
    """Return bytes a second: the corpus off the disk and out of memory, and bytes onto the disk."""
    size = path.stat().st_size
    forget_pages(path)
    started = time.perf_counter()
    read_file(path)
    off_disk = time.perf_counter() - started
    content = os.urandom(num_bytes)

    def write() -> None:
        with (folder / "written").open("wb", buffering=0) as stream:
            stream.write(content)
            os.fsync(stream.fileno())

    figures = {
        "read from disk": size / off_disk,
        "read from page cache": size / best_time(lambda: read_file(path)),
        "write and sync": num_bytes / best_time(write),
    }
    (folder / "written").unlink()
    return figures


def measure_plan(path: Path, partition_bytes: int) -> tuple[Corpus, float]:
    """Plan the corpus in this process."""
    started = time.perf_counter()
    corpus = Corpus.read_csv(path, partition_bytes=partition_bytes)
    return corpus, time.perf_counter() - started


@contextlib.contextmanager
def time_worker(clock: StageClock, text_bytes: list[int]) -> Iterator[None]:
    """Put the clock on the parts of a worker's task, and count the bytes of text."""
    module: Any = build
    cast_rows, iter_rows = clock.around("cast", module.cast_rows), module.iter_rows

    def parse(*args: Any) -> Iterator[Any]:
        rows = iter(iter_rows(*args))
        step = clock.around("parse", lambda: next(rows, None))
        while (batch := step()) is not None:
            yield batch

    def cast(*args: Any, **kwargs: Any) -> Any:
        rows = cast_rows(*args, **kwargs)
        text_bytes.extend(pc.sum(pc.binary_length(text)).as_py() for text in rows.texts)
        return rows

    with (
        mock.patch.object(build, "iter_rows", parse),
        mock.patch.object(build, "cast_rows", cast),
        mock.patch.object(build, "hash_rows", clock.around("hash rows", module.hash_rows)),
        mock.patch.object(Tokenizer, "add", clock.around("tokenizer", Tokenizer.add)),
        mock.patch.object(Tokenizer, "finish", clock.around("tokenizer", Tokenizer.finish)),
        mock.patch.object(ShardCache, "load", clock.around("look up", ShardCache.load)),
        mock.patch.object(ShardCache, "publish", clock.around("write shard", ShardCache.publish)),
    ):
        yield


def measure_tasks(corpus: Corpus, folder: Path) -> tuple[CountedShards, dict[str, Any]]:
    """Tokenize and count every partition, as the workers do; return the seconds of each part."""
    shards = CountedShards(ShardCache(folder / "cache"), [], [], [])
    clock = StageClock()
    text_bytes: list[int] = []
    parts = [corpus.plan.only(partition) for partition in corpus.plan.partitions]
    started = time.perf_counter()
    with time_worker(clock, text_bytes):
        for number, part in enumerate(parts):
            path = folder / f"{number:06d}"
            counts = count_partition(part, RECIPE, SPLIT, None, shards.cache, path)
            shards.counts.append(counts)
            shards.fingerprints.append(RECIPE.fingerprint(part))
            shards.term_lists.append(path.with_name(f"{path.name}.0.arrow"))
    total = time.perf_counter() - started
    count = total - sum(clock.seconds.values())
    seconds = {**clock.seconds, "count terms": count, "all": total}
    return shards, {"text_bytes": sum(text_bytes), "seconds": seconds}


def run_here(
    function: Callable[..., Any], items: Sequence[tuple[Any, ...]], **_options: Any
) -> Iterator[Any]:
    """Stand in for the workers."""
    return (function(*item) for item in items)


def measure_vocabulary(
    shards: CountedShards, max_features: int
) -> tuple[FittedFeatures, dict[str, float]]:
    """Merge the counts as a run does, and at once in memory by the faster of two ways."""
    num_training = sum(counts.num_training for counts in shards.counts)
    started = time.perf_counter()
    vocabulary = build_vocabulary(
        shards.term_lists,
        FeatureSettings(),
        column="text",
        num_training=num_training,
        max_features=max_features,
        map_tasks=run_here,  # type: ignore[arg-type]
    )
    merged = time.perf_counter() - started

    def read_lists() -> pa.Table:
        lists = [pa.ipc.open_file(pa.OSFile(str(path))).read_all() for path in shards.term_lists]
        return pa.concat_tables(lists).combine_chunks()

    columns = [("term_frequency", "sum"), ("document_frequency", "sum")]
    ways = (
        lambda: read_lists().group_by("term", use_threads=False).aggregate(columns),
        lambda: pc.sort_indices(read_lists()["term"]),
    )
    labels = {label for counts in shards.counts for label in counts.training_labels}
    moments = shards.counts[0].moments
    features = FittedFeatures(
        vocabularies=(vocabulary,),
        moments=moments,
        sublinear_tf=False,
        classes=order_labels(labels),
    )
    return features, {
        "bytes": sum(path.stat().st_size for path in shards.term_lists),
        "seconds": merged,
        "at once in memory": min(map(best_time, ways)),
        "num_distinct": vocabulary.num_distinct,
    }


def measure_reading(
    counted: CountedShards, features: FittedFeatures
) -> tuple[ShardGroup, dict[str, float]]:
    """Read an epoch's rows and the validation rows; return the first group and what there is."""

    def fetch(shards: Sequence[int], side: Side) -> Generator[EncodedRows, None, None]:
        for number in shards:
            shard = counted.cache.load(counted.fingerprints[number])
            if shard is None:
                raise SystemExit("A shard is gone from the cache.")
            yield encode_side(shard, SPLIT, features, side)

    num_shards = len(counted.fingerprints)
    first, num_rows, num_entries = None, 0, 0
    started = time.perf_counter()
    for group in iter_groups(fetch, num_shards, group_size=16, random_state=42, epoch=0):
        first = first or group
        num_rows += group.rows.num_rows
        num_entries += len(group.rows.indices)
    read = time.perf_counter()
    validation = [
        (rows.num_rows, len(rows.indices)) for rows in fetch(range(num_shards), "validation")
    ]
    figures = {
        "training_seconds": read - started,
        "training_rows": num_rows,
        "training_entries": num_entries,
        "validation_seconds": time.perf_counter() - read,
        "validation_rows": sum(rows for rows, _ in validation),
        "validation_entries": sum(entries for _, entries in validation),
    }
    if first is None:
        raise SystemExit("There is no training row.")
    return first, figures


def measure_step(
    group: ShardGroup, features: FittedFeatures, batches: Sequence[Batch]
) -> tuple[float, dict[str, float]]:
    """Train on some batches, with nothing beside it; return all seconds, and those of the parts."""
    num_rows = sum(batch.num_rows for batch in batches)
    model = ScalpelMC(features.input_size, SETTINGS.hidden_size, 1, len(features.classes), 0.0)
    trainer = Trainer(model, SETTINGS, torch.device("cpu"))
    some = type(group)(0, group.rows, group.order[:num_rows])
    trainer.train_group(some)
    alone = best_time(lambda: trainer.train_group(some))
    clock = StageClock()
    parts: Any = trainer
    with (
        mock.patch.object(parts.model, "forward", clock.around("forward", parts.model.forward)),
        mock.patch.object(parts.optimizer, "step", clock.around(LATER, parts.optimizer.step)),
        mock.patch.object(torch.Tensor, "backward", clock.around(LATER, torch.Tensor.backward)),
    ):
        started = time.perf_counter()
        trainer.train_group(some)
        total = time.perf_counter() - started
    rest = total - sum(clock.seconds.values())
    return alone, {**clock.seconds, "cutting, loss and the rest": rest}


@kernel(fastmath=True)
def add_rows(table: np.ndarray, indices: np.ndarray, total: np.ndarray) -> None:
    """Add rows of a table to one row: they are read, and nothing else is moved."""
    for entry in range(len(indices)):
        row = table[indices[entry]]
        for k in range(len(total)):
            total[k] += row[k]


@kernel(fastmath=True)
def change_rows(table: np.ndarray, indices: np.ndarray, changes: np.ndarray) -> None:
    """Add changes to rows of a table: a row of each is read, one written."""
    for entry in range(len(indices)):
        row, change = table[indices[entry]], changes[entry]
        for k in range(len(row)):
            row[k] += change[k]


def measure_kernels(features: FittedFeatures, batches: Sequence[Batch]) -> dict[str, float]:
    """Return the least seconds that the memory and the dense products of some batches take."""
    width, num_classes = SETTINGS.hidden_size, len(features.classes)
    table = torch.rand(features.num_terms, width)
    weights, total = table.numpy(), np.zeros(width, np.float32)
    counter = ColumnCounter(features.num_terms)
    groups = [
        counter.group(batch.rows.indptr, batch.rows.indices, batch.rows.values) for batch in batches
    ]
    out_grad = np.ones((max(batch.num_rows for batch in batches), width), np.float32)
    sums = np.zeros((max(len(group.columns) for group in groups), width), np.float32)
    starts = [torch.from_numpy(batch.rows.indptr).int() for batch in batches]
    entries = [torch.from_numpy(batch.rows.indices) for batch in batches]

    def gather() -> None:
        for batch in batches:
            add_rows(weights, batch.rows.indices, total)

    def gather_by_torch() -> None:
        for first, indices in zip(starts, entries, strict=True):
            torch.nn.functional.embedding_bag(
                indices, table, first, mode="sum", include_last_offset=True
            )

    def sum_rows() -> None:
        for group in groups:
            add_rows(out_grad, group.rows, total)
            sums[: len(group.columns)].fill(0)

    def update() -> None:
        for group in groups:
            change_rows(weights, group.columns, sums)

    torch.set_num_threads(1)
    matrix = torch.rand(512, 512)
    flops_a_second = 2 * 512**3 / best_time(lambda: matrix @ matrix)
    num_rows = sum(batch.num_rows for batch in batches)
    gather_seconds = min(best_time(gather), best_time(gather_by_torch))
    num_entries = sum(len(batch.rows.indices) for batch in batches)
    figures = {
        "gather": gather_seconds,
        "sum rows": best_time(sum_rows),
        "update": best_time(update),
        "dense forward": 2 * num_rows * width * num_classes / flops_a_second,
        "flops_a_second": flops_a_second,
        "gathered bytes a second": 4 * width * num_entries / gather_seconds,
        "bytes a second in order, one core": weights.nbytes / best_time(table.sum),
    }
    torch.set_num_threads(os.cpu_count() or 1)
    figures["bytes a second in order, all cores"] = weights.nbytes / best_time(table.sum)
    torch.set_num_threads(1)
    figures["random weights"] = best_time(lambda: table.uniform_(-1, 1))
    return figures


def main() -> None:
    """Measure everything, from the file to the step."""
    options = json.loads(sys.argv[1])
    path, folder = Path(options["path"]), Path(options["folder"])
    warm_kernels(RECIPE)
    figures: dict[str, Any] = {
        "disk": measure_disk(path, folder, options.get("written_bytes", 64 * MIB)),
    }
    corpus, figures["plan"] = measure_plan(path, options.get("partition_bytes", 16 * MIB))
    figures["file_bytes"] = path.stat().st_size
    # As many workers as a run would start: no more than there are partitions.
    figures["num_workers"] = min(available_cpus(), corpus.npartitions)
    shards, figures["tokenize"] = measure_tasks(corpus, folder)
    features, figures["vocabulary"] = measure_vocabulary(shards, options["max_features"])
    group, figures["reading"] = measure_reading(shards, features)
    cut = iter_batches(group.rows, group.order, SETTINGS.batch_size)
    batches = list(itertools.islice(cut, NUM_BATCHES))
    figures["step"] = {
        "num_batches": len(batches),
        "num_rows": sum(batch.num_rows for batch in batches),
        "num_entries": sum(len(batch.rows.indices) for batch in batches),
        "num_terms": features.num_terms,
    }
    figures["step"]["alone"], figures["step"]["parts"] = measure_step(group, features, batches)
    figures["step"]["bounds"] = measure_kernels(features, batches)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
