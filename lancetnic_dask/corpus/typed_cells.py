"""Typed columns of Parquet, Arrow and DataFrames -> cells as text, like those of a CSV file.

A column is cast by its role later on, so that its type in one file never decides what it is in
another. Missing is the empty cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lancetnic_dask.errors import ColumnError, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

__all__ = ["flat_names", "frame_table", "text_cells"]


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
        same number again, 1.0 as ``1.0``; true and false; dates and times by ISO 8601.

    Raises
    ------
    ColumnError
        If the column holds lists, objects or maps.

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
        texts = pc.if_else(pc.is_nan(column), "", _number_texts(column))
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pc.fill_null(column.cast(pa.large_binary()), b"")
    elif pa.types.is_fixed_size_binary(kind):
        return pc.fill_null(column.cast(pa.binary()).cast(pa.large_binary()), b"")
    else:
        texts = column.cast(pa.string()) if _is_plain(kind) else column
    return pc.fill_null(texts.cast(pa.large_string()), "").cast(pa.large_binary())


def _is_plain(kind: pa.DataType) -> bool:
    return not (pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _number_texts(column: pa.Array) -> pa.Array:
    """Write floats; a whole one keeps its ``.0``, so that it is not taken for an integer."""
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    texts = column.cast(pa.string())
    is_whole = pc.match_substring_regex(texts, r"^-?[0-9]+$")
    return pc.if_else(is_whole, pc.binary_join_element_wise(texts, ".0", ""), texts)


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


def frame_table(frame: pd.DataFrame, columns: Sequence[str], url: str) -> pa.Table:
    """Return columns of a DataFrame as cells.

    Parameters
    ----------
    frame : pandas.DataFrame
        Columns of any types; of mixed ones each value is written as ``str`` writes it.
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
        If a column holds lists or the like.
    """
    positions = {str(name): at for at, name in enumerate(frame.columns)}
    cells = []
    for name in columns:
        series = frame.iloc[:, positions[name]]
        try:
            array = pa.Array.from_pandas(series)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            is_missing = series.isna()
            array = pa.array(
                [
                    None if missing else value.decode("utf-8", "surrogateescape")
                    if isinstance(value, bytes) else str(value)
                    for value, missing in zip(series, is_missing, strict=True)
                ],
                pa.large_string(),
            )  # fmt: skip
        cells.append(text_cells(array, name, url))
    return pa.table(cells, names=list(columns))
