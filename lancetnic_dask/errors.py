"""The errors that users meet: what happened, where, and what to do.

::

    LancetnicError
    ├── SettingError (ValueError)       an option out of range, unknown or contradictory
    ├── CorpusError (ValueError)        the corpus as a whole cannot be used
    │   ├── ColumnError                 a column that is not there
    │   ├── RecordError                 one row or cell
    │   │   └── EncodingError           bytes that are not text in the given encoding
    │   └── LabelError                  the labels as a whole: one class, unseen classes
    ├── BudgetError (MemoryError)       something that cannot fit into the memory budget
    ├── CacheError (OSError)            the cache folder cannot be used
    ├── ModelFileError (ValueError)     a model folder that is missing, broken or foreign
    ├── TrainingError (RuntimeError)    the loss or the model went wrong
    └── ClusterError (RuntimeError)     workers or scheduler that failed

Every argument is positional and kept in ``args``: an error that is raised on a worker is
pickled on its way to the client.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "BudgetError",
    "CacheError",
    "ClusterError",
    "ColumnError",
    "CorpusError",
    "EncodingError",
    "LabelError",
    "LancetnicError",
    "Location",
    "ModelFileError",
    "RecordError",
    "SettingError",
    "TrainingError",
    "quoted",
    "suggestion",
]

_SHOWN_CHARS = 60
_SHOWN_NAMES = 20


@dataclass(frozen=True)
class Location:
    """A place in the corpus, as far as it is known.

    Parameters
    ----------
    file : str
        URL or path of the file.
    row : int or None, default=None
        Number of the record; 1 is the first after the header.
    column : str or None, default=None
        Name of the column.
    byte : int or None, default=None
        Offset from the start of the file, in bytes.

    Examples
    --------
    >>> print(Location("s3://shop/items.csv", row=48213, column="price", byte=9310447))
    s3://shop/items.csv, row 48213, column 'price', byte 9310447
    """

    file: str
    row: int | None = None
    column: str | None = None
    byte: int | None = None

    def __str__(self) -> str:
        parts = [self.file]
        if self.row is not None:
            parts.append(f"row {self.row}")
        if self.column is not None:
            parts.append(f"column {self.column!r}")
        if self.byte is not None:
            parts.append(f"byte {self.byte}")
        return ", ".join(parts)


class LancetnicError(Exception):
    """What happened, where it happened, and what to do about it.

    Parameters
    ----------
    what : str
        A sentence with the value that was found.
    where : Location, str or None, default=None
        The place, if there is one.
    fix : str, default=""
        An imperative sentence: what the user can do.
    """

    def __init__(self, what: str, where: Location | str | None = None, fix: str = "") -> None:
        # Not OSError's __init__: it takes three arguments for errno, text and file name, and
        # leaves only two of them in args.
        Exception.__init__(self, what, where, fix)
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        lines = [self.what]
        if self.where is not None:
            lines.append(f"  at {self.where}")
        if self.fix:
            lines.append(f"  {self.fix}")
        return "\n".join(lines)


class SettingError(LancetnicError, ValueError):
    """An option is out of range, unknown, or contradicts another."""


class CorpusError(LancetnicError, ValueError):
    """The corpus as a whole cannot be used."""


class ColumnError(CorpusError):
    """A column is not in the file."""


class RecordError(CorpusError):
    """A row or a cell cannot be used."""


class EncodingError(RecordError):
    """Bytes are not text in the given encoding."""


class LabelError(CorpusError):
    """The labels as a whole cannot be learned."""


class BudgetError(LancetnicError, MemoryError):
    """Something cannot fit into the memory budget."""


class CacheError(LancetnicError, OSError):
    """The cache folder cannot be used."""


class ModelFileError(LancetnicError, ValueError):
    """A model folder is missing, broken, foreign or too new."""


class TrainingError(LancetnicError, RuntimeError):
    """Training cannot go on."""


class ClusterError(LancetnicError, RuntimeError):
    """The workers or the scheduler failed."""


def quoted(value: object) -> str:
    """Show a value in a message: its repr, shortened in the middle.

    Examples
    --------
    >>> quoted("12,50 EUR")
    "'12,50 EUR'"
    """
    text = repr(value)
    if len(text) <= _SHOWN_CHARS:
        return text
    half = _SHOWN_CHARS // 2
    return f"{text[:half]}…{text[-half + 1 :]}"


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return "Did you mean …?" for the nearest known name, and the names there are.

    Examples
    --------
    >>> suggestion("lable", ["text", "label"])
    "Did you mean 'label'? There are: 'text', 'label'."
    """
    names = list(known)
    stripped = {candidate.strip().lower(): candidate for candidate in names}
    near = get_close_matches(name.strip().lower(), stripped, n=1, cutoff=0.6)
    listed = ", ".join(quoted(candidate) for candidate in names[:_SHOWN_NAMES])
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    there_are = f"There are: {listed}{more}."
    return f"Did you mean {quoted(stripped[near[0]])}? {there_are}" if near else there_are
