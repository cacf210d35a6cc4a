"""Sieve, QuarantinedRows, check_shape; every row is used or set aside, once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cell_rows import place, raw_rows
from csv_strategies import NO_DEADLINE
from hypothesis import given
from hypothesis import strategies as st

from lancetnic_dask.corpus.schema import CastRows, SetAside, cast_rows
from lancetnic_dask.corpus.sieve import merge_set_aside
from lancetnic_dask.errors import RecordError
from lancetnic_dask.settings import ColumnRoles, NumberFormat

if TYPE_CHECKING:
    from lancetnic_dask.corpus.readers import RawRows
    from lancetnic_dask.settings import BadRowPolicy

TEXT = ColumnRoles(text_columns=("text",), data_columns=(), label_column="label")
INPUTS: dict[str, Any] = {
    "text_columns": ("text",),
    "data_columns": ("price",),
    "category_columns": ("shop",),
}
# Columns in the order of `names`; the split's columns of its own, or those of inputs.
ROLES = [
    ColumnRoles(**INPUTS, label_column="label", group_column="who"),
    ColumnRoles(**INPUTS, label_column="label", time_column="who"),
    ColumnRoles(**INPUTS, label_column="label", group_column="shop"),
    ColumnRoles(**INPUTS, label_column="label", time_column="price"),
    ColumnRoles(**INPUTS, label_column=None),
]


def test_each_row_that_was_set_aside_is_told() -> None:
    """Under 'quarantine': index in the file, first byte and reason, in the order of the file."""
    rows = raw_rows(
        [(b"a", b"x"), (b"b", b""), (b"text", b"label"), (b"", b""), (b"", b"y"), (b"", b""),
         (b"\xff", b"x"), (b"c", b" ")],
        too_long=[5], blank=[3],
    )  # fmt: skip

    kept = cast_rows(rows, TEXT, encoding="utf-8", policy="quarantine")

    assert kept.texts[0].to_pylist() == ["a"]
    assert kept.quarantined is not None
    assert kept.quarantined.num_rows == 7
    assert kept.quarantined.row_index.tolist() == [101, 102, 103, 104, 105, 106, 107]
    assert kept.quarantined.start_byte.tolist() == [5100, 5200, 5300, 5400, 5500, 5600, 5700]
    assert kept.quarantined.row_index.dtype == kept.quarantined.start_byte.dtype == np.int64
    nothing = "neither a word nor a number"
    assert kept.quarantined.reason.to_pylist() == [
        "no label", "the header once more", nothing, nothing, "more bytes than max_row_bytes",
        "bytes that are not utf-8", "no label",
    ]  # fmt: skip
    skipped = cast_rows(rows, TEXT, encoding="utf-8", policy="skip")
    assert kept.set_aside == skipped.set_aside
    assert skipped.quarantined is None


def test_rows_of_a_table_have_no_byte() -> None:
    """Nor has a row of a copy: -1 stands for what is not known."""
    rows = raw_rows([(b"a", b""), (b"a", b"x")], has_bytes=False)

    kept = cast_rows(rows, TEXT, encoding="utf-8", policy="quarantine")

    assert kept.quarantined is not None
    assert kept.quarantined.start_byte.tolist() == [-1]


def test_no_row_was_set_aside() -> None:
    """Then there is nothing to tell, with the right types."""
    kept = cast_rows(raw_rows([(b"a", b"x")]), TEXT, encoding="utf-8", policy="quarantine")

    assert kept.quarantined is not None
    assert kept.quarantined.num_rows == len(kept.quarantined.reason) == 0
    assert kept.quarantined.row_index.dtype == np.int64


def test_the_first_broken_row_is_the_one_that_is_told() -> None:
    """Whatever the order of the reasons; the others are counted by reason."""
    rows = raw_rows(
        [(b"a", b"x"), *[(b"", b"")] * 4],
        broken={4: "it is no JSON object", 2: "it is no JSON object", 1: "it is cut short"},
        too_long=[3],
    )

    with pytest.raises(RecordError) as caught:
        cast_rows(
            raw_rows([(b"", b"")] * 4, broken={3: "a", 0: "a", 1: "it is cut short"}, blank=[0]),
            TEXT,
            encoding="utf-8",
            policy="error",
        )

    assert str(caught.value) == (
        "The row cannot be read: it is cut short.\n"
        "  at a.csv, row 102, byte 5100\n"
        "  Correct it, or leave such rows out with on_bad_rows='skip'."
    )
    assert cast_rows(rows, TEXT, encoding="utf-8", policy="skip").set_aside == [
        SetAside("more bytes than max_row_bytes", 1, place(3)),
        SetAside("what cannot be read: it is cut short", 1, place(1)),
        SetAside("what cannot be read: it is no JSON object", 2, place(2)),
    ]


cells = st.sampled_from(
    [b"", b" ", b"word", b"\xff", b"\xc3", b"1", b"-2,5", b"1.234,5", b"1e400", b"TRUE", b"$1",
     b"2024-01-31", b"2023-02-29", b"9999-12-31", b"text", b"price", b"shop", b"label", b"who"]
)  # fmt: skip
rows_of_mess = st.lists(
    st.tuples(
        st.tuples(cells, cells, cells, cells, cells) | st.just((b"word", b"1", b"x", b"x", b"1")),
        st.sampled_from([0, 0, 0, 0, 0, -1, 1]),  # cells that are missing, or too many
        st.sampled_from([None] * 6 + ["too long", "broken", "blank"]),
    ),
    min_size=1,
    max_size=20,
)


def table_of(mess: list[tuple[tuple[bytes, ...], int, str | None]], num_columns: int) -> RawRows:
    """Make rows of some cells each, and of faults as a whole."""
    faults = [fault for _, _, fault in mess]
    return raw_rows(
        [(row[:num_columns] if fault is None else (b"",) * num_columns) for row, _, fault in mess],
        num_fields=[num_columns + more for _, more, _ in mess],
        too_long=[index for index, fault in enumerate(faults) if fault == "too long"],
        broken={index: "why" for index, fault in enumerate(faults) if fault == "broken"},
        blank=[index for index, fault in enumerate(faults) if fault == "blank"],
    )


def used(rows: CastRows) -> list[Any]:
    """Return what is used of each row, as plain values."""
    columns = [*rows.texts, *rows.categories, rows.labels, rows.groups]
    lists = [column.to_pylist() for column in columns if column is not None]
    lists += [column.tolist() for column in [*rows.numeric.T, rows.times] if column is not None]
    return [[repr(cell) for cell in row] for row in zip(*lists, strict=True)]


@NO_DEADLINE
@pytest.mark.parametrize("encoding_errors", ["strict", "replace"])
@given(mess=rows_of_mess, roles=st.sampled_from(ROLES))
def test_every_row_is_used_or_set_aside(
    mess: list[tuple[tuple[bytes, ...], int, str | None]], roles: ColumnRoles, encoding_errors: Any
) -> None:
    """Once, whatever the mess; 'quarantine' tells of each, and what 'error' passes is the same."""
    table = table_of(mess, len(roles.names))

    def cast(rows: RawRows, policy: BadRowPolicy) -> CastRows:
        return cast_rows(
            rows, roles, encoding="utf-8", policy=policy, encoding_errors=encoding_errors,
            numbers=NumberFormat(decimal=",", thousands="."),
        )  # fmt: skip

    skipped, quarantined = cast(table, "skip"), cast(table, "quarantine")

    assert skipped.num_rows + sum(part.count for part in skipped.set_aside) == len(mess)
    assert used(quarantined) == used(skipped)
    assert len(used(skipped)) == skipped.num_rows
    assert quarantined.set_aside == skipped.set_aside
    aside = quarantined.quarantined
    assert aside is not None
    assert aside.num_rows == len(mess) - skipped.num_rows
    assert (np.diff(aside.row_index) > 0).all()
    assert aside.start_byte.tolist() == [(row - 100) * 100 + 5000 for row in aside.row_index]
    counts = {part.reason: part.count for part in skipped.set_aside}
    assert Counter(aside.reason.to_pylist()) == counts
    for part in skipped.set_aside:
        first = aside.row_index[aside.reason.to_pylist().index(part.reason)]
        assert part.first.row == first + 1
    assert set(skipped.missing) == set(roles.inputs)
    # However the table is cut into batches, the same rows are used for the same reasons.
    ones = [cast(table_of([row], len(roles.names)), "skip") for row in mess]
    assert [row for one in ones for row in used(one)] == used(skipped)
    merged = merge_set_aside(part for one in ones for part in one.set_aside)
    assert {part.reason: part.count for part in merged} == counts
    for name in roles.inputs:
        assert sum(one.missing[name] for one in ones) == skipped.missing[name]
    assert sum(one.num_replaced for one in ones) == skipped.num_replaced
    assert sum(one.num_number_times for one in ones) == skipped.num_number_times
    try:
        strict = cast(table, "error")
    except RecordError:
        return
    assert used(strict) == used(skipped)
    assert strict.set_aside == skipped.set_aside
