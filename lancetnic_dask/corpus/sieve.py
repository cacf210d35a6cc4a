"""Why rows can't be used -> which rows stay, and what was set aside.

The reasons themselves stand where the cells are read: in ``schema``, ``text_cells``,
``number_cells`` and ``time_cells``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lancetnic_dask.errors import Location, RecordError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lancetnic_dask.corpus.formats import EncodingErrors
    from lancetnic_dask.corpus.readers import RawRows
    from lancetnic_dask.settings import BadRowPolicy

__all__ = ["QuarantinedRows", "SetAside", "Sieve", "check_shape", "merge_set_aside"]

_UNKNOWN_BYTE = -1


@dataclass(frozen=True)
class SetAside:
    """Rows that were read but not used, for one reason.

    Parameters
    ----------
    reason : str
        Why, in a few words that follow "rows with …".
    count : int
        How many.
    first : Location
        Where the first one is.
    """

    reason: str
    count: int
    first: Location


@dataclass(frozen=True, eq=False)
class QuarantinedRows:
    """Every row that was set aside, in the order of the file.

    Parameters
    ----------
    row_index : ndarray of shape (num_rows,), dtype=int64
        Index among the records of the file, from 0.
    start_byte : ndarray of shape (num_rows,), dtype=int64
        Where the record starts in the file; -1 where that is not known.
    reason : pyarrow.LargeStringArray
        Why, as in `SetAside`.
    """

    row_index: np.ndarray
    start_byte: np.ndarray
    reason: pa.Array

    @property
    def num_rows(self) -> int:
        """Rows that were set aside."""
        return len(self.row_index)


class Sieve:
    """Notes why rows are set aside; each row counts for its first reason only.

    Parameters
    ----------
    rows : RawRows
        All rows.
    policy : {'error', 'skip', 'quarantine'}
        Whether a bad row is an error, is left out, or is left out and kept note of.
    encoding_errors : {'strict', 'replace'}, default='strict'
        Whether a cell that is not text makes its row a bad one.
    way_out : str, default=""
        Goes on the sentence that tells how to mend a row; empty where rows can't be skipped.
    """

    def __init__(
        self,
        rows: RawRows,
        policy: BadRowPolicy,
        *,
        encoding_errors: EncodingErrors = "strict",
        way_out: str = "",
    ) -> None:
        self.rows = rows
        self.policy = policy
        self.encoding_errors = encoding_errors
        self.way_out = way_out
        self.num_replaced = 0
        self.keep = np.ones(rows.num_rows, dtype=bool)
        self.found: dict[str, SetAside] = {}
        self._noted: list[tuple[np.ndarray, str]] = []

    def drop(self, is_bad: np.ndarray, reason: str, column: str | None = None) -> int | None:
        """Drop rows; return the first one if the policy makes it an error."""
        bad = np.flatnonzero(is_bad & self.keep)
        if not len(bad):
            return None
        if self.policy == "error":
            return int(bad[0])
        self.drop_quietly(is_bad, reason, column)
        return None

    def drop_quietly(self, is_bad: np.ndarray, reason: str, column: str | None = None) -> None:
        """Drop rows that are no error under any policy."""
        bad = np.flatnonzero(is_bad & self.keep)
        if len(bad):
            self.keep[bad] = False
            if self.policy == "quarantine":
                self._noted.append((bad, reason))
            places = [self.rows.location(int(bad[0]), column)]
            count = len(bad)
            if reason in self.found:  # in another column, perhaps further down
                places.append(self.found[reason].first)
                count += self.found[reason].count
            first = min(places, key=lambda place: place.row or 0)
            self.found[reason] = SetAside(reason, count, first)

    def fix(self, ways: str) -> str:
        """Return the ways to mend a row, and the way out, as one sentence."""
        return f"{ways}{self.way_out}."

    def quarantined(self) -> QuarantinedRows | None:
        """Return all rows that were dropped; None unless the policy is 'quarantine'."""
        if self.policy != "quarantine":
            return None
        reasons = [reason for _, reason in self._noted]
        dropped = np.concatenate([np.empty(0, np.int64), *(bad for bad, _ in self._noted)])
        codes = np.repeat(np.arange(len(reasons)), [len(bad) for bad, _ in self._noted])
        order = np.argsort(dropped)
        dropped = dropped[order]
        has_bytes = self.rows.has_bytes
        return QuarantinedRows(
            self.rows.first_row + dropped,
            self.rows.start_byte[dropped] if has_bytes else np.full_like(dropped, _UNKNOWN_BYTE),
            pa.array(reasons, pa.large_string()).take(pa.array(codes[order])),
        )


def check_shape(sieve: Sieve, nothing: str) -> None:
    """Drop, or tell of, rows that are no records of the header's shape; `nothing`: if blank."""
    rows = sieve.rows
    if rows.is_blank is not None:
        sieve.drop_quietly(rows.is_blank, nothing)
    first = sieve.drop(rows.is_too_long, "more bytes than max_row_bytes")
    if first is not None:
        raise RecordError(
            "The row is longer than max_row_bytes; perhaps a quote is never closed.",
            rows.location(first),
            sieve.fix("Close the quote, pass quotechar=None or a larger max_row_bytes"),
        )
    first = sieve.drop(rows.num_fields != rows.num_columns, "too few or too many cells")
    if first is not None:
        raise RecordError(
            f"The row has {rows.num_fields[first]} cells and the header {rows.num_columns}.",
            rows.location(first),
            sieve.fix("Check quotes and separators there"),
        )
    _check_broken(sieve)


def _check_broken(sieve: Sieve) -> None:
    rows = sieve.rows
    indices_by_reason: dict[str, list[int]] = {}
    for index in sorted(rows.broken):
        if sieve.keep[index]:
            indices_by_reason.setdefault(rows.broken[index], []).append(index)
    # The reason of the first broken row comes first: under 'error' it is the one that is told.
    for reason, indices in indices_by_reason.items():
        is_broken = np.zeros(rows.num_rows, dtype=bool)
        is_broken[indices] = True
        first = sieve.drop(is_broken, f"what cannot be read: {reason}")
        if first is not None:
            raise RecordError(
                f"The row cannot be read: {reason}.", rows.location(first), sieve.fix("Correct it")
            )


def merge_set_aside(parts: Iterable[SetAside]) -> list[SetAside]:
    """Add up what was set aside, by reason; the first place of the first part stays.

    Parameters
    ----------
    parts : iterable of SetAside
        In the order of the corpus.

    Returns
    -------
    list of SetAside
        One for each reason, in the order in which the reasons came up.
    """
    merged: dict[str, SetAside] = {}
    for part in parts:
        known = merged.get(part.reason)
        count = part.count + (known.count if known else 0)
        merged[part.reason] = SetAside(part.reason, count, known.first if known else part.first)
    return list(merged.values())
