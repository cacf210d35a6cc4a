"""Train small text models on tables larger than memory, on a laptop or a Dask cluster.

Public names are loaded when they are first used: a worker imports this package for every task,
and must not pay for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lancetnic_dask.corpus.frame import Corpus
    from lancetnic_dask.errors import LancetnicError
    from lancetnic_dask.estimators import Classification
    from lancetnic_dask.inference import Model, load
    from lancetnic_dask.run.folder import Run

__version__ = "0.1.0"

_EXPORTS = {
    "Classification": "lancetnic_dask.estimators",
    "Corpus": "lancetnic_dask.corpus.frame",
    "LancetnicError": "lancetnic_dask.errors",
    "Model": "lancetnic_dask.inference",
    "Run": "lancetnic_dask.run.folder",
    "load": "lancetnic_dask.inference",
}

__all__ = ["Classification", "Corpus", "LancetnicError", "Model", "Run", "load"]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'lancetnic_dask' has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
