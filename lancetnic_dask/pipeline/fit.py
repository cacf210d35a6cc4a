"""A request -> a trained model in a run folder: the whole path for a classifier.

This module decides nothing about any stage; it hands the value of each to the next, and lends
them the cluster, the cache and the budget.
"""

from __future__ import annotations

import atexit
import gc
import logging
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from lancetnic_dask.cluster.budget import decide_budget
from lancetnic_dask.cluster.limits import available_cpus, available_memory
from lancetnic_dask.cluster.local import starts_cluster, use_client
from lancetnic_dask.cluster.memory_watch import MemoryWatch
from lancetnic_dask.cluster.workers import check_workers
from lancetnic_dask.config import setting
from lancetnic_dask.corpus.collections import collection_kind
from lancetnic_dask.corpus.formats import FileFormat, is_packed_name
from lancetnic_dask.corpus.frame import Corpus
from lancetnic_dask.corpus.plan_files import read_columns
from lancetnic_dask.corpus.readers import check_columns
from lancetnic_dask.corpus.sources import list_files
from lancetnic_dask.corpus.typed_cells import frame_table
from lancetnic_dask.errors import SettingError
from lancetnic_dask.features.cache import ShardCache
from lancetnic_dask.features.weighting import FittedFeatures
from lancetnic_dask.jit import keeps_machine_code
from lancetnic_dask.models.optimizers import needs_dense_grad
from lancetnic_dask.models.trial import try_class
from lancetnic_dask.pipeline.context import RunContext
from lancetnic_dask.pipeline.epochs import group_bytes, shard_bytes, train_model
from lancetnic_dask.pipeline.interrupts import InterruptReport, hold_interrupt
from lancetnic_dask.pipeline.kept_fit import Fit, KeptFits
from lancetnic_dask.pipeline.prepare import (
    check_moments,
    count_corpus,
    find_classes,
    fit_vocabularies,
    plan_corpus,
)
from lancetnic_dask.pipeline.summary import draw, finish
from lancetnic_dask.pipeline.warm import LoadAhead, warm_kernels
from lancetnic_dask.run.console import Console
from lancetnic_dask.run.folder import require_writable
from lancetnic_dask.run.fonts import preload_matplotlib
from lancetnic_dask.training.devices import choose_device
from lancetnic_dask.training.loop import make_criterion
from lancetnic_dask.training.torch_state import seeded_weights

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from lancetnic_dask.cluster.budget import MemoryBudget
    from lancetnic_dask.pipeline.prepare import CountedCorpus
    from lancetnic_dask.pipeline.request import FitRequest
    from lancetnic_dask.run.folder import Run

__all__ = ["fit_classifier"]

logger = logging.getLogger(__name__)

# What a compressed file of text unpacks to, for the number of workers.
_UNPACKED_TIMES = 4


def fit_classifier(request: FitRequest) -> Run:
    """Train a classifier as asked.

    Parameters
    ----------
    request : FitRequest
        Checked settings.

    Returns
    -------
    Run
        What it brought, and where it lies.

    Raises
    ------
    LancetnicError
        One of its kinds, naming file, row and column where there are any.
    KeyboardInterrupt
        On Ctrl-C, once the cluster is closed; it tells what is left.
    """
    _end_python_fast()
    device = _check_training(request)
    if request.train_path is None:
        raise SettingError("train_path is None.", None, "Pass the CSV files to train on.")
    sources = [_sources(path, request) for path in (request.train_path, request.val_path)]
    require_writable(request.run_dir)
    budget = _decide_budget(request, sources)
    logger.info("memory budget\n%s", budget)
    watch = MemoryWatch()
    console = Console(
        progress=request.progress, memory=lambda: (watch.current_bytes, budget.total_bytes)
    )
    with InterruptReport(request.training.num_epochs) as report:
        with (
            watch,
            _opened_cache(request) as shard_cache,
            LoadAhead(request.training) as loading,
        ):
            if budget.num_workers:
                console.say(f"Starting {budget.num_workers} worker(s)")
            with use_client(
                request.client, budget=budget, meanwhile=partial(warm_kernels, request.recipe)
            ) as client:
                if not budget.num_workers:
                    check_workers(
                        client,
                        partition_bytes=budget.partition_bytes,
                        terms_per_token=request.terms_per_token,
                    )
                console.say(f"Dask dashboard: {client.dashboard_link}")
                if request.uses_cache:
                    console.say(f"Cache folder: {shard_cache.folder}")
                num_workers = len(client.nthreads())
                context = RunContext(
                    request,
                    client,
                    budget,
                    shard_cache,
                    console,
                    device,
                    report,
                    num_workers=num_workers,
                )
                run, corpora = _fit(context, sources[0], sources[1], loading)
                # Loaded while the workers end, and not before: it takes of their memory.
                pictures = Thread(target=preload_matplotlib, args=(context.matplotlib_folder,))
                pictures.start()
            pictures.join()
            with hold_interrupt():
                draw(run, context)
        run.peak_memory_bytes = watch.peak_bytes
        with hold_interrupt():
            finish(run, context, watch, corpora)
    return run


@cache
def _end_python_fast() -> None:
    """Spare Python the search for cycles as it ends, once for the process.

    torch and Dask leave a million objects, among which it looks several times over: 1.2 to 2 s,
    for memory that is given back at once anyway. What is in no cycle is destroyed as always; that
    what is in one is finalized at exit, Python doesn't promise.
    """
    atexit.register(gc.freeze)


def _check_training(request: FitRequest) -> torch.device:
    """Look for mistakes in names and in a class of the user's; return where to train."""
    training = request.training
    make_criterion(training.crit_name)
    needs_dense_grad(training.optim_name)
    with seeded_weights(training.random_state):
        try_class(
            request.network_plan(0, len(request.roles.data_columns), num_classes=0),
            training.optim_name,
            has_texts=bool(request.roles.text_columns),
        )
    return choose_device(training.device_name)


def _sources(path: Any, request: FitRequest) -> Any:
    """List the files of a path, and look for the columns in the first, before anything starts.

    A Corpus knows its own; other collections are computed when there are workers.
    """
    if path is None:
        return None
    kind = collection_kind(path)
    if kind is not None:
        _refuse_file_options(request, f"A {type(path).__name__} has no")
        if kind != "bag":
            first_rows = path.iloc[:0] if kind == "pandas" else path._meta  # noqa: SLF001 - no other way
            frame_table(first_rows, request.roles.names, type(path).__name__)
        return path
    if not isinstance(path, Corpus):
        files = list_files(path, request.storage_options)
        names = request.roles.names
        first = read_columns(files, request.file_format, names, request.storage_options)
        if first is not None:
            check_columns(first, names)
        return files
    _refuse_file_options(request, "A Corpus knows its own")
    return path


def _refuse_file_options(request: FitRequest, what: str) -> None:
    """Refuse options of files for what is none."""
    given = replace(request.file_format, partition_bytes=1, max_row_bytes=1)
    if given != FileFormat(is_sniffed=True, partition_bytes=1, max_row_bytes=1):
        raise SettingError(
            f"{what} separator, quotes, names and encoding.",
            None,
            "Pass them to Corpus.read_csv, not to Classification.",
        )


def _decide_budget(request: FitRequest, sources: Sequence[Any]) -> MemoryBudget:
    training = request.training
    num_texts, num_numbers = len(request.roles.text_columns), len(request.roles.data_columns)
    return decide_budget(
        request.memory,
        limit=available_memory(),
        # A worker without a partition would only cost its start.
        num_cpus=min(available_cpus(), _count_partitions(sources, request.file_format)),
        num_workers=setting("cluster.workers"),
        partition_bytes=max(
            source.plan.file_format.partition_bytes
            if isinstance(source, Corpus)
            else request.file_format.partition_bytes
            for source in sources
            if source is not None
        ),
        group_size=training.group_size,
        terms_per_token=request.terms_per_token,
        has_workers=starts_cluster(request.client),
        workers_compile=not keeps_machine_code(),
        model_bytes_bound=request.model_bytes(
            request.max_features * num_texts, num_numbers, num_classes=1000
        ),
    )


def _count_partitions(sources: Sequence[Any], file_format: FileFormat) -> int:
    """Return the most partitions that one of the corpora will have, 1 at least."""
    return max(1, *(_num_partitions(source, file_format) for source in sources))


def _num_partitions(source: Any, file_format: FileFormat) -> int:
    """Return how many partitions a corpus will have, roughly where it isn't planned yet."""
    if source is None:
        return 0
    if hasattr(source, "npartitions"):
        return int(source.npartitions)
    if collection_kind(source) == "pandas":
        return -(-int(source.memory_usage().sum()) // file_format.partition_bytes)
    return sum(
        -(
            -file.size
            * (_UNPACKED_TIMES if is_packed_name(file.url) else 1)
            // file_format.partition_bytes
        )
        for file in source
    )


@contextmanager
def _opened_cache(request: FitRequest) -> Iterator[ShardCache]:
    """Yield the cache folder, or one for this run only if nothing is to be kept."""
    if request.uses_cache:
        yield ShardCache(request.cache_dir)
    else:
        with tempfile.TemporaryDirectory(prefix="lancetnic-") as folder:
            yield ShardCache(Path(folder))


def _fit(
    context: RunContext, train_source: Any, val_source: Any, loading: LoadAhead
) -> tuple[Run, list[Corpus]]:
    with context.timed("plan"):
        sources = [source for source in (train_source, val_source) if source is not None]
        corpora = [plan_corpus(context, source) for source in sources]
    counted, features = _learn(context, corpora)
    loading.wait_for_training()
    counted_val = counted[1] if len(counted) > 1 else None
    return train_model(context, counted[0], counted_val, features), corpora


def _learn(
    context: RunContext, corpora: list[Corpus]
) -> tuple[tuple[CountedCorpus, ...], FittedFeatures]:
    """Count the corpora and fit the features, or find both in the cache."""
    request, cache = context.request, context.shard_cache
    kept = None if cache is None else KeptFits(cache, request, corpora)
    known = None if kept is None else kept.load()
    with context.cache.work_folder() as work:
        with context.timed("tokenize"):
            counted = _count(context, corpora, work) if known is None else known.counted
        with context.timed("vocabulary"):
            classes = find_classes(request, *counted)
            check_moments(request, counted[0])
            context.budget.check_groups(
                group_bytes(context, counted[0]),
                group_size=request.training.group_size,
                largest_shard_bytes=max(shard_bytes(context, counted[0])),
            )
            if known is None:
                known = Fit(counted, fit_vocabularies(context, counted[0], work))
                if kept is not None:
                    kept.publish(known)
    features = FittedFeatures(
        vocabularies=known.vocabularies,
        moments=counted[0].moments,
        sublinear_tf=request.features.sublinear_tf,
        classes=classes,
    )
    return counted, features


def _count(context: RunContext, corpora: list[Corpus], work: Path) -> tuple[CountedCorpus, ...]:
    """Tokenize and count what trains, and what validates if that is a corpus of its own."""
    if len(corpora) == 1:
        return (count_corpus(context, corpora[0], context.request.split, work),)
    train, val = corpora
    return (
        count_corpus(context, train, None, work),
        count_corpus(context, val, None, None),
    )
