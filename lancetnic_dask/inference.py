"""A model folder and new rows -> labels or probabilities.

One string needs neither a cluster nor Dask; a Dask DataFrame gives a lazy result, one
partition at a time. What may be passed, and how it is read, is in `run.new_rows`.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lancetnic_dask.errors import ModelFileError, SettingError, quoted
from lancetnic_dask.features.labels import parse_labels
from lancetnic_dask.features.ngrams import expand_terms
from lancetnic_dask.features.shard import TokenShard
from lancetnic_dask.features.tokenize import Tokenizer
from lancetnic_dask.features.weighting import encode_rows
from lancetnic_dask.html_repr import html_box, listed
from lancetnic_dask.models.networks import build_abstract, build_network
from lancetnic_dask.models.plain_torch import kept_random_state
from lancetnic_dask.models.registry import MODELS, is_users_class, resolve_model
from lancetnic_dask.run.model_file import ModelFile, read_stamped, resolve_folder, stamp_of
from lancetnic_dask.run.new_rows import (
    NewRows,
    is_dask_table,
    is_pandas_frame,
    is_pandas_series,
    read_frame,
    read_row,
    read_rows,
    require_columns,
)
from lancetnic_dask.training.scoring import score_rows

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt
    import pandas as pd
    import pyarrow as pa
    from torch import nn

    from lancetnic_dask.features.tokenize import TokenizedText

__all__ = ["Model", "load", "load_once"]


def load(path: str | os.PathLike[str], *, model_name: str | type[nn.Module] | None = None) -> Model:
    """Open a trained model.

    Nothing in the folder is run: it holds arrays and words only.

    Parameters
    ----------
    path : str or os.PathLike
        The model's folder, such as ``runs/train_0/best_model``.
    model_name : type, str or None, default=None
        The class that it was trained with, where that is your own. The package's models are
        known by the folder.

    Returns
    -------
    Model
        Ready to predict, on the CPU.

    Raises
    ------
    ModelFileError
        If there is no model, it is broken, cut short, foreign or too new, or its class is missing.
    SettingError
        If ``model_name`` is no model, or can't be made.
    """
    folder = resolve_folder(path)
    model_class = None if model_name is None else resolve_model(model_name)
    model = _open(folder, model_class)
    if model_class not in (None, model.model_class):
        raise ModelFileError(
            f"The model is a {model.model_class.__name__} of this package.",
            str(folder),
            "Leave model_name= out.",
        )
    return model


def _open(folder: Path, model_class: type[nn.Module] | None) -> Model:
    model_file, stamp = read_stamped(folder, model_class)
    model = Model(model_file, folder, stamp)
    _LOADED.add(model)
    return model


class Model:
    """A trained classifier.

    Made by `load`. Several threads may use one model at once.

    Parameters
    ----------
    model_file : ModelFile
        What was read.
    folder : Path
        Where from.
    stamp : str
        What tells it from other models, by `stamp_of`.

    Attributes
    ----------
    classes : ndarray of shape (num_classes,)
        Labels in the order of the columns of `predict_proba`; int64 if all labels of the
        training set are whole numbers, else str.
    text_columns, data_columns : tuple of str
        Columns that a DataFrame needs.
    model_class : type[nn.Module]
        The class that it was trained with.
    """

    def __init__(self, model_file: ModelFile, folder: Path, stamp: str) -> None:
        self.folder = folder
        self.stamp = stamp
        self.text_columns = model_file.roles.text_columns
        self.data_columns = model_file.roles.data_columns
        self.classes = parse_labels(model_file.features.classes)
        self.model_class = model_file.model_class
        self._file = model_file
        self._stop_words = frozenset(model_file.stop_words)
        self._network = _build_network(model_file)

    def predict(self, data: Any = None, scalar_data: Any = None) -> Any:
        """Return the most probable class of each row.

        Parameters
        ----------
        data : str, sequence of str, pandas or dask Series or DataFrame, or None, default=None
            One text; a list, tuple, 1-D array or Series of texts; or rows with `text_columns`
            and `data_columns`. A missing text is empty. None where the model reads numbers only.
        scalar_data : number or array, default=None
            Numbers beside texts, in the order of `data_columns`: of shape
            (num_rows, num_data_columns), or (num_rows,) for one data column; beside one text a
            number, or (num_data_columns,). None and NaN in it are missing and count as the
            training mean. None in its place: a model without data columns.

        Returns
        -------
        label, ndarray, pandas.Series or dask.dataframe.Series
            A label for one text; an array of shape (num_rows,) for several; for a DataFrame or
            a Series a Series with its index, lazy for one of Dask.

        Raises
        ------
        ColumnError
            If a DataFrame lacks a column, or has it twice.
        SettingError
            If the data is of another kind or shape, or doesn't fit the model's columns, or the
            numbers of a model that reads some are left out.
        RecordError
            If a text is no text, or a number is none or infinite.
        ModelFileError
            If the model's scores are no numbers.
        """
        if is_dask_table(data):
            return self._map_partitions(data, scalar_data, "predict")
        rows = self._read(data, scalar_data)
        codes = self._score(rows).argmax(axis=1)
        if rows.is_single:
            return self.classes.tolist()[int(codes[0])]
        if is_pandas_frame(data) or is_pandas_series(data):
            return self._series(codes, data.index)
        return self.classes[codes]

    def predict_proba(self, data: Any = None, scalar_data: Any = None) -> Any:
        """Return the probability of each class for each row.

        Parameters
        ----------
        data, scalar_data
            As in `predict`.

        Returns
        -------
        ndarray, pandas.DataFrame or dask.dataframe.DataFrame
            Shape (num_classes,) for one text, (num_rows, num_classes) for several; for a
            DataFrame or a Series a DataFrame with its index and the classes as columns. float32.

        Raises
        ------
        ColumnError, SettingError, RecordError, ModelFileError
            As in `predict`.
        """
        if is_dask_table(data):
            return self._map_partitions(data, scalar_data, "predict_proba")
        rows = self._read(data, scalar_data)
        scores = self._score(rows)
        if rows.is_single:
            return scores[0]
        if is_pandas_frame(data) or is_pandas_series(data):
            return self._frame(scores, data.index)
        return scores

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
        SettingError
            If there are more or fewer values than columns.
        RecordError
            If a text is no text, or a number is none or infinite.
        ModelFileError
            If the model's scores are no numbers.
        """
        row = read_row(texts, numbers, self.text_columns, self.data_columns)
        return self.classes.tolist()[int(self._score(row)[0].argmax())]

    def __repr__(self) -> str:
        columns = ", ".join(map(repr, (*self.text_columns, *self.data_columns)))
        return (
            f"Model({self.model_class.__name__}, {len(self.classes)} classes, columns {columns}, "
            f"{self._file.features.input_size:,} features, from {str(self.folder)!r})"
        )

    def _repr_html_(self) -> str:
        """Show classes, columns and size in a notebook; nothing is read from the folder."""
        return html_box(
            "Model",
            {
                "model": self.model_class.__name__,
                "folder": self.folder,
                "classes": f"{len(self.classes):,}: {listed(self.classes.tolist(), show=quoted)}",
                "text_columns": listed(self.text_columns, show=quoted),
                "data_columns": listed(self.data_columns, show=quoted),
                "label_column": quoted(self._file.roles.label_column),
                "features": self._file.features.input_size,
                "ngram_range": self._file.ngram_range,
            },
        )

    def _read(self, data: Any, scalar_data: Any) -> NewRows:
        if not is_pandas_frame(data):
            return read_rows(data, scalar_data, self.text_columns, self.data_columns)
        _refuse_scalar_data(scalar_data)
        return read_frame(data, self.text_columns, self.data_columns)

    def _score(self, rows: NewRows) -> npt.NDArray[np.float32]:
        """Return probabilities float32 (num_rows, num_classes)."""
        num_rows = len(rows.numeric)
        shard = TokenShard(
            texts=tuple(self._tokenize(text) for text in rows.texts),
            numeric=rows.numeric,
            label_codes=np.empty(0, np.int32),
            label_values=(),
            row_hash=np.empty((num_rows, 2), np.uint64),
        )
        encoded = encode_rows(shard, np.arange(num_rows), self._file.features)
        scores = np.empty((num_rows, len(self.classes)), np.float32)
        for start, logits in score_rows(self._network, encoded):
            is_bad = ~torch.isfinite(logits).all(dim=1)
            if is_bad.any():
                raise ModelFileError(
                    f"The model's scores of row {start + int(is_bad.int().argmax()) + 1} are no "
                    "finite numbers.",
                    str(self.folder),
                    "Its weights are too large: train it anew with a lower learning_rate.",
                )
            scores[start : start + len(logits)] = torch.softmax(logits.float(), dim=1).numpy()
        return scores

    def _tokenize(self, texts: pa.Array) -> TokenizedText:
        tokenizer = Tokenizer()
        tokenizer.add(texts)
        return expand_terms(
            tokenizer.finish(),
            ngram_range=self._file.ngram_range,
            stop_words=self._stop_words,
        )

    def _series(self, codes: npt.NDArray[np.intp], index: pd.Index) -> pd.Series:
        import pandas as pd

        # Named, not guessed from the values: no rows must have the type that rows have.
        dtype: Any = "int64" if self.classes.dtype == np.int64 else "str"
        name = self._file.roles.label_column
        labels: pd.Series = pd.Series(self.classes[codes], index=index, name=name, dtype=dtype)
        return labels

    def _frame(self, scores: npt.NDArray[np.float32], index: pd.Index) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(scores, index=index, columns=pd.Index(self.classes.tolist()))

    def _map_partitions(self, table: Any, scalar_data: Any, method: str) -> Any:
        _refuse_scalar_data(scalar_data)
        if table.ndim == 2:
            names = (*self.text_columns, *self.data_columns)
            require_columns(table.columns, names)
            table = table[list(names)]  # the others need not even be read
        elif len(self.text_columns) == 1 and self.data_columns:
            raise SettingError(
                f"The model also reads {', '.join(map(repr, self.data_columns))}.",
                None,
                "Pass a Dask DataFrame with all its columns.",
            )
        index = table._meta.index[:0]  # noqa: SLF001 - Dask's own way to ask for it
        if method == "predict":
            if table.ndim == 1:
                self._read([], None)  # is there but one text column?
            meta: Any = self._series(np.empty(0, np.intp), index)
        else:
            meta = self._frame(np.empty((0, len(self.classes)), np.float32), index)
        return table.map_partitions(
            _score_partition,
            path=str(self.folder.resolve()),
            own_class=self.model_class if is_users_class(self.model_class) else None,
            stamp=self.stamp,
            method=method,
            meta=meta,
        )


def load_once(path: str | os.PathLike[str], own_class: type[nn.Module] | None = None) -> Model:
    """Open a model, or return the one that this process has opened if it is still the same.

    Threads that ask at once wait for one of them: the weights are in memory once. The user's
    class is used if the model was trained with one.

    Raises
    ------
    ModelFileError, SettingError
        As `load`.
    """
    folder = resolve_folder(path).resolve()
    return _LOADED.get(folder, stamp_of(folder), own_class)


class _LoadedModels:
    """The models that this process has in memory; keeps alive only the one used last.

    A class of the user's may be defined anew, as when a notebook's cell is run again: it is part
    of the key.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: weakref.WeakValueDictionary[tuple[Path, str, type[nn.Module]], Model] = (
            weakref.WeakValueDictionary()
        )
        self._last: Model | None = None

    def add(self, model: Model) -> None:
        """Remember a model for as long as somebody uses it."""
        self._models[model.folder.resolve(), model.stamp, model.model_class] = model

    def get(self, folder: Path, stamp: str, own_class: type[nn.Module] | None) -> Model:
        """Return the model of a folder that had this stamp just now."""
        with self._lock:
            for model_class in (*MODELS.values(), *([own_class] if own_class else [])):
                model = self._models.get((folder, stamp, model_class))
                if model is not None:
                    break
            else:
                self._last = None  # never two in memory on our account
                model = _open(folder, own_class)
            self._last = model
            return model


_LOADED = _LoadedModels()


def _score_partition(
    table: Any, *, path: str, own_class: type[nn.Module] | None, stamp: str, method: str
) -> Any:
    """Score one partition of a Dask DataFrame or Series (a worker's task)."""
    model = load_once(path, own_class)
    if model.stamp != stamp:
        raise ModelFileError(
            "The model was replaced while it was used.", path, "Load it again, and predict anew."
        )
    return getattr(model, method)(table)


def _refuse_scalar_data(scalar_data: Any) -> None:
    if scalar_data is not None:
        raise SettingError(
            "scalar_data goes with texts, and here is a table.",
            None,
            "Put the numbers into columns of one DataFrame.",
        )


def _build_network(model_file: ModelFile) -> torch.nn.Module:
    """Make the network around the weights that were read.

    For the package's models nothing is drawn or allocated twice. What a user's constructor makes
    may be more than its state, so that is made as it is.
    """
    plan = model_file.network_plan
    network = None if is_users_class(plan.model_class) else build_abstract(plan)
    is_empty = network is not None
    if network is None:
        with kept_random_state(torch.device("cpu")):
            network = build_network(plan)
    # A user's class may hold a weight a second time: it is filled, not replaced.
    network.load_state_dict(dict(model_file.state), strict=True, assign=is_empty)
    return network.eval()
