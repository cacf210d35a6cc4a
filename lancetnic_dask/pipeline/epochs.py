"""Counted shards and fitted features -> a trained model in a run folder, epoch by epoch."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from lancetnic_dask.errors import CacheError
from lancetnic_dask.features.counts import count_partition
from lancetnic_dask.features.groups import (
    ReadAhead,
    encode_partition,
    encode_side,
    iter_groups,
    shard_groups,
)
from lancetnic_dask.models.networks import build_network
from lancetnic_dask.models.optimizers import needs_dense_grad
from lancetnic_dask.models.trial import check_scores
from lancetnic_dask.pipeline.interrupts import hold_interrupt
from lancetnic_dask.pipeline.summary import count_rows, hyperparameters
from lancetnic_dask.run.folder import Run, RunFolder, history_entry
from lancetnic_dask.run.model_file import ModelFile
from lancetnic_dask.training.loop import EpochResult, Trainer, train_epoch
from lancetnic_dask.training.torch_state import seeded_weights

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from lancetnic_dask.features.groups import FetchRows, ShardGroup, Side
    from lancetnic_dask.features.weighting import EncodedRows, FittedFeatures
    from lancetnic_dask.pipeline.context import RunContext
    from lancetnic_dask.pipeline.prepare import CountedCorpus, ShardRef

__all__ = ["group_bytes", "shard_bytes", "train_model"]

# Bytes of a term in an encoded row (int32 column, float32 weight), and of a row beside its terms
# (where it starts, its target, its place in the order).
_TERM_BYTES = 8
_ROW_BYTES = 24


def shard_bytes(context: RunContext, counted: CountedCorpus) -> list[int]:
    """Return what the training rows of each shard take at most as rows of numbers."""
    num_numbers = len(context.request.roles.data_columns)
    return [
        _TERM_BYTES * shard.num_entries + (_ROW_BYTES + 4 * num_numbers) * shard.num_training
        for shard in counted.shards
    ]


def group_bytes(context: RunContext, counted: CountedCorpus) -> int:
    """Return what the largest two groups can take: one is trained on while the next is read."""
    sizes = sorted(shard_bytes(context, counted), reverse=True)
    return sum(sizes[: 2 * context.request.training.group_size])


def train_model(
    context: RunContext,
    counted: CountedCorpus,
    counted_val: CountedCorpus | None,
    features: FittedFeatures,
) -> Run:
    """Build the model, train it, and write down each epoch.

    Parameters
    ----------
    context : RunContext
        Where the rows come from.
    counted : CountedCorpus
        The corpus that trains.
    counted_val : CountedCorpus or None
        The corpus that validates; None if rows of `counted` do.
    features : FittedFeatures
        Vocabularies, moments and classes.

    Returns
    -------
    Run
        Its peak memory is not known yet.

    Raises
    ------
    BudgetError
        If the model doesn't fit.
    TrainingError
        If the loss is no finite number any more.
    """
    request, training = context.request, context.request.training
    num_classes = len(features.classes)
    model_args = {
        "hidden_size": training.hidden_size,
        "num_layers": training.num_layers,
        "num_classes": num_classes,
        "dropout": training.dropout,
    }
    with closing(_Rows(context, counted, counted_val, features)) as rows:
        trainer = _make_trainer(context, counted, features, model_args)
        folder = context.report.run_folder = RunFolder(request.run_dir)
        context.console.say(f"Run folder: {folder.path}")
        folder.write_hyperparameters(
            hyperparameters(request, features, counted, counted_val, device=str(context.device))
        )
        for epoch in range(training.num_epochs):
            result = _run_epoch(context, trainer, rows, epoch, num_classes)
            model = ModelFile(
                model_class=request.model_class,
                model_args=model_args,
                roles=request.roles,
                features=features,
                ngram_range=request.features.ngram_range,
                stop_words=request.stop_words,
                trained=history_entry(result),
                state=trainer.model.state_dict(),
            )
            with hold_interrupt():
                with context.timed("write"):
                    folder.record(result, model)
                context.console.say_epoch(result, training.num_epochs)
    rows_by_label = counted.training_labels + counted.validation_labels
    return Run(
        folder=folder.path,
        best_model=folder.best_model,
        last_model=folder.last_model,
        history=folder.history,
        classes=features.classes,
        rows_by_class=tuple(rows_by_label[label] for label in features.classes),
        num_rows=count_rows(counted, counted_val),
        peak_memory_bytes=0,
        budget=context.budget.as_dict(),
        seconds=context.seconds,
    )


class _Rows:
    """The rows that each epoch trains on, and those that validate, read while others are used.

    Where shards are kept, the first group of all is read while the model is made, and that of each
    later epoch while the one before is trained on and validated. Where workers make them again,
    that would take twice the memory on the workers.
    """

    def __init__(
        self,
        context: RunContext,
        counted: CountedCorpus,
        counted_val: CountedCorpus | None,
        features: FittedFeatures,
    ) -> None:
        self._training = context.request.training
        self._shards = counted.shards
        self._fetch = self._fetch_val = _fetcher(context, counted, features)
        self._val_side: Side = "validation"
        self._val_shards = range(len(self._shards))
        self.num_rows = counted.num_training + counted.num_validation
        if counted_val is not None:
            self._fetch_val = _fetcher(context, counted_val, features)
            self._val_side = "training"  # of a corpus that is not split
            self._val_shards = range(len(counted_val.shards))
            self.num_rows = counted.num_training + counted_val.num_training
        self._ahead: ReadAhead[ShardGroup] | None = None
        if context.shard_cache is not None:
            self._ahead = ReadAhead(self._read_epochs(0, self._training.num_epochs))

    def groups(self, epoch: int) -> Generator[ShardGroup, None, None]:
        """Yield the groups of an epoch; epochs are asked for one after the other."""
        if self._ahead is None:
            yield from ReadAhead(self._read_epochs(epoch, epoch + 1))
            return
        last = self._last_group(epoch)
        for group in self._ahead:
            index = group.index
            yield group
            del group  # given back before the next one is awaited
            if index == last:
                return

    def validation(self) -> Generator[EncodedRows, None, None]:
        """Yield the rows that validate, shard by shard; none is read before it is asked for."""
        yield from ReadAhead(self._fetch_val(self._val_shards, self._val_side))

    def close(self) -> None:
        """End the reading ahead."""
        if self._ahead is not None:
            self._ahead.close()

    def _read_epochs(self, first: int, stop: int) -> Generator[ShardGroup, None, None]:
        for epoch in range(first, stop):
            yield from iter_groups(
                self._fetch, len(self._shards), epoch=epoch, **self._group_options
            )

    def _last_group(self, epoch: int) -> int:
        """Return the index of the last group of an epoch that has a training row."""
        groups = shard_groups(len(self._shards), epoch=epoch, **self._group_options)
        return max(
            index
            for index, shards in enumerate(groups)
            if any(self._shards[shard].num_training for shard in shards)
        )

    @property
    def _group_options(self) -> dict[str, int]:
        training = self._training
        return {"group_size": training.group_size, "random_state": training.random_state}


def _run_epoch(
    context: RunContext, trainer: Trainer, rows: _Rows, epoch: int, num_classes: int
) -> EpochResult:
    """Train and validate once, with a bar."""
    title = f"Epoch {epoch + 1}/{context.request.training.num_epochs}"
    with context.console.stage(title, total=rows.num_rows, is_kept=False) as stage:
        result = train_epoch(
            trainer,
            rows.groups(epoch),
            rows.validation(),
            num_classes=num_classes,
            advance=stage.advance,
        )
    context.add_seconds("train", result.train_seconds)
    context.add_seconds("validation", result.validation_seconds)
    return result


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
        group_bytes=group_bytes(context, counted),
    )
    plan = request.network_plan(features.num_terms, features.num_numeric, model_args["num_classes"])
    with seeded_weights(training.random_state):
        model = build_network(plan, dense_grad=needs_dense_grad(training.optim_name))
        check_scores(plan, model)
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
