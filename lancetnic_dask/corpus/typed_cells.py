"""Typed columns of Parquet, Arrow and DataFrames -> cells as text, like those of a CSV file.

A column is cast by its role later on, so that its type in one file never decides what it is in
another. Missing is the empty cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancetnic_dask.errors import ColumnError, quoted, suggestion

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

__all__ = ["flat_names", "frame_table", "pick", "text_cells"]

_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def _text_scalar(text: bytes) -> pa.LargeStringScalar:
    """Return a scalar over bytes: `pa.scalar` imports pandas, half a second for each worker."""
    offsets = pa.py_buffer(np.array([0, len(text)], np.int64))
    return pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(text)])[0]


_EMPTY: Final = _text_scalar(b"")
_POINT_ZERO: Final = _text_scalar(b".0")


def _filled(cells: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    return pc.coalesce(cells, _EMPTY.cast(pa.large_binary()))


def text_cells(column: pa.Array | pa.ChunkedArray, name: str, url: str) -> pa.LargeBinaryArray:
    """Turn a column of any plain type into text.

    Parameters
    ----------
    column : pyarrow.Array or ChunkedArray of shape (num_rows,)
        Numbers, words, booleans, dates or times, plain or as a dictionary.
    name, url : str
        For messages.

    Returns
    -------
    pyarrow.LargeBinaryArray of shape (num_rows,)
        UTF-8; empty where the value is null or NaN. Numbers in the fewest digits that give the
        same number again, 1.0 as ``1.0``; true and false; dates and times by ISO 8601; durations
        in seconds.

    Raises
    ------
    ColumnError
        If the column holds lists, objects or maps, or what has no text.

    Examples
    --------
    >>> text_cells(pa.array([1.0, 0.1, None, float("nan")]), "price", "a.parquet").to_pylist()
    [b'1.0', b'0.1', b'', b'']
    """
    if isinstance(column, pa.ChunkedArray):
        chunks = [text_cells(chunk, name, url) for chunk in column.chunks]
        return pa.concat_arrays(chunks) if chunks else pa.array([], pa.large_binary())
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if pa.types.is_nested(kind):
        raise ColumnError(
            f"Column {name!r} holds {quoted(str(kind))}, and single values are read.",
            url,
            "Name a field within it, as in 'user.name', or write the values as text.",
        )
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        return text_cells(column, name, url)
    if pa.types.is_null(kind):
        return pa.array([b""] * len(column), pa.large_binary())
    if pa.types.is_floating(kind):
        texts = pc.if_else(pc.is_nan(column), _EMPTY, _number_texts(column))
    elif kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        return _filled(column.cast(pa.large_binary()))
    elif pa.types.is_fixed_size_binary(kind):
        return _filled(column.cast(pa.binary()).cast(pa.large_binary()))
    else:
        texts = _plain_texts(column, name, url)
    return _filled(texts.cast(pa.large_string()).cast(pa.large_binary()))


def _plain_texts(column: pa.Array, name: str, url: str) -> pa.Array:
    """Write what is neither a float nor bytes."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column
    if pa.types.is_duration(kind):
        seconds = pc.divide(column.cast(pa.int64()).cast(pa.float64(), safe=False),
                            _PER_SECOND[kind.unit])  # fmt: skip
        return _number_texts(seconds)
    try:
        texts = column.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ColumnError(
            f"Column {name!r} holds {quoted(str(kind))}, which can't be written as text: "
            f"{str(error).rstrip('.')}.",
            url,
            "Write the values as text or numbers.",
        ) from error
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        # The same time is the same text, whether a file counts micro- or nanoseconds.
        texts = pc.replace_substring_regex(texts, r"(\.\d*?)0+(Z|[+-]\d+)?$", r"\1\2")
        texts = pc.replace_substring_regex(texts, r"\.(Z|[+-]\d+)?$", r"\1")
    return texts


def _number_texts(column: pa.Array) -> pa.Array:
    """Write floats; a whole one keeps its ``.0``, so that it is not taken for an integer."""
    if pa.types.is_float16(column.type):
        # Fewer digits tell halves apart than the same number as a float32.
        return pa.array([None if one is None else str(np.float16(one)) for one in
                         column.to_pylist()], pa.large_string())  # fmt: skip
    texts = column.cast(pa.large_string())
    is_whole = pc.match_substring_regex(texts, r"^-?[0-9]+$")
    return pc.if_else(is_whole, pc.binary_join_element_wise(texts, _POINT_ZERO, _EMPTY), texts)


def flat_names(schema: pa.Schema) -> tuple[str, ...]:
    """Return the names of the columns; fields within one as ``user.name``.

    Examples
    --------
    >>> user = pa.struct({"name": pa.string(), "age": pa.int8()})
    >>> flat_names(pa.schema({"text": pa.string(), "user": user}))
    ('text', 'user.name', 'user.age')
    """
    names: list[str] = []
    for column in schema:
        _add_names(column, column.name, names)
    return tuple(names)


def _add_names(column: pa.Field, name: str, names: list[str]) -> None:
    if pa.types.is_struct(column.type):
        for inner in column.type:
            _add_names(inner, f"{name}.{inner.name}", names)
    else:
        names.append(name)


def pick(table: pa.Table | pa.RecordBatch, path: str, url: str) -> pa.Array | pa.ChunkedArray:
    """Return a column by its name, or else a field within one by ``user.name``.

    Parameters
    ----------
    table : pyarrow.Table or RecordBatch
        With columns of any types.
    path : str
        Name of a column, or names of structs and a field within, joined by dots.
    url : str
        For messages.

    Returns
    -------
    pyarrow.Array or ChunkedArray of shape (num_rows,)
        Null where the field or a struct around it is.

    Raises
    ------
    ColumnError
        If there is no such column, or two of that name.
    """
    top, inner = _split_path(table.schema, path)
    count = table.schema.names.count(top)
    if count > 1:
        raise ColumnError(f"{count} columns are named {top!r}.", url, "Rename all but one.")
    column = table.column(top) if count else None
    while column is not None and inner:
        at_name = [name for name in _field_names(column.type) if _leads(name, inner)]
        if not at_name:
            column = None
            break
        column = pc.struct_field(column, at_name[0])
        inner = inner[len(at_name[0]) + 1 :]
    if column is None:
        known = flat_names(table.schema)
        raise ColumnError(f"There is no column {path!r}.", url, suggestion(path, known))
    return column


def _split_path(schema: pa.Schema, path: str) -> tuple[str, str]:
    """Return the column that a path begins with, and the rest of the path."""
    tops = [name for name in schema.names if _leads(name, path)]
    top = max(tops, key=len, default=path)
    return top, path[len(top) + 1 :]


def _field_names(kind: pa.DataType) -> list[str]:
    return [inner.name for inner in kind] if pa.types.is_struct(kind) else []


def _leads(name: str, path: str) -> bool:
    return path == name or path.startswith(f"{name}.")


def frame_table(frame: pd.DataFrame, columns: Sequence[str], url: str) -> pa.Table:
    """Return columns of a DataFrame as cells.

    Parameters
    ----------
    frame : pandas.DataFrame
        Columns of any types; of mixed ones each value is written as ``str`` writes it. pandas
        makes whole numbers with gaps floats: they are ``1.0``, unless the type is ``Int64``.
    columns : sequence of str
        Names; a name that is no str is known by what ``str`` makes of it.
    url : str
        For messages.

    Returns
    -------
    pyarrow.Table
        Columns of large_binary.

    Raises
    ------
    ColumnError
        If a column is missing or named twice, or holds lists or the like.
    """
    labels = [str(label) for label in frame.columns]
    return pa.table(
        [text_cells(_series_values(frame.iloc[:, _position(labels, name, url)]), name, url)
         for name in columns],
        names=list(columns),
    )  # fmt: skip


def _position(labels: list[str], name: str, url: str) -> int:
    count = labels.count(name)
    if not count:
        raise ColumnError(f"There is no column {name!r}.", url, suggestion(name, labels))
    if count > 1:
        raise ColumnError(f"{count} columns are named {name!r}.", url, "Rename all but one.")
    return labels.index(name)


def _series_values(series: pd.Series) -> pa.Array | pa.ChunkedArray:
    """Return a column as Arrow has it, or else as ``str`` writes each value."""
    try:
        values = pa.Array.from_pandas(series)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        values = None
    # Of objects 1 and 1.5 Arrow makes 1.0 and 1.5.
    is_changed = series.dtype == object and values is not None and pa.types.is_floating(values.type)
    if values is not None and not is_changed:
        return values
    texts = [
        b"" if missing else value if isinstance(value, bytes) else str(value).encode()
        for value, missing in zip(series, series.isna(), strict=True)
    ]
    return pa.array(texts, pa.large_binary())
