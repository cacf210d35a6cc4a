"""What breaks on the way: shards, workers, caches that nobody else can see."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import dask.config
import psutil
import pytest
from corpora import make_corpus
from distributed import Client, LocalCluster

from lancetnic_dask import Classification, Corpus, load
from lancetnic_dask.cluster.budget import MemoryBudget
from lancetnic_dask.errors import CacheError, CorpusError, LabelError, SettingError
from lancetnic_dask.features.cache import ShardCache

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lancetnic_dask import Run


def train(folder: Path, client: Client, **options: Any) -> Run:
    """Train a small model on the corpus of a folder."""
    training: dict[str, Any] = {
        "train_path": folder / "tickets.csv",
        "num_epochs": 2,
        "hidden_size": 8,
        "partition_bytes": 60_000,
        "group_size": 3,
        "cache_dir": folder / "cache",
        "run_dir": folder / "runs",
        "progress": False,
    }
    return Classification("text", ["size"], "label").train(
        "ScalpelMC", client=client, **(training | options)
    )


def weights_of(run: Run) -> bytes:
    """Return the bytes of the last model's weights."""
    manifest = json.loads((run.last_model / "model.json").read_text(encoding="utf-8"))
    path: Path = run.last_model / manifest["files"]["weights"]["name"]
    return path.read_bytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with a corpus of about ten partitions."""
    make_corpus(tmp_path / "tickets.csv", num_rows=2000, signal=0.3)
    return tmp_path


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda path: path.unlink(), id="gone"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:1000]), id="cut short"),
        pytest.param(lambda path: path.write_bytes(b"something else"), id="foreign"),
    ],
)
def test_a_broken_shard_is_made_again(
    folder: Path, client: Client, harm: Callable[[Path], Any]
) -> None:
    """The model is the same, and the next run finds a whole shard."""
    whole = train(folder, client)
    shards = sorted((folder / "cache" / "shards").rglob("*.arrow"))
    harm(shards[2])

    again = train(folder, client)

    assert weights_of(again) == weights_of(whole)
    assert sorted((folder / "cache" / "shards").rglob("*.arrow")) == shards


def test_a_shard_that_goes_between_counting_and_training_is_made_by_a_worker(
    folder: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client never tokenizes in a worker's place: its memory is not meant for that."""
    whole = train(folder, client)
    shards = sorted((folder / "cache" / "shards").rglob("*.arrow"))
    check_groups = MemoryBudget.check_groups

    def evict(*arguments: Any, **options: Any) -> None:
        for shard in shards:
            shard.unlink()
        check_groups(*arguments, **options)

    monkeypatch.setattr(MemoryBudget, "check_groups", evict)
    monkeypatch.setattr("lancetnic_dask.features.build.build_shard", None)

    again = train(folder, client)

    assert weights_of(again) == weights_of(whole)


def test_a_cache_that_workers_do_not_share_is_said(
    folder: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a missing file of some inner name, and no tokenizing behind the user's back."""
    train(folder, client)
    monkeypatch.setattr(ShardCache, "load", lambda _self, _fingerprint: None)

    with pytest.raises(CacheError) as caught:
        train(folder, client)

    assert str(caught.value) == (
        "The workers write to a cache that this process cannot see, or run another version of "
        f"Python or lancetnic_dask.\n  at {folder / 'cache'}\n"
        "  Pass a cache_dir= that is shared by this machine and the workers, or cache=False."
    )


@pytest.mark.system
@pytest.mark.parametrize("cache", [True, False])
def test_a_worker_killed_on_the_way_costs_nothing_but_time(folder: Path, *, cache: bool) -> None:
    """SIGKILL while partitions are worked on: the same weights as without."""
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        whole = train(folder, client, cache_dir=folder / "other")
        killed = threading.Event()

        def kill_a_worker() -> None:
            pids = client.run(lambda: __import__("os").getpid())
            psutil.Process(next(iter(pids.values()))).kill()
            killed.set()

        timer = threading.Timer(0.3, kill_a_worker)
        timer.start()
        run = train(folder, client, cache=cache, num_epochs=2)
        timer.join()

    assert killed.is_set()
    assert weights_of(run) == weights_of(whole)


def test_numbers_too_large_to_scale_name_their_column(folder: Path, client: Client) -> None:
    """Their squares leave the range of float64; the column would silently become zero."""
    path = folder / "tickets.csv"
    path.write_text(path.read_text(encoding="utf-8") + '"some words",1e300,class01\n', "utf-8")

    with pytest.raises(CorpusError) as caught:
        train(folder, client)

    assert str(caught.value).startswith("The numbers of column 'size' are too large:")
    assert str(caught.value).endswith(
        f"\n  at {path}\n  Look for extreme values, and correct them or empty the cells."
    )


def test_an_extreme_number_in_validation_is_no_nan(folder: Path, client: Client) -> None:
    """It is cut off, as in prediction."""
    val_path = folder / "val.csv"
    make_corpus(val_path, num_rows=50, signal=0.3, seed=2)
    val_path.write_text(val_path.read_text("utf-8") + '"some words",1e300,class01\n', "utf-8")

    run = train(folder, client, val_path=val_path)

    assert run.history[-1]["val_loss"] > 0
    assert load(run.best_model).predict_row(["some words"], [1e300]).startswith("class")


def test_an_id_column_is_not_taken_for_labels(tmp_path: Path, client: Client) -> None:
    """It would fill the memory with values that occur once."""
    rows = (f"some words,{n},id{n}\n" for n in range(3000))
    (tmp_path / "tickets.csv").write_text("text,size,label\n" + "".join(rows), "utf-8")
    with (
        dask.config.set({"lancetnic.features.max-classes": 500}),
        pytest.raises(LabelError) as caught,
    ):
        train(tmp_path, client, partition_bytes=20_000)

    assert str(caught.value).startswith("Column 'label' has over 500 distinct values in the first ")


def test_a_corpus_keeps_its_own_options(folder: Path, client: Client) -> None:
    """Separator and partition size are the Corpus's; the run says so."""
    path = folder / "semicolons.csv"
    path.write_text((folder / "tickets.csv").read_text("utf-8").replace(",", ";"), "utf-8")
    corpus = Corpus.read_csv(path, delimiter=";", partition_bytes=50_000)

    run = train(folder, client, train_path=corpus)

    settings = (run.folder / "hyperparams.yaml").read_text(encoding="utf-8")
    assert "delimiter: ;" in settings
    assert "partition_bytes: 50000" in settings
    assert run.budget["partition_bytes"] == 50_000
    with pytest.raises(SettingError, match="A Corpus knows its own separator"):
        Classification("text", None, "label", delimiter=";").train("ScalpelMC", corpus)


def test_a_split_that_cannot_be_what_was_asked_for_is_said(
    tmp_path: Path, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Equal rows stay on one side: with two different ones 20 % is out of reach."""
    rows = (f"{'yes' if n % 2 else 'no'} please,{n % 2},{'ab'[n % 2]}\n" for n in range(1000))
    (tmp_path / "tickets.csv").write_text("text,size,label\n" + "".join(rows), "utf-8")

    train(tmp_path, client)

    assert "rows with equal features stay on one side" in caplog.text


def test_a_column_that_hardly_holds_labels_is_said(
    tmp_path: Path, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """With ten of the classes that cannot be learned, not all of them."""
    rows = (f"some words{n},{n},id{n}\n" for n in range(400))
    (tmp_path / "tickets.csv").write_text("text,size,label\n" + "".join(rows), "utf-8")

    train(tmp_path, client, num_epochs=1)

    assert "there are 400 classes in 400 rows: is this a column of labels?" in caplog.text
    (line,) = [line for line in caplog.text.splitlines() if "no training row" in line]
    assert line.count("'id") == 10
    assert line.endswith("more")


def test_no_path_is_an_error(client: Client) -> None:
    """Not a traceback of a loop over None."""
    with pytest.raises(SettingError, match="train_path is None"):
        Classification("text", None, "label").train(
            "ScalpelMC",
            None,  # type: ignore[arg-type]
            client=client,
        )
