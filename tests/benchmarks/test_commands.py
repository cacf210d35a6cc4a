"""Commands in fresh processes: what they printed, their memory, and how they ended."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from commands import FINISHED, Outcome, in_turns, run_command

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20

# Touches a byte of each page: what is only reserved is no memory.
HOLD = (
    "import time; table = bytearray({0} << 20); table[::4096] = b'x' * ({0} << 8); time.sleep({1})"
)


def test_the_last_line_is_read_as_figures(tmp_path: Path) -> None:
    """What a command prints before is not."""
    code = "print('{not figures'); print('{\"speed\": 2}')"

    outcome = run_command([sys.executable, "-c", code], folder=tmp_path)

    assert outcome.figures == {"speed": 2}
    assert outcome.ended == FINISHED
    assert outcome.cpu_seconds > 0


def test_a_command_runs_in_its_folder_with_its_variables(tmp_path: Path) -> None:
    """The folder is made, and ours are set beside the caller's."""
    code = (
        "import json, os; print(json.dumps([os.getcwd(), os.environ['A'], "
        "float(os.environ['BENCHMARK_STARTED']) > 0]).join(['{\"all\": ', '}']))"
    )
    folder = tmp_path / "new"

    outcome = run_command([sys.executable, "-c", code], folder=folder, environment={"A": "b"})

    assert outcome.figures == {"all": [str(folder), "b", True]}


def test_memory_of_children_counts(tmp_path: Path) -> None:
    """The peak is that of the tree: 100 MiB here and 100 MiB in a child at the same time."""
    child = HOLD.format(100, 2)
    own = HOLD.format(100, 0)
    code = f"import subprocess, sys; {own}; subprocess.run([sys.executable, '-c', {child!r}])"

    outcome = run_command([sys.executable, "-c", code], folder=tmp_path)

    assert 200 * MIB < outcome.peak_bytes < 300 * MIB


def test_a_command_above_the_limit_is_killed(tmp_path: Path) -> None:
    """With how much it held, and long before it would have ended."""
    code = HOLD.format(1100, 60)

    outcome = run_command([sys.executable, "-c", code], folder=tmp_path, limit_bytes=1024 * MIB)

    assert outcome.ended in ("killed at 1.0 GiB", "killed at 1.1 GiB")
    assert outcome.peak_bytes > 1024 * MIB
    assert outcome.figures == {}
    assert outcome.seconds < 50


def test_a_command_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    """With all that it has started."""
    child = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"

    outcome = run_command([sys.executable, "-c", code], folder=tmp_path, timeout_seconds=3)

    assert outcome.ended == "stopped after 3 s"
    deadline = time.monotonic() + 10
    while is_running(int((tmp_path / "pid").read_text(encoding="ascii"))):
        assert time.monotonic() < deadline


def is_running(pid: int) -> bool:
    """Tell whether a process is there, and no zombie that nobody has waited for."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_a_command_that_fails_is_an_error_with_what_it_said(tmp_path: Path) -> None:
    """No figure comes from a run that broke."""
    with pytest.raises(RuntimeError, match=r"exited with 3:(.|\n)*no such thing"):
        run_command(
            [sys.executable, "-c", "import sys; print('no such thing'); sys.exit(3)"],
            folder=tmp_path,
        )


def test_ways_take_turns() -> None:
    """A B A B, never A A B B."""
    order: list[str] = []

    def way(name: str) -> Outcome:
        order.append(name)
        return Outcome(len(order), 0, 0)

    outcomes = in_turns({"a": lambda: way("a"), "b": lambda: way("b")}, rounds=2)

    assert order == ["a", "b", "a", "b"]
    assert [one.seconds for one in outcomes["b"]] == [2, 4]
