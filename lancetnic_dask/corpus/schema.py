"""Raw cells -> columns by role: text, numbers, labels; rows that can't be used are set aside.

A column's type never depends on which partition was seen first: everything arrives as bytes and
is cast by the role that the user gave it. Only a cell with nothing but white space (or NULs) is
missing; ``NA``, ``null`` and ``None`` are words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancetnic_dask.corpus.number_cells import NUMBER, PLAIN_NUMBERS, parse_numbers
from lancetnic_dask.corpus.sieve import (
    QuarantinedRows,
    SetAside,
    Sieve,
    check_shape,
    merge_set_aside,
)
from lancetnic_dask.corpus.text_cells import PADDING, decode_cells, is_empty, trim
from lancetnic_dask.corpus.time_cells import parse_times
from lancetnic_dask.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lancetnic_dask.corpus.formats import EncodingErrors
    from lancetnic_dask.corpus.readers import RawRows
    from lancetnic_dask.settings import BadRowPolicy, ColumnRoles, NumberFormat

__all__ = [
    "NUMBER",
    "PADDING",
    "CastRows",
    "QuarantinedRows",
    "SetAside",
    "cast_rows",
    "decode_rows",
    "merge_set_aside",
]

_OR_SKIP = ", or leave such rows out with on_bad_rows='skip'"


@dataclass(frozen=True)
class CastRows:
    """Rows that can be used.

    Parameters
    ----------
    texts : list of pyarrow.LargeStringArray
        One array of (num_rows,) for each text column; a missing cell is empty.
    numeric : ndarray of shape (num_rows, num_data_columns), dtype=float64
        A missing cell is NaN.
    labels : pyarrow.LargeStringArray or None
        Labels as written; None without a label column.
    set_aside : list of SetAside
        What of the raw rows is not here, each reason once.
    num_replaced : int, default=0
        Characters that were no text and became U+FFFD, in rows that are used or not.
    categories : list of pyarrow.LargeStringArray, default=[]
        One array of (num_rows,) for each category column, without padding around; a missing cell
        is empty, a category of its own.
    groups : pyarrow.LargeStringArray or None, default=None
        Groups without padding around, none empty; None without a group column.
    times : ndarray of shape (num_rows,), dtype=int64, or None, default=None
        In the order of time, as `time_cells.parse_times` gives them; None without a time column.
    num_number_times : int, default=0
        Times that were written as numbers: either all rows of a corpus, or none, can be compared.
    missing : dict of str to int, default={}
        Missing cells of each input column, in the rows that are used.
    quarantined : QuarantinedRows or None, default=None
        Each row that is not here; None unless the policy is 'quarantine'.
    """

    texts: list[pa.Array]
    numeric: np.ndarray
    labels: pa.Array | None
    set_aside: list[SetAside]
    num_replaced: int = 0
    categories: list[pa.Array] = field(default_factory=list)
    groups: pa.Array | None = None
    times: np.ndarray | None = None
    num_number_times: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    quarantined: QuarantinedRows | None = None

    @property
    def num_rows(self) -> int:
        """Rows that can be used."""
        return len(self.numeric)


def cast_rows(
    rows: RawRows,
    roles: ColumnRoles,
    *,
    encoding: str,
    policy: BadRowPolicy,
    encoding_errors: EncodingErrors = "strict",
    numbers: NumberFormat = PLAIN_NUMBERS,
) -> CastRows:
    """Give raw cells the types of their roles.

    Each raw row is either used or set aside, for one reason.

    Parameters
    ----------
    rows : RawRows
        Cells of `roles.names`, in that order.
    roles : ColumnRoles
        What each column is.
    encoding : str
        Of the cells.
    policy : {'error', 'skip', 'quarantine'}
        What to do with a row that can't be used.
    encoding_errors : {'strict', 'replace'}, default='strict'
        Whether a cell that is not text makes its row a bad one.
    numbers : NumberFormat
        How numbers are written: with a decimal point and no groups, if it is left out.

    Returns
    -------
    CastRows
        The rows that can be used. Rows with nothing to learn from and repeated headers are set
        aside under every policy.

    Raises
    ------
    RecordError
        Under 'error': a row that is no record, with too few or too many cells or longer than the
        limit, a cell that is no number or infinite, a missing label or group, a cell that is no
        time.
    EncodingError
        Under 'error': a cell that is not text in the encoding.
    """
    sieve = Sieve(rows, policy, encoding_errors=encoding_errors, way_out=_OR_SKIP)
    check_shape(sieve, _nothing(roles))
    sieve.drop_quietly(_is_header(rows, roles.names, encoding), "the header once more")
    text_of = _reader(sieve, roles.names, encoding)
    texts = [text_of(name) for name in roles.text_columns]
    columns = [parse_numbers(sieve, text_of(name), name, numbers) for name in roles.data_columns]
    numeric = np.stack(columns, axis=1) if columns else np.empty((rows.num_rows, 0))
    categories = [trim(text_of(name)) for name in roles.category_columns]
    labels = None if roles.label_column is None else text_of(roles.label_column)
    missing = [is_empty(text) for text in texts]
    missing += [np.isnan(column) for column in columns]
    missing += [np.asarray(pc.equal(category, "")) for category in categories]
    # Before the labels: a line of nothing but separators is no error.
    sieve.drop_quietly(np.logical_and.reduce(missing), _nothing(roles))
    if labels is not None:
        _require(sieve, labels, "label", roles.label_column)
    groups = None if roles.group_column is None else trim(text_of(roles.group_column))
    if groups is not None:
        _require(sieve, groups, "group", roles.group_column)
    times, is_number = None, np.zeros(rows.num_rows, dtype=bool)
    if roles.time_column is not None:
        times, is_number = parse_times(
            sieve,
            text_of(roles.time_column),
            roles.time_column,
            time_format=roles.time_format,
            numbers=numbers,
        )
    used = _filter(sieve.keep)
    return CastRows(
        texts=[used(text) for text in texts],
        numeric=numeric if sieve.keep.all() else numeric[sieve.keep],
        labels=None if labels is None else used(labels),
        set_aside=list(sieve.found.values()),
        num_replaced=sieve.num_replaced,
        categories=[used(category) for category in categories],
        groups=None if groups is None else used(groups),
        times=None if times is None else times[sieve.keep],
        num_number_times=int(is_number[sieve.keep].sum()),
        missing={
            name: int(is_missing[sieve.keep].sum())
            for name, is_missing in zip(roles.inputs, missing, strict=True)
        },
        quarantined=sieve.quarantined(),
    )


def decode_rows(
    rows: RawRows,
    names: Sequence[str],
    *,
    encoding: str,
    encoding_errors: EncodingErrors = "strict",
) -> pa.Table:
    """Give raw cells names and nothing else: every record, every column as text.

    Parameters
    ----------
    rows : RawRows
        Cells of the named columns, in that order.
    names : sequence of str
        Names of the columns.
    encoding : str
        Of the cells.
    encoding_errors : {'strict', 'replace'}, default='strict'
        Whether a cell that is not text is an error.

    Returns
    -------
    pyarrow.Table
        Large_string columns; a line of white space among JSON Lines is left out.

    Raises
    ------
    RecordError, EncodingError
        For a row that is no record, or of another shape than the header, or a cell that is not
        text.
    """
    sieve = Sieve(rows, "error", encoding_errors=encoding_errors)
    check_shape(sieve, "nothing in them")
    texts = [
        decode_cells(sieve, cells, name, encoding)
        for cells, name in zip(rows.cells, names, strict=True)
    ]
    table = pa.table(texts, names=list(names))
    return table if rows.is_blank is None else table.filter(pa.array(~rows.is_blank))


def _nothing(roles: ColumnRoles) -> str:
    """Return why a row with nothing to learn from is set aside."""
    if roles.category_columns:
        return "neither a word, a number nor a category"
    return "neither a word nor a number"


def _reader(sieve: Sieve, names: Sequence[str], encoding: str) -> Callable[[str], pa.Array]:
    """Return what decodes a column by its name, once: it may have two roles."""
    decoded: dict[str, pa.Array] = {}

    def text_of(name: str) -> pa.Array:
        if name not in decoded:
            cells = sieve.rows.cells[names.index(name)]
            decoded[name] = decode_cells(sieve, cells, name, encoding)
        return decoded[name]

    return text_of


def _filter(keep: np.ndarray) -> Callable[[pa.Array], pa.Array]:
    """Return what takes the kept rows of a column; the column itself if these are all."""
    if keep.all():
        return lambda column: column
    mask = pa.array(keep)
    return lambda column: column.filter(mask)


def _require(sieve: Sieve, texts: pa.Array, role: str, name: str | None) -> None:
    first = sieve.drop(is_empty(texts), f"no {role}", name)
    if first is not None:
        raise RecordError(
            f"The {role} is missing.", sieve.rows.location(first, name), sieve.fix("Fill it in")
        )


def _is_header(rows: RawRows, names: Sequence[str], encoding: str) -> np.ndarray:
    """Return True (num_rows,) where every cell is its column's name: files joined by ``cat``."""
    repeats = np.ones(rows.num_rows, dtype=bool)
    for cells, name in zip(rows.cells, names, strict=True):
        if repeats.any():
            # A name that the encoding can't write was no text in the file either.
            repeats &= np.asarray(pc.equal(cells, name.encode(encoding, "replace")))
    return repeats
