"""Neural networks whose first layer reads sparse rows, and their optimizer."""

from lancetnic_dask.models.rowwise_adagrad import RowWiseAdagrad
from lancetnic_dask.models.scalpel import ScalpelMC
from lancetnic_dask.models.sparse_batch import SparseRows
from lancetnic_dask.models.sparse_linear import SparseLinear

__all__ = ["RowWiseAdagrad", "ScalpelMC", "SparseLinear", "SparseRows"]
