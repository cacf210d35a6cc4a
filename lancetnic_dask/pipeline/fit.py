"""A request -> a trained model in a run folder: the whole path for a classifier.

This module decides nothing about any stage; it hands the value of each to the next, and lends
them the cluster, the cache and the budget.
"""

from __future__ import annotations

import logging
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lancetnic_dask.cluster.budget import decide_budget
from lancetnic_dask.cluster.limits import available_cpus, available_memory
from lancetnic_dask.cluster.local import starts_cluster, use_client
from lancetnic_dask.cluster.memory_watch import MemoryWatch
from lancetnic_dask.cluster.workers import check_workers
from lancetnic_dask.config import setting
from lancetnic_dask.corpus.dialect import CsvDialect
from lancetnic_dask.corpus.frame import Corpus
from lancetnic_dask.corpus.sources import list_files
from lancetnic_dask.errors import CacheError, SettingError
from lancetnic_dask.features.cache import ShardCache
from lancetnic_dask.features.counts import count_partition
from lancetnic_dask.features.groups import encode_partition, encode_side, iter_groups, read_ahead
from lancetnic_dask.jit import keeps_machine_code
from lancetnic_dask.models.networks import build_network, try_class
from lancetnic_dask.models.optimizers import needs_dense_grad
from lancetnic_dask.pipeline.context import RunContext
from lancetnic_dask.pipeline.prepare import count_corpus, find_classes, fit_features, plan_corpus
from lancetnic_dask.pipeline.summary import count_rows, finish, hyperparameters
from lancetnic_dask.pipeline.warm import warm_kernels
from lancetnic_dask.run.console import Console
from lancetnic_dask.run.folder import Run, RunFolder, history_entry
from lancetnic_dask.run.model_file import ModelFile
from lancetnic_dask.training.devices import choose_device
from lancetnic_dask.training.loop import Trainer, make_criterion, train
from lancetnic_dask.training.torch_state import seeded_weights

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from lancetnic_dask.cluster.budget import MemoryBudget
    from lancetnic_dask.features.groups import FetchRows, ShardGroup, Side
    from lancetnic_dask.features.weighting import EncodedRows, FittedFeatures
    from lancetnic_dask.pipeline.prepare import CountedCorpus, ShardRef
    from lancetnic_dask.pipeline.request import FitRequest

__all__ = ["fit_classifier"]

logger = logging.getLogger(__name__)

# Bytes of a term in an encoded row (int32 column, float32 weight), and of a row beside its terms
# (where it starts, its target, its place in the order).
_TERM_BYTES = 8
_ROW_BYTES = 24


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
    """
    console = Console(progress=request.progress)
    make_criterion(request.training.crit_name)
    device = choose_device(request.training.device_name)
    needs_dense_grad(request.training.optim_name)
    with seeded_weights(request.training.random_state):
        try_class(request.network_plan(0, len(request.roles.data_columns), num_classes=0))
    if request.train_path is None:
        raise SettingError("train_path is None.", None, "Pass the CSV files to train on.")
    sources = [_sources(path, request) for path in (request.train_path, request.val_path)]
    budget = _decide_budget(request, sources)
    logger.info("memory budget\n%s", budget)
    with MemoryWatch() as watch, _cache(request) as cache:
        if budget.num_workers:
            warm_kernels(request.recipe)
        with use_client(request.client, budget=budget) as client:
            if not budget.num_workers:
                check_workers(
                    client,
                    partition_bytes=budget.partition_bytes,
                    terms_per_token=request.terms_per_token,
                )
            console.say(f"Dask dashboard: {client.dashboard_link}")
            context = RunContext(request, client, budget, cache, console, device)
            run = _fit(context, sources[0], sources[1])
        run.peak_memory_bytes = watch.peak_bytes
    finish(run, context, watch)
    return run


def _sources(path: Any, request: FitRequest) -> Any:
    """List the files of a path before anything is started; a Corpus knows its own."""
    if path is None:
        return None
    if not isinstance(path, Corpus):
        return list_files(path, request.storage_options)
    if request.csv_format.dialect != CsvDialect() or request.csv_format.encoding != "utf-8":
        raise SettingError(
            "A Corpus knows its own separator, quotes and encoding.",
            None,
            "Pass them to Corpus.read_csv, not to Classification.",
        )
    return path


def _decide_budget(request: FitRequest, sources: Sequence[Any]) -> MemoryBudget:
    training = request.training
    num_texts, num_numbers = len(request.roles.text_columns), len(request.roles.data_columns)
    return decide_budget(
        request.memory,
        limit=available_memory(),
        num_cpus=available_cpus(),
        num_workers=setting("cluster.workers"),
        partition_bytes=max(
            source.plan.csv_format.partition_bytes
            if isinstance(source, Corpus)
            else request.csv_format.partition_bytes
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


@contextmanager
def _cache(request: FitRequest) -> Iterator[ShardCache]:
    """Yield the cache folder, or one for this run only if nothing is to be kept."""
    if request.uses_cache:
        yield ShardCache(request.cache_dir)
    else:
        with tempfile.TemporaryDirectory(prefix="lancetnic-") as folder:
            yield ShardCache(Path(folder))


def _fit(context: RunContext, train_source: Any, val_source: Any) -> Run:
    request = context.request
    with context.cache.work_folder() as work:
        with context.timed("plan"):
            corpus = plan_corpus(context, train_source)
            val_corpus = None if val_source is None else plan_corpus(context, val_source)
        with context.timed("tokenize"):
            split = request.split if val_corpus is None else None
            counted = count_corpus(context, corpus, split, work)
            counted_val = None
            if val_corpus is not None:
                counted_val = count_corpus(context, val_corpus, None, None)
        with context.timed("vocabulary"):
            classes = find_classes(request, counted, counted_val)
            context.budget.check_groups(
                _group_bytes(context, counted),
                group_size=request.training.group_size,
                largest_shard_bytes=max(_shard_bytes(context, counted)),
            )
            features = fit_features(context, counted, classes, work)
    return _train(context, counted, counted_val, features)


def _shard_bytes(context: RunContext, counted: CountedCorpus) -> list[int]:
    """Return what the training rows of each shard take at most as rows of numbers."""
    num_numbers = len(context.request.roles.data_columns)
    return [
        _TERM_BYTES * shard.num_entries + (_ROW_BYTES + 4 * num_numbers) * shard.num_training
        for shard in counted.shards
    ]


def _group_bytes(context: RunContext, counted: CountedCorpus) -> int:
    """Return what the largest two groups can take: one is trained on while the next is read."""
    sizes = sorted(_shard_bytes(context, counted), reverse=True)
    return sum(sizes[: 2 * context.request.training.group_size])


def _train(
    context: RunContext,
    counted: CountedCorpus,
    counted_val: CountedCorpus | None,
    features: FittedFeatures,
) -> Run:
    """Build the model, train it, and write down each epoch."""
    request, training = context.request, context.request.training
    num_classes = len(features.classes)
    model_args = {
        "hidden_size": training.hidden_size,
        "num_layers": training.num_layers,
        "num_classes": num_classes,
        "dropout": training.dropout,
    }
    trainer = _make_trainer(context, counted, features, model_args)
    fetch = _fetcher(context, counted, features)
    fetch_val = fetch if counted_val is None else _fetcher(context, counted_val, features)
    val_side: Side = "validation" if counted_val is None else "training"
    val_shards = range(len((counted_val or counted).shards))

    def groups_of_epoch(epoch: int) -> Generator[ShardGroup, None, None]:
        return read_ahead(
            iter_groups(
                fetch,
                len(counted.shards),
                group_size=training.group_size,
                random_state=training.random_state,
                epoch=epoch,
            )
        )

    def validation_rows() -> Generator[EncodedRows, None, None]:
        return read_ahead(fetch_val(val_shards, val_side))

    folder = RunFolder(request.run_dir)
    context.console.say(f"Run folder: {folder.path}")
    folder.write_hyperparameters(hyperparameters(request, features, counted, counted_val))
    epochs = train(
        trainer,
        num_epochs=training.num_epochs,
        groups_of_epoch=groups_of_epoch,
        validation_rows=validation_rows,
        num_classes=num_classes,
    )
    with closing(epochs):
        for result in epochs:
            context.console.say_epoch(result, training.num_epochs)
            context.add_seconds("train", result.train_seconds)
            context.add_seconds("validation", result.validation_seconds)
            with context.timed("write"):
                folder.record(
                    result,
                    ModelFile(
                        model_class=request.model_class,
                        model_args=model_args,
                        roles=request.roles,
                        features=features,
                        ngram_range=request.features.ngram_range,
                        stop_words=request.stop_words,
                        trained=history_entry(result),
                        state=trainer.model.state_dict(),
                    ),
                )
    return Run(
        folder=folder.path,
        best_model=folder.best_model,
        last_model=folder.last_model,
        history=folder.history,
        classes=features.classes,
        num_rows=count_rows(counted, counted_val),
        peak_memory_bytes=0,
        budget=context.budget.as_dict(),
        seconds=context.seconds,
    )


def _make_trainer(
    context: RunContext,
    counted: CountedCorpus,
    features: FittedFeatures,
    model_args: dict[str, Any],
) -> Trainer:
    """Build the model, unless it is larger than the budget allows."""
    request, training = context.request, context.request.training

    sizes = [len(vocabulary.terms) for vocabulary in features.vocabularies]

    def model_bytes(max_features: int) -> int:
        num_terms = sum(min(size, max_features) for size in sizes)
        return request.model_bytes(num_terms, features.num_numeric, model_args["num_classes"])

    context.budget.check_model(
        model_bytes,
        num_features=max(sizes, default=0),
        group_bytes=_group_bytes(context, counted),
    )
    num_terms = features.input_size - features.num_numeric
    plan = request.network_plan(num_terms, features.num_numeric, model_args["num_classes"])
    with seeded_weights(training.random_state):
        model = build_network(plan, dense_grad=needs_dense_grad(training.optim_name))
    return Trainer(model.to(context.device), training, context.device)


def _fetcher(context: RunContext, counted: CountedCorpus, features: FittedFeatures) -> FetchRows:
    """Return where rows come from: kept shards are read here, others are made on workers."""
    recipe, cache = context.request.recipe, context.shard_cache
    options, split = counted.corpus.storage_options, counted.split

    def from_cache(shards: Sequence[int], side: Side) -> Generator[EncodedRows, None, None]:
        for number in shards:
            ref = counted.shards[number]
            shard = context.cache.load(ref.fingerprint)
            if shard is None:
                shard = _make_again(context, counted, ref)
            yield encode_side(shard, split, features, side)

    if cache is not None:
        return from_cache
    shared = context.share(features)

    def from_workers(shards: Sequence[int], side: Side) -> Generator[EncodedRows, None, None]:
        items = (
            (counted.shards[number].part, recipe, split, options, None, shared, side)
            for number in shards
        )
        yield from context.map_tasks(encode_partition, items, name="stream")

    return from_workers


def _make_again(context: RunContext, counted: CountedCorpus, ref: ShardRef) -> Any:
    """Have a worker make a shard that is gone from the cache, or broken; never this process.

    Tokenizing takes a worker's memory, and on a cluster text must not come here.
    """
    request = context.request
    options = counted.corpus.storage_options
    item = (ref.part, request.recipe, None, options, context.cache, None)
    with closing(context.map_tasks(count_partition, [item], name="tokenize-again")) as made:
        next(made)
    shard = context.cache.load(ref.fingerprint)
    if shard is None:
        raise CacheError(
            "The workers write to a cache that this process cannot see, or run another version "
            "of Python or lancetnic_dask.",
            str(request.cache_dir),
            "Pass a cache_dir= that is shared by this machine and the workers, or cache=False.",
        )
    return shard
