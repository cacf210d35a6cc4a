"""Files to a trained model: what must hold for the whole path."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import yaml
from corpora import make_corpus
from distributed import Client, LocalCluster
from lancetnic_scripts import PICTURES

from lancetnic_dask import Classification, Corpus
from lancetnic_dask.models import ScalpelMC

if TYPE_CHECKING:
    from pathlib import Path

    from lancetnic_dask import Run

SMALL: dict[str, Any] = {
    "num_epochs": 2,
    "hidden_size": 16,
    "dropout": 0.2,
    "partition_bytes": 100_000,
    "group_size": 3,
    "progress": False,
}


@pytest.fixture(scope="module")
def corpus_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3,000 rows of 20 classes in ten partitions and four groups."""
    path = tmp_path_factory.mktemp("corpus") / "tickets.csv"
    make_corpus(path, num_rows=3000, signal=0.3)
    return path


def make_classifier(**options: Any) -> Classification:
    """Return a classifier of the corpora that the tests make."""
    return Classification(text_column="text", data_column=["size"], label_column="label", **options)


def train(path: Path, folder: Path, **options: Any) -> Run:
    """Train a small model, with cache and runs below one folder."""
    settings = SMALL | {"cache_dir": folder / "cache", "run_dir": folder / "runs"} | options
    return make_classifier().train(ScalpelMC, train_path=path, **settings)


def weights_of(run: Run) -> bytes:
    """Return the bytes of the last model's weights."""
    manifest = json.loads((run.last_model / "model.json").read_text(encoding="utf-8"))
    path: Path = run.last_model / manifest["files"]["weights"]["name"]
    return path.read_bytes()


@pytest.fixture(scope="module")
def reference_weights(
    corpus_path: Path, tmp_path_factory: pytest.TempPathFactory, client: Client
) -> bytes:
    """Weights from two workers of one thread, with a cold cache."""
    return weights_of(train(corpus_path, tmp_path_factory.mktemp("reference"), client=client))


@pytest.mark.system
@pytest.mark.parametrize(("workers", "threads"), [(1, 1), (1, 4), (2, 2), (4, 1)])
def test_the_model_does_not_depend_on_the_workers(
    corpus_path: Path, tmp_path: Path, reference_weights: bytes, workers: int, threads: int
) -> None:
    """The same seed gives the same weights bit for bit, streaming as well as cached."""
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        cached = train(corpus_path, tmp_path, client=client)
        streamed = train(corpus_path, tmp_path, client=client, cache=False)

    assert weights_of(cached) == reference_weights
    assert weights_of(streamed) == reference_weights


@pytest.mark.parametrize("memory", ["1500MiB", "6GiB"])
def test_the_model_does_not_depend_on_the_budget(
    corpus_path: Path, tmp_path: Path, client: Client, reference_weights: bytes, memory: str
) -> None:
    """The budget changes what is in flight, never the order of rows or the model."""
    run = train(corpus_path, tmp_path, client=client, memory=memory)

    assert weights_of(run) == reference_weights


def test_a_warm_cache_gives_the_same_model(
    corpus_path: Path, tmp_path: Path, client: Client, reference_weights: bytes
) -> None:
    """Shards and plan of an earlier run are used again; the weights are the same."""
    train(corpus_path, tmp_path, client=client, num_epochs=1)
    shards = sorted((tmp_path / "cache" / "shards").rglob("*.arrow"))
    written = [shard.stat().st_mtime_ns for shard in shards]

    again = train(corpus_path, tmp_path, client=client)

    assert weights_of(again) == reference_weights
    assert [shard.stat().st_mtime_ns for shard in shards] == written
    assert len(shards) == Corpus.read_csv(corpus_path, partition_bytes=100_000).npartitions


def test_another_seed_gives_another_model(
    corpus_path: Path, tmp_path: Path, client: Client, reference_weights: bytes
) -> None:
    """The seed reaches split, weights and order."""
    run = make_classifier(random_state=7).train(
        ScalpelMC, corpus_path, client=client, cache_dir=tmp_path, run_dir=tmp_path / "r", **SMALL
    )

    assert weights_of(run) != reference_weights


def test_streaming_keeps_no_shard(corpus_path: Path, tmp_path: Path, client: Client) -> None:
    """With cache=False nothing stays behind in the cache folder."""
    train(corpus_path, tmp_path, client=client, cache=False, num_epochs=1)

    left = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert left == []


def test_a_file_sorted_by_label_trains_as_well_as_a_shuffled_one(
    tmp_path: Path, client: Client
) -> None:
    """Group shuffling mixes a sorted file: accuracy within one point."""
    accuracy = {}
    for is_sorted in (False, True):
        path = tmp_path / f"sorted_{is_sorted}.csv"
        make_corpus(path, num_rows=8000, num_classes=10, signal=0.2, is_sorted=is_sorted)
        run = train(
            path,
            tmp_path / str(is_sorted),
            client=client,
            num_epochs=3,
            hidden_size=64,
            dropout=0,
            group_size=8,
        )
        accuracy[is_sorted] = run.history[-1]["val_accuracy"]

    assert accuracy[True] > accuracy[False] - 0.01
    assert accuracy[False] > 0.9


def test_every_row_is_accounted_for(tmp_path: Path, client: Client) -> None:
    """Rows read = trained + validated + set aside, and the first place of each reason is told."""
    path = tmp_path / "dirty.csv"
    rows = [f"word{n % 7} other{n % 5} text,{n},{'ab'[n % 2]}" for n in range(200)]
    rows[10] = "no label here,1,"
    rows[20] = "not a number,many,a"
    rows[30] = "too,many,cells,a"
    rows[40] = ",,b"
    path.write_text("text,size,label\n" + "\n".join(rows) + "\n", encoding="utf-8")

    run = make_classifier(on_bad_rows="skip").train(
        ScalpelMC, path, client=client, cache_dir=tmp_path, run_dir=tmp_path, **SMALL
    )

    assert run.num_rows["read"] == 200
    assert run.num_rows["set_aside"] == {
        "no label": 1,
        "no number in column 'size'": 1,
        "too few or too many cells": 1,
        "neither a word nor a number": 1,
    }
    assert run.num_rows["training"] + run.num_rows["validation"] == 196


def test_the_run_folder_tells_what_was_run(
    corpus_path: Path, tmp_path: Path, client: Client
) -> None:
    """Metrics by epoch under lancetnic's names, settings, figures; memory beside the budget."""
    run = train(corpus_path, tmp_path, client=client)

    with (run.folder / "result.csv").open(encoding="utf-8", newline="") as stream:
        table = list(csv.DictReader(stream))
    assert [row["epoch"] for row in table] == ["1", "2"]
    assert list(table[0]) == [
        "epoch",
        "train_loss",
        "train_acc, %",
        "val_loss",
        "val_acc, %",
        "val_precision, %",
        "val_recall,%",
        "F1_score",
    ]
    assert float(table[1]["val_acc, %"]) == pytest.approx(
        100 * run.history[1]["val_accuracy"], abs=0.005
    )
    settings = yaml.safe_load((run.folder / "hyperparams.yaml").read_text(encoding="utf-8"))
    assert settings["model_params"]["hidden_size"] == 16
    summary = json.loads((run.folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["num_rows"]["read"] == 3000
    assert summary["memory"]["budget"]["total_bytes"] >= summary["memory"]["peak_bytes"] > 0
    assert run.peak_memory_bytes == summary["memory"]["peak_bytes"]
    stages = {"plan", "tokenize", "vocabulary", "train", "validation", "write", "plots"}
    assert set(run.seconds) == set(summary["seconds"]) == stages
    corpus = {"url": str(corpus_path), "size": corpus_path.stat().st_size}
    assert [one.items() >= corpus.items() for one in summary["corpus"][0]["files"]] == [True]
    assert summary["machine"]["device"] == "cpu"
    assert summary["versions"]["torch"] == torch.__version__
    counted = summary["num_rows"]
    assert counted["read"] == counted["training"] + counted["validation"]
    assert {path.name for path in run.folder.iterdir()} == {
        "best_model",
        "last_model",
        "result.csv",
        "hyperparams.yaml",
        "summary.json",
        *PICTURES,
    }


@pytest.mark.system
def test_there_are_no_more_workers_than_partitions(tmp_path: Path) -> None:
    """A worker that has nothing to do would only cost its start."""
    make_corpus(tmp_path / "tickets.csv", num_rows=1000, signal=0.3)

    run = train(tmp_path / "tickets.csv", tmp_path, num_epochs=1, partition_bytes=1 << 20)

    summary = json.loads((run.folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["corpus"][0]["num_partitions"] == 1
    assert summary["machine"]["num_workers"] == 1


def test_runs_are_numbered(corpus_path: Path, tmp_path: Path, client: Client) -> None:
    """A new folder is one above the highest, whatever gaps there are."""
    (tmp_path / "runs" / "train_7").mkdir(parents=True)
    (tmp_path / "runs" / "train_x").mkdir()

    run = train(corpus_path, tmp_path, client=client, num_epochs=1)

    assert run.folder.name == "train_8"


def test_a_planned_corpus_can_be_trained_on(
    corpus_path: Path, tmp_path: Path, client: Client, reference_weights: bytes
) -> None:
    """`train_path` takes a Corpus; the plan is the one that training would make."""
    planned = Corpus.read_csv(corpus_path, partition_bytes=100_000)

    run = make_classifier().train(
        ScalpelMC, planned, client=client, cache_dir=tmp_path, run_dir=tmp_path, **SMALL
    )

    assert weights_of(run) == reference_weights


def test_several_columns_of_each_kind(tmp_path: Path, client: Client) -> None:
    """Text columns have vocabularies of their own; numbers alone are enough to learn."""
    path = tmp_path / "columns.csv"
    rng = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as stream:
        stream.write("id,title,body,width,height,kind\n")
        for number in range(1000):
            wide = number % 2
            stream.write(
                f"{number},{'red' if wide else 'blue'} thing,some {rng.integers(50)}x words,"
                f"{wide * 5 + rng.normal():.3f},{rng.normal():.3f},{'wide' if wide else 'tall'}\n"
            )
    options = SMALL | {"num_epochs": 4, "batch_size": 8, "client": client, "cache_dir": tmp_path}

    both = Classification(["title", "body"], ["width", "height"], "kind").train(
        "ScalpelMC", path, run_dir=tmp_path, **options
    )
    numbers = Classification(None, ["width", "height"], "kind").train(
        "ScalpelMC", path, run_dir=tmp_path, **options
    )

    assert both.history[-1]["val_accuracy"] > 0.98
    assert numbers.history[-1]["val_accuracy"] > 0.9
    manifest = json.loads((both.best_model / "model.json").read_text(encoding="utf-8"))
    assert len(manifest["vocabularies"]) == 2


def test_a_validation_corpus_of_its_own(corpus_path: Path, tmp_path: Path, client: Client) -> None:
    """With `val_path` all rows of `train_path` train, and all of `val_path` validate."""
    val_path = tmp_path / "val.csv"
    make_corpus(val_path, num_rows=500, signal=0.3, seed=1)

    run = train(corpus_path, tmp_path, client=client, val_path=val_path, num_epochs=3)

    assert run.num_rows["training"] == 3000
    assert run.num_rows["validation"] == 500
    assert run.history[-1]["val_accuracy"] > 0.5


@pytest.mark.parametrize("optim_name", ["Adam", "AdamW", "RAdam", "SGD", "RMSprop", "Adagrad"])
def test_textbook_optimizers_train(
    corpus_path: Path, tmp_path: Path, client: Client, optim_name: str
) -> None:
    """Optimizers of lancetnic work by name, at their textbook meaning."""
    rate = 0.5 if optim_name == "SGD" else 0.01

    run = train(corpus_path, tmp_path, client=client, optim_name=optim_name, learning_rate=rate)

    assert run.history[1]["train_loss"] < run.history[0]["train_loss"]
