"""What a run learned of a corpus before training -> a file in the cache, for the next run on it.

Rows, labels and vocabulary follow from the shards, the split and the settings of the features. A
run that differs in its model alone finds them here, and needs no worker before its first step.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from lancetnic_dask.corpus.schema import SetAside  # noqa: TC001 - msgspec reads it
from lancetnic_dask.corpus.whole_file import explain_cache_errors, replace_file
from lancetnic_dask.features.moments import Moments
from lancetnic_dask.features.terms import Vocabulary
from lancetnic_dask.pipeline.prepare import CountedCorpus, ShardRef

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lancetnic_dask.corpus.frame import Corpus
    from lancetnic_dask.features.cache import ShardCache
    from lancetnic_dask.pipeline.request import FitRequest
    from lancetnic_dask.settings import SplitSettings

__all__ = ["Fit", "KeptFits"]

logger = logging.getLogger(__name__)

FORMAT_VERSION: Final = 2
_SCHEMA = pa.schema([("term", pa.string()), ("document_frequency", pa.int64())])
_METADATA_KEY = b"lancetnic_fit"


@dataclass(frozen=True)
class Fit:
    """What is known of the corpora before training.

    Parameters
    ----------
    counted : tuple of CountedCorpus
        The one that trains, and the one that validates if that is another.
    vocabularies : tuple of Vocabulary
        One for each text column.
    """

    counted: tuple[CountedCorpus, ...]
    vocabularies: tuple[Vocabulary, ...]


class _Counts(Struct, frozen=True):
    """A `CountedCorpus`; shards are (num_training, num_validation, num_entries) each."""

    shards: list[tuple[int, int, int]]
    training_labels: dict[str, int]
    validation_labels: dict[str, int]
    moments: tuple[list[float], list[float], list[float]]
    set_aside: list[SetAside]
    num_replaced: int


class _Record(Struct, frozen=True):
    """What stands beside the terms: vocabularies are (num_training, num_distinct) each."""

    counted: list[_Counts]
    vocabularies: list[tuple[int, int]]


class KeptFits:
    """The fits of one set of corpora and settings, in a cache folder.

    Parameters
    ----------
    cache : ShardCache
        Where they are kept, beside the shards.
    request : FitRequest
        Its settings of split and features decide, with the shards, what is learned.
    corpora : sequence of Corpus
        The one that trains, and the one that validates if that is another.
    """

    def __init__(self, cache: ShardCache, request: FitRequest, corpora: Sequence[Corpus]) -> None:
        self._cache = cache
        self._corpora = corpora
        self._split: SplitSettings | None = request.split if len(corpora) == 1 else None
        self._parts = [
            [corpus.plan.only(partition) for partition in corpus.plan.partitions]
            for corpus in corpora
        ]
        self._names = [
            [request.recipe.fingerprint(part) for part in parts] for parts in self._parts
        ]
        key = [
            FORMAT_VERSION,
            self._names,
            None if self._split is None else asdict(self._split),
            asdict(request.features),
            request.max_features,
        ]
        digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=16).hexdigest()
        self._path = cache.folder / "fits" / f"{digest}.arrow"

    def load(self) -> Fit | None:
        """Return the kept fit; None if there is none, it can't be read, or a shard is gone."""
        try:
            with pa.OSFile(str(self._path), "rb") as source, pa.ipc.open_file(source) as reader:
                metadata = (reader.schema.metadata or {})[_METADATA_KEY]
                batches = [reader.get_batch(at) for at in range(reader.num_record_batches)]
            record = msgspec.json.decode(metadata, type=_Record)
            fit = self._restore(record, batches)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, OSError, pa.ArrowException) as error:
            logger.warning("%s cannot be read (%s) and is made again", self._path, error)
            return None
        if not all(self._cache.has(name) for names in self._names for name in names):
            return None
        logger.info("rows, labels and vocabulary are those of an earlier run")
        return fit

    def publish(self, fit: Fit) -> None:
        """Keep a fit.

        Raises
        ------
        CacheError
            If the disk is full or the folder can't be written.
        """
        record = _Record(
            counted=[_counts_of(counted) for counted in fit.counted],
            vocabularies=[(one.num_training, one.num_distinct) for one in fit.vocabularies],
        )
        schema = _SCHEMA.with_metadata({_METADATA_KEY: msgspec.json.encode(record)})
        with (
            explain_cache_errors(self._cache.folder),
            replace_file(self._path) as stream,
            pa.ipc.new_file(stream, schema) as writer,
        ):
            for one in fit.vocabularies:
                frequency = pa.array(one.document_frequency)
                writer.write_batch(pa.record_batch([one.terms, frequency], schema=schema))

    def _restore(self, record: _Record, batches: list[pa.RecordBatch]) -> Fit:
        return Fit(
            counted=tuple(
                self._restore_counts(at, counts) for at, counts in enumerate(record.counted)
            ),
            vocabularies=tuple(
                Vocabulary(batch.column(0), batch.column(1).to_numpy(), num_training, num_distinct)
                for batch, (num_training, num_distinct) in zip(
                    batches, record.vocabularies, strict=True
                )
            ),
        )

    def _restore_counts(self, at: int, counts: _Counts) -> CountedCorpus:
        shards = [
            ShardRef(part, name, *numbers)
            for part, name, numbers in zip(
                self._parts[at], self._names[at], counts.shards, strict=True
            )
        ]
        return CountedCorpus(
            corpus=self._corpora[at],
            split=self._split,
            moments=Moments(*map(np.array, counts.moments)),
            shards=shards,
            training_labels=Counter(counts.training_labels),
            validation_labels=Counter(counts.validation_labels),
            set_aside=counts.set_aside,
            num_replaced=counts.num_replaced,
        )


def _counts_of(counted: CountedCorpus) -> _Counts:
    moments = counted.moments
    return _Counts(
        shards=[
            (shard.num_training, shard.num_validation, shard.num_entries)
            for shard in counted.shards
        ],
        training_labels=counted.training_labels,
        validation_labels=counted.validation_labels,
        moments=(moments.count.tolist(), moments.mean.tolist(), moments.squares.tolist()),
        set_aside=counted.set_aside,
        num_replaced=counted.num_replaced,
    )
