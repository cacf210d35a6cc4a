"""A model folder and new rows -> labels or probabilities.

One string needs neither a cluster nor Dask; a Dask DataFrame gives a lazy result, one
partition at a time.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import torch

from lancetnic_dask.errors import (
    ColumnError,
    LancetnicError,
    ModelFileError,
    RecordError,
    SettingError,
    quoted,
    suggestion,
)
from lancetnic_dask.features.labels import parse_labels
from lancetnic_dask.features.ngrams import expand_terms
from lancetnic_dask.features.shard import TokenShard
from lancetnic_dask.features.tokenize import Tokenizer
from lancetnic_dask.features.weighting import encode_rows
from lancetnic_dask.models.registry import resolve_model
from lancetnic_dask.run.model_file import MANIFEST_NAME, ModelFile, read_model, resolve_folder
from lancetnic_dask.training.batches import iter_batches
from lancetnic_dask.training.loop import SCORING_ROWS

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt
    import pandas as pd

    from lancetnic_dask.features.tokenize import TokenizedText

__all__ = ["Model", "load", "load_once"]


def load(path: str | os.PathLike[str]) -> Model:
    """Open a trained model.

    Nothing in the folder is run: it holds arrays and words only.

    Parameters
    ----------
    path : str or os.PathLike
        The model's folder, such as ``runs/train_0/best_model``.

    Returns
    -------
    Model
        Ready to predict, on the CPU.

    Raises
    ------
    ModelFileError
        If there is no model, or it is broken, cut short, foreign or too new.
    """
    folder = resolve_folder(path)
    return Model(read_model(folder), folder)


class Model:
    """A trained classifier.

    Made by `load`.

    Parameters
    ----------
    model_file : ModelFile
        What was read.
    folder : Path
        Where from.

    Attributes
    ----------
    classes : ndarray of shape (num_classes,)
        Labels in the order of the columns of `predict_proba`; int64 if all labels of the
        training set are whole numbers, else str.
    text_columns, data_columns : tuple of str
        Columns that a DataFrame needs.
    """

    def __init__(self, model_file: ModelFile, folder: Path) -> None:
        self.folder = folder
        self.text_columns = model_file.roles.text_columns
        self.data_columns = model_file.roles.data_columns
        self.classes = parse_labels(model_file.features.classes)
        self._file = model_file
        self._stop_words = frozenset(model_file.stop_words)
        self._network = _build_network(model_file, folder)

    def predict(self, data: Any, scalar_data: Any = None) -> Any:
        """Return the most probable class of each row.

        Parameters
        ----------
        data : str, sequence of str, pandas.DataFrame, dask.dataframe.DataFrame or None
            One text, several texts, or rows with `text_columns` and `data_columns`. None where
            the model reads numbers only.
        scalar_data : number or array of shape (num_rows,) or (num_rows, num_data_columns)
            Numbers beside texts, in the order of `data_columns`; None (or NaN) is missing.
            Default None.

        Returns
        -------
        label, ndarray, pandas.Series or dask.dataframe.Series
            A label for one text; an array of shape (num_rows,) for several; for a DataFrame a
            Series with its index, lazy for a Dask DataFrame.

        Raises
        ------
        ColumnError
            If a DataFrame lacks a column.
        SettingError
            If the data is of another kind, or doesn't fit the model's columns.
        RecordError
            If a number is none.
        """
        if _is_dask_frame(data):
            return self._map_partitions(data, "predict")
        probabilities = self.predict_proba(data, scalar_data)
        if isinstance(data, str) or (data is None and np.ndim(scalar_data) == 0):
            return self.classes.tolist()[int(np.argmax(probabilities))]
        labels = self.classes[np.asarray(probabilities).argmax(axis=1)]
        if _is_pandas_frame(data):
            import pandas as pd

            return pd.Series(labels, index=data.index, name=self._file.roles.label_column)
        return labels

    def predict_proba(self, data: Any, scalar_data: Any = None) -> Any:
        """Return the probability of each class for each row.

        Parameters
        ----------
        data, scalar_data
            As in `predict`.

        Returns
        -------
        ndarray, pandas.DataFrame or dask.dataframe.DataFrame
            Shape (num_classes,) for one text, (num_rows, num_classes) for several; for a
            DataFrame one with its index and the classes as columns. float32.

        Raises
        ------
        ColumnError, SettingError, RecordError
            As in `predict`.
        """
        if _is_dask_frame(data):
            return self._map_partitions(data, "predict_proba")
        if _is_pandas_frame(data):
            import pandas as pd

            texts = [_text_cells(data, name) for name in self.text_columns]
            numeric = [_number_cells(data, name) for name in self.data_columns]
            columns = np.stack(numeric, axis=1) if numeric else np.empty((len(data), 0))
            return pd.DataFrame(self._score(texts, columns), index=data.index, columns=self.classes)
        is_single = isinstance(data, str) or (data is None and np.ndim(scalar_data) == 0)
        texts = self._texts_of(data)
        numeric_rows = self._numbers_of(scalar_data, len(texts[0]) if texts else None)
        scores = self._score(texts, numeric_rows)
        return scores[0] if is_single else scores

    def predict_row(
        self, texts: Sequence[Any] | None = None, numbers: Sequence[Any] | None = None
    ) -> Any:
        """Return the most probable class of one row, given column by column.

        Parameters
        ----------
        texts : sequence of str or None, default=None
            One for each of `text_columns`; None is an empty row of texts.
        numbers : sequence of number or None, default=None
            One for each of `data_columns`; None is a row of missing numbers.

        Returns
        -------
        str or int
            The label.

        Raises
        ------
        RecordError
            If a number is none.
        """
        cells = [""] * len(self.text_columns) if texts is None else texts
        arrays = [
            _string_array([cell], name) for cell, name in zip(cells, self.text_columns, strict=True)
        ]
        scores = self._score(arrays, self._numbers_of(numbers, 1))
        return self.classes.tolist()[int(scores[0].argmax())]

    def __repr__(self) -> str:
        columns = ", ".join(map(repr, (*self.text_columns, *self.data_columns)))
        return (
            f"Model({self._file.model_name}, {len(self.classes)} classes, columns {columns}, "
            f"{self._file.features.input_size:,} features, from {str(self.folder)!r})"
        )

    def _texts_of(self, data: Any) -> list[pa.Array]:
        """Read one text or several as the model's only text column."""
        if data is None and not self.text_columns:
            return []
        if len(self.text_columns) != 1:
            raise SettingError(
                f"The model reads {len(self.text_columns)} text columns: "
                f"{', '.join(map(repr, self.text_columns))}.",
                None,
                "Pass a pandas DataFrame with these columns.",
            )
        texts = [data] if isinstance(data, str) else data
        if isinstance(texts, bytes) or not hasattr(texts, "__iter__"):
            raise SettingError(
                f"{quoted(data)} cannot be predicted for.",
                None,
                "Pass a string, a list of strings, a pandas or a Dask DataFrame.",
            )
        return [_string_array(list(texts), self.text_columns[0])]

    def _numbers_of(self, scalar_data: Any, num_rows: int | None) -> npt.NDArray[np.float64]:
        """Read numbers beside texts, float64 (num_rows, num_data_columns)."""
        width = len(self.data_columns)
        if scalar_data is None:
            return np.full((num_rows or 0, width), np.nan)
        try:
            numbers = np.asarray(scalar_data, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise RecordError(
                f"{quoted(scalar_data)} holds something that is not a number.", "scalar_data"
            ) from error
        expected = (num_rows if num_rows is not None else (numbers.size // max(width, 1)), width)
        if numbers.size != expected[0] * width or not width:
            raise SettingError(
                f"scalar_data has {numbers.size} numbers, the model reads {width} for a row "
                f"and there are {expected[0]} rows.",
                None,
                "Pass the numbers in the order of "
                f"{', '.join(map(repr, self.data_columns)) or 'no column at all'}.",
            )
        return numbers.reshape(expected)

    def _score(
        self, texts: Sequence[pa.Array], numeric: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float32]:
        """Return probabilities float32 (num_rows, num_classes)."""
        infinite = np.argwhere(np.isinf(numeric))
        if len(infinite):
            row, column = infinite[0]
            raise RecordError(
                "The number is infinite.", f"row {row + 1}, column {self.data_columns[column]!r}"
            )
        shard = TokenShard(
            texts=tuple(self._tokenize(text) for text in texts),
            numeric=numeric,
            label_codes=np.empty(0, np.int32),
            label_values=(),
            row_hash=np.empty((len(numeric), 2), np.uint64),
        )
        rows = encode_rows(shard, np.arange(len(numeric)), self._file.features)
        scores = np.empty((len(numeric), len(self.classes)), np.float32)
        start = 0
        with torch.no_grad():
            for batch in iter_batches(rows, np.arange(rows.num_rows), SCORING_ROWS):
                logits = self._network(batch.rows)
                stop = start + batch.rows.num_rows
                scores[start:stop] = torch.softmax(logits, dim=1).numpy()
                start = stop
        return scores

    def _tokenize(self, texts: pa.Array) -> TokenizedText:
        tokenizer = Tokenizer()
        tokenizer.add(texts)
        return expand_terms(
            tokenizer.finish(),
            ngram_range=self._file.ngram_range,
            stop_words=self._stop_words,
        )

    def _map_partitions(self, frame: Any, method: str) -> Any:
        for name in (*self.text_columns, *self.data_columns):
            _require_column(name, list(frame.columns))
        empty = _empty_like(frame)
        return frame.map_partitions(
            _score_partition,
            path=str(self.folder.resolve()),
            stamp=_stamp(self.folder),
            method=method,
            meta=getattr(self, method)(empty),
        )


def load_once(path: str | os.PathLike[str]) -> Model:
    """Open a model, or return the one that this process opened last if it is still the same."""
    folder = resolve_folder(path).resolve()
    return _load_stamped(folder, _stamp(folder))


@lru_cache(maxsize=1)
def _load_stamped(folder: Path, stamp: tuple[int, int]) -> Model:  # noqa: ARG001 - a key of the cache
    return load(folder)


def _stamp(folder: Path) -> tuple[int, int]:
    manifest = (folder / MANIFEST_NAME).stat()
    return manifest.st_mtime_ns, manifest.st_ino


def _score_partition(frame: pd.DataFrame, *, path: str, stamp: tuple[int, int], method: str) -> Any:
    """Score one partition of a Dask DataFrame (a worker's task)."""
    model = load_once(path)
    if _stamp(model.folder) != stamp:
        raise ModelFileError(
            "The model was replaced while it was used.", path, "Load it again, and predict anew."
        )
    return getattr(model, method)(frame)


def _build_network(model_file: ModelFile, folder: Path) -> torch.nn.Module:
    """Make the network around the weights that were read; nothing is drawn or allocated twice."""
    features = model_file.features
    try:
        with torch.device("meta"):
            network = resolve_model(model_file.model_name)(
                features.input_size, num_numeric=features.num_numeric, **model_file.model_args
            )
        network.load_state_dict(dict(model_file.state), strict=True, assign=True)
    except (TypeError, RuntimeError, LancetnicError) as error:
        raise ModelFileError(
            f"The weights do not fit the model that model.json describes: {quoted(str(error))}.",
            str(folder),
            "It is damaged, or was written by another version. Use another copy of it.",
        ) from error
    return network.eval()


def _is_pandas_frame(data: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(data, pandas.DataFrame)


def _is_dask_frame(data: Any) -> bool:
    # A Dask DataFrame exists only where Dask has been imported already.
    frames = sys.modules.get("dask.dataframe")
    return frames is not None and isinstance(data, frames.DataFrame)


def _empty_like(frame: Any) -> pd.DataFrame:
    return cast("pd.DataFrame", frame._meta.iloc[:0])  # noqa: SLF001 - Dask's own way to ask for it


def _require_column(name: str, columns: list[str]) -> None:
    count = columns.count(name)
    if count != 1:
        what = f"There is no column {name!r}." if not count else f"Column {name!r} stands twice."
        raise ColumnError(what, "the DataFrame", suggestion(name, [str(one) for one in columns]))


def _text_cells(frame: pd.DataFrame, name: str) -> pa.Array:
    _require_column(name, list(frame.columns))
    cells = frame[name]
    return _string_array(
        ["" if missing else cell for cell, missing in zip(cells, cells.isna(), strict=True)], name
    )


def _number_cells(frame: pd.DataFrame, name: str) -> npt.NDArray[np.float64]:
    import pandas as pd

    _require_column(name, list(frame.columns))
    cells = frame[name]
    is_empty = cells.isna() | (cells.astype(str).str.strip() == "")
    numbers = pd.to_numeric(cells.mask(is_empty), errors="coerce").astype("float64")
    wrong = np.flatnonzero(np.asarray(numbers.isna() & ~is_empty))
    if len(wrong):
        raise RecordError(
            f"{quoted(cells.iloc[wrong[0]])} is not a number.",
            f"row {wrong[0] + 1} of the DataFrame, column {name!r}",
            "Correct it, or leave the cell empty.",
        )
    return np.asarray(numbers, dtype=np.float64)


def _string_array(values: list[Any], name: str) -> pa.Array:
    """Return text cells as Arrow; other values are written out as text, None is empty."""
    texts = ["" if value is None else value if isinstance(value, str) else str(value)
             for value in values]  # fmt: skip
    try:
        return pa.array(texts, pa.large_string())
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        raise RecordError(
            f"A text cannot be written as UTF-8: {error}.", f"column {name!r}"
        ) from error
