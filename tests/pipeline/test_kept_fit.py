"""What a run learned before training is found again by the next run, or learned anew."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from corpora import make_corpus

from lancetnic_dask import Classification
from lancetnic_dask.errors import LabelError
from lancetnic_dask.pipeline import fit

if TYPE_CHECKING:
    from pathlib import Path

    from distributed import Client

    from lancetnic_dask import Run

SMALL: dict[str, Any] = {
    "num_epochs": 1,
    "hidden_size": 8,
    "partition_bytes": 50_000,
    "progress": False,
}


@pytest.fixture(scope="module")
def corpus_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 rows in several partitions, one of them bad."""
    path = tmp_path_factory.mktemp("corpus") / "tickets.csv"
    make_corpus(path, num_rows=600, signal=0.3)
    with path.open("a", encoding="utf-8") as stream:
        stream.write("a row without a label,1,\n")
    return path


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the corpora that are counted, one for each time."""
    files: list[str] = []
    count_corpus: Any = vars(fit)["count_corpus"]

    def noted(context: Any, corpus: Any, *args: Any) -> Any:
        files.append(corpus.plan.files[0].file.url.rpartition("/")[2])
        return count_corpus(context, corpus, *args)

    monkeypatch.setattr(fit, "count_corpus", noted)
    return files


def train(path: Path, folder: Path, client: Client, **options: Any) -> Run:
    """Train a small model, with cache and runs below one folder."""
    classifier = Classification(
        text_column="text",
        data_column=["size"],
        label_column="label",
        on_bad_rows="skip",
        **{
            name: options.pop(name)
            for name in ("max_features", "min_df", "stop_words", "ngram_range", "random_state",
                         "split_ratio", "sublinear_tf")
            if name in options
        },
    )  # fmt: skip
    settings = SMALL | {"cache_dir": folder / "cache", "run_dir": folder / "runs"} | options
    return classifier.train("ScalpelMC", train_path=path, client=client, **settings)


def files_of(run: Run) -> dict[str, Any]:
    """Return names, which are digests, of the files of the last model."""
    manifest = json.loads((run.last_model / "model.json").read_text(encoding="utf-8"))
    files: dict[str, Any] = manifest["files"]
    return files


def test_a_second_run_needs_no_worker_and_gives_the_same_model(
    corpus_path: Path, tmp_path: Path, client: Client, counted: list[str]
) -> None:
    """Weights, vocabulary, classes, moments and the account of the rows are those of the first."""
    first = train(corpus_path, tmp_path, client, val_path=corpus_path)
    again = train(corpus_path, tmp_path, client, val_path=corpus_path)

    assert counted == ["tickets.csv"] * 2  # by the first run: to train, and to validate
    assert files_of(again) == files_of(first)
    assert again.num_rows == first.num_rows
    assert again.num_rows["set_aside"]
    assert again.classes == first.classes
    assert again.rows_by_class == first.rows_by_class


def test_another_model_needs_no_counting(
    corpus_path: Path, tmp_path: Path, client: Client, counted: list[str]
) -> None:
    """Nor do other epochs, batches or learning rates."""
    train(corpus_path, tmp_path, client)
    train(corpus_path, tmp_path, client, hidden_size=4, num_epochs=2, batch_size=7)

    assert counted == ["tickets.csv"]


@pytest.mark.parametrize(
    "options",
    [
        {"random_state": 1},
        {"split_ratio": 0.3},
        {"max_features": 50},
        {"min_df": 3},
        {"stop_words": ["the"]},
        {"ngram_range": (1, 2)},
        {"partition_bytes": 60_000},
    ],
    ids=str,
)
def test_what_changes_the_features_is_learned_anew(
    corpus_path: Path,
    tmp_path: Path,
    client: Client,
    counted: list[str],
    options: dict[str, Any],
) -> None:
    """The fit of the first run is of no use, and stays for the next one like it."""
    train(corpus_path, tmp_path, client)
    train(corpus_path, tmp_path, client, **options)
    train(corpus_path, tmp_path, client)

    assert counted == ["tickets.csv"] * 2


def test_a_changed_file_is_learned_anew(tmp_path: Path, client: Client, counted: list[str]) -> None:
    """As its shards are."""
    path = tmp_path / "grows.csv"
    make_corpus(path, num_rows=300, signal=0.3)
    before = train(path, tmp_path, client)
    make_corpus(path, num_rows=320, signal=0.3)
    after = train(path, tmp_path, client)

    assert counted == ["grows.csv"] * 2
    assert (before.num_rows["read"], after.num_rows["read"]) == (300, 320)


@pytest.mark.parametrize("damage", ["shard gone", "cut short", "no fit at all", "other fields"])
def test_a_damaged_cache_is_made_whole_again(
    corpus_path: Path,
    tmp_path: Path,
    client: Client,
    counted: list[str],
    caplog: pytest.LogCaptureFixture,
    damage: str,
) -> None:
    """The model is the same, and the log says what was wrong."""
    first = train(corpus_path, tmp_path, client)
    (path,) = (tmp_path / "cache" / "fits").iterdir()
    if damage == "shard gone":
        next((tmp_path / "cache" / "shards").rglob("*.arrow")).unlink()
    elif damage == "cut short":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "no fit at all":
        path.write_bytes(b"something else")
    else:
        path.write_bytes(path.read_bytes().replace(b'"set_aside"', b'"set_asjde"'))

    again = train(corpus_path, tmp_path, client)

    assert counted == ["tickets.csv"] * 2
    assert files_of(again) == files_of(first)
    assert ("is made again" in caplog.text) is (damage != "shard gone")


def test_warnings_and_errors_are_told_again(
    corpus_path: Path, tmp_path: Path, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that finds all counted says what the first one said, and checks what that checked."""
    train(corpus_path, tmp_path, client)
    told = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    caplog.clear()
    train(corpus_path, tmp_path, client)
    told_again = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]

    assert any("were left out" in message for message in told)
    assert told_again == told


def test_labels_are_checked_again(tmp_path: Path, client: Client) -> None:
    """A fit that is kept doesn't get round the check of a validation corpus."""
    path, val_path = tmp_path / "a.csv", tmp_path / "b.csv"
    path.write_text("text,size,label\n" + "one two,1,x\nthree four,2,y\n" * 5, encoding="utf-8")
    val_path.write_text("text,size,label\none,1,z\n", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(LabelError, match="'z'"):
            train(path, tmp_path, client, val_path=val_path)


def test_without_a_cache_nothing_is_kept(
    corpus_path: Path, tmp_path: Path, client: Client, counted: list[str]
) -> None:
    """As with shards."""
    for _ in range(2):
        train(corpus_path, tmp_path, client, cache=False)

    assert counted == ["tickets.csv"] * 2
    assert not (tmp_path / "cache").exists() or not list((tmp_path / "cache").rglob("*.arrow"))
