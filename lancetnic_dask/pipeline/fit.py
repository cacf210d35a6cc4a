"""A request -> a trained model in a run folder: the whole path for a classifier.

This module decides nothing about any stage; it hands the value of each to the next, and lends
them the cluster, the cache and the budget.
"""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING, Any

from lancetnic_dask.cluster.budget import decide_budget
from lancetnic_dask.cluster.limits import available_cpus, available_memory
from lancetnic_dask.cluster.local import use_client
from lancetnic_dask.cluster.memory_watch import MemoryWatch
from lancetnic_dask.config import setting
from lancetnic_dask.corpus.frame import Corpus
from lancetnic_dask.corpus.sources import list_files
from lancetnic_dask.features.cache import ShardCache
from lancetnic_dask.features.counts import count_partition
from lancetnic_dask.features.groups import encode_partition, iter_groups, read_ahead
from lancetnic_dask.models.optimizers import needs_dense_grad
from lancetnic_dask.models.registry import MODELS
from lancetnic_dask.pipeline.bench import Bench
from lancetnic_dask.pipeline.prepare import count_corpus, find_classes, fit_features, plan_corpus
from lancetnic_dask.pipeline.summary import count_rows, finish, hyperparameters
from lancetnic_dask.run.console import Console
from lancetnic_dask.run.folder import Run, RunFolder, history_entry
from lancetnic_dask.run.model_file import ModelFile
from lancetnic_dask.training.loop import choose_device, make_criterion, seeded_weights, train

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from lancetnic_dask.features.groups import FetchRows, ShardGroup, Side
    from lancetnic_dask.features.weighting import EncodedRows, FittedFeatures
    from lancetnic_dask.pipeline.prepare import CountedCorpus
    from lancetnic_dask.pipeline.request import FitRequest

__all__ = ["fit_classifier"]

logger = logging.getLogger(__name__)


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
    choose_device(request.training.device_name)
    num_texts = len(request.roles.text_columns)
    budget = decide_budget(
        request.memory,
        limit=available_memory(),
        num_cpus=available_cpus(),
        num_workers=setting("cluster.workers"),
        partition_bytes=request.csv_format.partition_bytes,
        group_size=request.training.group_size,
        terms_per_token=1 + request.features.ngram_range[1] - request.features.ngram_range[0],
        model_bytes_bound=request.model_bytes(
            request.max_features * num_texts, len(request.roles.data_columns), num_classes=1000
        ),
    )
    logger.info("memory budget\n%s", budget)
    sources = [_sources(path, request) for path in (request.train_path, request.val_path)]
    with MemoryWatch() as watch:
        with use_client(request.client, budget=budget) as client:
            console.say(f"Dask dashboard: {client.dashboard_link}")
            bench = Bench(request, client, budget, ShardCache(request.cache_dir), console)
            run = _fit(bench, sources[0], sources[1])
        run.peak_memory_bytes = watch.peak_bytes
    finish(run, bench, watch)
    return run


def _fit(bench: Bench, train_source: Any, val_source: Any) -> Run:
    request = bench.request
    with bench.cache.work_folder() as work:
        with bench.timed("plan"):
            training = plan_corpus(bench, train_source)
            validation = None if val_source is None else plan_corpus(bench, val_source)
        with bench.timed("tokenize"):
            split = request.split if validation is None else None
            counted = count_corpus(bench, training, split, work)
            counted_val = (
                None if validation is None else count_corpus(bench, validation, None, None)
            )
        with bench.timed("vocabulary"):
            classes = find_classes(request, counted, counted_val)
            features = fit_features(bench, counted, classes, work)
    return _train(bench, counted, counted_val, features)


def _sources(path: Any, request: FitRequest) -> Any:
    """List the files of a path before anything is started; a Corpus knows its own."""
    if path is None or isinstance(path, Corpus):
        return path
    return list_files(path, request.storage_options)


def _train(
    bench: Bench,
    counted: CountedCorpus,
    counted_val: CountedCorpus | None,
    features: FittedFeatures,
) -> Run:
    """Build the model, train it, and write down each epoch."""
    request, training = bench.request, bench.request.training
    num_classes = len(features.classes)
    bench.budget.check_model(
        request.model_bytes(features.num_terms, features.num_numeric, num_classes),
        bytes_per_feature=request.model_bytes(2, 0, 2) - request.model_bytes(1, 0, 2),
        num_features=features.num_terms,
    )
    model_args = {
        "hidden_size": training.hidden_size,
        "num_layers": training.num_layers,
        "num_classes": num_classes,
        "dropout": training.dropout,
    }
    device = choose_device(training.device_name)
    with seeded_weights(training.random_state):
        model = MODELS[request.model_name](
            features.input_size,
            **model_args,
            num_numeric=features.num_numeric,
            dense_grad=needs_dense_grad(training.optim_name),
        ).to(device)
    fetch = _fetcher(bench, counted, features)
    fetch_val = fetch if counted_val is None else _fetcher(bench, counted_val, features)
    val_side: Side = "validation" if counted_val is None else "training"
    val_shards = range(len((counted_val or counted).parts))

    def groups_of_epoch(epoch: int) -> Generator[ShardGroup, None, None]:
        return read_ahead(
            iter_groups(
                fetch,
                len(counted.parts),
                group_size=training.group_size,
                random_state=training.random_state,
                epoch=epoch,
            )
        )

    def validation_rows() -> Generator[EncodedRows, None, None]:
        return read_ahead(fetch_val(val_shards, val_side))

    folder = RunFolder(request.run_dir)
    bench.console.say(f"Run folder: {folder.path}")
    folder.write_hyperparameters(hyperparameters(request, features, num_classes))
    with closing(
        train(
            model,
            groups_of_epoch=groups_of_epoch,
            validation_rows=validation_rows,
            num_classes=num_classes,
            settings=training,
            device=device,
        )
    ) as epochs:
        for result in epochs:
            bench.console.say_epoch(result, training.num_epochs)
            for stage in ("train", "validation"):
                elapsed = getattr(result, f"{stage}_seconds")
                bench.seconds[stage] = bench.seconds.get(stage, 0.0) + elapsed
            with bench.timed("write"):
                folder.record(
                    result,
                    ModelFile(
                        model_name=request.model_name,
                        model_args=model_args,
                        roles=request.roles,
                        features=features,
                        ngram_range=request.features.ngram_range,
                        stop_words=request.stop_words,
                        trained=history_entry(result),
                        state=model.state_dict(),
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
        budget=bench.budget.as_dict(),
        seconds=bench.seconds,
    )


def _fetcher(bench: Bench, counted: CountedCorpus, features: FittedFeatures) -> FetchRows:
    """Return where rows come from: kept shards are read here, others are made on workers."""
    request, recipe, cache = bench.request, bench.request.recipe, bench.shard_cache
    options = request.storage_options

    def from_cache(shards: Sequence[int], side: Side) -> Generator[EncodedRows, None, None]:
        for shard in shards:
            part = counted.parts[shard]
            if cache is not None and cache.load(recipe.fingerprint(part)) is None:
                # Evicted or broken meanwhile: tokenizing takes a worker's memory, not ours.
                item = (part, recipe, None, options, cache, None)
                list(bench.map_tasks(count_partition, [item], name="tokenize-again"))
            yield encode_partition(part, recipe, counted.split, options, cache, features, side)

    def from_workers(shards: Sequence[int], side: Side) -> Generator[EncodedRows, None, None]:
        kept = bench.client.scatter(features, broadcast=True, hash=False)
        items = (
            (counted.parts[shard], recipe, counted.split, options, None, kept, side)
            for shard in shards
        )
        yield from bench.map_tasks(encode_partition, items, name="stream")

    return from_cache if request.uses_cache else from_workers
