"""The run folder: numbered, whole at every moment, with lancetnic's columns."""

from __future__ import annotations

import csv
import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
import yaml

from lancetnic_dask.errors import LancetnicError
from lancetnic_dask.features.moments import Moments
from lancetnic_dask.features.terms import Vocabulary
from lancetnic_dask.features.weighting import FittedFeatures
from lancetnic_dask.inference import load
from lancetnic_dask.models import ScalpelMC
from lancetnic_dask.run.folder import Run, RunFolder, require_writable, write_summary
from lancetnic_dask.run.model_file import ModelFile
from lancetnic_dask.settings import ColumnRoles
from lancetnic_dask.training.loop import EpochResult, Validation
from lancetnic_dask.training.metrics import ClassCounts


def make_model(seed: int) -> ModelFile:
    """Return a model of two words and two classes."""
    torch.manual_seed(seed)
    network = ScalpelMC(2, 3, 1, 2, 0.0)
    vocabulary = Vocabulary(pa.array(["good", "poor"]), np.array([3, 2]), 5, 2)
    nothing = np.empty(0)
    return ModelFile(
        model_class=ScalpelMC,
        model_args={"hidden_size": 3, "num_layers": 1, "num_classes": 2, "dropout": 0.0},
        roles=ColumnRoles(text_columns=("text",), data_columns=(), label_column="label"),
        features=FittedFeatures(
            vocabularies=(vocabulary,),
            moments=Moments(nothing, nothing, nothing),
            sublinear_tf=False,
            classes=("a", "b"),
        ),
        ngram_range=(1, 1),
        stop_words=(),
        trained={"epoch": seed},
        state=network.state_dict(),
    )


def make_result(epoch: int, val_loss: float | None) -> EpochResult:
    """Return an epoch's result: two rows of three found, if any validate."""
    counts = ClassCounts(2)
    counts.add(np.array([0, 1, 1]), np.array([0, 1, 0]))
    return EpochResult(
        epoch=epoch,
        train_loss=1.0 / epoch,
        train_accuracy=0.5,
        validation=None if val_loss is None else Validation(val_loss, counts),
        num_rows=10,
        num_steps=2,
        train_seconds=0.5,
        validation_seconds=0.1,
    )


def bias_of(folder: Path) -> Any:
    """Return a few of a kept model's numbers: they tell which one it is."""
    return load(folder).predict_proba("good").tolist()


def test_best_is_the_lowest_validation_loss_and_last_the_last(tmp_path: Path) -> None:
    """As in lancetnic."""
    folder = RunFolder(tmp_path / "runs")

    for epoch, loss in enumerate([0.9, 0.4, 0.6], start=1):
        folder.record(make_result(epoch, loss), make_model(epoch))

    second, third = RunFolder(tmp_path / "other"), RunFolder(tmp_path / "other")
    second.record(make_result(1, 0.1), make_model(2))
    third.record(make_result(1, 0.1), make_model(3))
    assert bias_of(folder.best_model) == bias_of(second.best_model)
    assert bias_of(folder.last_model) == bias_of(third.best_model)


def test_without_validation_rows_the_training_loss_decides(tmp_path: Path) -> None:
    """There always is a best model, and the table says nan."""
    folder = RunFolder(tmp_path)

    folder.record(make_result(1, None), make_model(1))

    assert load(folder.best_model).classes.tolist() == ["a", "b"]
    with (folder.path / "result.csv").open(encoding="utf-8", newline="") as stream:
        row = next(csv.DictReader(stream))
    assert row["val_loss"] == "nan"
    assert row["train_loss"] == "1.0000"


def test_the_table_has_the_columns_of_lancetnic(tmp_path: Path) -> None:
    """Scripts that read it go on working; percent with two digits."""
    folder = RunFolder(tmp_path)

    folder.record(make_result(1, 0.25), make_model(1))

    assert (folder.path / "result.csv").read_text(encoding="utf-8") == (
        'epoch,train_loss,"train_acc, %",val_loss,"val_acc, %","val_precision, %",'
        '"val_recall,%",F1_score\n'
        "1,1.0000,50.00,0.2500,66.67,83.33,66.67,66.67\n"
    )


def test_settings_and_summary_are_plain_files(tmp_path: Path) -> None:
    """YAML that a safe loader reads, and JSON, in any alphabet."""
    folder = RunFolder(tmp_path)

    folder.write_hyperparameters({"data_params": {"label_column": "метка"}})
    write_summary(folder.path, {"classes": ["хорошо", "好"]})

    text = (folder.path / "hyperparams.yaml").read_text(encoding="utf-8")
    assert "метка" in text
    assert yaml.safe_load(text) == {"data_params": {"label_column": "метка"}}
    summary = (folder.path / "summary.json").read_text(encoding="utf-8")
    assert "хорошо" in summary
    assert json.loads(summary) == {"classes": ["хорошо", "好"]}
    assert sorted(path.name for path in folder.path.iterdir()) == [
        "hyperparams.yaml",
        "summary.json",
    ]


def test_folders_are_numbered_above_all_others(tmp_path: Path) -> None:
    """Gaps and foreign names don't matter."""
    for name in ("train_3", "train_10", "train_x", "notes", "train_²"):
        (tmp_path / name).mkdir()

    assert RunFolder(tmp_path).path.name == "train_11"
    assert RunFolder(tmp_path).path.name == "train_12"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """The message names the option to change."""
    (tmp_path / "runs").write_text("a file", encoding="utf-8")

    with pytest.raises(LancetnicError) as caught:
        RunFolder(tmp_path / "runs")

    assert str(caught.value) == (
        f"The run folder cannot be made: File exists.\n  at {tmp_path / 'runs'}\n"
        "  Pass another run_dir=."
    )


def test_a_run_shows_what_matters(tmp_path: Path) -> None:
    """Accuracy, and memory beside the budget."""
    run = Run(
        folder=tmp_path / "train_0",
        best_model=tmp_path / "train_0" / "best_model",
        last_model=tmp_path / "train_0" / "last_model",
        history=[
            {"epoch": 1, "val_accuracy": 0.875, "val_loss": 0.5, "train_loss": 0.6},
            {"epoch": 2, "val_accuracy": 0.75, "val_loss": 0.7, "train_loss": 0.2},
        ],
        classes=("a", "b"),
        rows_by_class=(2, 1),
        num_rows={},
        peak_memory_bytes=1 << 29,
        budget={"total_bytes": 2 << 30},
        seconds={"plan": 1.0, "train": 2.5},
    )

    assert repr(run) == (
        f"Run('{tmp_path}/train_0', 2 epochs, best 1 with val_accuracy=0.8750, "
        "peak 0.50 of 2.00 GiB, 3.5 s)"
    )


def test_a_full_disk_is_said_and_leaves_the_last_epoch_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metrics and models of the epochs before can still be used; nothing half-written stays."""
    folder = RunFolder(tmp_path)
    folder.record(make_result(1, 0.5), make_model(1))

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(LancetnicError) as caught:
        folder.record(make_result(2, 0.4), make_model(2))

    assert str(caught.value) == (
        f"The run folder cannot be written: No space left on device.\n  at {folder.path}\n"
        "  What was written before is whole. Free some space, or pass another run_dir=."
    )
    assert load(folder.best_model).classes.tolist() == ["a", "b"]
    assert not list(folder.path.rglob("*.partial"))


def test_a_stopped_run_tells_what_it_leaves(tmp_path: Path) -> None:
    """In terms of the files that are there."""
    folder = RunFolder(tmp_path)
    assert folder.what_is_left(3) == (
        f"Stopped in epoch 1: there is no model in {folder.path} yet."
    )
    for epoch, loss in ((1, 0.5), (2, 0.9), (3, 0.8)):
        folder.record(make_result(epoch, loss), make_model(epoch))
        where = "after the last epoch" if epoch == 3 else f"in epoch {epoch + 1}"
        assert folder.what_is_left(3) == (
            f"Stopped {where}: last_model is of epoch {epoch} and best_model of epoch 1 in "
            f"{folder.path}."
        )


def test_an_epoch_is_told_only_once_its_model_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop in between leaves metrics and models that belong together."""
    folder = RunFolder(tmp_path)
    folder.record(make_result(1, 0.5), make_model(1))

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lancetnic_dask.run.folder.write_model", stop)
    with pytest.raises(KeyboardInterrupt):
        folder.record(make_result(2, 0.4), make_model(2))

    assert len((folder.path / "result.csv").read_text(encoding="utf-8").splitlines()) == 2
    assert "last_model is of epoch 1" in folder.what_is_left(2)


@pytest.mark.parametrize("runs", ["taken", "taken/runs"])
def test_a_place_where_no_folder_can_be_is_told_before_training(tmp_path: Path, runs: str) -> None:
    """Nothing is made to find out."""
    (tmp_path / "taken").touch()

    with pytest.raises(LancetnicError) as caught:
        require_writable(tmp_path / runs)

    assert str(caught.value) == (
        f"The run folder cannot be made: this is a file.\n  at {tmp_path / 'taken'}\n"
        "  Pass another run_dir=."
    )
    require_writable(tmp_path / "new" / "runs")
    assert not (tmp_path / "new").exists()


def test_a_read_only_place_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a file system that is mounted so; root may write into any folder."""
    monkeypatch.setattr("os.access", lambda *_: False)

    with pytest.raises(LancetnicError, match="this folder is read-only"):
        require_writable(tmp_path / "runs")
