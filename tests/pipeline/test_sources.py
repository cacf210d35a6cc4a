"""One table, in whatever it comes: the same model, bit for bit."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import dask.bag as db
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pytest
from corpora import make_corpus
from pyarrow import feather, parquet

from lancetnic_dask import Classification, Corpus
from lancetnic_dask.errors import ColumnError, CorpusError, SettingError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from distributed import Client

    from lancetnic_dask import Run

COLUMNS = ["text", "size", "label"]


def train(folder: Path, client: Client, source: Any, **options: Any) -> Run:
    """Train a small model on a source, without being told what it is."""
    return Classification("text", ["size"], "label", **options).train(
        "ScalpelMC",
        source,
        client=client,
        num_epochs=2,
        hidden_size=8,
        cache_dir=folder / "cache",
        run_dir=folder / "runs",
        progress=False,
    )


def weights_of(run: Run) -> bytes:
    """Return the bytes of the last model's weights."""
    manifest = json.loads((run.last_model / "model.json").read_text(encoding="utf-8"))
    path: Path = run.last_model / manifest["files"]["weights"]["name"]
    return path.read_bytes()


def as_semicolons(frame: pd.DataFrame, folder: Path) -> Path:
    """Write with another separator."""
    path = folder / "semicolons.csv"
    frame.to_csv(path, sep=";", index=False)
    return path


def as_packed_lines(frame: pd.DataFrame, folder: Path) -> Path:
    """Write as compressed JSON Lines."""
    path = folder / "lines.jsonl.gz"
    text = frame.to_json(orient="records", lines=True)
    path.write_bytes(gzip.compress(text.encode()))
    return path


def as_array(frame: pd.DataFrame, folder: Path) -> Path:
    """Write as a JSON array."""
    path = folder / "array.json"
    path.write_text(frame.to_json(orient="records", indent=1), encoding="utf-8")
    return path


def as_parquet(frame: pd.DataFrame, folder: Path) -> Path:
    """Write as Parquet."""
    path = folder / "table.parquet"
    parquet.write_table(pa.table({name: frame[name].tolist() for name in COLUMNS}), path)
    return path


def as_feather(frame: pd.DataFrame, folder: Path) -> Path:
    """Write as Arrow."""
    path = folder / "table.feather"
    feather.write_feather(pa.table({name: frame[name].tolist() for name in COLUMNS}), str(path))
    return path


SOURCES: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "semicolons": as_semicolons,
    "packed JSON lines": as_packed_lines,
    "JSON array": as_array,
    "Parquet": as_parquet,
    "Arrow": as_feather,
    "pandas": lambda frame, _: frame,
    "Dask DataFrame": lambda frame, _: dd.from_pandas(frame, npartitions=1),
    "Dask Bag of dicts": lambda frame, _: db.from_sequence(frame.to_dict("records"), npartitions=1),
    "Dask Bag of tuples": lambda frame, _: db.from_sequence(
        list(frame[COLUMNS].itertuples(index=False, name=None)), npartitions=1
    ),
    "Corpus": lambda frame, folder: Corpus.from_pandas(frame, cache_dir=folder / "cache"),
}


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory, client: Client) -> tuple[pd.DataFrame, bytes]:
    """Make a table, and the weights of the model that its CSV file gives."""
    folder = tmp_path_factory.mktemp("known")
    path = folder / "tickets.csv"
    make_corpus(path, num_rows=600, signal=0.3)
    frame = pd.read_csv(path, keep_default_na=False)
    # As whole numbers everywhere: a gap would make them floats in pandas.
    frame["size"] = pd.to_numeric(frame["size"], errors="coerce").fillna(0).astype(int)
    frame[COLUMNS].to_csv(path, index=False)
    return frame[COLUMNS], weights_of(train(folder, client, path))


@pytest.mark.parametrize("source", SOURCES)
def test_a_table_gives_one_model_whatever_it_comes_in(
    source: str, known: tuple[pd.DataFrame, bytes], client: Client, tmp_path: Path
) -> None:
    """Nobody says what it is; the columns are enough."""
    frame, weights = known

    run = train(tmp_path, client, SOURCES[source](frame, tmp_path))

    assert weights_of(run) == weights
    assert run.num_rows["read"] == len(frame)


def test_numbers_may_be_written_with_a_comma(
    known: tuple[pd.DataFrame, bytes], client: Client, tmp_path: Path
) -> None:
    """1.234,0 is 1234."""
    frame, weights = known
    path = tmp_path / "commas.csv"
    written = [f"{size:,}".replace(",", ".") + ",0" for size in frame["size"]]
    frame.assign(size=written).to_csv(path, sep=";", index=False)

    run = train(tmp_path, client, path, decimal=",", thousands=".")

    assert weights_of(run) == weights


def test_partitions_of_a_dask_frame_are_computed_on_the_cluster(
    known: tuple[pd.DataFrame, bytes], client: Client, tmp_path: Path
) -> None:
    """Each once, and kept; rows of all of them train."""
    frame, _ = known

    run = train(tmp_path, client, dd.from_pandas(frame, npartitions=4))

    assert run.num_rows["read"] == len(frame)
    assert len(list((tmp_path / "cache" / "copies").glob("*.arrow"))) == 4
    summary = (run.folder / "summary.json").read_text(encoding="utf-8")
    assert '"Dask DataFrame, partition 3"' in summary


def one_of_two(_: int) -> pd.DataFrame:
    """Give other rows in each process and call."""
    import os

    number = int.from_bytes(os.urandom(4), "little")
    rows = [{"text": f"word{number + n} two", "size": n, "label": n % 2} for n in range(50)]
    return pd.DataFrame(rows)


def test_a_frame_that_computes_differently_trains_once_and_then_no_more(
    client: Client, tmp_path: Path
) -> None:
    """The second run can't be of the same rows."""
    frame = dd.from_map(one_of_two, [0], meta=one_of_two(0))
    train(tmp_path, client, frame)

    with pytest.raises(CorpusError, match="The Dask DataFrame computes differently each time"):
        train(tmp_path, client, frame)


@pytest.mark.parametrize("kind", ["pandas", "dask"])
def test_a_column_that_is_missing_is_said_before_anything_is_computed(
    kind: str, tmp_path: Path, client: Client
) -> None:
    """Of the frame, as of a file."""
    frame = pd.DataFrame({"text": ["a"], "label": ["b"]})

    with pytest.raises(ColumnError, match="There is no column 'size'"):
        train(tmp_path, client, frame if kind == "pandas" else dd.from_pandas(frame, npartitions=1))

    assert not (tmp_path / "cache").exists()


def test_options_of_files_are_refused_for_a_frame(tmp_path: Path, client: Client) -> None:
    """They would have no effect."""
    with pytest.raises(SettingError, match="A DataFrame has no separator, quotes, names"):
        train(tmp_path, client, pd.DataFrame(), delimiter=";")
