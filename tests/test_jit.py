"""Kernels compile wherever they stand, and never from machine code of other sources."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

from lancetnic_dask.jit import keeps_machine_code, kernel

if TYPE_CHECKING:
    from pathlib import Path

CALLER = """\
from lancetnic_dask.jit import kernel
from callee import answer

@kernel()
def ask():
    return answer() + 1
"""
CALLEE = """\
from lancetnic_dask.jit import kernel

@kernel()
def answer():
    return {number}
"""


def test_machine_code_is_kept_beside_the_package() -> None:
    """Workers read it there and need not compile."""
    assert keeps_machine_code()


def test_a_kernel_without_a_file_compiles_in_memory() -> None:
    """As where neither the package nor the user's cache folder can be written."""
    names: dict[str, Any] = {"__name__": "nowhere"}
    exec("def double(number):\n    return number * 2", names)  # noqa: S102 - no file is the point

    assert kernel()(names["double"])(21) == 42


def test_machine_code_is_made_anew_when_a_neighbour_changes(tmp_path: Path) -> None:
    """Numba looks at the kernel's own file only, and would go on with the old callee."""
    (tmp_path / "caller.py").write_text(CALLER, encoding="utf-8")
    answers = []
    for number in (41, 12):
        (tmp_path / "callee.py").write_text(CALLEE.format(number=number), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-B", "-c", "import caller; print(caller.ask())"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        answers.append(int(done.stdout))

    assert answers == [42, 13]
    assert list(tmp_path.rglob("*.nbi"))
