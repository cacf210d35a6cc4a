"""Files -> plan -> counted shards -> classes and features: all that comes before the model."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lancetnic_dask.corpus.collections import (
    check_recomputed,
    collection_kind,
    collection_token,
    plan_frame,
    plan_staged,
    stage_partition,
)
from lancetnic_dask.corpus.frame import Corpus
from lancetnic_dask.corpus.plan import plan_fingerprint
from lancetnic_dask.corpus.plan_files import plan_files
from lancetnic_dask.corpus.plan_table import copied_piece_bytes
from lancetnic_dask.corpus.readers import check_columns
from lancetnic_dask.corpus.schema import merge_set_aside
from lancetnic_dask.errors import CacheError, CorpusError, LabelError, Location, quoted
from lancetnic_dask.features.counts import count_partition
from lancetnic_dask.features.labels import order_labels
from lancetnic_dask.features.moments import Moments
from lancetnic_dask.features.vocabulary import build_vocabulary, count_merged_lists

if TYPE_CHECKING:
    from pathlib import Path

    from lancetnic_dask.corpus.collections import CollectionKind
    from lancetnic_dask.corpus.plan import PartitionPlan
    from lancetnic_dask.corpus.schema import SetAside
    from lancetnic_dask.features.counts import PartitionCounts
    from lancetnic_dask.features.terms import Vocabulary
    from lancetnic_dask.pipeline.context import RunContext
    from lancetnic_dask.pipeline.request import FitRequest
    from lancetnic_dask.run.progress import Stage
    from lancetnic_dask.settings import SplitSettings

__all__ = ["CountedCorpus", "ShardRef", "check_moments", "count_corpus", "find_classes",
           "fit_vocabularies", "plan_corpus"]  # fmt: skip

logger = logging.getLogger(__name__)

_SHOWN_LABELS = 10
# With fewer rows shares of them mean nothing.
_FEW_ROWS = 100


@dataclass(frozen=True)
class ShardRef:
    """A shard of a counted corpus.

    Parameters
    ----------
    part : PartitionPlan
        The partition it is made of.
    fingerprint : str
        Its name in the cache.
    num_training, num_validation, num_entries : int
        Rows on each side of the split, and entries of the training rows at most.
    """

    part: PartitionPlan
    fingerprint: str
    num_training: int
    num_validation: int
    num_entries: int


@dataclass
class CountedCorpus:
    """A corpus whose partitions have been tokenized and counted.

    What is kept grows by some numbers a shard, not by its labels or terms.
    """

    corpus: Corpus
    split: SplitSettings | None
    moments: Moments
    shards: list[ShardRef] = field(default_factory=list)
    training_labels: Counter[str] = field(default_factory=Counter)
    validation_labels: Counter[str] = field(default_factory=Counter)
    set_aside: list[SetAside] = field(default_factory=list)
    num_replaced: int = 0

    @property
    def num_training(self) -> int:
        """Rows that train."""
        return sum(shard.num_training for shard in self.shards)

    @property
    def num_validation(self) -> int:
        """Rows that validate."""
        return sum(shard.num_validation for shard in self.shards)

    @property
    def first_file(self) -> str:
        """For messages about the corpus as a whole."""
        return self.corpus.plan.files[0].file.url

    def add(self, part: PartitionPlan, fingerprint: str, counts: PartitionCounts) -> None:
        """Add the next partition, in the order of the corpus."""
        set_aside = sum(group.count for group in counts.set_aside)
        if counts.num_training + counts.num_validation + set_aside != part.num_rows:
            raise CorpusError(
                f"Of {part.num_rows} rows {counts.num_training} are to train, "
                f"{counts.num_validation} to validate and {set_aside} are set aside.",
                part.place(part.partitions[0]),
                "This is a fault of lancetnic_dask, or of the cache: pass another cache_dir=, and "
                "report it.",
            )
        self.shards.append(
            ShardRef(
                part,
                fingerprint,
                counts.num_training,
                counts.num_validation,
                counts.num_entries,
            )
        )
        self.training_labels.update(counts.training_labels)
        self.validation_labels.update(counts.validation_labels)
        self.moments = self.moments.merge(counts.moments)
        self.set_aside = merge_set_aside([*self.set_aside, *counts.set_aside])
        self.num_replaced += counts.num_replaced


def plan_corpus(context: RunContext, source: Any) -> Corpus:
    """Plan a corpus, or find its plan in the cache, and check that it has the columns."""
    request = context.request
    kind = collection_kind(source)
    if kind is not None:
        corpus = _computed(context, source, kind)
    elif isinstance(source, Corpus):
        corpus = source
    else:
        fingerprint = plan_fingerprint(source, request.file_format, request.roles.names)
        plan = context.cache.load_plan(fingerprint) if request.uses_cache else None
        if plan is None:
            num_bytes = sum(file.size for file in source)
            with context.console.stage("Plan", total=num_bytes, unit="bytes") as stage:
                plan = plan_files(
                    source,
                    request.file_format,
                    columns=request.roles.names,
                    copies=context.cache.copies,
                    storage_options=request.storage_options,
                    map_tasks=context.map_tasks,
                    advance=stage.advance,
                )
            if request.uses_cache:
                context.cache.publish_plan(fingerprint, plan)
        corpus = Corpus(plan, request.storage_options)
    check_columns(corpus.plan, request.roles.names)
    logger.info("%d rows in %d partitions", corpus.nrows, corpus.npartitions)
    return corpus


def _computed(context: RunContext, source: Any, kind: CollectionKind) -> Corpus:
    """Compute a collection once, a bounded number of partitions at a time, and keep it."""
    names, copies = context.request.roles.names, context.cache.copies
    partition_bytes = context.request.file_format.partition_bytes
    if kind == "pandas":
        return Corpus(plan_frame(source, names, copies, partition_bytes=partition_bytes))
    piece_bytes = copied_piece_bytes(partition_bytes)
    what = f"Dask {type(source).__name__}"
    parts = source[list(names)].to_delayed() if kind == "dask" else source.to_delayed()
    items = ((context.client.compute(part), names, copies, what, piece_bytes) for part in parts)
    staged = []
    with context.console.stage("Compute", total=len(parts), unit="partitions") as stage:
        for one in context.map_tasks(stage_partition, items, name="compute"):
            staged.append(one)
            stage.advance(1)
    check_recomputed(staged, collection_token(source, names), copies, kind=kind)
    return Corpus(plan_staged(staged, names, kind=kind, partition_bytes=partition_bytes))


def count_corpus(
    context: RunContext, corpus: Corpus, split: SplitSettings | None, work: Path | None
) -> CountedCorpus:
    """Tokenize every partition once, and count its training rows.

    Parameters
    ----------
    context : RunContext
        Runs the tasks.
    corpus : Corpus
        Planned.
    split : SplitSettings or None
        Which rows validate; None means none of them.
    work : Path or None
        Where term counts are written; None for a corpus that only validates.

    Returns
    -------
    CountedCorpus
        All rows are accounted for.

    Raises
    ------
    CorpusError
        As the policy for bad rows has it.
    LabelError
        If there are more labels than ``lancetnic.features.max-classes``.
    """
    request, recipe = context.request, context.request.recipe
    parts = [corpus.plan.only(partition) for partition in corpus.plan.partitions]
    items = (
        (
            part,
            recipe,
            split,
            corpus.storage_options,
            context.shard_cache,
            None if work is None else _counts_path(work, index),
        )
        for index, part in enumerate(parts)
    )

    def describe(index: int) -> Location:
        return parts[index].place(parts[index].partitions[0])

    nothing = np.zeros(len(request.roles.data_columns))
    counted = CountedCorpus(corpus, split, Moments(nothing, nothing, nothing))
    results = context.map_tasks(count_partition, items, name="tokenize", describe=describe)
    with context.console.stage("Tokenize", total=corpus.nrows) as stage:
        for part, counts in zip(parts, results, strict=True):
            counted.add(part, recipe.fingerprint(part), counts)
            _check_number_of_labels(request, counted)
            stage.advance(part.num_rows)
    return counted


def find_classes(
    request: FitRequest, counted: CountedCorpus, counted_val: CountedCorpus | None = None
) -> tuple[str, ...]:
    """Return the classes of the training corpus, and check that they can be learned."""
    for corpus in (counted,) if counted_val is None else (counted, counted_val):
        _check_number_of_labels(request, corpus)
        _warn_of_set_aside(corpus)
    column = request.roles.label_column
    training = counted.training_labels
    labels = training + counted.validation_labels
    place = counted.first_file
    if not labels:
        raise CorpusError(
            "No row can be used: all were set aside.", place, "See the warnings above."
        )
    if len(labels) == 1:
        raise LabelError(
            f"Column {column!r} has one value, {quoted(next(iter(labels)))}, in all "
            f"{labels.total()} rows.",
            place,
            "There is nothing to tell apart: pass a corpus with two classes at least.",
        )
    if not training:
        raise CorpusError(
            "No row is left to train on.", place, "Pass more rows, or a smaller split_ratio."
        )
    _warn_of_labels(counted)
    if counted_val is None:
        _warn_of_split(counted)
    # All rows of a validation corpus stand on its training side: it isn't split.
    validation = {} if counted_val is None else counted_val.training_labels
    unseen = {label: count for label, count in validation.items() if label not in labels}
    if counted_val is not None and unseen:
        listed = ", ".join(f"{label!r} ({unseen[label]} rows)" for label in sorted(unseen))
        raise LabelError(
            f"Column {column!r} of the validation corpus has labels that the training "
            f"corpus has not: {listed}.",
            counted_val.first_file,
            "Correct the labels, or leave these rows out of val_path.",
        )
    return order_labels(labels)


def _warn_of_set_aside(counted: CountedCorpus) -> None:
    """Say which rows were left out."""
    for group in counted.set_aside:
        logger.warning(
            "%d rows with %s were left out, the first at %s", group.count, group.reason, group.first
        )
    plan = counted.corpus.plan
    num_replaced = counted.num_replaced + sum(planned.num_replaced for planned in plan.files)
    if num_replaced:
        logger.warning(
            "%d characters that are not %s became U+FFFD", num_replaced, plan.file_format.encoding
        )


def _warn_of_labels(counted: CountedCorpus) -> None:
    """Name classes that can't be learned, and a column that hardly holds classes."""
    labels = counted.training_labels + counted.validation_labels
    untrained = sorted(labels.keys() - counted.training_labels.keys())
    if untrained:
        listed = ", ".join(map(quoted, untrained[:_SHOWN_LABELS]))
        more = len(untrained) - _SHOWN_LABELS
        logger.warning(
            "%d classes have no training row and cannot be predicted: %s%s",
            len(untrained),
            listed,
            f" and {more} more" if more > 0 else "",
        )
    if labels.total() > _FEW_ROWS and 2 * len(labels) > labels.total():
        logger.warning(
            "there are %d classes in %d rows: is this a column of labels?",
            len(labels),
            labels.total(),
        )


def _warn_of_split(counted: CountedCorpus) -> None:
    """Say that the split can't be what was asked for where many rows are equal."""
    num_rows = counted.num_training + counted.num_validation
    share, asked = counted.num_validation / num_rows, counted.split.split_ratio  # type: ignore[union-attr]
    if num_rows > _FEW_ROWS and 2 / 3 < share / asked < 3 / 2:
        return
    if not counted.num_validation or num_rows > _FEW_ROWS:
        logger.warning(
            "%.1f %% of %d rows validate, not %.1f %%: rows with equal features stay on one side, "
            "and there are few different ones. val_path= takes rows of their own",
            100 * share,
            num_rows,
            100 * asked,
        )


def check_moments(request: FitRequest, counted: CountedCorpus) -> None:
    """Refuse numbers that can't be scaled.

    Raises
    ------
    CorpusError
        If those of a column are too large.
    """
    moments = counted.moments
    for column, mean, scale in zip(
        request.roles.data_columns, moments.mean, moments.scale, strict=True
    ):
        if not np.isfinite([mean, scale]).all():
            raise CorpusError(
                f"The numbers of column {column!r} are too large: their mean is {mean:g} and "
                f"their spread {scale:g}.",
                counted.first_file,
                "Look for extreme values, and correct them or empty the cells.",
            )


def fit_vocabularies(
    context: RunContext, counted: CountedCorpus, work: Path
) -> tuple[Vocabulary, ...]:
    """Learn a vocabulary for each text column from the training rows.

    Raises
    ------
    CorpusError
        If a text column holds no word.
    CacheError
        If the workers wrote their counts where this process can't see them.
    """
    num_texts = len(context.request.roles.text_columns)
    num_lists = num_texts * count_merged_lists(len(counted.shards))
    try:
        with context.console.stage("Vocabulary", total=num_lists, unit="lists") as stage:
            return tuple(
                _fit_vocabulary(context, counted, index, work, stage) for index in range(num_texts)
            )
    except FileNotFoundError as error:
        raise CacheError(
            "The workers write to a cache that this process cannot see.",
            str(work),
            "Pass a cache_dir= that is shared by this machine and the workers.",
        ) from error


def _fit_vocabulary(
    context: RunContext, counted: CountedCorpus, index: int, work: Path, stage: Stage
) -> Vocabulary:
    request = context.request
    column = request.roles.text_columns[index]
    vocabulary = build_vocabulary(
        [
            (path := _counts_path(work, shard)).with_name(f"{path.name}.{index}.arrow")
            for shard in range(len(counted.shards))
        ],
        request.features,
        column=column,
        num_training=counted.num_training,
        max_features=request.max_features,
        map_tasks=context.map_tasks,
        advance=stage.advance,
    )
    logger.info(
        "column %r: %d of %d distinct terms are features",
        column,
        len(vocabulary.terms),
        vocabulary.num_distinct,
    )
    return vocabulary


def _counts_path(work: Path, shard: int) -> Path:
    return work / f"{shard:06d}"


def _check_number_of_labels(request: FitRequest, counted: CountedCorpus) -> None:
    """Stop when a column that is no label would fill the memory with its values."""
    num_labels = len(counted.training_labels) + len(counted.validation_labels)
    if num_labels <= 2 * request.max_classes:
        return
    num_rows = counted.num_training + counted.num_validation
    raise LabelError(
        f"Column {request.roles.label_column!r} has over {request.max_classes} distinct values in "
        f"the first {num_rows} rows.",
        counted.first_file,
        "Pass a label_column that holds classes. If these are classes, raise "
        "lancetnic.features.max-classes in Dask's configuration.",
    )
