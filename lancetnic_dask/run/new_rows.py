"""What users hand to predict -> texts and numbers as arrays, by the rules of the corpus.

Everything that is not clearly a text or a number is refused with its place: a guess would give
a label, and nobody would notice.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lancetnic_dask.errors import ColumnError, RecordError, SettingError, suggestion
from lancetnic_dask.run.cells import (
    as_number,
    as_text,
    as_written_text,
    read_cells,
    string_array,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt
    import pandas as pd
    import pyarrow as pa

__all__ = [
    "NewRows",
    "is_dask_table",
    "is_pandas_frame",
    "is_pandas_series",
    "read_frame",
    "read_row",
    "read_rows",
    "require_columns",
]

_KINDS: Final = (
    "Pass a string, a list, tuple or 1-D array of strings, a pandas or Dask Series of strings, "
    "or a pandas or Dask DataFrame."
)


@dataclass(frozen=True)
class NewRows:
    """Rows to predict for.

    Parameters
    ----------
    texts : list of pyarrow.LargeStringArray
        One of (num_rows,) for each text column; a missing text is empty or null.
    numeric : ndarray of shape (num_rows, num_data_columns), dtype=float64
        Finite, or NaN for a missing number.
    is_single : bool
        Whether one row was passed as such, and not a list of one.
    """

    texts: list[pa.Array]
    numeric: npt.NDArray[np.float64]
    is_single: bool = False


def is_pandas_frame(data: Any) -> bool:
    """Whether it is a pandas DataFrame; pandas is not imported for that."""
    return _is_one_of(data, "pandas", "DataFrame")


def is_pandas_series(data: Any) -> bool:
    """Whether it is a pandas Series; pandas is not imported for that."""
    return _is_one_of(data, "pandas", "Series")


def is_dask_table(data: Any) -> bool:
    """Whether it is a Dask DataFrame or Series; Dask is not imported for that."""
    return _is_one_of(data, "dask.dataframe", "DataFrame", "Series")


def read_rows(
    data: Any,
    scalar_data: Any,
    text_columns: tuple[str, ...],
    data_columns: tuple[str, ...],
) -> NewRows:
    """Read one text, several texts, or none, and the numbers beside them.

    Parameters
    ----------
    data : str, list, tuple, 1-D array or pandas Series of str, or None
        None, NaN, pandas.NA and pandas.NaT in it are empty texts. None in its place: a model
        without text columns.
    scalar_data : number or array, or None
        Shape (num_rows,) for one data column, (num_rows, num_data_columns) for any; for one row
        a number, or (num_data_columns,). None and NaN in it are missing numbers; None in its
        place: a model without data columns.
    text_columns, data_columns : tuple of str
        Columns of the model.

    Returns
    -------
    NewRows
        The rows.

    Raises
    ------
    SettingError
        If the data is of another kind or shape, or the numbers of a model that reads some are
        left out: the training means in their place would give a label that nobody asked for.
    RecordError
        If a text is no string, or a number is none or infinite.
    """
    if not text_columns:
        return _read_numbers_alone(data, scalar_data, data_columns)
    values = [data] if isinstance(data, str) else _listed(data)
    if len(text_columns) > 1:
        raise SettingError(
            f"The model reads {len(text_columns)} text columns: {_named(text_columns)}.",
            None,
            "Pass a pandas or Dask DataFrame with these columns.",
        )
    if is_pandas_series(data) and is_pandas_series(scalar_data):
        _check_same_index(data, scalar_data)
    column = text_columns[0]
    texts = string_array(read_cells(as_text, values, lambda at: f"text {at + 1}"), column)
    is_single = isinstance(data, str)
    numeric = _read_numbers(scalar_data, len(values), data_columns, is_single=is_single)
    return NewRows([texts], numeric, is_single)


def read_row(
    texts: Sequence[Any] | None,
    numbers: Sequence[Any] | None,
    text_columns: tuple[str, ...],
    data_columns: tuple[str, ...],
) -> NewRows:
    """Read one row, column by column; None is a row of missing texts or numbers.

    Raises
    ------
    SettingError
        If there are more or fewer values than columns.
    RecordError
        If a text is no string, or a number is none or infinite.
    """
    cells = [None] * len(text_columns) if texts is None else texts
    values = [None] * len(data_columns) if numbers is None else numbers
    for given, columns, kind in (
        (cells, text_columns, "texts"),
        (values, data_columns, "numbers"),
    ):
        if len(given) != len(columns):
            raise SettingError(
                f"There are {len(given)} {kind}, and the model reads {len(columns)}: "
                f"{_named(columns)}.",
                None,
                "Pass one for each column, in their order; for many rows use load(path).predict.",
            )
    found = read_cells(as_text, cells, lambda at: f"column {text_columns[at]!r}")
    arrays = [string_array([text], name) for text, name in zip(found, text_columns, strict=True)]
    row = read_cells(as_number, values, lambda at: f"column {data_columns[at]!r}")
    return NewRows(arrays, np.array(row, np.float64).reshape(1, -1), is_single=True)


def read_frame(
    frame: pd.DataFrame, text_columns: tuple[str, ...], data_columns: tuple[str, ...]
) -> NewRows:
    """Read the columns of a pandas DataFrame that a model needs.

    Parameters
    ----------
    frame : pandas.DataFrame
        Text columns hold strings (numbers are written out as text), number columns numbers,
        booleans (0 and 1) or strings that are numbers; a missing cell is empty.
    text_columns, data_columns : tuple of str
        Columns of the model.

    Returns
    -------
    NewRows
        As many rows as the frame.

    Raises
    ------
    ColumnError
        If a column is missing or stands twice.
    RecordError
        If a cell is neither a text nor a number, or is infinite.
    """
    require_columns(frame.columns, (*text_columns, *data_columns))
    texts = [_text_cells(frame[name], name) for name in text_columns]
    columns = [_number_cells(frame[name], name) for name in data_columns]
    return NewRows(texts, np.stack(columns, axis=1) if columns else np.empty((len(frame), 0)))


def require_columns(columns: Iterable[Any], names: tuple[str, ...]) -> None:
    """Refuse a DataFrame in which a name doesn't stand just once.

    Raises
    ------
    ColumnError
        If one is missing or stands twice.
    """
    known = [name for name in columns if isinstance(name, str)]
    for name in names:
        if known.count(name) != 1:
            is_missing = name not in known
            raise ColumnError(
                f"There is no column {name!r}." if is_missing else f"Column {name!r} stands twice.",
                "the DataFrame",
                suggestion(name, known) if is_missing else "Drop or rename one of them.",
            )


def _listed(data: Any) -> Sequence[Any] | npt.NDArray[Any]:
    """Return the values of a one-dimensional kind, and refuse all others."""
    if isinstance(data, (list, tuple)):
        return data
    is_array = isinstance(data, np.ndarray) or any(
        _is_one_of(data, "pandas", name) for name in ("Series", "Index")
    )
    if not is_array and "pandas" in sys.modules:
        is_array = isinstance(data, sys.modules["pandas"].api.extensions.ExtensionArray)
    if is_array and data.ndim == 1:
        values: npt.NDArray[Any] = np.asarray(data, dtype=object)
        return values
    shape = f"an array of shape {data.shape}" if is_array else f"of type {type(data).__name__}"
    raise SettingError(f"The data is {shape}, which cannot be predicted for.", None, _KINDS)


def _read_numbers_alone(data: Any, scalar_data: Any, columns: tuple[str, ...]) -> NewRows:
    """Read rows for a model that has no text column."""
    if data is not None or scalar_data is None:
        given = "nothing" if data is None else "texts or an array"
        raise SettingError(
            f"The model reads numbers only, and was given {given}.",
            None,
            f"Pass scalar_data=, in the order of {_named(columns)}; or a DataFrame.",
        )
    shape = _shape_of(scalar_data)
    is_single = shape == () or (len(shape) == 1 and len(columns) > 1)
    num_rows = 1 if is_single or not shape else shape[0]
    numeric = _read_numbers(scalar_data, num_rows, columns, is_single=is_single)
    return NewRows([], numeric, is_single)


def _read_numbers(
    scalar_data: Any, num_rows: int, columns: tuple[str, ...], *, is_single: bool
) -> npt.NDArray[np.float64]:
    """Read numbers beside texts as float64 (num_rows, num_data_columns)."""
    width = len(columns)
    if scalar_data is None:
        if columns:
            raise SettingError(
                f"The model also reads {_named(columns)}.",
                None,
                "Pass scalar_data=, with None for a missing one.",
            )
        return np.empty((num_rows, 0))
    allowed: list[tuple[int, ...]] = [(num_rows, width)] if not is_single else [(width,)]
    if width == 1:
        allowed.append(() if is_single else (num_rows,))
    shape = _shape_of(scalar_data)
    if not num_rows and width and 0 in shape:
        return np.empty((0, width))
    if not width or shape not in allowed:
        found = "a number" if shape == () else f"of shape {shape}"
        needed = " or ".join("a number" if one == () else f"of shape {one}" for one in allowed)
        raise SettingError(
            f"scalar_data is {found}; for {num_rows} rows of {_named(columns)} "
            f"it must be {needed if width else 'None'}.",
            None,
            "Pass one number for each row and each data column, in the order of the columns.",
        )
    if is_pandas_frame(scalar_data) and list(scalar_data.columns) != list(columns):
        raise SettingError(
            f"scalar_data has the columns {_named(scalar_data.columns)}, the model reads "
            f"{_named(columns)}.",
            None,
            "Pass them in this order, or one DataFrame with all columns as data.",
        )
    array = _as_array(scalar_data)
    if array.dtype.kind in "biuf":
        numbers = array.reshape(num_rows, width).astype(np.float64)
    else:
        cells = read_cells(
            as_number,
            array.ravel(),
            lambda at: f"row {at // width + 1}, column {columns[at % width]!r}",
        )
        numbers = np.array(cells, np.float64).reshape(num_rows, width)
    _refuse_infinite(numbers, columns)
    return numbers


def _shape_of(scalar_data: Any) -> tuple[int, ...]:
    return _as_array(scalar_data).shape


def _as_array(scalar_data: Any) -> npt.NDArray[Any]:
    """Return numbers as they are, as an array; what no cell may be is refused later."""
    if isinstance(scalar_data, (dict, set, frozenset)) or is_dask_table(scalar_data):
        raise SettingError(
            f"scalar_data is of type {type(scalar_data).__name__}.",
            None,
            "Pass a number, a list of numbers or an array.",
        )
    if isinstance(scalar_data, (list, tuple)) or not hasattr(scalar_data, "__array__"):
        # Not numpy's guess: it would turn True beside "yes" into a text.
        try:
            array = np.array(scalar_data, dtype=object)
        except ValueError as error:
            raise SettingError(
                "The rows of scalar_data are not of one length.",
                None,
                "Pass one number for each row and each data column.",
            ) from error
        return array
    return np.asarray(scalar_data)


def _refuse_infinite(numbers: npt.NDArray[np.float64], columns: tuple[str, ...]) -> None:
    infinite = np.argwhere(np.isinf(numbers))
    if len(infinite):
        row, column = infinite[0]
        raise RecordError(
            "The number is infinite.",
            f"row {row + 1}, column {columns[column]!r}",
            "Correct it, or leave it out as None or NaN.",
        )


def _text_cells(cells: pd.Series, name: str) -> pa.Array:
    values = cells.to_numpy(dtype=object)
    return string_array(read_cells(as_written_text, values, _frame_place(name)), name)


def _number_cells(cells: pd.Series, name: str) -> npt.NDArray[np.float64]:
    """Read a column as float64 (num_rows,)."""
    if isinstance(cells.dtype, np.dtype) and cells.dtype.kind in "biuf":
        numbers = cells.to_numpy(np.float64)
    else:
        values = cells.to_numpy(dtype=object)
        numbers = np.array(read_cells(as_number, values, _frame_place(name)), np.float64)
    _refuse_infinite(numbers.reshape(-1, 1), (name,))
    return numbers


def _frame_place(name: str) -> Callable[[int], str]:
    return lambda at: f"row {at + 1} of the DataFrame, column {name!r}"


def _is_one_of(data: Any, module: str, *names: str) -> bool:
    # An object of a library exists only where the library has been imported already.
    loaded = sys.modules.get(module)
    kinds = tuple(kind for name in names if (kind := getattr(loaded, name, None)) is not None)
    return isinstance(data, kinds)


def _check_same_index(texts: pd.Series, numbers: pd.Series) -> None:
    if not texts.index.equals(numbers.index):
        raise SettingError(
            "The Series of texts and of numbers have different indexes.",
            None,
            "Put both into one DataFrame and pass that.",
        )


def _named(columns: Iterable[Any]) -> str:
    return ", ".join(map(repr, columns)) or "no data column"
