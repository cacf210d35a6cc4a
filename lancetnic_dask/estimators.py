"""lancetnic's classes and arguments -> settings; the only place where they are translated."""

from __future__ import annotations

from dataclasses import asdict, replace
from inspect import signature
from typing import TYPE_CHECKING, Any

from lancetnic_dask.config import cache_folder, local_folder, setting
from lancetnic_dask.corpus.dialect import CsvDialect
from lancetnic_dask.corpus.formats import FileFormat
from lancetnic_dask.errors import SettingError, quoted
from lancetnic_dask.features.stop_words import resolve_stop_words
from lancetnic_dask.html_repr import html_box, listed
from lancetnic_dask.inference import load_once
from lancetnic_dask.models.registry import is_users_class, resolve_model
from lancetnic_dask.pipeline.fit import fit_classifier
from lancetnic_dask.pipeline.request import FitRequest
from lancetnic_dask.settings import (
    ColumnRoles,
    FeatureSettings,
    NumberFormat,
    SplitSettings,
    TrainingSettings,
    column_names,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from torch import nn

    from lancetnic_dask.corpus.formats import EncodingErrors
    from lancetnic_dask.corpus.frame import Corpus
    from lancetnic_dask.corpus.sources import PathLike
    from lancetnic_dask.run.folder import Run
    from lancetnic_dask.settings import BadRowPolicy

__all__ = ["Classification"]


class Classification:
    """Train a classifier of table rows, on corpora larger than memory.

    The arguments up to `max_features` are lancetnic's, with its defaults.

    Parameters
    ----------
    text_column : str, list of str or None, default=None
        Columns of words. An empty cell is an empty text. An object that only predicts needs no
        column.
    data_column : str, list of str or None, default=None
        Columns of numbers. An empty cell counts as the training mean.
    label_column : str or None, default=None
        Column of classes, read as text: ``01`` is not ``1``.
    split_ratio : float, default=0.2
        Share of rows that validate when `train` gets no `val_path`. Rows with equal features
        always fall on the same side.
    random_state : int, default=42
        Seed of the split, the weights, dropout and the order of rows.
    max_features : int or None, default=None
        Terms kept for each text column at most, the most frequent ones. None keeps up to
        ``lancetnic.features.max-features-cap`` (250,000) of Dask's configuration.
    min_df, max_df : int or float, default=1 and 1.0
        Terms in fewer, or in more, training rows are dropped: a count if int, a share if float.
    ngram_range : tuple of (int, int), default=(1, 1)
        Shortest and longest word n-grams.
    stop_words : {'english'}, iterable of str or None, default=None
        Words that are dropped.
    sublinear_tf : bool, default=False
        Replace a count tf by 1 + ln(tf).
    delimiter : str or None, default=None
        One ASCII character between cells of CSV files. None finds it in the first file, among
        comma, tab, semicolon and bar; where that leaves no doubt, also whether quotes mean
        nothing or a backslash escapes them.
    quotechar : str or None, default='"'
        Character around cells; None if quotes mean nothing.
    escapechar : str or None, default=None
        Character that takes the next one literally.
    doublequote : bool, default=True
        Whether a doubled quote inside quotes is a quote.
    comment : str or None, default=None
        ASCII character that starts a line which is no record.
    names : iterable of str or None, default=None
        Names of the columns of CSV files without a header.
    decimal : str, default='.'
        Character before the fraction of a number in CSV files.
    thousands : str or None, default=None
        Character between groups of three digits there; None has no groups. A space stands for
        the spaces that don't break as well.
    encoding : str, default='utf-8'
        Of text files: any text encoding that Python knows.
    encoding_errors : {'strict', 'replace'}, default='strict'
        Whether bytes that are no text in the encoding are an error, or become U+FFFD and are
        counted.
    on_bad_rows : {'error', 'skip'}, default='error'
        Whether a row that can't be used ends the run, or is left out and counted.
    storage_options : mapping or None, default=None
        Options of the fsspec file system.

    Attributes
    ----------
    run_ : Run or None
        What the last `train` brought.

    Examples
    --------
    >>> from lancetnic_dask import Classification
    >>> Classification(text_column="review", label_column="stars")
    Classification(text_column='review', label_column='stars')
    """

    def __init__(
        self,
        text_column: str | Iterable[str] | None = None,
        data_column: str | Iterable[str] | None = None,
        label_column: str | None = None,
        split_ratio: float = 0.2,
        random_state: int = 42,
        max_features: int | None = None,
        *,
        min_df: float = 1,
        max_df: float = 1.0,
        ngram_range: tuple[int, int] = (1, 1),
        stop_words: str | Iterable[str] | None = None,
        sublinear_tf: bool = False,
        delimiter: str | None = None,
        quotechar: str | None = '"',
        escapechar: str | None = None,
        doublequote: bool = True,
        comment: str | None = None,
        names: Iterable[str] | None = None,
        decimal: str = ".",
        thousands: str | None = None,
        encoding: str = "utf-8",
        encoding_errors: EncodingErrors = "strict",
        on_bad_rows: BadRowPolicy = "error",
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(label_column, str | None):
            raise SettingError(
                f"label_column is {quoted(label_column)}.", None, "Pass the name of one column."
            )
        if on_bad_rows not in ("error", "skip"):
            raise SettingError(
                f"on_bad_rows is {quoted(on_bad_rows)}.", None, "Pass 'error' or 'skip'."
            )
        self.text_column = text_column
        self.data_column = data_column
        self.label_column = label_column
        self.run_: Run | None = None
        self._own_class: type[nn.Module] | None = None
        self._text_columns = column_names("text_column", text_column)
        self._data_columns = column_names("data_column", data_column)
        self._split = SplitSettings(split_ratio=split_ratio, random_state=random_state)
        self._stop_words = tuple(sorted(resolve_stop_words(stop_words)))
        self._features = FeatureSettings(
            max_features=max_features,
            min_df=min_df,
            max_df=max_df,
            ngram_range=ngram_range,
            stop_words=stop_words if isinstance(stop_words, str) else self._stop_words or None,
            sublinear_tf=bool(sublinear_tf),
        )
        dialect = CsvDialect(
            delimiter="," if delimiter is None else delimiter,
            quotechar=quotechar,
            escapechar=escapechar,
            doublequote=doublequote,
            comment=comment,
        )
        self._numbers = NumberFormat(decimal=decimal, thousands=thousands)
        self._file_format = FileFormat(
            dialect=dialect,
            is_sniffed=delimiter is None,
            names=None if names is None else tuple(names),
            encoding=encoding,
            encoding_errors=encoding_errors,
        )
        self._policy = on_bad_rows
        self._storage_options = storage_options

    def train(
        self,
        model_name: str | type[nn.Module],
        train_path: PathLike | Sequence[PathLike] | Corpus,
        val_path: PathLike | Sequence[PathLike] | Corpus | None = None,
        num_epochs: int = 5,
        hidden_size: int = 256,
        num_layers: int = 1,
        batch_size: int = 128,
        learning_rate: float | None = 0.001,
        dropout: float = 0,
        optim_name: str = "auto",
        crit_name: str = "CELoss",
        device_name: str = "auto",
        *,
        client: Any = None,
        memory: int | str | None = None,
        cache: bool = True,
        cache_dir: str | os.PathLike[str] | None = None,
        run_dir: str | os.PathLike[str] | None = None,
        partition_bytes: int | None = None,
        group_size: int | None = None,
        progress: bool = True,
    ) -> Run:
        """Train a model and write it into a new run folder.

        The arguments up to `device_name` are lancetnic's.

        Parameters
        ----------
        model_name : str or type
            Model, as a name or a class: `ScalpelMC`, or your own `nn.Module` with the constructor
            ``(input_size, hidden_size, num_layers, num_classes, dropout)``. It is given rows of
            ``input_size`` floats, text columns first, batch by batch; or `SparseRows`, if it
            holds a `SparseLinear`.
        train_path : str, os.PathLike, sequence of these, or Corpus
            CSV files: path, URL, glob, folder, or a list of these.
        val_path : str, os.PathLike, sequence of these, Corpus or None, default=None
            Files that validate. None takes `split_ratio` of the rows of `train_path`.
        num_epochs : int, default=5
            Times that each training row is seen.
        hidden_size : int, default=256
            Width of the hidden layers.
        num_layers : int, default=1
            Number of hidden layers.
        batch_size : int, default=128
            Rows in a step at most.
        learning_rate : float or None, default=0.001
            Step size. Under "auto" it is Adam's, and row-wise Adagrad of the first layer gets 50
            times as much, so that 0.001 and None mean each optimizer's default.
        dropout : float, default=0
            Share of hidden units dropped in training.
        optim_name : str, default='auto'
            'auto' is row-wise Adagrad for the first layer and Adam for the rest; 'Adam', 'AdamW',
            'RAdam', 'SGD', 'RMSprop', 'Adadelta', 'Adagrad' have their textbook meaning.
        crit_name : str, default='CELoss'
            Loss.
        device_name : str, default='auto'
            'auto' is CUDA if there is one, else the processor: what lancetnic means by its default
            'cuda'. Here 'cuda' or 'cuda:1' is a wish; where it can't be met, a warning says so and
            training runs on the processor. 'cpu' is the processor.
        client : Client, Cluster, str or None, default=None
            Dask client, cluster object or address. None takes the current client, or starts a
            cluster on this machine that fits the memory budget, and closes it again.
        memory : int, str or None, default=None
            Memory for this process and its workers together, such as "8GiB". None takes
            ``lancetnic.memory.total`` of Dask's configuration, or the smallest of 16 GiB, the
            machine's memory and the limit of its control group. It changes neither the order of
            rows nor the model.
        cache : bool, default=True
            Keep token shards on disk. False tokenizes the corpus again in each epoch; the model
            is the same.
        cache_dir : str, os.PathLike or None, default=None
            Folder of the shards. None takes ``lancetnic.cache.dir``, or the user's cache folder.
        run_dir : str, os.PathLike or None, default=None
            Folder in which ``train_N`` is made. None takes ``lancetnic.run.dir``: ``runs``.
        partition_bytes : int or None, default=None
            Bytes of text in a partition. None takes ``lancetnic.corpus.partition-bytes``: 16 MiB.
        group_size : int or None, default=None
            Shards that are shuffled together. None takes ``lancetnic.training.group-size``: 16.
        progress : bool, default=True
            Print where things are and a line for each epoch, and show a bar for each stage where
            stderr is a terminal, or in a notebook.

        Returns
        -------
        Run
            Metrics by epoch, paths, peak memory beside the budget, seconds by stage. It is kept
            in `run_`.

        Raises
        ------
        SettingError
            If an option is unknown or out of range.
        CorpusError
            If the corpus can't be used, by file, row and column.
        BudgetError
            If something can't fit into the memory budget.
        CacheError, ClusterError, TrainingError
            If the cache folder, the workers or the training fail.
        LancetnicError
            If the run folder can't be written.
        KeyboardInterrupt
            On Ctrl-C, once the cluster is closed; it tells which models there are.
        """
        model_class = resolve_model(model_name)
        request = FitRequest(
            model_class=model_class,
            roles=self._roles(),
            numbers=self._numbers,
            file_format=replace(
                self._file_format,
                partition_bytes=_or_setting(partition_bytes, "corpus.partition-bytes"),
                max_row_bytes=setting("corpus.max-row-bytes"),
            ),
            policy=self._policy,
            features=self._features,
            stop_words=self._stop_words,
            split=self._split,
            training=TrainingSettings(
                num_epochs=num_epochs,
                hidden_size=hidden_size,
                num_layers=num_layers,
                batch_size=batch_size,
                learning_rate=learning_rate,
                dropout=dropout,
                optim_name=optim_name,
                crit_name=crit_name,
                device_name=device_name,
                random_state=self._split.random_state,
                group_size=_or_setting(group_size, "training.group-size"),
            ),
            max_features=_or_setting(self._features.max_features, "features.max-features-cap"),
            max_classes=setting("features.max-classes"),
            train_path=train_path,
            val_path=val_path,
            storage_options=self._storage_options,
            client=client,
            memory=_or_setting(memory, "memory.total"),
            uses_cache=cache,
            cache_dir=cache_folder(cache_dir),
            run_dir=local_folder("run_dir", _or_setting(run_dir, "run.dir")).absolute(),
            progress=progress,
        )
        # Before it is trained: a run that is stopped leaves models too.
        self._own_class = model_class if is_users_class(model_class) else None
        self.run_ = fit_classifier(request)
        return self.run_

    def predict(
        self,
        model_path: str | os.PathLike[str],
        text_data: str | Sequence[str] | None = None,
        scalar_data: float | Sequence[float] | None = None,
        *,
        model_name: str | type[nn.Module] | None = None,
    ) -> Any:
        """Return the class of one row, as lancetnic's method of that name.

        For many rows use `load`.

        Parameters
        ----------
        model_path : str or os.PathLike
            Folder of a model, such as ``runs/train_0/best_model``.
        text_data : str, sequence of str or None, default=None
            The row's text; a list with one text for each text column, in their order.
        scalar_data : number, sequence of numbers or None, default=None
            The row's number; a list with one number for each numeric column. None in it is
            missing, and counts as the training mean.
        model_name : type, str or None, default=None
            The class that the model was trained with, where that is your own. None takes the one
            that this object trained last.

        Returns
        -------
        str or int
            The class; int where all labels of the training set are whole numbers.

        Raises
        ------
        SettingError
            If nothing is passed, texts or numbers that the model reads are left out, or there is
            another number of values than the model has columns.
        ModelFileError
            If there is no model there, or it is broken.
        """
        if text_data is None and scalar_data is None:
            raise SettingError("There is nothing to predict for.", None, "Pass text_data=.")
        model = load_once(model_path, self._class_of(model_name))
        _require("text_data", text_data, model.text_columns)
        _require("scalar_data", scalar_data, model.data_columns)
        return model.predict_row(_as_list(text_data), _as_list(scalar_data))

    def _roles(self) -> ColumnRoles:
        """Return the columns to train on; an object that only predicts needs none."""
        if self.label_column is None:
            raise SettingError("label_column is None.", None, "Pass the name of one column.")
        return ColumnRoles(
            text_columns=self._text_columns,
            data_columns=self._data_columns,
            label_column=self.label_column,
        )

    def _class_of(self, model_name: str | type[nn.Module] | None) -> type[nn.Module] | None:
        """Return the user's class to open a model with; None for one of the package."""
        if model_name is None:
            return self._own_class
        model_class = resolve_model(model_name)
        return model_class if is_users_class(model_class) else None

    def __repr__(self) -> str:
        columns = {
            "text_column": self.text_column,
            "data_column": self.data_column,
            "label_column": self.label_column,
        }
        shown = ", ".join(f"{k}={v!r}" for k, v in columns.items() if v is not None)
        return f"Classification({shown})"

    def _repr_html_(self) -> str:
        """Show columns, options that are not the defaults, and the last run in a notebook."""
        box = html_box(
            "Classification",
            {
                "text_column": listed(self._text_columns, show=quoted),
                "data_column": listed(self._data_columns, show=quoted),
                "label_column": None if self.label_column is None else quoted(self.label_column),
                **self._changed_options(),
                "run_": "not trained yet" if self.run_ is None else self.run_.folder,
            },
        )
        return box if self.run_ is None else f"{box}{self.run_._repr_html_()}"

    def _changed_options(self) -> dict[str, str]:
        """Return the options that are not the defaults; what storage_options holds is secret."""
        options = {
            "split_ratio": self._split.split_ratio,
            "random_state": self._split.random_state,
            **asdict(self._features),
            **asdict(self._file_format.dialect),
            **({"delimiter": None} if self._file_format.is_sniffed else {}),
            "names": self._file_format.names,
            **asdict(self._numbers),
            "encoding": self._file_format.encoding,
            "encoding_errors": self._file_format.encoding_errors,
            "on_bad_rows": self._policy,
        }
        defaults = {
            name: each.default for name, each in signature(Classification).parameters.items()
        }
        changed = {
            name: quoted(value) for name, value in options.items() if value != defaults[name]
        }
        if self._storage_options:
            changed["storage_options"] = "given, not shown"
        return changed


def _require(option: str, given: object, columns: tuple[str, ...]) -> None:
    """Refuse a row without its texts or its numbers: the class would be a guess."""
    if given is None and columns:
        raise SettingError(
            f"The model also reads {', '.join(map(repr, columns))}.",
            None,
            f"Pass {option}=, with None for a missing one.",
        )


def _or_setting(value: Any, key: str) -> Any:
    return setting(key) if value is None else value


def _as_list(value: Any) -> list[Any] | None:
    """Read lancetnic's "one value, or a list with one for each column"."""
    if value is None:
        return None
    is_one = isinstance(value, str) or not hasattr(value, "__len__")
    return [value] if is_one else list(value)
