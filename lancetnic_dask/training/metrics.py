"""Predictions -> counts -> metrics, in memory that the number of rows doesn't set."""

from __future__ import annotations

import numpy as np

__all__ = ["ClassCounts"]

# A full confusion matrix of 1,000 classes takes 8 MB; of 100,000 it would take 80 GB.
_MATRIX_CLASSES = 1000


class ClassCounts:
    """Counts of true and predicted classes, and what follows from them.

    Precision, recall and F1 are averaged over the classes by their number of rows
    (``average="weighted"``, ``zero_division=0`` in scikit-learn), as in lancetnic.

    Parameters
    ----------
    num_classes : int
        Class numbers are below it.

    Attributes
    ----------
    confusion : ndarray of shape (num_classes, num_classes), dtype=int64, or None
        Rows of each true class (first axis) and predicted class; None above 1,000 classes.
    """

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes
        self.true_rows = np.zeros(num_classes, np.int64)
        self.predicted_rows = np.zeros(num_classes, np.int64)
        self.correct_rows = np.zeros(num_classes, np.int64)
        is_small = num_classes <= _MATRIX_CLASSES
        self.confusion = np.zeros((num_classes, num_classes), np.int64) if is_small else None

    def add(self, target: np.ndarray, predicted: np.ndarray) -> None:
        """Count rows.

        Parameters
        ----------
        target, predicted : ndarray of shape (num_rows,), dtype=int64
            Class numbers.
        """
        size = self.num_classes
        self.true_rows += np.bincount(target, minlength=size)
        self.predicted_rows += np.bincount(predicted, minlength=size)
        self.correct_rows += np.bincount(target[target == predicted], minlength=size)
        if self.confusion is not None:
            np.add.at(self.confusion, (target, predicted), 1)

    @property
    def num_rows(self) -> int:
        """Rows counted."""
        return int(self.true_rows.sum())

    @property
    def accuracy(self) -> float:
        """Share of rows whose class was found; NaN without rows."""
        return float(self.correct_rows.sum() / self.num_rows) if self.num_rows else float("nan")

    @property
    def precision(self) -> float:
        """Of the rows given a class, the share that has it; weighted by true rows."""
        return self._weighted(self.correct_rows / np.maximum(self.predicted_rows, 1))

    @property
    def recall(self) -> float:
        """Of the rows that have a class, the share that was given it; weighted by true rows."""
        return self._weighted(self.correct_rows / np.maximum(self.true_rows, 1))

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall by class; weighted by true rows."""
        both = self.true_rows + self.predicted_rows
        return self._weighted(2 * self.correct_rows / np.maximum(both, 1))

    def _weighted(self, by_class: np.ndarray) -> float:
        if not self.num_rows:
            return float("nan")
        return float((by_class * self.true_rows).sum() / self.num_rows)
