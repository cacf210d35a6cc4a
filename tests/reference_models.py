"""Slow twins of the model kernels: plain loops over Python numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lancetnic_dask.models import SparseRows

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["dense_by_loops", "group_by_loops", "random_rows", "rowwise_adagrad_by_loops"]


def random_rows(
    num_rows: int, num_columns: int, *, num_numeric: int = 0, mean_terms: float = 3, seed: int = 0
) -> SparseRows:
    """Draw rows, some of them empty, whose columns are unique and in no order."""
    rng = np.random.default_rng(seed)
    lengths = np.minimum(rng.poisson(mean_terms, num_rows), num_columns)
    columns = [rng.permutation(num_columns)[:length] for length in lengths]
    indptr = np.zeros(num_rows + 1, np.int64)
    indptr[1:] = np.cumsum(lengths)
    indices = np.concatenate([np.empty(0, np.int64), *columns]).astype(np.int32)
    values = rng.normal(size=len(indices)).astype(np.float32)
    numeric = rng.normal(size=(num_rows, num_numeric)).astype(np.float32)
    return SparseRows(indptr, indices, values, numeric)


def dense_by_loops(rows: SparseRows, num_text_features: int) -> list[list[float]]:
    """Write all features out, cell by cell."""
    dense = []
    for row in range(rows.num_rows):
        cells = [0.0] * num_text_features
        for entry in range(rows.indptr[row], rows.indptr[row + 1]):
            cells[rows.indices[entry]] = float(rows.values[entry])
        dense.append(cells + [float(value) for value in rows.numeric[row]])
    return dense


def group_by_loops(rows: SparseRows) -> dict[int, list[tuple[int, float]]]:
    """Return column -> (row, value) of its entries, both ascending."""
    groups: dict[int, list[tuple[int, float]]] = {}
    for row in range(rows.num_rows):
        for entry in range(rows.indptr[row], rows.indptr[row + 1]):
            column = int(rows.indices[entry])
            groups.setdefault(column, []).append((row, float(rows.values[entry])))
    return dict(sorted(groups.items()))


def rowwise_adagrad_by_loops(
    weight: npt.NDArray[Any],
    square_sums: npt.NDArray[Any],
    gradients: dict[int, list[float]],
    *,
    lr: float,
    eps: float,
) -> tuple[list[list[float]], list[float]]:
    """Return weight and sums after one step on the rows that have a gradient."""
    new_weight, new_sums = weight.tolist(), square_sums.tolist()
    for row, gradient in gradients.items():
        new_sums[row] += sum(value * value for value in gradient) / len(gradient)
        step = lr / (math.sqrt(new_sums[row]) + eps)
        for k, value in enumerate(gradient):
            new_weight[row][k] -= step * value
    return new_weight, new_sums
