"""A finished run -> what is written down about it: settings, rows, figures, versions."""

from __future__ import annotations

import logging
import math
import platform
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from lancetnic_dask.cluster.limits import available_cpus
from lancetnic_dask.corpus.schema import merge_set_aside
from lancetnic_dask.run.folder import write_summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lancetnic_dask.cluster.memory_watch import MemoryWatch
    from lancetnic_dask.corpus.frame import Corpus
    from lancetnic_dask.features.weighting import FittedFeatures
    from lancetnic_dask.pipeline.context import RunContext
    from lancetnic_dask.pipeline.prepare import CountedCorpus
    from lancetnic_dask.pipeline.request import FitRequest
    from lancetnic_dask.run.folder import Run

__all__ = ["count_rows", "draw", "finish", "hyperparameters"]

logger = logging.getLogger(__name__)

_PACKAGES = ("lancetnic_dask", "dask", "distributed", "torch", "pyarrow", "numpy", "numba")


def hyperparameters(
    request: FitRequest,
    features: FittedFeatures,
    counted: CountedCorpus,
    counted_val: CountedCorpus | None,
    *,
    device: str,
) -> dict[str, Any]:
    """Return the settings of a run for ``hyperparams.yaml``, lancetnic's names first.

    They are all that decides the model, besides the versions in ``summary.json``, and the code
    of a model class of the user's.
    """
    training, file_format = request.training, counted.corpus.plan.file_format
    stop_words = request.features.stop_words
    return {
        "model_params": {
            "model_name": request.model_name,
            "input_size": features.input_size,
            "hidden_size": training.hidden_size,
            "num_layers": training.num_layers,
            "num_classes": len(features.classes),
            "dropout": training.dropout,
        },
        "train_params": {
            "num_epochs": training.num_epochs,
            "batch_size": training.batch_size,
            "learning_rate": training.learning_rate,
            "optimizer": training.optim_name,
            "criterion": training.crit_name,
            "device_name": device,
            "random_state": training.random_state,
            "group_size": training.group_size,
            "torch_threads": 1,
        },
        "feature_params": {
            **asdict(request.features),
            "max_features": request.max_features,
            "ngram_range": list(request.features.ngram_range),
            "stop_words": stop_words if isinstance(stop_words, str) else list(request.stop_words),
        },
        "data_params": {
            "train_files": _file_names(counted),
            "val_files": None if counted_val is None else _file_names(counted_val),
            "text_column": list(request.roles.text_columns),
            "data_column": list(request.roles.data_columns),
            "label_column": request.roles.label_column,
            "split_ratio": request.split.split_ratio if counted_val is None else None,
            "on_bad_rows": request.policy,
            "kind": file_format.kind,
            **asdict(file_format.dialect),
            "names": None if file_format.names is None else list(file_format.names),
            "encoding": file_format.encoding,
            "encoding_errors": file_format.encoding_errors,
            **asdict(request.numbers),
            "partition_bytes": file_format.partition_bytes,
            "max_row_bytes": file_format.max_row_bytes,
        },
    }


def _file_names(counted: CountedCorpus) -> list[str]:
    return [planned.file.url for planned in counted.corpus.plan.files]


def _files(corpus: Corpus) -> dict[str, Any]:
    """Say what was read: a file that is changed later can be told by its size and stamp."""
    return {
        "num_rows": corpus.nrows,
        "num_partitions": corpus.npartitions,
        "files": [asdict(planned.file) for planned in corpus.plan.files],
    }


def count_rows(counted: CountedCorpus, counted_val: CountedCorpus | None) -> dict[str, Any]:
    """Account for every row: read = training + validation + set aside."""
    corpora = [counted] if counted_val is None else [counted, counted_val]
    set_aside = merge_set_aside(group for corpus in corpora for group in corpus.set_aside)
    return {
        "read": sum(corpus.corpus.nrows for corpus in corpora),
        "training": counted.num_training,
        "validation": counted.num_validation if counted_val is None else counted_val.num_training,
        "set_aside": {group.reason: group.count for group in set_aside},
    }


def draw(run: Run, context: RunContext) -> None:
    """Draw the pictures, once the workers have given their memory back.

    A picture is not worth the run: what can't be drawn is logged.
    """
    folder = context.report.run_folder
    if folder is None:
        return
    try:
        with context.timed("plots"):
            folder.write_plots(
                run.classes,
                run.rows_by_class,
                matplotlib_folder=context.matplotlib_folder,
            )
    except Exception:  # a font may be broken, matplotlib too old or too new
        logger.warning(
            "the pictures of %s could not be drawn; the models are whole", run.folder, exc_info=True
        )


def finish(run: Run, context: RunContext, watch: MemoryWatch, corpora: Sequence[Corpus]) -> None:
    """Write the summary, and say where everything is.

    Parameters
    ----------
    run : Run
        What it brought.
    context : RunContext
        Of the run.
    watch : MemoryWatch
        What it took.
    corpora : sequence of Corpus
        The one that trained, and the one that validated if that was another.
    """
    request = context.request
    summary = {
        "format_version": 1,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "model_name": request.model_name,
        "columns": asdict(request.roles),
        "corpus": [_files(corpus) for corpus in corpora],
        "machine": {
            "platform": platform.platform(),
            "num_cpus": available_cpus(),
            "num_workers": context.num_workers,
            "device": str(context.device),
        },
        "num_rows": run.num_rows,
        "classes": list(run.classes),
        "best_epoch": int(run.best_epoch["epoch"]),
        "history": [
            {name: None if math.isnan(value) else value for name, value in entry.items()}
            for entry in run.history
        ],
        "seconds": run.seconds,
        "memory": {
            "peak_bytes": watch.peak_bytes,
            "client_peak_bytes": watch.client_peak_bytes,
            "workers_peak_bytes": watch.workers_peak_bytes,
            "budget": run.budget,
        },
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in _PACKAGES},
        },
    }
    write_summary(run.folder, summary)
    best, mib = run.best_epoch, 1 << 20
    accuracy = best["val_accuracy"]
    said = "" if math.isnan(accuracy) else f", validation accuracy {100 * accuracy:.2f} %"
    context.console.say(
        f"Best model: {run.best_model} (epoch {best['epoch']:.0f}{said})\n"
        f"Peak memory: {watch.peak_bytes / mib:,.0f} of {run.budget['total_bytes'] / mib:,.0f} MiB"
    )
