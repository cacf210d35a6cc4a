"""Units and cells of Parquet and Arrow files."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import ipc, parquet

from lancetnic_dask.corpus.arrow_files import (
    iter_batches,
    read_units,
    write_pieces,
)
from lancetnic_dask.errors import ColumnError, CorpusError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_Kind = Literal["parquet", "arrow"]
_KINDS: tuple[_Kind, ...] = ("parquet", "arrow")
_TABLE = pa.table(
    {"text": [f"t{at}" for at in range(10)], "user": [{"age": at, "x": "y"} for at in range(10)]}
)


def _write(path: Path, kind: _Kind, table: pa.Table, rows: int) -> str:
    if kind == "parquet":
        parquet.write_table(table, path, row_group_size=rows)
    else:
        with ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows)
    return str(path)


@pytest.mark.parametrize("kind", _KINDS)
def test_units_and_columns_are_told(tmp_path: Path, kind: _Kind) -> None:
    """Row groups or record batches, and the names a user may ask for."""
    url = _write(tmp_path / "a", kind, _TABLE, 4)

    found = read_units(url, kind)

    assert [unit.num_rows for unit in found.units] == [4, 4, 2]
    assert all(unit.num_bytes > 0 for unit in found.units)
    assert found.columns == ("text", "user.age", "user.x")


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("piece_bytes", [1, 1 << 20])
def test_a_range_of_units_is_read(tmp_path: Path, kind: _Kind, piece_bytes: int) -> None:
    """In the order of the file and of the names, whatever the pieces."""
    url = _write(tmp_path / "a", kind, _TABLE, 4)

    pieces = list(iter_batches(url, kind, 1, 3, ["user.age", "text"], piece_bytes=piece_bytes))

    assert [cell for piece in pieces for cell in piece[0].to_pylist()] == [
        b"4", b"5", b"6", b"7", b"8", b"9"
    ]  # fmt: skip
    assert [cell for piece in pieces for cell in piece[1].to_pylist()] == [
        b"t4", b"t5", b"t6", b"t7", b"t8", b"t9"
    ]  # fmt: skip
    assert (len(pieces) == 6) == (piece_bytes == 1)


@pytest.mark.parametrize("kind", _KINDS)
def test_a_column_must_be_there(tmp_path: Path, kind: _Kind) -> None:
    """Before anything is read."""
    url = _write(tmp_path / "a", kind, _TABLE, 4)

    with pytest.raises(ColumnError) as caught:
        next(iter_batches(url, kind, 0, 1, ["txt"]))

    assert str(caught.value) == (
        f"There is no column 'txt'.\n  at {url}\n"
        "  Did you mean 'text'? There are: 'text', 'user.age', 'user.x'."
    )


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("size", [0, 7, 200])
def test_a_file_that_was_cut_is_explained(tmp_path: Path, kind: _Kind, size: int) -> None:
    """The user's mistake doesn't end in an error of Arrow."""
    path = tmp_path / "a"
    _write(path, kind, _TABLE, 4)
    path.write_bytes(path.read_bytes()[:size])

    with pytest.raises(CorpusError, match="file is damaged or cut short: ") as caught:
        read_units(str(path), kind)

    assert caught.value.where == str(path)
    assert caught.value.fix == "Fetch it again, or write it again."


def test_a_huge_row_group_is_read_in_pieces(tmp_path: Path) -> None:
    """Memory doesn't grow with it: 64 MB in one group take less than a third of that."""
    path = tmp_path / "a.parquet"
    texts = [f"{at:07}" * 143 for at in range(64_000)]
    parquet.write_table(
        pa.table({"text": texts}), path, row_group_size=64_000, use_dictionary=False
    )
    del texts
    before, peak, num_rows = pa.total_allocated_bytes(), 0, 0

    for (cells,) in iter_batches(str(path), "parquet", 0, 1, ["text"], piece_bytes=1 << 20):
        num_rows += len(cells)
        peak = max(peak, pa.total_allocated_bytes() - before)

    assert num_rows == 64_000
    assert peak < 20 << 20


@settings(max_examples=20, deadline=None)
@given(rows=st.lists(st.binary(max_size=9), min_size=1, max_size=20), cut=st.integers(0, 20))
def test_staged_cells_come_back_with_one_digest(
    tmp_path_factory: pytest.TempPathFactory, rows: list[bytes], cut: int
) -> None:
    """However the rows came in pieces, slices of larger arrays among them."""
    folder = tmp_path_factory.mktemp("staged")
    cells = pa.array(rows, pa.large_binary())

    whole = write_pieces(iter([[cells, cells]]), ["a", "b"], folder / "whole")
    in_pieces = write_pieces(
        iter([[cells[:cut], cells[:cut]], [cells[cut:], cells[cut:]]]),
        ["a", "b"],
        folder / "cut",
        piece_bytes=8,
    )

    url = str(folder / "cut")
    pieces = iter_batches(url, "arrow", 0, len(in_pieces.units), ["b"])
    assert [cell for piece in pieces for cell in piece[0].to_pylist()] == rows
    assert [one.num_rows for one in read_units(url, "arrow").units] == [
        one.num_rows for one in in_pieces.units
    ]
    assert in_pieces.digest == whole.digest
    assert in_pieces.num_rows == len(rows)


def test_other_cells_have_another_digest(tmp_path: Path) -> None:
    """Where a cell ends counts, and so do order and column."""
    tables = [[[b"ab", b""], [b"", b""]], [[b"a", b"b"], [b"", b""]],
              [[b"", b"ab"], [b"", b""]], [[b"", b""], [b"ab", b""]]]  # fmt: skip
    digests = set()

    for table in tables:
        piece = [pa.array(column, pa.large_binary()) for column in table]
        digests.add(write_pieces(iter([piece]), ["a", "b"], tmp_path / "a").digest)

    assert len(digests) == len(tables)


def test_nothing_is_left_of_a_file_that_was_not_finished(tmp_path: Path) -> None:
    """An error of who computes the cells leaves no half."""

    def broken() -> Iterator[list[pa.LargeBinaryArray]]:
        yield [pa.array([b"a"], pa.large_binary())]
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        write_pieces(broken(), ["a"], tmp_path / "a")

    assert list(tmp_path.iterdir()) == []


def test_a_file_without_rows_is_staged_too(tmp_path: Path) -> None:
    """A partition of a frame may be empty."""
    written = write_pieces(iter([]), ["a"], tmp_path / "a")

    assert written.units == ()
    assert read_units(str(tmp_path / "a"), "arrow").units == ()


def test_workers_read_without_pandas(tmp_path: Path) -> None:
    """Its import takes half a second."""
    url = _write(tmp_path / "a", "parquet", _TABLE, 4)
    code = (
        "import sys; from lancetnic_dask.corpus.arrow_files import iter_batches\n"
        f"list(iter_batches({url!r}, 'parquet', 0, 3, ['text', 'user.age']))\n"
        "assert 'pandas' not in sys.modules"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)

    assert done.stderr == b""
    assert done.returncode == 0
