"""Cells of typed columns."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancetnic_dask.corpus.typed_cells import flat_names, frame_table, pick, text_cells
from lancetnic_dask.errors import ColumnError

_NEW_YEAR = dt.datetime(2020, 1, 1)  # noqa: DTZ001 - columns without a zone


@pytest.mark.parametrize(
    ("column", "cells"),
    [
        (pa.array([1, None], pa.int8()), [b"1", b""]),
        (pa.array([1.0, 0.1, float("nan"), float("inf")]), [b"1.0", b"0.1", b"", b"inf"]),
        (pa.array([0.1, 1.0], pa.float32()), [b"0.1", b"1.0"]),
        (pa.array(np.array([0.1, 1], np.float16)), [b"0.1", b"1.0"]),
        (pa.array([True, False, None]), [b"true", b"false", b""]),
        (pa.array([Decimal("1.50")]), [b"1.50"]),
        (pa.array([dt.date(2020, 1, 1)]), [b"2020-01-01"]),
        (pa.array([dt.time(1, 2)]), [b"01:02:00"]),
        (pa.array([dt.timedelta(seconds=90)]), [b"90.0"]),
        (pa.array([_NEW_YEAR], pa.timestamp("s")), [b"2020-01-01 00:00:00"]),
        (pa.array([_NEW_YEAR], pa.timestamp("ns")), [b"2020-01-01 00:00:00"]),
        (pa.array([1_500_000], pa.timestamp("us")), [b"1970-01-01 00:00:01.5"]),
        (pa.array([1_500_000], pa.timestamp("us", "UTC")), [b"1970-01-01 00:00:01.5Z"]),
        (pa.array(["a", None], pa.string_view()), [b"a", b""]),
        (pa.array([b"\xff", None], pa.binary_view()), [b"\xff", b""]),
        (pa.array([b"ab"], pa.binary(2)), [b"ab"]),
        (pa.array(["b", None, "b"]).dictionary_encode(), [b"b", b"", b"b"]),
        (pa.nulls(2), [b"", b""]),
        (pa.array(["a", "b", "c"]).slice(1), [b"b", b"c"]),
        (pa.chunked_array([["a"], ["b"]]), [b"a", b"b"]),
    ],
)
def test_each_type_has_its_text(column: pa.Array, cells: list[bytes]) -> None:
    """What a user would write in a CSV file; nothing where there is no value."""
    found = text_cells(column, "c", "a.parquet")

    assert found.type == pa.large_binary()
    assert found.to_pylist() == cells


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(allow_nan=False), max_size=8))
def test_a_float_reads_back_the_same(values: list[float]) -> None:
    """To the last bit, whatever its size."""
    cells = text_cells(pa.array(values, pa.float64()), "c", "a.parquet").to_pylist()

    assert [float(cell).hex() for cell in cells] == [value.hex() for value in values]


def test_lists_are_refused() -> None:
    """A cell is one value."""
    with pytest.raises(ColumnError) as caught:
        text_cells(pa.array([["a"]]), "tags", "a.parquet")

    assert str(caught.value) == (
        "Column 'tags' holds 'list<item: string>', and single values are read.\n"
        "  at a.parquet\n"
        "  Name a field within it, as in 'user.name', or write the values as text."
    )


def test_fields_are_found_by_their_path() -> None:
    """An exact name goes first; where a struct is null, so are its fields."""
    users = pa.array([{"name": "Ann", "a.b": {"c": 1}}, None])
    table = pa.table({"user": users, "user.name": ["x", "y"], "n": [1, 2]})

    found = [pick(table, name, "u").to_pylist() for name in ("user.name", "user.a.b.c", "n")]

    assert found == [["x", "y"], [1, None], [1, 2]]
    assert flat_names(table.schema) == ("user.name", "user.a.b.c", "user.name", "n")


@pytest.mark.parametrize("name", ["user.nam", "txt", "text.name"])
def test_a_missing_column_is_named(name: str) -> None:
    """With the names there are."""
    table = pa.table({"text": ["a"], "user": [{"name": "Ann"}]})

    with pytest.raises(ColumnError, match=rf"^There is no column '{name}'\.\n  at u\n.*'text'"):
        pick(table, name, "u")


def test_a_name_that_stands_twice_is_refused() -> None:
    """Nothing tells which is meant."""
    table = pa.table([[1], [2]], names=["a", "a"])

    with pytest.raises(ColumnError) as caught:
        pick(table, "a", "u")

    assert str(caught.value) == "2 columns are named 'a'.\n  at u\n  Rename all but one."


@pytest.mark.parametrize(
    ("values", "cells"),
    [
        (pd.Series([1, "a", None], dtype=object), [b"1", b"a", b""]),
        (pd.Series([1, 1.5, pd.NA], dtype=object), [b"1", b"1.5", b""]),
        (pd.Series([b"x", "y", pd.NaT], dtype=object), [b"x", b"y", b""]),
        (pd.Series([1, None, 2]), [b"1.0", b"", b"2.0"]),
        (pd.Series([1, None, 2], dtype="Int64"), [b"1", b"", b"2"]),
        (pd.Series(["a", None, "b"], dtype="category"), [b"a", b"", b"b"]),
        (pd.Series(["a", None, "b"], dtype="string"), [b"a", b"", b"b"]),
        (pd.Series([_NEW_YEAR, None]), [b"2020-01-01 00:00:00", b""]),
        (pd.Series([2**70, None], dtype=object), [str(2**70).encode(), b""]),
    ],
)
def test_frames_have_cells_too(values: pd.Series, cells: list[bytes]) -> None:
    """Values of mixed columns as str writes them; labels of columns too."""
    frame = pd.DataFrame({7: values, "other": values})

    found = frame_table(frame, ["7"], "frame")

    assert found.column_names == ["7"]
    assert found["7"].to_pylist() == cells


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x", "There is no column 'x'.\n  at frame\n  There are: 'text', '7', '7'."),
        ("7", "2 columns are named '7'.\n  at frame\n  Rename all but one."),
    ],
)
def test_columns_of_a_frame_are_checked(name: str, text: str) -> None:
    """A label that is a number counts as its text."""
    frame = pd.DataFrame([["a", 1, 2]], columns=["text", 7, "7"])

    with pytest.raises(ColumnError) as caught:
        frame_table(frame, [name], "frame")

    assert str(caught.value) == text


def test_workers_make_cells_without_pandas() -> None:
    """Its import takes half a second."""
    code = (
        "import sys, pyarrow as pa; from lancetnic_dask.corpus.typed_cells import text_cells\n"
        "for kind in (pa.string(), pa.int64(), pa.float32(), pa.binary(), pa.timestamp('s')):\n"
        "    text_cells(pa.nulls(2, kind), 'c', 'u')\n"
        "assert 'pandas' not in sys.modules"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)

    assert done.stderr == b""
