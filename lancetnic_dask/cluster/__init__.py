"""The memory budget, and the Dask cluster that keeps to it."""
