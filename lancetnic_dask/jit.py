"""Python function -> machine code: the one decorator that every kernel uses.

Kernels are pure functions over arrays. They free the GIL, so that reading, tokenizing and
training overlap, and each has a slow twin in the tests. A kernel may call kernels of its own
folder, not of others: see `_folder_digest`.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

import numba

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["keeps_machine_code", "kernel"]

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

    def compiler(*, keeps: bool) -> Callable[[Callable[P, R]], object]:
        return numba.njit(cache=keeps, nogil=True, parallel=parallel, fastmath=fastmath)

    def compile_lazily(function: Callable[P, R]) -> Callable[P, R]:
        # The name is part of the key under which Numba keeps the machine code.
        folder = Path(function.__code__.co_filename).parent
        function.__qualname__ += f"_{_folder_digest(folder)}"
        compiled = compiler(keeps=_can_keep(function))(function)
        return cast("Callable[P, R]", compiled)

    return compile_lazily


def keeps_machine_code() -> bool:
    """Tell whether machine code can be kept on disk, so that workers need not compile it."""
    return _can_keep(_can_keep)


def _can_keep(function: Callable[..., object]) -> bool:
    """Tell whether Numba finds a folder for the machine code of a function."""
    try:
        numba.njit(cache=True)(function)
    except RuntimeError:  # "no locator available": nothing can be written anywhere
        return False
    return True


@cache
def _folder_digest(folder: Path) -> str:
    """Return what changes with any source file of a folder.

    Numba looks at size and time of the kernel's own file only. It would go on using machine code
    into which an older version of another file was compiled, and in an installed wheel all files
    bear the same time.
    """
    digest = hashlib.blake2b(digest_size=6)
    for source in sorted(folder.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()
