"""Mean and spread of numeric columns, merged over any cut of the rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Moments"]


@dataclass(frozen=True)
class Moments:
    """Mean and spread of the numeric columns over training rows, missing cells left out.

    Parameters
    ----------
    count, mean, squares : ndarray of shape (num_data_columns,), dtype=float64
        Cells, their mean, and the sum of squared distances from it.
    """

    count: np.ndarray
    mean: np.ndarray
    squares: np.ndarray

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")
    def of(cls, numeric: np.ndarray) -> Moments:
        """Return the moments of some rows (num_rows, num_data_columns).

        Numbers whose squares leave the range of float64 give infinite moments or NaN, and so
        does whatever these are merged with.
        """
        present = ~np.isnan(numeric)
        count = present.sum(axis=0).astype(np.float64)
        mean = np.where(present, numeric, 0.0).sum(axis=0) / np.maximum(count, 1.0)
        # A plain sum down a column is off by up to num_rows roundings: with times in seconds
        # (1.7e9) that is more than some columns vary. The mean distance from it is exact.
        mean += np.where(present, numeric - mean, 0.0).sum(axis=0) / np.maximum(count, 1.0)
        squares = (np.where(present, numeric - mean, 0.0) ** 2).sum(axis=0)
        return cls(count, mean, squares)

    @np.errstate(over="ignore", invalid="ignore")
    def merge(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows (Chan, Golub and LeVeque, 1979)."""
        count = self.count + other.count
        share = other.count / np.maximum(count, 1.0)
        step = other.mean - self.mean
        return Moments(
            count,
            self.mean + step * share,
            self.squares + other.squares + step**2 * self.count * share,
        )

    @property
    def scale(self) -> np.ndarray:
        """Standard deviation (of the population); 1 for a constant column."""
        spread = np.sqrt(self.squares / np.maximum(self.count, 1.0))
        # What rounding alone leaves of a constant column must not be blown up to size 1.
        is_constant = spread <= 10 * np.finfo(np.float64).eps * np.abs(self.mean)
        return np.where(is_constant, 1.0, spread)
