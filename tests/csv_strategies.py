"""Hypothesis strategies for CSV: dialects, raw bytes, tables, cuts."""

from __future__ import annotations

import csv
import io

from hypothesis import settings
from hypothesis import strategies as st

from lancetnic_dask.corpus.dialect import CsvDialect

__all__ = ["NO_DEADLINE", "cut_at", "cuts", "dialects", "raw_texts", "tables", "write_table"]

# The first example compiles the kernels.
NO_DEADLINE = settings(deadline=None)

dialects = st.builds(
    CsvDialect,
    delimiter=st.sampled_from([*",\t|;", None]),
    quotechar=st.sampled_from(['"', "'", None]),
    escapechar=st.sampled_from([None, "\\"]),
    doublequote=st.booleans(),
)

_ALPHABET = "\",;\t|\\'\r\n a\x00é世"

# Any bytes at all, rich in those with a meaning; a few frequent snippets reach odd states.
raw_texts = st.one_of(
    st.text(_ALPHABET, max_size=60),
    st.lists(
        st.sampled_from(
            [*_ALPHABET, "\r\n", '""', "''", '",', '"\r\n"', "\\\r\n", "text", "é" * 9]
        ),
        max_size=40,
    ).map("".join),
).map(str.encode)

# Cells of a table with at least one column; two columns more often than five.
tables = st.integers(1, 5).flatmap(
    lambda num_columns: st.lists(
        st.lists(
            st.text('",\r\n aé世\\;', max_size=12), min_size=num_columns, max_size=num_columns
        ),
        max_size=12,
    )
)

# Sizes of neighbouring pieces, taken round and round.
cuts = st.lists(st.integers(1, 40), min_size=1, max_size=6)


def cut_at(data: bytes, sizes: list[int]) -> list[bytes]:
    """Cut bytes into pieces of the given sizes, taken round and round."""
    pieces: list[bytes] = []
    start = 0
    while start < len(data):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[start : start + size])
        start += size
    return pieces


def write_table(table: list[list[str]], *, line_end: str) -> bytes:
    """Write a table as csv.writer does, every cell quoted."""
    file = io.StringIO(newline="")
    csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator=line_end).writerows(table)
    return file.getvalue().encode()
