"""Files -> plan -> counted shards -> classes and features: all that comes before the model."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lancetnic_dask.corpus.frame import Corpus
from lancetnic_dask.corpus.plan import PartitionPlan, plan_csv, plan_fingerprint
from lancetnic_dask.corpus.readers import column_positions
from lancetnic_dask.corpus.schema import merge_set_aside
from lancetnic_dask.errors import CorpusError, LabelError, Location, quoted
from lancetnic_dask.features.counts import count_partition
from lancetnic_dask.features.labels import order_labels
from lancetnic_dask.features.vocabulary import build_vocabulary
from lancetnic_dask.features.weighting import FittedFeatures

if TYPE_CHECKING:
    from pathlib import Path

    from lancetnic_dask.corpus.schema import SetAside
    from lancetnic_dask.features.counts import PartitionCounts
    from lancetnic_dask.features.groups import Side
    from lancetnic_dask.pipeline.bench import Bench
    from lancetnic_dask.pipeline.request import FitRequest
    from lancetnic_dask.settings import SplitSettings

__all__ = ["CountedCorpus", "count_corpus", "find_classes", "fit_features", "plan_corpus"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CountedCorpus:
    """A corpus whose partitions have been tokenized and counted."""

    plan: PartitionPlan
    parts: list[PartitionPlan]
    counts: list[PartitionCounts]
    split: SplitSettings | None

    def num_rows(self, side: Side) -> int:
        """Return the rows of one side."""
        name = "num_training" if side == "training" else "num_validation"
        return sum(getattr(counts, name) for counts in self.counts)

    def labels(self, side: Side) -> Counter[str]:
        """Return the rows of one side by label."""
        name = "training_labels" if side == "training" else "validation_labels"
        total: Counter[str] = Counter()
        for counts in self.counts:
            total.update(getattr(counts, name))
        return total

    @property
    def set_aside(self) -> list[SetAside]:
        """Rows that are on neither side, by reason."""
        return merge_set_aside(part for counts in self.counts for part in counts.set_aside)


def plan_corpus(bench: Bench, source: Any) -> PartitionPlan:
    """Plan a corpus, or find its plan in the cache, and check that it has the columns."""
    request = bench.request
    if isinstance(source, Corpus):
        plan = source.plan
    else:
        fingerprint = plan_fingerprint(source, request.csv_format)
        kept = bench.cache.load_plan(fingerprint)
        plan = kept or plan_csv(
            source,
            request.csv_format,
            storage_options=request.storage_options,
            map_tasks=bench.map_tasks,
        )
        if kept is None and request.uses_cache:
            bench.cache.publish_plan(fingerprint, plan)
    for planned in plan.files:
        column_positions(planned, request.roles.names)
    logger.info("%d rows in %d partitions", plan.num_rows, len(plan.partitions))
    return plan


def count_corpus(
    bench: Bench, plan: PartitionPlan, split: SplitSettings | None, work: Path | None
) -> CountedCorpus:
    """Tokenize every partition once, and count its training rows."""
    request = bench.request
    parts = [plan.only(partition) for partition in plan.partitions]
    items = (
        (
            part,
            request.recipe,
            split,
            request.storage_options,
            bench.shard_cache,
            None if work is None else work / f"{index:06d}",
        )
        for index, part in enumerate(parts)
    )

    def describe(index: int) -> Location:
        return Location(parts[index].files[0].file.url, byte=parts[index].partitions[0].start_byte)

    counts = list(bench.map_tasks(count_partition, items, name="tokenize", describe=describe))
    counted = CountedCorpus(plan, parts, counts, split)
    for group in counted.set_aside:
        logger.warning(
            "%d rows with %s were left out, the first at %s", group.count, group.reason, group.first
        )
    return counted


def find_classes(
    request: FitRequest, counted: CountedCorpus, counted_val: CountedCorpus | None
) -> tuple[str, ...]:
    """Return the classes of the training corpus, and check that they can be learned."""
    column = request.roles.label_column
    training = counted.labels("training")
    labels = training + counted.labels("validation")
    place = counted.plan.files[0].file.url
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
    untrained = sorted(labels.keys() - training.keys())
    if untrained:
        logger.warning("classes without a training row: %s", ", ".join(map(repr, untrained)))
    if not training:
        raise CorpusError(
            "No row is left to train on.", place, "Pass more rows, or a smaller split_ratio."
        )
    if counted_val is not None:
        # All rows of a validation corpus stand on its training side: it isn't split.
        unseen = {
            label: count
            for label, count in counted_val.labels("training").items()
            if label not in labels
        }
        if unseen:
            listed = ", ".join(f"{label!r} ({unseen[label]} rows)" for label in sorted(unseen))
            raise LabelError(
                f"Column {column!r} of the validation corpus has labels that the training "
                f"corpus has not: {listed}.",
                counted_val.plan.files[0].file.url,
                "Correct the labels, or leave these rows out of val_path.",
            )
    return order_labels(labels)


def fit_features(
    bench: Bench, counted: CountedCorpus, classes: tuple[str, ...], work: Path
) -> FittedFeatures:
    """Learn vocabularies and moments from the training rows."""
    request = bench.request
    num_training = counted.num_rows("training")
    vocabularies = tuple(
        build_vocabulary(
            [work / f"{part:06d}.{index}.arrow" for part in range(len(counted.parts))],
            request.features,
            column=column,
            num_training=num_training,
            max_features=request.max_features,
            map_tasks=bench.map_tasks,
        )
        for index, column in enumerate(request.roles.text_columns)
    )
    moments = counted.counts[0].moments
    for counts in counted.counts[1:]:
        moments = moments.merge(counts.moments)
    for column, vocabulary in zip(request.roles.text_columns, vocabularies, strict=True):
        logger.info(
            "column %r: %d of %d distinct terms are features",
            column, len(vocabulary.terms), vocabulary.num_distinct,
        )  # fmt: skip
    return FittedFeatures(
        vocabularies=vocabularies,
        moments=moments,
        sublinear_tf=request.features.sublinear_tf,
        classes=classes,
    )
