"""Every option that shapes a model, with its unit, default and range.

The values are checked once, here, when a settings object is made; what stands further down the
path may rely on them. Where data lies and how much memory may be used are no settings: they
never change the model.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

from lancetnic_dask.errors import SettingError, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "BadRowPolicy",
    "ColumnRoles",
    "FeatureSettings",
    "NumberFormat",
    "Role",
    "SplitSettings",
    "TrainingSettings",
    "check_split",
    "column_names",
]

BadRowPolicy = Literal["error", "skip", "quarantine"]
Role = Literal["text", "data", "category", "label", "group", "time"]

_MOST_STATES = 2**63 - 1
_LONGEST_NGRAM = 16
# The plain one, and those that don't break or are thin: between digits they look the same.
_SPACES = " \xa0\u202f\u2009"


@dataclass(frozen=True, kw_only=True)
class ColumnRoles:
    """Which columns are read, and as what.

    Texts, data and categories are the inputs; a column is one of them at most. A group or a time
    may be an input as well, but never the label: a class would stand on one side only.

    Parameters
    ----------
    text_columns : tuple of str
        Columns of words; each has a vocabulary of its own.
    data_columns : tuple of str
        Columns of numbers.
    label_column : str or None
        Column of classes; None when predicting.
    category_columns : tuple of str, default=()
        Columns whose cells are names as a whole.
    group_column : str or None, default=None
        Rows with the same cell here fall on the same side of the split.
    time_column : str or None, default=None
        The latest rows validate.
    time_format : str or None, default=None
        Of the time, as in ``datetime.strptime``; None reads ISO 8601 and plain numbers.
    """

    text_columns: tuple[str, ...]
    data_columns: tuple[str, ...]
    label_column: str | None
    category_columns: tuple[str, ...] = ()
    group_column: str | None = None
    time_column: str | None = None
    time_format: str | None = None

    def __post_init__(self) -> None:
        if not self.inputs:
            raise SettingError(
                "There is no column to learn from.",
                None,
                "Pass text_column=, data_column= or category_column=.",
            )
        label = () if self.label_column is None else (self.label_column,)
        named = (*self.inputs, *label)
        for name in named:
            if named.count(name) > 1:
                category = ", category_column" if self.category_columns else ""
                raise SettingError(
                    f"Column {name!r} has two roles.",
                    None,
                    f"Name it once among text_column, data_column{category} and label_column.",
                )
        self._check_split_columns()

    def _check_split_columns(self) -> None:
        for role, name in (("group", self.group_column), ("time", self.time_column)):
            if name is not None and name == self.label_column:
                raise SettingError(
                    f"Column {name!r} is the label and the {role}.",
                    None,
                    f"Pass another {role}_column=; a class would stand on one side only.",
                )
        if self.group_column is not None and self.time_column is not None:
            raise SettingError(
                "There are a group_column and a time_column.",
                None,
                "Pass one of them: a point in time cuts through groups.",
            )
        if self.time_format is not None:
            if self.time_column is None:
                raise SettingError(
                    f"time_format is {quoted(self.time_format)} and there is no time_column.",
                    None,
                    "Pass time_column=, or leave time_format out.",
                )
            _check_time_format(self.time_format)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns to learn from: texts, data, categories."""
        return (*self.text_columns, *self.data_columns, *self.category_columns)

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that are read, each once: the inputs, then label, group and time."""
        others = (self.label_column, self.group_column, self.time_column)
        return tuple(dict.fromkeys((*self.inputs, *(name for name in others if name is not None))))

    def positions(self, role: Role) -> tuple[int, ...]:
        """Return where in `names` the columns of a role stand; none if it has no column.

        Examples
        --------
        >>> roles = ColumnRoles(
        ...     text_columns=("title",), data_columns=(), label_column="class",
        ...     category_columns=("shop",), group_column="shop",
        ... )
        >>> roles.names, roles.positions("category"), roles.positions("group")
        (('title', 'shop', 'class'), (1,), (1,))
        """
        of_role: dict[Role, tuple[str | None, ...]] = {
            "text": self.text_columns,
            "data": self.data_columns,
            "category": self.category_columns,
            "label": (self.label_column,),
            "group": (self.group_column,),
            "time": (self.time_column,),
        }
        return tuple(self.names.index(name) for name in of_role[role] if name is not None)


@dataclass(frozen=True, kw_only=True)
class NumberFormat:
    """How numbers are written in files.

    Parameters
    ----------
    decimal : str, default="."
        The character before the fraction.
    thousands : str or None, default=None
        The character between groups of three digits; None has no groups. A space stands for the
        spaces that don't break as well.
    """

    decimal: str = "."
    thousands: str | None = None

    def __post_init__(self) -> None:
        for name in ("decimal", "thousands"):
            value = getattr(self, name)
            if name == "thousands" and (value is None or value in tuple(_SPACES)):
                continue
            if not _is_mark(value):
                raise SettingError(
                    f"{name} is {quoted(value)}.",
                    None,
                    "Pass one character that is no digit, letter or sign, for example '.'.",
                )
        if self.decimal == self.thousands:
            raise SettingError(
                f"decimal and thousands are both {quoted(self.decimal)}.",
                None,
                "Pass two different characters.",
            )

    @property
    def separators(self) -> str:
        """The characters that may stand between groups of digits, if any."""
        return _SPACES if self.thousands in tuple(_SPACES) else self.thousands or ""


@dataclass(frozen=True, kw_only=True)
class FeatureSettings:
    """How words become weighted columns; names and numbers are those of scikit-learn.

    Parameters
    ----------
    max_features : int or None, default=None
        Terms kept for each text column at most; the most frequent in the training rows win,
        ties by the term itself. None keeps up to the configured cap
        ``lancetnic.features.max-features-cap``, which doesn't depend on the machine.
    min_df, max_df : int or float, default=1 and 1.0
        Terms in fewer, or in more, training rows are dropped: a count if int, a share of the
        training rows if float.
    ngram_range : tuple of (int, int), default=(1, 1)
        Shortest and longest word n-grams.
    stop_words : "english", tuple of str or None, default=None
        Words dropped before n-grams are made.
    sublinear_tf : bool, default=False
        Replace a count tf by 1 + ln(tf).
    """

    max_features: int | None = None
    min_df: int | float = 1
    max_df: int | float = 1.0
    ngram_range: tuple[int, int] = (1, 1)
    stop_words: str | tuple[str, ...] | None = None
    sublinear_tf: bool = False

    def __post_init__(self) -> None:
        if self.max_features is not None:
            _set(self, max_features=_whole("max_features", self.max_features, low=1))
        for name in ("min_df", "max_df"):
            _set(self, **{name: _count_or_share(name, getattr(self, name))})
        _set(self, ngram_range=_ngram_range(self.ngram_range))
        if isinstance(self.stop_words, str) and self.stop_words != "english":
            raise SettingError(
                f"stop_words is {quoted(self.stop_words)}.",
                None,
                "Pass 'english', a list of words, or None.",
            )


@dataclass(frozen=True, kw_only=True)
class SplitSettings:
    """Which rows validate.

    Parameters
    ----------
    split_ratio : float, default=0.2
        Share of rows that validate, 0 < split_ratio < 1. Rows with equal features always fall
        on the same side.
    random_state : int, default=42
        Key of the split, from 0.
    stratify : bool, default=False
        Whether each class gives the same share of its rows.
    """

    split_ratio: float = 0.2
    random_state: int = 42
    stratify: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.stratify, bool):
            raise SettingError(f"stratify is {quoted(self.stratify)}.", None, "Pass True or False.")
        if not _is_real(self.split_ratio) or not 0.0 < self.split_ratio < 1.0:
            raise SettingError(
                f"split_ratio is {quoted(self.split_ratio)}.",
                None,
                "Pass a share of rows between 0 and 1, for example 0.2.",
            )
        state = _whole("random_state", self.random_state, low=0, high=_MOST_STATES)
        _set(self, split_ratio=float(self.split_ratio), random_state=state)


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How the model is built and trained.

    Parameters
    ----------
    num_epochs : int
        Times that each training row is seen, from 1.
    hidden_size : int, default=256
        Width of the hidden layers.
    num_layers : int, default=1
        Number of hidden layers.
    batch_size : int, default=128
        Rows in a step at most; the rows of a shard group are spread evenly over its steps.
    learning_rate : float or None, default=0.001
        Step size. Under ``optim_name="auto"`` None and 0.001 mean each optimizer's own default.
    dropout : float, default=0
        Share of hidden units dropped in training, 0 <= dropout < 1.
    optim_name : str, default="auto"
        Optimizer: "auto" or the name of a textbook one.
    crit_name : str, default="CELoss"
        Loss: "CELoss".
    device_name : str, default="auto"
        "auto" means CUDA if there is one, "cpu" the processor, "cuda" or "cuda:N" a wish for CUDA.
    random_state : int, default=42
        Seed of the weights, of dropout and of the order of rows, from 0.
    group_size : int, default=16
        Shards whose rows are shuffled together.
    """

    num_epochs: int
    hidden_size: int = 256
    num_layers: int = 1
    batch_size: int = 128
    learning_rate: float | None = 0.001
    dropout: float = 0.0
    optim_name: str = "auto"
    crit_name: str = "CELoss"
    device_name: str = "auto"
    random_state: int = 42
    group_size: int = 16

    def __post_init__(self) -> None:
        for name in ("num_epochs", "batch_size", "group_size"):
            _set(self, **{name: _whole(name, getattr(self, name), low=1)})
        # Beyond these no model file is opened: a foreign one must not make us build for hours.
        for name, high in (("hidden_size", 1 << 20), ("num_layers", 1000)):
            _set(self, **{name: _whole(name, getattr(self, name), low=1, high=high)})
        state = _whole("random_state", self.random_state, low=0, high=_MOST_STATES)
        _set(self, random_state=state)
        rate = self.learning_rate
        if rate is not None:
            if not (_is_real(rate) and 0.0 < rate < math.inf):
                raise SettingError(
                    f"learning_rate is {quoted(rate)}.",
                    None,
                    "Pass a positive number, or None for the optimizer's own default.",
                )
            _set(self, learning_rate=float(rate))
        if not _is_real(self.dropout) or not 0.0 <= self.dropout < 1.0:
            raise SettingError(
                f"dropout is {quoted(self.dropout)}.", None, "Pass a share from 0 to below 1."
            )
        _set(self, dropout=float(self.dropout))
        for name in ("optim_name", "crit_name", "device_name"):
            if not isinstance(getattr(self, name), str):
                raise SettingError(
                    f"{name} is {quoted(getattr(self, name))}.", None, "Pass a name, as text."
                )

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as plain values for JSON and YAML."""
        return asdict(self)


def check_split(roles: ColumnRoles, split: SplitSettings) -> None:
    """Check that columns and split go together.

    Parameters
    ----------
    roles : ColumnRoles
        What each column is.
    split : SplitSettings
        How rows are chosen to validate.

    Raises
    ------
    SettingError
        With a time column and `stratify`. (`ColumnRoles` refuses a group and a time by itself.)
    """
    if split.stratify and roles.time_column is not None:
        raise SettingError(
            "There are stratify=True and a time_column.",
            None,
            "Pass one of them: the latest rows have the classes that they have.",
        )


def column_names(option: str, value: str | Iterable[str] | None) -> tuple[str, ...]:
    """Read lancetnic's "one name, a list of names, or None" as a tuple of names.

    Parameters
    ----------
    option : str
        Name of the option, for the message.
    value : str, iterable of str or None
        What the user passed.

    Returns
    -------
    tuple of str
        The names, in order.

    Raises
    ------
    SettingError
        If anything in it is no name.
    """
    if value is None:
        return ()
    names = (value,) if isinstance(value, str) else tuple(value)
    for name in names:
        if not isinstance(name, str):
            raise SettingError(
                f"{option} holds {quoted(name)}.", None, "Pass the name of a column, or a list."
            )
    return names


def _set(settings: object, **values: object) -> None:
    """Set fields of a frozen dataclass while it is made.

    numpy's numbers are accepted and kept as Python's own: JSON and YAML know no others.
    """
    for name, value in values.items():
        object.__setattr__(settings, name, value)


def _is_mark(value: object) -> bool:
    """Tell whether a value is one character that can be no part of a number, and no padding."""
    is_one = isinstance(value, str) and len(value) == 1 and value.isprintable()
    return is_one and not (str(value).isalnum() or value in ("+", "-", " "))


def _check_time_format(time_format: object) -> None:
    """Refuse what ``strptime`` doesn't understand now, and not at the first row."""
    try:
        shown = datetime(2001, 2, 3, tzinfo=UTC).strftime(time_format)  # type: ignore[arg-type]
        datetime.strptime(shown, time_format)  # type: ignore[arg-type]  # noqa: DTZ007
        is_known = "%" in time_format  # type: ignore[operator]
    except (ValueError, TypeError, re.error):
        is_known = False
    if not is_known:
        raise SettingError(
            f"time_format is {quoted(time_format)}.",
            None,
            "Pass a format of datetime.strptime, for example '%d.%m.%Y %H:%M'.",
        )


def _is_real(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool)


def _whole(name: str, value: object, *, low: int, high: int | None = None) -> int:
    """Return a whole number in [low, high] as int, or raise SettingError."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise SettingError(f"{name} is {quoted(value)}.", None, "Pass a whole number.")
    number = int(value)
    if number < low or (high is not None and number > high):
        reach = f"from {low}" if high is None else f"from {low} to {high}"
        raise SettingError(f"{name} is {number}.", None, f"Pass a whole number {reach}.")
    return number


def _count_or_share(name: str, value: object) -> int | float:
    """Return a count of rows as int, or a share of rows as float."""
    if _is_real(value):
        if isinstance(value, Integral) and value >= 1:
            return int(value)
        if not isinstance(value, Integral) and 0.0 <= value <= 1.0:
            return float(value)
    raise SettingError(
        f"{name} is {quoted(value)}.",
        None,
        "Pass a count of rows (int from 1) or a share of rows (float, 0.0 to 1.0).",
    )


def _ngram_range(value: object) -> tuple[int, int]:
    if isinstance(value, (tuple, list)) and len(value) == 2:
        low = _whole("ngram_range[0]", value[0], low=1)
        return low, _whole("ngram_range[1]", value[1], low=low, high=_LONGEST_NGRAM)
    raise SettingError(
        f"ngram_range is {quoted(value)}.", None, "Pass two whole numbers, for example (1, 2)."
    )
