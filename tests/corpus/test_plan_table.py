"""Parquet and Arrow files as corpora."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from lancetnic_dask.corpus.arrow_files import Unit
from lancetnic_dask.corpus.frame import Corpus
from lancetnic_dask.corpus.plan import Partition
from lancetnic_dask.corpus.plan_table import partitions_of
from lancetnic_dask.errors import ColumnError, CorpusError

if TYPE_CHECKING:
    from pathlib import Path

TABLE = pa.table(
    {
        "text": [f"row {at} " + "x" * 90 for at in range(1000)],
        "label": [at % 3 for at in range(1000)],
        "user": [{"name": f"u{at}"} for at in range(1000)],
    }
)


def write(path: Path, rows: int) -> Path:
    """Write the table with units of so many rows."""
    if path.suffix == ".parquet":
        parquet.write_table(TABLE, path, row_group_size=rows)
    else:
        feather.write_feather(TABLE, str(path), chunksize=rows)
    return path


@pytest.mark.parametrize("name", ["a.parquet", "a.feather"])
@pytest.mark.parametrize("rows", [10, 100, 1000])
@pytest.mark.parametrize("partition_bytes", [5_000, 1 << 20])
def test_a_table_gives_its_rows_however_it_is_written(
    name: str, rows: int, partition_bytes: int, tmp_path: Path
) -> None:
    """Small units are joined, large ones cut; the order stays."""
    corpus = Corpus.read_parquet(
        write(tmp_path / name, rows), partition_bytes=partition_bytes, cache_dir=tmp_path / "cache"
    )

    frame = corpus.to_dask_dataframe(["label", "user.name", "text"]).compute()

    assert frame["user.name"].tolist() == [f"u{at}" for at in range(1000)]
    assert frame["label"].tolist() == [str(at % 3) for at in range(1000)]
    assert frame["text"].tolist() == TABLE["text"].to_pylist()
    assert corpus.npartitions == 1 if partition_bytes > 100_000 else corpus.npartitions >= 10


def test_units_are_joined_up_to_the_size_of_a_partition() -> None:
    """A larger one stands alone; empty ones belong to a neighbour."""
    units = [Unit(1, 40), Unit(2, 40), Unit(0, 0), Unit(3, 500), Unit(4, 10), Unit(0, 0)]

    assert partitions_of(7, units, 100) == [
        Partition(7, 0, 3, 0, 3),
        Partition(7, 3, 4, 3, 3),
        Partition(7, 4, 6, 6, 4),
    ]


def test_a_column_may_be_null_in_one_file_and_numbers_in_another(tmp_path: Path) -> None:
    """All become text."""
    parquet.write_table(pa.table({"n": pa.nulls(2)}), tmp_path / "0.parquet")
    parquet.write_table(pa.table({"n": [1, 2]}), tmp_path / "1.parquet")
    parquet.write_table(pa.table({"n": [0.5]}), tmp_path / "2.parquet")

    frame = Corpus.read_parquet(tmp_path).to_dask_dataframe().compute()

    assert frame["n"].tolist() == ["", "", "1", "2", "0.5"]


def test_lists_are_refused_when_they_are_read(tmp_path: Path) -> None:
    """With the column and its type."""
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"tags": [["a"]]}), path)

    with pytest.raises(ColumnError) as caught:
        Corpus.read_parquet(path).to_dask_dataframe().compute(scheduler="synchronous")

    assert "Column 'tags' holds 'list<" in str(caught.value)


def test_text_is_no_table(tmp_path: Path) -> None:
    """The way to read it is named."""
    path = tmp_path / "a.csv"
    path.write_text("a,b\n", encoding="utf-8")

    with pytest.raises(CorpusError) as caught:
        Corpus.read_parquet(path)

    assert str(caught.value) == (
        f"The file is csv, and no table.\n  at {path}\n"
        "  Pass a file of Parquet or Arrow, or read it with Corpus.read_csv or Corpus.read_json."
    )


def test_a_table_without_rows_is_no_corpus(tmp_path: Path) -> None:
    """As a CSV file without records is none."""
    path = tmp_path / "a.parquet"
    parquet.write_table(TABLE[:0], path)

    with pytest.raises(CorpusError, match="The corpus has no rows: every table is empty"):
        Corpus.read_parquet(path)
