"""EpochResult -> runs/train_N: metrics by epoch, models, what was run and on what."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from lancetnic_dask.errors import LancetnicError, quoted
from lancetnic_dask.html_repr import HtmlTable, html_box, listed
from lancetnic_dask.run.model_file import ModelFile, copy_model, write_model
from lancetnic_dask.run.plots import draw_plots

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from lancetnic_dask.training.loop import EpochResult
    from lancetnic_dask.training.metrics import ClassCounts

__all__ = ["Run", "RunFolder", "history_entry", "require_writable", "write_summary"]

# lancetnic's names, so that scripts that read the file go on working.
_RESULT_COLUMNS = (
    "epoch",
    "train_loss",
    "train_acc, %",
    "val_loss",
    "val_acc, %",
    "val_precision, %",
    "val_recall,%",
    "F1_score",
)
# Names of metrics in a history.
_TRAINING = ("train_loss", "train_accuracy")
_VALIDATION = ("val_loss", "val_accuracy", "val_precision", "val_recall", "val_f1")


@dataclass
class Run:
    """A finished training run.

    Attributes
    ----------
    folder : Path
        ``runs/train_N``.
    best_model, last_model : Path
        Folders of the model with the lowest validation loss (training loss, where no row
        validates), and of the last epoch's.
    history : list of dict
        Metrics of each epoch: epoch, train_loss, train_accuracy, val_loss, val_accuracy,
        val_precision, val_recall, val_f1 (shares of 1; NaN without validation rows),
        train_seconds, validation_seconds, rows_per_second.
    classes : tuple of str
        Labels in the order of their class numbers.
    rows_by_class : tuple of int
        Rows of the training corpus that have each, those that validate included.
    num_rows : dict of str to int
        Rows read = training + validation + set aside, and rows by reason they were set aside.
    peak_memory_bytes : int
        Greatest memory of this process and its workers together, as measured.
    budget : dict
        What the memory budget allowed, in bytes, by item.
    seconds : dict of str to float
        Wall time by stage.
    """

    folder: Path
    best_model: Path
    last_model: Path
    history: list[dict[str, float]]
    classes: tuple[str, ...]
    rows_by_class: tuple[int, ...]
    num_rows: dict[str, Any]
    peak_memory_bytes: int
    budget: dict[str, Any]
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def best_epoch(self) -> dict[str, float]:
        """Metrics of the epoch whose model is `best_model`: the lowest validation loss."""
        return min(self.history, key=_loss_of)

    def __repr__(self) -> str:
        best = self.best_epoch
        gib = 1 << 30
        return (
            f"Run({str(self.folder)!r}, {len(self.history)} epochs, "
            f"best {best['epoch']:.0f} with val_accuracy={best['val_accuracy']:.4f}, "
            f"peak {self.peak_memory_bytes / gib:.2f} of "
            f"{self.budget['total_bytes'] / gib:.2f} GiB, "
            f"{sum(self.seconds.values()):.1f} s)"
        )

    def _repr_html_(self) -> str:
        """Show metrics, rows, memory and time in a notebook; nothing is read from the folder."""
        from dask.utils import format_bytes

        peak, total = (
            format_bytes(size) for size in (self.peak_memory_bytes, self.budget["total_bytes"])
        )
        return html_box(
            "Run",
            {
                "folder": self.folder,
                "best epoch": _shown_best(self.best_epoch),
                "classes": f"{len(self.classes):,}: {listed(self.classes, show=quoted)}",
                "peak memory": f"{peak} of {total}",
            },
            _epoch_table(self.history, self.best_epoch),
            _row_table(self.num_rows),
            HtmlTable(
                caption="Time",
                columns=("stage", "seconds"),
                rows=[(stage, f"{taken:,.1f}") for stage, taken in self.seconds.items()],
                total=("all stages", f"{sum(self.seconds.values()):,.1f}"),
            ),
        )


class RunFolder:
    """A new folder ``train_N`` that receives what a run brings.

    Parameters
    ----------
    runs : Path
        The folder of all runs; made if need be.

    Attributes
    ----------
    history : list of dict
        Metrics of each epoch, by `history_entry`.
    best_counts, last_counts : ClassCounts or None
        What the best and the last model made of the validation rows; None where there are none.

    Raises
    ------
    LancetnicError
        If the folder can't be made.
    """

    def __init__(self, runs: Path) -> None:
        self.path = _next_folder(runs)
        self.history: list[dict[str, float]] = []
        self.best_counts: ClassCounts | None = None
        self.last_counts: ClassCounts | None = None
        self._best_epoch = 0
        self._best_loss = float("inf")

    @property
    def best_model(self) -> Path:
        """Folder of the model with the lowest validation loss."""
        return self.path / "best_model"

    @property
    def last_model(self) -> Path:
        """Folder of the model of the last epoch."""
        return self.path / "last_model"

    def write_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        """Write ``hyperparams.yaml``."""
        text = yaml.safe_dump(hyperparameters, sort_keys=False, allow_unicode=True)
        with _explained(self.path):
            _write_text(self.path / "hyperparams.yaml", text)

    def record(self, result: EpochResult, model: ModelFile) -> None:
        """Write an epoch's metrics, and the model as it is after it.

        Parameters
        ----------
        result : EpochResult
            The epoch.
        model : ModelFile
            The model after it; kept as the best one if its validation loss is the lowest yet
            (its training loss where no row validates).

        Raises
        ------
        LancetnicError
            If the disk is full or the folder can't be written; older files stay whole.
        """
        entry = history_entry(result)
        with _explained(self.path):
            write_model(model, self.last_model)
            self.history.append(entry)
            self.last_counts = None if result.validation is None else result.validation.counts
            if _loss_of(entry) < self._best_loss:
                copy_model(self.last_model, self.best_model)
                self._best_loss, self._best_epoch = _loss_of(entry), result.epoch
                self.best_counts = self.last_counts
            _write_text(self.path / "result.csv", _result_csv(self.history))

    def write_plots(
        self, classes: Sequence[str], rows_by_class: Sequence[int], *, matplotlib_folder: Path
    ) -> None:
        """Draw the run: lancetnic's pictures, as `draw_plots` tells.

        Parameters
        ----------
        classes : sequence of str
            Labels in class order.
        rows_by_class : sequence of int
            Rows of `train_path` that have each.
        matplotlib_folder : Path
            Where matplotlib keeps its list of fonts, if it has no place of its own.

        Raises
        ------
        LancetnicError
            If the disk is full or the folder can't be written.
        """
        with _explained(self.path):
            draw_plots(
                self.path,
                history=self.history,
                classes=classes,
                rows_by_class=rows_by_class,
                best=self.best_counts,
                last=self.last_counts,
                matplotlib_folder=matplotlib_folder,
            )

    def what_is_left(self, num_epochs: int) -> str:
        """Say what a run that was stopped leaves, for the person who stopped it.

        Parameters
        ----------
        num_epochs : int
            Epochs that it was to have.
        """
        done = len(self.history)
        if not done:
            return f"Stopped in epoch 1: there is no model in {self.path} yet."
        where = "after the last epoch" if done == num_epochs else f"in epoch {done + 1}"
        best = f" and best_model of epoch {self._best_epoch}" if self._best_epoch else ""
        return f"Stopped {where}: last_model is of epoch {done}{best} in {self.path}."


def require_writable(runs: Path) -> None:
    """Look whether a run folder could be made, without making anything.

    Raises
    ------
    LancetnicError
        If it can't.
    """
    there = next(one for one in (runs, *runs.parents) if one.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise LancetnicError(
            "The run folder cannot be made: "
            + ("this is a file." if there.is_file() else "this folder is read-only."),
            str(there),
            "Pass another run_dir=.",
        )


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    """Write ``summary.json``: what was run, on what, with which versions and figures."""
    text = json.dumps(summary, ensure_ascii=False, indent=1)
    with _explained(folder):
        _write_text(folder / "summary.json", text + "\n")


def _next_folder(runs: Path) -> Path:
    """Make and return the first free ``train_N`` above all others; safe beside other runs."""
    try:
        runs.mkdir(parents=True, exist_ok=True)
        while True:
            taken = (name.removeprefix("train_") for name in os.listdir(runs))  # noqa: PTH208
            number = max((int(name) for name in taken if name.isdecimal()), default=-1) + 1
            folder = runs / f"train_{number}"
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            return folder
    except OSError as error:
        raise LancetnicError(
            f"The run folder cannot be made: {error.strerror}.",
            str(runs),
            "Pass another run_dir=.",
        ) from error


def history_entry(result: EpochResult) -> dict[str, float]:
    """Return an epoch's metrics as plain numbers; NaN where no row validates."""
    nothing = float("nan")
    validation = result.validation
    counts = None if validation is None else validation.counts
    return {
        "epoch": result.epoch,
        "train_loss": result.train_loss,
        "train_accuracy": result.train_accuracy,
        "val_loss": nothing if validation is None else validation.loss,
        "val_accuracy": nothing if counts is None else counts.accuracy,
        "val_precision": nothing if counts is None else counts.precision,
        "val_recall": nothing if counts is None else counts.recall,
        "val_f1": nothing if counts is None else counts.f1,
        "train_seconds": result.train_seconds,
        "validation_seconds": result.validation_seconds,
        "rows_per_second": result.num_rows / result.train_seconds,
    }


def _loss_of(entry: dict[str, float]) -> float:
    """Return the loss that makes a model the best: of validation, of training without."""
    return entry["train_loss"] if math.isnan(entry["val_loss"]) else entry["val_loss"]


def _shown_best(best: dict[str, float]) -> str:
    """Name an epoch and its metrics: of validation, of training where no row validates."""
    names = _TRAINING if math.isnan(best["val_loss"]) else _VALIDATION
    return f"{best['epoch']:.0f}: " + ", ".join(f"{name} {best[name]:.4f}" for name in names)


def _epoch_table(history: Sequence[dict[str, float]], best: dict[str, float]) -> HtmlTable:
    columns = (*_TRAINING, "val_loss", "val_accuracy", "val_f1")
    return HtmlTable(
        caption="Epochs (★ the best)",
        columns=("epoch", *columns),
        rows=[(int(entry["epoch"]), *(entry[name] for name in columns)) for entry in history],
        marked=history.index(best),
    )


def _row_table(num_rows: dict[str, Any]) -> HtmlTable:
    """Return what became of the rows: trained on, validated with, set aside for each reason."""
    set_aside = [(f"set aside: {why}", count) for why, count in num_rows["set_aside"].items()]
    used = [(side, num_rows[side]) for side in ("training", "validation")]
    return HtmlTable(
        caption="Rows",
        columns=("use", "rows"),
        rows=[*used, *set_aside],
        total=("read", num_rows["read"]),
    )


def _result_csv(history: Iterable[dict[str, float]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_RESULT_COLUMNS)
    for entry in history:
        shares = ("train_accuracy", "val_accuracy", "val_precision", "val_recall", "val_f1")
        percent = {name: f"{100 * entry[name]:.2f}" for name in shares}
        writer.writerow(
            [
                int(entry["epoch"]),
                f"{entry['train_loss']:.4f}",
                percent["train_accuracy"],
                f"{entry['val_loss']:.4f}",
                *(percent[name] for name in shares[1:]),
            ]
        )
    return text.getvalue()


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LancetnicError(
            f"The run folder cannot be written: {error.strerror or error}.",
            str(folder),
            "What was written before is whole. Free some space, or pass another run_dir=.",
        ) from error


def _write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
