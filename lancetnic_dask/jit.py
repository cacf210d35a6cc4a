"""Python function -> machine code: the one decorator that every kernel uses.

Kernels are pure functions over arrays. They free the GIL, so that reading, tokenizing and
training overlap, and each has a slow twin in the tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

import numba

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["kernel"]

P = ParamSpec("P")
R = TypeVar("R")


def kernel(
    *, parallel: bool = False, fastmath: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile a function at its first call and keep the machine code beside the package.

    Where neither the package nor the user's cache folder can be written, the machine code is
    kept in memory only: slower to start, otherwise the same.

    Parameters
    ----------
    parallel : bool, default=False
        Run ``numba.prange`` loops on several threads. Only one thread of the process may
        call parallel kernels: the ``workqueue`` threading layer aborts otherwise.
    fastmath : bool, default=False
        Let sums be reordered to use vector units. The result is still the same each time on
        the same kind of CPU.

    Returns
    -------
    callable
        Decorator that keeps the signature of the function.
    """

    def compile_lazily(function: Callable[P, R]) -> Callable[P, R]:
        options = {"nogil": True, "parallel": parallel, "fastmath": fastmath}
        try:
            compiled = numba.njit(cache=True, **options)(function)
        except RuntimeError:  # "no locator available": nothing can be written anywhere
            compiled = numba.njit(cache=False, **options)(function)
        return cast("Callable[P, R]", compiled)

    return compile_lazily
