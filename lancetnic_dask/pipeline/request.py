"""What to train, on what and where, as the estimators hand it to the pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lancetnic_dask.features.build import ShardRecipe
from lancetnic_dask.models.dense_input import DENSE_SCORING_ROWS
from lancetnic_dask.models.networks import NetworkPlan, NetworkSize, measure_network
from lancetnic_dask.models.optimizers import optimizer_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import nn

    from lancetnic_dask.corpus.formats import FileFormat
    from lancetnic_dask.settings import (
        BadRowPolicy,
        ColumnRoles,
        FeatureSettings,
        NumberFormat,
        SplitSettings,
        TrainingSettings,
    )

__all__ = ["FitRequest"]

# Rows of a sparse gradient that one row of a batch touches at most, for the budget.
_TERMS_PER_ROW = 1000


@dataclass(frozen=True, kw_only=True)
class FitRequest:
    """What to train, on what, and where.

    Parameters
    ----------
    model_class : type[nn.Module]
        One of the package's models, or the user's.
    roles, numbers, file_format, policy
        How the corpus is read.
    features, stop_words, split, training
        What shapes the model.
    max_features, max_classes : int
        Terms of a text column at most, and classes.
    train_path, val_path
        Path, URL, glob, folder, list of these, or a `Corpus`; None for no own validation corpus.
    storage_options : mapping or None
        Options of the fsspec file system.
    client : Client, Cluster, str or None
        Where the partitions are worked on.
    memory : int, str or None
        Memory for everything together.
    uses_cache : bool
        Whether shards are kept on disk; else partitions are tokenized again each epoch.
    cache_dir, run_dir : Path
        Where shards are kept, and runs.
    progress : bool
        Whether to print.
    """

    model_class: type[nn.Module]
    roles: ColumnRoles
    numbers: NumberFormat
    file_format: FileFormat
    policy: BadRowPolicy
    features: FeatureSettings
    stop_words: tuple[str, ...]
    split: SplitSettings
    training: TrainingSettings
    max_features: int
    max_classes: int
    train_path: Any
    val_path: Any
    storage_options: Mapping[str, Any] | None
    client: Any
    memory: int | str | None
    uses_cache: bool
    cache_dir: Path
    run_dir: Path
    progress: bool

    @property
    def recipe(self) -> ShardRecipe:
        """What a shard is made by."""
        return ShardRecipe(
            roles=self.roles,
            numbers=self.numbers,
            policy=self.policy,
            ngram_range=self.features.ngram_range,
            stop_words=self.stop_words,
        )

    @property
    def terms_per_token(self) -> int:
        """Lengths of n-grams: so many terms stand in a shard for each token."""
        low, high = self.features.ngram_range
        return 1 + high - low

    @property
    def model_name(self) -> str:
        """The model's name in files and messages."""
        return self.model_class.__name__

    def network_plan(self, num_terms: int, num_numeric: int, num_classes: int) -> NetworkPlan:
        """Return what the network is made with."""
        training = self.training
        return NetworkPlan(
            model_class=self.model_class,
            input_size=num_terms + num_numeric,
            num_numeric=num_numeric,
            hidden_size=training.hidden_size,
            num_layers=training.num_layers,
            num_classes=num_classes,
            dropout=training.dropout,
        )

    def model_bytes(self, num_terms: int, num_numeric: int, num_classes: int) -> int:
        """Return bytes of weights, gradients, optimizer state and a checkpoint copy.

        For a model that reads dense rows, those of a batch too. A class of the user's that can't
        be measured counts as one hidden layer of four gates, as an LSTM has.
        """
        training = self.training
        plan = self.network_plan(num_terms, num_numeric, num_classes)
        size = measure_network(plan)
        if size is None:
            weights = 4 * training.hidden_size * (plan.input_size + training.hidden_size)
            size = NetworkSize(0, 0, weights, buffer_bytes=0, reads_dense_rows=True)
        state = optimizer_bytes(
            training.optim_name,
            size.sparse_rows,
            size.sparse_cols,
            size.other_weights,
            touched_rows=training.batch_size * _TERMS_PER_ROW,
        )
        kept = 4 * (size.sparse_rows * size.sparse_cols + size.other_weights) + size.buffer_bytes
        written_out = max(training.batch_size, DENSE_SCORING_ROWS) if size.reads_dense_rows else 0
        return 2 * kept + 4 * written_out * plan.input_size + state
