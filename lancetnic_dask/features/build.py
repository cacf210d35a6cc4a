"""Worker task: partition -> token shard, parsed and tokenized exactly once."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancetnic_dask.corpus.number_cells import PLAIN_NUMBERS
from lancetnic_dask.corpus.plan import CORPUS_VERSION
from lancetnic_dask.corpus.readers import iter_rows
from lancetnic_dask.corpus.schema import SetAside, cast_rows, merge_set_aside
from lancetnic_dask.features import shard as shard_file
from lancetnic_dask.features.ngrams import expand_terms
from lancetnic_dask.features.shard import TokenShard
from lancetnic_dask.features.split import hash_rows
from lancetnic_dask.features.tokenize import TOKENIZER_VERSION, Tokenizer
from lancetnic_dask.features.unicode_tables import UNICODE_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lancetnic_dask.corpus.plan import PartitionPlan
    from lancetnic_dask.features.cache import ShardCache
    from lancetnic_dask.settings import BadRowPolicy, ColumnRoles, NumberFormat

__all__ = ["ShardRecipe", "build_shard", "obtain_shard"]


@dataclass(frozen=True, kw_only=True)
class ShardRecipe:
    """All that decides what stands in a shard, besides the bytes of its partition.

    Parameters
    ----------
    roles : ColumnRoles
        Columns and what they are.
    policy : {'error', 'skip'}
        What happens to bad rows.
    ngram_range : tuple of (int, int), default=(1, 1)
        Word n-grams; made from the codes of the plain shard, never from its text.
    stop_words : tuple of str, default=()
        Sorted; dropped before n-grams are made.
    numbers : NumberFormat, default=NumberFormat()
        How numbers are written in CSV files; others have numbers of their own.
    """

    roles: ColumnRoles
    policy: BadRowPolicy
    ngram_range: tuple[int, int] = (1, 1)
    stop_words: tuple[str, ...] = ()
    numbers: NumberFormat = PLAIN_NUMBERS

    @property
    def plain(self) -> ShardRecipe:
        """The recipe of single words, that n-grams and stop words are applied to."""
        return replace(self, ngram_range=(1, 1), stop_words=())

    def fingerprint(self, part: PartitionPlan) -> str:
        """Return the name of a partition's shard: 32 hexadecimal digits.

        It covers the file and its change stamp, the byte range, how the bytes are read, the
        columns and their roles, and whatever decides the tokens. It covers no seed, split,
        vocabulary or `max_features`.
        """
        key = [
            shard_file.FORMAT_VERSION,
            CORPUS_VERSION,
            TOKENIZER_VERSION,
            UNICODE_VERSION,
            asdict(part.files[0].file),
            part.files[0].columns,
            asdict(part.file_format),
            asdict(part.partitions[0]),
            asdict(self),
        ]
        return hashlib.blake2b(json.dumps(key).encode(), digest_size=16).hexdigest()


def build_shard(
    part: PartitionPlan, recipe: ShardRecipe, storage_options: Mapping[str, Any] | None = None
) -> TokenShard:
    """Parse and tokenize a partition.

    Memory is bounded by the partition: the text goes through in pieces of some MiB, the codes
    and the terms stay.

    Parameters
    ----------
    part : PartitionPlan
        The plan of one partition alone (`PartitionPlan.only`).
    recipe : ShardRecipe
        What to make of it; its n-grams are left to `obtain_shard`.
    storage_options : mapping or None, default=None
        Options of the fsspec file system.

    Returns
    -------
    TokenShard
        Of single words.

    Raises
    ------
    CorpusError
        As the policy for bad rows has it.
    """
    roles = recipe.roles
    tokenizers = [Tokenizer() for _ in roles.text_columns]
    numeric, hashes, labels = [], [], []
    set_aside: list[SetAside] = []
    num_replaced = 0
    for raw in iter_rows(part, part.partitions[0], roles.names, storage_options):
        rows = cast_rows(
            raw,
            roles,
            encoding=part.file_format.cell_encoding,
            policy=recipe.policy,
            encoding_errors=part.file_format.encoding_errors,
            numbers=recipe.numbers if part.file_format.kind == "csv" else PLAIN_NUMBERS,
        )
        set_aside += rows.set_aside
        num_replaced += rows.num_replaced
        for tokenizer, text in zip(tokenizers, rows.texts, strict=True):
            tokenizer.add(text)
        numeric.append(rows.numeric)
        hashes.append(hash_rows(rows.texts, rows.numeric))
        if rows.labels is not None:
            labels.append(rows.labels)
    label_codes, label_values = _encode_labels(labels)
    return TokenShard(
        texts=tuple(tokenizer.finish() for tokenizer in tokenizers),
        numeric=np.concatenate([np.empty((0, len(roles.data_columns))), *numeric]),
        label_codes=label_codes,
        label_values=label_values,
        row_hash=np.concatenate([np.empty((0, 2), np.uint64), *hashes]),
        set_aside=tuple(merge_set_aside(set_aside)),
        num_replaced=num_replaced,
    )


def obtain_shard(
    part: PartitionPlan,
    recipe: ShardRecipe,
    storage_options: Mapping[str, Any] | None = None,
    cache: ShardCache | None = None,
) -> TokenShard:
    """Return a partition's shard: from the cache, or made anew and kept there.

    The result is the same with a warm cache, a cold one, and none.

    Parameters
    ----------
    part, recipe, storage_options
        As in `build_shard`.
    cache : ShardCache or None, default=None
        Where shards are kept; None makes them each time.

    Returns
    -------
    TokenShard
        With the n-grams and without the stop words of the recipe.
    """
    if cache is not None:
        kept = cache.load(recipe.fingerprint(part))
        if kept is not None:
            return kept
    if recipe == recipe.plain:
        made = build_shard(part, recipe, storage_options)
    else:
        plain = obtain_shard(part, recipe.plain, storage_options, cache)
        made = replace(
            plain,
            texts=tuple(
                expand_terms(
                    text,
                    ngram_range=recipe.ngram_range,
                    stop_words=frozenset(recipe.stop_words),
                )
                for text in plain.texts
            ),
        )
    if cache is not None:
        cache.publish(recipe.fingerprint(part), made)
    return made


def _encode_labels(labels: list[pa.Array]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return codes int32 (num_rows,) into the sorted distinct labels."""
    if not labels:
        return np.empty(0, np.int32), ()
    encoded = pa.chunked_array(labels).cast(pa.string()).combine_chunks().dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    rank = np.empty(len(order), np.int32)
    rank[order.to_numpy()] = np.arange(len(order), dtype=np.int32)
    codes = rank[encoded.indices.to_numpy()]
    return codes, tuple(encoded.dictionary.take(order).to_pylist())
