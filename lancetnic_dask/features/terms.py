"""The terms of a text column that are model features, and their weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Vocabulary"]


@dataclass(frozen=True)
class Vocabulary:
    """The terms of one text column that are model features.

    Parameters
    ----------
    terms : pyarrow.StringArray
        Sorted by code point; a term's position is its column.
    document_frequency : ndarray of shape (num_terms,), dtype=int64
        Training rows that hold each term.
    num_training : int
        Training rows.
    num_distinct : int
        Distinct terms in the training rows before any were dropped.
    """

    terms: pa.Array
    document_frequency: np.ndarray
    num_training: int
    num_distinct: int

    @cached_property  # every row of a prediction needs it
    def idf(self) -> np.ndarray:
        """Smooth inverse document frequency, float64 (num_terms,): ln((1 + n) / (1 + df)) + 1."""
        return np.log((1 + self.num_training) / (1 + self.document_frequency)) + 1.0
