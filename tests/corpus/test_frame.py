"""Corpus: the lazy Dask DataFrame over a plan."""

# mypy: untyped-calls-exclude="dask,distributed"
from __future__ import annotations

import csv
import io
import pickle
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from csv_strategies import NO_DEADLINE, tables, write_table
from hypothesis import given
from hypothesis import strategies as st

from lancetnic_dask import Corpus
from lancetnic_dask.corpus import dask_frame
from lancetnic_dask.corpus.frame import here
from lancetnic_dask.errors import (
    ColumnError,
    CorpusError,
    EncodingError,
    LancetnicError,
    RecordError,
    SettingError,
)

if TYPE_CHECKING:
    from pathlib import Path

    from distributed import Client

# Cells that other readers change: words for missing, numbers, blanks, line ends, quotes.
CELLS = ["NA", "null", "None", "nan", "", " ", "01", "1e5", "+1", "True", "two\nlines", "cr\r\nlf",
         '"', ",", "я 🦊", "\0", "2024-01-01"]  # fmt: skip
STRING = pd.StringDtype("pyarrow")


@pytest.fixture
def table() -> list[list[str]]:
    """Give 60 rows of awkward cells, none of them blank as a whole."""
    return [
        [str(row), *(CELLS[(row * step) % len(CELLS)] for step in (1, 3, 5))] for row in range(60)
    ]


@pytest.fixture
def path(table: list[list[str]], tmp_path: Path) -> Path:
    """Write the table under a byte order mark; columns id, text, note, label."""
    path = tmp_path / "a.csv"
    header = ["id", "text", "note", "label"]
    path.write_bytes(b"\xef\xbb\xbf" + write_table([header, *table], line_end="\r\n"))
    return path


def rows_of(frame: pd.DataFrame) -> list[list[str]]:
    """Return the cells, after a check that each is a str."""
    assert set(frame.dtypes) <= {STRING}
    assert not frame.isna().to_numpy().any()
    rows: list[list[str]] = frame.to_numpy(dtype=object).tolist()
    assert all(isinstance(cell, str) for row in rows for cell in row)
    return rows


@pytest.mark.parametrize("partition_bytes", [1, 64, 333, 1 << 20])
def test_the_frame_has_the_rows_of_the_csv_module(
    partition_bytes: int, path: Path, table: list[list[str]]
) -> None:
    """At any partition size, as text; only empty cells are empty, 'NA' is a word."""
    reader = csv.reader(io.StringIO(path.read_bytes().decode("utf-8-sig"), newline=""))
    corpus = Corpus.read_csv(path, partition_bytes=partition_bytes)

    frame = corpus.to_dask_dataframe()

    assert frame.npartitions == corpus.npartitions
    computed = frame.compute(scheduler="threads")
    assert [list(computed.columns), *rows_of(computed)] == list(reader)
    assert rows_of(computed) == table
    assert len(frame.partitions[0].compute(scheduler="threads")) == (
        corpus.plan.partitions[0].num_rows
    )


def test_the_frame_is_computed_by_workers(
    path: Path, table: list[list[str]], client: Client
) -> None:
    """In other processes, which get the plan of their partition alone."""
    frame = Corpus.read_csv(path, partition_bytes=200).to_dask_dataframe()

    computed = client.compute(frame).result(timeout=60)

    assert frame.npartitions > 5
    assert rows_of(computed) == table


@NO_DEADLINE
@given(table=tables, sizes=st.tuples(st.integers(1, 90), st.integers(0, 12)))
def test_any_table_in_two_files_is_read_back(
    table: list[list[str]], sizes: tuple[int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever stands in it; each partition holds the rows that the plan says."""
    partition_bytes, cut = sizes
    names = [f"c{index}" for index in range(len(table[0]) if table else 1)]
    folder = tmp_path_factory.mktemp("table")
    (folder / "a.csv").write_bytes(write_table([names, *table[:cut]], line_end="\n"))
    (folder / "b.csv").write_bytes(write_table([names, *table[cut:]], line_end="\r"))
    if not table:
        with pytest.raises(CorpusError, match="The corpus has no rows"):
            Corpus.read_csv(folder)
        return

    corpus = Corpus.read_csv(folder, partition_bytes=partition_bytes)

    parts = [
        dask_frame._read_frame(corpus.plan.only(partition), names, None)
        for partition in corpus.plan.partitions
    ]
    assert [len(part) for part in parts] == [one.num_rows for one in corpus.plan.partitions]
    assert [row for part in parts for row in rows_of(part)] == table


def test_the_frame_is_lazy(path: Path) -> None:
    """Its graph is made without reading; a partition is read when it is computed."""
    corpus = Corpus.read_csv(path, partition_bytes=200)
    path.write_bytes(b"something else")

    frame = corpus.to_dask_dataframe()

    assert frame.npartitions == corpus.npartitions
    with pytest.raises(CorpusError, match="The file has changed since the corpus was planned"):
        frame.partitions[1].compute(scheduler="threads")


def test_the_meta_is_what_is_computed(path: Path) -> None:
    """Names, types and index of the lazy frame and of each partition agree."""
    frame = Corpus.read_csv(path, partition_bytes=200).to_dask_dataframe()

    for part in (frame, frame.partitions[1]):
        computed = part.compute(scheduler="threads")
        pd.testing.assert_frame_equal(frame._meta, computed.iloc[:0], check_index_type=False)
    assert dict(frame.dtypes) == dict.fromkeys(["id", "text", "note", "label"], STRING)
    assert not frame.known_divisions
    assert frame._meta.index.dtype == "int64"


def test_columns_can_be_chosen_in_any_order(path: Path, table: list[list[str]]) -> None:
    """By name, one or several, when the frame is made or later."""
    corpus = Corpus.read_csv(path, partition_bytes=200)

    pair = corpus.to_dask_dataframe(["label", "id"]).compute(scheduler="threads")
    one = corpus.to_dask_dataframe("text").compute(scheduler="threads")
    later = corpus.to_dask_dataframe()[["note", "id"]].compute(scheduler="threads")
    series = corpus.to_dask_dataframe()["label"].compute(scheduler="threads")

    assert list(pair.columns) == ["label", "id"]
    assert rows_of(pair) == [[label, row] for row, _, _, label in table]
    assert rows_of(one) == [[text] for _, text, _, _ in table]
    assert rows_of(later) == [[note, row] for row, _, note, _ in table]
    assert series.tolist() == [label for _, _, _, label in table]


def test_rows_are_counted_without_columns(path: Path) -> None:
    """An Arrow table without columns has no rows; the frame has."""
    frame = Corpus.read_csv(path, partition_bytes=200).to_dask_dataframe()

    assert len(frame) == 60
    assert frame[[]].compute(scheduler="threads").shape == (60, 0)


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        (["labels"], ColumnError, "There is no column 'labels'.\n  at {path}\n  {hint}"),
        (["id", "id"], SettingError, "columns names 'id' twice.\n  Name it once."),
        (["id", 3], SettingError, "columns holds 3.\n  Pass the name of a column, or a list."),
    ],
)  # fmt: skip
def test_a_wrong_column_is_named_before_anything_is_read(
    columns: list[str], error: type[LancetnicError], message: str, path: Path
) -> None:
    """When the frame is made, not on a worker."""
    corpus = Corpus.read_csv(path)

    with pytest.raises(error) as caught:
        corpus.to_dask_dataframe(columns)

    hint = "Did you mean 'label'? There are: 'id', 'text', 'note', 'label'."
    assert str(caught.value) == message.format(path=path, hint=hint)


def test_an_unwanted_column_that_stands_twice_stops_nothing(tmp_path: Path) -> None:
    """But a frame of all columns can't be made."""
    (tmp_path / "a.csv").write_text("x,y,y\n1,2,3\n")
    corpus = Corpus.read_csv(tmp_path / "a.csv")

    assert rows_of(corpus.to_dask_dataframe(["x"]).compute(scheduler="threads")) == [["1"]]
    with pytest.raises(ColumnError) as caught:
        corpus.to_dask_dataframe()
    assert str(caught.value) == (
        f"The file has 2 columns named 'y'.\n  at {tmp_path}/a.csv\n  Rename one of them."
    )


def test_a_bad_row_is_an_error_from_the_worker(tmp_path: Path, client: Client) -> None:
    """With file, row and byte, and no option that does not exist here."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,label\n" + b"fine,1\n" * 9 + b"torn\n" + b"caf\xe9,1\n")
    corpus = Corpus.read_csv(path, partition_bytes=5)
    frame = corpus.to_dask_dataframe()

    with pytest.raises(RecordError) as ragged:
        client.compute(frame.partitions[:-1]).result(timeout=60)
    with pytest.raises(EncodingError) as encoding:
        client.compute(frame.partitions[-1]).result(timeout=60)

    assert str(ragged.value) == (
        "The row has 1 cells and the header 2.\n"
        f"  at {path}, row 10, byte 74\n"
        "  Check quotes and separators there."
    )
    assert str(encoding.value) == (
        "Byte 0xe9 is not utf-8: b'caf\\xe9'.\n"
        f"  at {path}, row 11, column 'text', byte 79\n"
        "  It looks like cp1252 or cp1250 or cp1257: pass encoding='cp1252', or "
        "encoding_errors='replace'."
    )


def test_every_option_of_the_dialect_is_used(tmp_path: Path) -> None:
    """Separator, quote, escape, doubling, encoding, and the limit of a row."""
    path = tmp_path / "a.csv"
    path.write_bytes("те;ме\n'а;б\\'в';да\n'г'';нет'\n".encode("cp1251"))

    def read(max_row_bytes: int) -> Corpus:
        return Corpus.read_csv(
            path,
            delimiter=";",
            quotechar="'",
            escapechar="\\",
            doublequote=False,
            encoding="cp1251",
            max_row_bytes=max_row_bytes,
        )

    assert read(11).columns == ("те", "ме")
    assert rows_of(read(11).to_dask_dataframe().compute(scheduler="threads")) == [
        ["а;б'в", "да"],
        ["г'", "нет'"],
    ]
    with pytest.raises(RecordError) as caught:
        read(10).to_dask_dataframe().compute(scheduler="threads")
    assert str(caught.value) == (
        "The row is longer than max_row_bytes; perhaps a quote is never closed.\n"
        f"  at {path}, row 1, byte 6\n"
        "  Close the quote, pass quotechar=None or a larger max_row_bytes."
    )


def test_the_corpus_tells_what_it_is(tmp_path: Path) -> None:
    """Files, rows, partitions, columns; no secret, and no endless header."""
    (tmp_path / "a.csv").write_text("text,label\n" + "x,y\n" * 1500)
    (tmp_path / "b.csv").write_text("text,label\n")
    (tmp_path / "wide.csv").write_text(",".join(f"c{i}" for i in range(22)) + "\n1\n")

    one = Corpus.read_csv(tmp_path / "wide.csv", storage_options={"auto_mkdir": "hunter2"})
    two = Corpus.read_csv([tmp_path / "a.csv", tmp_path / "b.csv"], partition_bytes=2000)

    assert repr(two) == "Corpus(2 files, 1,500 rows, 3 partitions, columns 'text', 'label')"
    assert (two.nrows, two.npartitions, two.columns) == (1500, 3, ("text", "label"))
    names = ", ".join(f"'c{i}'" for i in range(20))
    assert repr(one) == f"Corpus(1 file, 1 row, 1 partition, columns {names} and 2 more)"


def test_a_corpus_can_be_sent_to_another_process(path: Path) -> None:
    """It is a plan and options, and holds no open file."""
    corpus = pickle.loads(pickle.dumps(Corpus.read_csv(path)))

    assert corpus.nrows == 60
    assert corpus.plan == Corpus.read_csv(path).plan


def test_tasks_here_are_run_one_by_one_in_order() -> None:
    """Each when its result is asked for."""
    done: list[int] = []

    def negate(number: int) -> int:
        done.append(number)
        return -number

    results = here(negate, [(1,), (2,)], name="test")

    assert done == []
    assert next(results) == -1
    assert done == [1]
    assert list(results) == [-2]


@pytest.mark.parametrize("given", ["file.csv", ["a.csv", "b.csv"], None])
def test_a_path_is_no_plan(given: Any) -> None:
    """It is told at once, and with the call that was meant."""
    with pytest.raises(SettingError) as caught:
        Corpus(given)

    assert str(caught.value) == (
        f"Corpus({given!r}): this is no PartitionPlan.\n  Use Corpus.read_csv(path)."
    )
