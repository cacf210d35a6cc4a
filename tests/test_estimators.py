"""The classes with lancetnic's arguments: what they accept, and what they say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dask.dataframe as dd
import pandas as pd
import pytest
import torch
from corpora import make_corpus
from own_models import OwnDense, OwnHalf, OwnSparse

from lancetnic_dask import Classification, load
from lancetnic_dask.errors import BudgetError, ModelFileError, SettingError
from lancetnic_dask.models import ScalpelMC

if TYPE_CHECKING:
    from pathlib import Path

    from distributed import Client

    from lancetnic_dask import Run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, client: Client) -> tuple[Classification, Run]:
    """Train a small model of a text and a number, by class and by position as in lancetnic."""
    folder = tmp_path_factory.mktemp("trained")
    make_corpus(folder / "tickets.csv", num_rows=1500, signal=0.3)
    classifier = Classification("text", ["size"], "label", 0.25, 7, 5000)
    run = classifier.train(
        ScalpelMC, folder / "tickets.csv", None, 2, 16, 1, 64, 0.001, 0, "auto", "CELoss", "cpu",
        client=client, cache_dir=folder, run_dir=folder / "runs", progress=False,
    )  # fmt: skip
    return classifier, run


def test_the_estimator_keeps_its_run(trained: tuple[Classification, Run]) -> None:
    """Metrics by epoch and paths stay at hand."""
    classifier, run = trained

    assert classifier.run_ is run
    assert [entry["epoch"] for entry in run.history] == [1, 2]
    assert run.num_rows["validation"] / run.num_rows["read"] == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize("text", ["a text", ["a text"]])
@pytest.mark.parametrize("number", [120, 120.5, [120], [None]])
def test_predict_takes_one_row_as_in_lancetnic(
    trained: tuple[Classification, Run], text: Any, number: Any
) -> None:
    """A value or a list with one for each column; the same as `load(...).predict`."""
    classifier, run = trained

    label = classifier.predict(run.best_model, text_data=text, scalar_data=number)

    numbers = [number[0] if isinstance(number, list) else number]
    assert label == load(run.best_model).predict(["a text"], numbers)[0]
    assert type(label) is str


def test_predict_says_how_many_values_it_wants(trained: tuple[Classification, Run]) -> None:
    """With the columns of the model."""
    classifier, run = trained

    with pytest.raises(SettingError) as caught:
        classifier.predict(run.best_model, text_data=["one", "two"], scalar_data=1)

    assert str(caught.value) == (
        "There are 2 texts, and the model reads 1: 'text'.\n"
        "  Pass one for each column, in their order; for many rows use load(path).predict."
    )
    with pytest.raises(SettingError, match="There is nothing to predict for"):
        classifier.predict(run.best_model)
    with pytest.raises(SettingError) as caught:
        classifier.predict(run.best_model, "a text")
    assert str(caught.value) == (
        "The model also reads 'size'.\n  Pass scalar_data=, with None for a missing one."
    )
    with pytest.raises(SettingError, match=r"also reads 'text'\.\n  Pass text_data="):
        classifier.predict(run.best_model, scalar_data=1)


def test_an_object_that_only_predicts_needs_no_columns(
    trained: tuple[Classification, Run],
) -> None:
    """As lancetnic's documentation does it; training without them is told what is missing."""
    classifier, run = trained
    empty = Classification()

    assert empty.predict(run.best_model, "a text", 1) == classifier.predict(
        run.best_model, "a text", 1
    )
    with pytest.raises(SettingError, match=r"label_column is None\.\n  Pass the name of one"):
        empty.train("ScalpelMC", "nothing.csv")
    with pytest.raises(SettingError, match=r"There is no column to learn from\."):
        Classification(label_column="label").train("ScalpelMC", "nothing.csv")
    with pytest.raises(SettingError, match=r"Column 'a' has two roles\."):
        Classification("a", "a", "b").train("ScalpelMC", "nothing.csv")


def test_a_path_that_is_no_model(tmp_path: Path) -> None:
    """The message says what one looks like."""
    with pytest.raises(ModelFileError) as caught:
        Classification("text", None, "label").predict(tmp_path / "nothing", "a text")

    assert "Pass a folder like runs/train_0/best_model." in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"label_column": 7}, "label_column is 7.\n  Pass the name of one column."),
        ({"text_column": [7]}, "text_column holds 7."),
        ({"on_bad_rows": "drop"}, "on_bad_rows is 'drop'.\n  Pass 'error' or 'skip'."),
        ({"split_ratio": 2}, "split_ratio is 2."),
        ({"stop_words": "klingon"}, "stop_words"),
        ({"delimiter": ",,"}, "delimiter"),
    ],
)
def test_options_are_checked_when_the_estimator_is_made(options: dict[str, Any], text: str) -> None:
    """Before any file is opened."""
    columns: dict[str, Any] = {"text_column": "text", "label_column": "label"}

    with pytest.raises(SettingError) as caught:
        Classification(**(columns | options))

    assert text in str(caught.value)


@pytest.mark.parametrize("option", ["cache_dir", "run_dir"])
def test_folders_are_of_this_machine(tmp_path: Path, option: str) -> None:
    """Not taken for a folder named 's3:'."""
    folder: dict[str, Any] = {option: "s3://bucket/folder"}

    with pytest.raises(SettingError) as caught:
        Classification("text", None, "label").train("ScalpelMC", tmp_path, **folder)

    assert str(caught.value) == (
        f"{option} is 's3://bucket/folder'.\n  Pass a folder of this machine."
    )


@pytest.mark.parametrize("optimizer", ["auto", "Adam"])
@pytest.mark.parametrize("model_class", [OwnDense, OwnSparse, OwnHalf])
def test_a_model_of_the_users_trains_and_predicts(
    tmp_path: Path, client: Client, model_class: type[torch.nn.Module], optimizer: str
) -> None:
    """With lancetnic's constructor: batch by batch, on one seed always the same."""
    make_corpus(tmp_path / "tickets.csv", num_rows=1500, num_classes=5, signal=0.3)
    classifier = Classification("text", ["size"], "label")
    options: dict[str, Any] = {
        "num_epochs": 3,
        "hidden_size": 16,
        "optim_name": optimizer,
        "learning_rate": 0.01,
        "partition_bytes": 100_000,
        "client": client,
        "cache_dir": tmp_path,
        "run_dir": tmp_path / "runs",
        "progress": False,
    }

    run = classifier.train(model_class, tmp_path / "tickets.csv", **options)
    again = classifier.train(model_class, tmp_path / "tickets.csv", **options)

    assert run.best_epoch["val_accuracy"] > 0.8
    timeless = {"train_seconds", "validation_seconds", "rows_per_second"}
    assert [{k: e[k] for k in e.keys() - timeless} for e in run.history] == [
        {k: e[k] for k in e.keys() - timeless} for e in again.history
    ]
    label = classifier.predict(run.best_model, "a text", 120)
    model = load(run.best_model, model_name=model_class)
    assert model.predict(["a text"], [120])[0] == label
    table = pd.DataFrame({"text": ["a text"] * 3, "size": [120, 1, 2]})
    frame = dd.from_pandas(table, npartitions=2)
    with client.as_current():
        assert model.predict(frame).compute().tolist() == model.predict(table).tolist()
    with pytest.raises(ModelFileError, match="holds no code"):
        Classification("text", ["size"], "label").predict(run.best_model, "a text", 120)


def test_a_model_of_the_package_is_opened_after_one_of_the_users(
    trained: tuple[Classification, Run],
) -> None:
    """What the estimator trained last is used only where it is needed."""
    _, run = trained
    classifier = Classification("text", ["size"], "label")
    classifier._own_class = OwnDense

    assert type(classifier.predict(run.best_model, "a text", 120)) is str
    with pytest.raises(ModelFileError) as caught:
        load(run.best_model, model_name=OwnDense)
    assert str(caught.value) == (
        f"The model is a ScalpelMC of this package.\n  at {run.best_model}\n"
        "  Leave model_name= out."
    )


def test_a_faulty_model_of_the_users_ends_before_anything_is_read(tmp_path: Path) -> None:
    """No file is opened for it, and no cluster started."""

    class Own(torch.nn.Module):
        pass

    with pytest.raises(SettingError, match="Own cannot be made with"):
        Classification("text", None, "label").train(Own, tmp_path / "nothing.csv")


@pytest.mark.parametrize("model_class", [ScalpelMC, OwnDense])
def test_what_the_caller_has_made_torchs_defaults_does_not_matter(
    tmp_path: Path, client: Client, model_class: type[torch.nn.Module]
) -> None:
    """Trained, kept and used as under the plain ones, which stay the caller's."""
    make_corpus(tmp_path / "tickets.csv", num_rows=600, num_classes=3, signal=0.3)
    classifier = Classification("text", ["size"], "label")
    options: dict[str, Any] = {
        "num_epochs": 2,
        "hidden_size": 8,
        "client": client,
        "cache_dir": tmp_path,
        "run_dir": tmp_path / "runs",
        "progress": False,
    }
    plain = classifier.train(model_class, tmp_path / "tickets.csv", **options)
    expected = load(plain.last_model, model_name=model_class).predict_proba(["a text"], [120])

    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    try:
        run = classifier.train(model_class, tmp_path / "tickets.csv", **options)
        found = load(run.last_model, model_name=model_class).predict_proba(["a text"], [120])
        assert torch.get_default_dtype() == torch.float64
        assert torch.get_default_device().type == "meta"
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)

    assert found.tolist() == expected.tolist()


def test_a_model_of_the_users_that_is_too_large_is_refused_before_it_is_built(
    tmp_path: Path, client: Client
) -> None:
    """Its weights are counted with the real vocabulary, however they grow with it."""

    class Square(OwnSparse):
        def __init__(self, input_size: int, *sizes: Any, **options: Any) -> None:
            super().__init__(input_size, *sizes, **options)
            self.square = torch.nn.Parameter(torch.empty(input_size, input_size))

    make_corpus(tmp_path / "tickets.csv", num_rows=2000, signal=0.3)

    with pytest.raises(BudgetError, match=r"The model with \d+ features takes \d+\.\d\d GiB"):
        Classification("text", None, "label").train(
            Square, tmp_path / "tickets.csv", client=client, cache_dir=tmp_path,
            run_dir=tmp_path / "runs", progress=False, memory="1GiB", partition_bytes=1 << 20,
            group_size=2,
        )  # fmt: skip
