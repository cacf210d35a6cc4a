"""The labels of a corpus -> classes: their order, and the type that predictions have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

__all__ = ["order_labels", "parse_labels"]

# What int() and str() carry there and back: 01, +1 and -0 stay text.
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")


def order_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Sort distinct labels: as numbers if all are whole numbers, else by code point.

    Parameters
    ----------
    labels : iterable of str
        Labels as written.

    Returns
    -------
    tuple of str
        A label's position is its class number.

    Examples
    --------
    >>> order_labels({"10", "9", "-1"}), order_labels({"b", "10", "9"})
    (('-1', '9', '10'), ('10', '9', 'b'))
    """
    distinct = set(labels)
    return tuple(sorted(distinct, key=int if _are_numbers(distinct) else None))


def parse_labels(labels: Sequence[str]) -> npt.NDArray[Any]:
    """Return labels as predictions show them.

    Parameters
    ----------
    labels : sequence of str
        Distinct labels.

    Returns
    -------
    ndarray of shape (num_classes,)
        int64 if all are whole numbers, else str objects.

    Examples
    --------
    >>> parse_labels(["-1", "10"]), parse_labels(["01", "2"])
    (array([-1, 10]), array(['01', '2'], dtype=object))
    """
    if _are_numbers(labels):
        return np.array([int(label) for label in labels], dtype=np.int64)
    return np.array(labels, dtype=object)


def _are_numbers(labels: Iterable[str]) -> bool:
    return all(_WHOLE_NUMBER.fullmatch(label) for label in labels)
