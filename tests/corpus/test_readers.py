"""iter_rows and column_positions."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from csv_strategies import NO_DEADLINE, tables, write_table
from hypothesis import given
from hypothesis import strategies as st
from reference_csv import read_records

from lancetnic_dask.corpus import readers
from lancetnic_dask.corpus.dialect import CsvDialect
from lancetnic_dask.corpus.formats import FileFormat
from lancetnic_dask.corpus.frame import here
from lancetnic_dask.corpus.plan import PartitionPlan, PlannedFile
from lancetnic_dask.corpus.plan_files import plan_files
from lancetnic_dask.corpus.readers import RawRows, column_positions, iter_rows
from lancetnic_dask.corpus.sources import SourceFile, list_files
from lancetnic_dask.errors import ColumnError, CorpusError, Location, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FORMAT = FileFormat(kind="csv", dialect=CsvDialect())


def plan(*paths: Path, file_format: FileFormat = FORMAT) -> PartitionPlan:
    """Plan files as they are now."""
    return plan_files(list_files(paths), file_format, map_tasks=here)


def read(planned: PartitionPlan, columns: Sequence[str]) -> list[RawRows]:
    """Read all partitions, one after the other."""
    return [
        rows for partition in planned.partitions for rows in iter_rows(planned, partition, columns)
    ]


def cells_of(batches: list[RawRows]) -> list[tuple[bytes, ...]]:
    """Return the wanted cells of each row."""
    return [
        row
        for rows in batches
        for row in zip(*(cells.to_pylist() for cells in rows.cells), strict=True)
    ]


def header(*names: str) -> PlannedFile:
    """Return a file with a header only."""
    return PlannedFile(SourceFile("a.csv", 0, ""), names, 0)


def test_a_missing_column_names_the_nearest() -> None:
    """And all that there are, and the file."""
    with pytest.raises(ColumnError) as caught:
        column_positions(header("text", "label", "price"), ["text", "lable"])

    assert str(caught.value) == (
        "There is no column 'lable'.\n"
        "  at a.csv\n"
        "  Did you mean 'label'? There are: 'text', 'label', 'price'."
    )


def test_an_exact_name_wins_and_a_padded_one_is_suggested() -> None:
    """Blanks in a header are part of the name."""
    both = header(" text ", "text", " label")

    assert column_positions(both, ["text", " text "]) == [1, 0]
    with pytest.raises(ColumnError) as caught:
        column_positions(both, ["label"])
    assert str(caught.value) == (
        "There is no column 'label'.\n"
        "  at a.csv\n"
        "  Did you mean ' label'? There are: ' text ', 'text', ' label'."
    )


def test_a_name_that_stands_twice_is_an_error_where_it_is_wanted() -> None:
    """A column that nobody asked for can't stop a run."""
    twice = header("text", "label", "label")

    assert column_positions(twice, ["text"]) == [0]
    with pytest.raises(ColumnError) as caught:
        column_positions(twice, ["text", "label"])
    assert str(caught.value) == (
        "The file has 2 columns named 'label'.\n  at a.csv\n  Rename one of them."
    )


@pytest.mark.parametrize("separator", [";", "\t", "|", ","])
def test_a_wrong_separator_is_recognized(separator: str) -> None:
    """One column whose name holds another separator."""
    with pytest.raises(ColumnError) as caught:
        column_positions(header(f"текст{separator}метка"), ["текст"])

    assert str(caught.value) == (
        f"There is no column 'текст'. The file has one column, named {f'текст{separator}метка'!r}."
        "\n  at a.csv\n"
        f"  Is the separator {separator!r}? Pass delimiter={separator!r}."
    )


def test_a_header_that_is_none_is_not_shown_in_full() -> None:
    """An unclosed quote may make a header of half the file."""
    with pytest.raises(ColumnError) as caught:
        column_positions(header("x;" * 100_000), ["text"])

    assert str(caught.value) == (
        f"There is no column 'text'. The file has one column, named {quoted('x;' * 100_000)}.\n"
        "  at a.csv\n"
        "  Is the separator ';'? Pass delimiter=';'."
    )


def test_columns_are_found_by_name_in_each_file(tmp_path: Path) -> None:
    """Files of one corpus may have them in another order, and others beside."""
    (tmp_path / "a.csv").write_text("text,label\na,1\n")
    (tmp_path / "b.csv").write_text("label,extra,text\n2,x,b\n")
    planned = plan(tmp_path / "a.csv", tmp_path / "b.csv")

    batches = read(planned, ["text", "label"])

    assert cells_of(batches) == [(b"a", b"1"), (b"b", b"2")]
    assert [rows.num_columns for rows in batches] == [2, 3]


def test_a_file_without_the_column_is_named(tmp_path: Path) -> None:
    """Not the first file, which has it."""
    (tmp_path / "a.csv").write_text("text,label\na,1\n")
    (tmp_path / "b.csv").write_text("text,labels\nb,2\n")
    planned = plan(tmp_path / "a.csv", tmp_path / "b.csv")

    with pytest.raises(ColumnError) as caught:
        read(planned, ["text", "label"])

    assert str(caught.value) == (
        "There is no column 'label'.\n"
        f"  at {tmp_path}/b.csv\n"
        "  Did you mean 'labels'? There are: 'text', 'labels'."
    )


@NO_DEADLINE
@given(table=tables, partition_bytes=st.integers(1, 60), piece_bytes=st.integers(1, 40))
def test_rows_know_where_they_are(
    table: list[list[str]],
    partition_bytes: int,
    piece_bytes: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Row, first byte and cells of each, however file and partition are cut."""
    num_columns = len(table[0]) if table else 1
    names = [f"c{index}" for index in range(num_columns)]
    data = b"\xef\xbb\xbf" + write_table([names, *table], line_end="\r\n") + b"last\r\n"
    path = tmp_path_factory.mktemp("rows") / "a.csv"
    path.write_bytes(data)
    planned = plan(path, file_format=replace(FORMAT, partition_bytes=partition_bytes))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "_PIECE_BYTES", piece_bytes)
        batches = read(planned, names)

    expected = read_records(data[3:], FORMAT.dialect)[1:]
    assert cells_of(batches) == [
        (*record.cells, *[b""] * (num_columns - len(record.cells))) for record in expected
    ]
    assert places(batches) == [
        Location(str(path), index + 1, None, record.start_byte + 3)
        for index, record in enumerate(expected)
    ]
    assert all(rows.num_rows for rows in batches)
    fields = [field for rows in batches for field in rows.num_fields.tolist()]
    assert fields == [len(record.cells) for record in expected]


def places(batches: list[RawRows]) -> list[Location]:
    """Return the place of each row."""
    return [rows.location(index) for rows in batches for index in range(rows.num_rows)]


def test_a_row_that_is_too_long_is_marked_and_empty(tmp_path: Path) -> None:
    """It is counted as a row, and the rows beside it are read."""
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n" + "x" * 20 + ",3\n4,5\n")
    planned = plan(path, file_format=replace(FORMAT, max_row_bytes=10))

    batches = read(planned, ["b", "a"])

    assert planned.num_rows == 3
    assert cells_of(batches) == [(b"2", b"1"), (b"", b""), (b"5", b"4")]
    assert [flag for rows in batches for flag in rows.is_too_long] == [False, True, False]
    assert [place.row for place in places(batches)] == [1, 2, 3]


def test_a_partition_is_read_in_pieces(tmp_path: Path) -> None:
    """Memory is bounded by the piece and not by the partition."""
    path = tmp_path / "a.csv"
    path.write_text("a\n" + "word\n" * 2_000_000)

    batches = iter_rows(plan(path), plan(path).partitions[0], ["a"])

    sizes = [rows.num_rows for rows in batches]
    assert sum(sizes) == 2_000_000
    assert max(sizes) <= readers._PIECE_BYTES // 5 + 1


def test_a_file_that_changed_since_the_plan_is_not_read(tmp_path: Path) -> None:
    """Not a row of it."""
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n2\n")
    planned = plan(path)

    path.write_text("a\n1\n")

    with pytest.raises(CorpusError) as caught:
        next(iter_rows(planned, planned.partitions[0], ["a"]))
    assert str(caught.value) == (
        "The file has changed since the corpus was planned: 4 bytes, not 6.\n"
        f"  at {path}\n"
        "  Run again: the plan is then made anew. Don't write to a corpus while it is read."
    )


def test_a_change_that_leaves_no_stamp_shows_in_the_number_of_rows(tmp_path: Path) -> None:
    """The same size, and the time put back."""
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n2\n3\n")
    planned = plan(path)
    stat = path.stat()

    path.write_text("a\n1\n2,3\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    with pytest.raises(CorpusError) as caught:
        read(planned, ["a"])
    assert str(caught.value) == (
        "3 rows were planned and 2 were read.\n"
        f"  at {path}, byte 2\n"
        "  The file was written to while it was read. Run again when it is at rest."
    )


def test_a_file_that_is_cut_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    """Rows that were cut off are not taken for the end of the partition."""
    path = tmp_path / "a.csv"
    path.write_text("a\n" + "word\n" * 2_000_000)
    planned = plan(path)
    batches = iter_rows(planned, planned.partitions[0], ["a"])
    next(batches)

    os.truncate(path, 5_000_000)

    with pytest.raises(CorpusError) as caught:
        list(batches)
    assert str(caught.value) == (
        "The file ends 5000002 bytes before the end of the partition.\n"
        f"  at {path}, byte 5000000\n"
        "  It was cut while it was read. Run again when it is at rest."
    )
