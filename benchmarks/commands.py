"""A command in a fresh process -> wall time, peak memory of its whole tree, what it printed last.

The command's last line on standard output is a JSON object with its own figures. Memory is what
cannot be dropped: anonymous and shared pages of the process and all its descendants, sampled and
added up; pages of files are the kernel's to take back.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["FINISHED", "STARTED_VARIABLE", "Outcome", "in_turns", "run_command"]

FINISHED = "finished"
# Tells a command when it was started, in seconds since 1970: a process knows it to the second only.
STARTED_VARIABLE = "BENCHMARK_STARTED"
GIB = 1 << 30

_SAMPLE_SECONDS = 0.05
_SHOWN_CHARACTERS = 2000


@dataclass(frozen=True)
class Outcome:
    """What a command did.

    Parameters
    ----------
    seconds : float
        Wall time of the whole command, from the start of its process to its end.
    peak_bytes : int
        Most memory of its process and their descendants together.
    cpu_seconds : float
        Processor time of all of them: it says more than wall time on a busy machine.
    ended : str
        "finished", or why it did not: "killed at 16.0 GiB", "stopped after 600 s".
    figures : dict
        What it printed last.
    """

    seconds: float
    peak_bytes: int
    cpu_seconds: float
    ended: str = FINISHED
    figures: dict[str, Any] = field(default_factory=dict)


def run_command(
    command: Sequence[str | Path],
    *,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    limit_bytes: int | None = None,
    timeout_seconds: float = 3600,
) -> Outcome:
    """Run a command and wait for it.

    Parameters
    ----------
    command : sequence of str or Path
        Program and arguments.
    folder : Path
        Its working folder; made if need be.
    environment : mapping or None, default=None
        Variables that are set in addition to ours.
    limit_bytes : int or None, default=None
        Memory of the tree above which it is killed, by the next sample.
    timeout_seconds : float, default=3600
        Time after which it is killed.

    Returns
    -------
    Outcome
        Also for a command that was killed.

    Raises
    ------
    RuntimeError
        If the command fails by itself; the end of what it printed is in the message.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        cpu_before = _cpu_of_ended_children()
        started = time.perf_counter()
        with subprocess.Popen(
            [os.fspath(part) for part in command],
            cwd=folder,
            env={**os.environ, **(environment or {}), STARTED_VARIABLE: repr(time.time())},
            stdout=output,
            stderr=errors,
            start_new_session=True,
        ) as process:
            try:
                peak_bytes, ended = _watch(process, started, limit_bytes, timeout_seconds)
            finally:
                if process.poll() is None:
                    _kill(process.pid)
        seconds = time.perf_counter() - started
        printed = [_text(stream) for stream in (output, errors)]
    if ended == FINISHED and process.returncode:
        shown = "\n".join(text[-_SHOWN_CHARACTERS:] for text in printed)
        raise RuntimeError(f"{command} exited with {process.returncode}:\n{shown}")
    return Outcome(
        seconds,
        peak_bytes,
        _cpu_of_ended_children() - cpu_before,
        ended,
        _figures(printed[0]) if ended == FINISHED else {},
    )


def in_turns(ways: Mapping[str, Callable[[], Outcome]], *, rounds: int) -> dict[str, list[Outcome]]:
    """Run several ways by turns (A B A B), so that a slow minute meets all of them.

    Parameters
    ----------
    ways : mapping of str to callable
        Each runs one way once.
    rounds : int
        Times that each is run.

    Returns
    -------
    dict of str to list of Outcome
        All of them, in the order of the rounds.
    """
    outcomes: dict[str, list[Outcome]] = {name: [] for name in ways}
    for number in range(rounds):
        for name, run in ways.items():
            outcome = run()
            outcomes[name].append(outcome)
            print(
                f"round {number + 1} of {rounds}: {name}: {outcome.seconds:.1f} s "
                f"({outcome.cpu_seconds:.1f} s of processor), "
                f"{outcome.peak_bytes / GIB:.2f} GiB, {outcome.ended}",
                flush=True,
            )
    return outcomes


def _watch(
    process: subprocess.Popen[bytes],
    started: float,
    limit_bytes: int | None,
    timeout_seconds: float,
) -> tuple[int, str]:
    """Sample the memory until the command ends or has to be killed; return peak and reason."""
    peak_bytes = 0
    while True:
        try:
            process.wait(_SAMPLE_SECONDS)
        except subprocess.TimeoutExpired:
            held_bytes = _held_by_tree(process.pid)
            peak_bytes = max(peak_bytes, held_bytes)
        else:
            return peak_bytes, FINISHED
        if limit_bytes is not None and held_bytes > limit_bytes:
            return peak_bytes, f"killed at {held_bytes / GIB:.1f} GiB"
        if time.perf_counter() - started > timeout_seconds:
            return peak_bytes, f"stopped after {timeout_seconds:.0f} s"


def _held_by_tree(pid: int) -> int:
    """Return anonymous and shared memory of a process and its descendants, in bytes."""
    try:
        children = [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:  # it has just ended
        children = []
    return sum(map(_held_bytes, (pid, *children)))


def _held_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:  # it has just ended
        return 0
    return sum(
        1024 * int(line.split()[1])
        for line in status.splitlines()
        if line.startswith((b"RssAnon:", b"RssShmem:"))
    )


def _cpu_of_ended_children() -> float:
    """Return processor seconds of all children that have ended, theirs included."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _kill(pid: int) -> None:
    """Kill a command with the processes of its session."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _text(stream: Any) -> str:
    stream.seek(0)
    text: str = stream.read().decode(errors="replace")
    return text


def _figures(printed: str) -> dict[str, Any]:
    """Read the JSON object in the last line; a command without one has no figures."""
    lines = printed.splitlines()
    if not lines or not lines[-1].startswith("{"):
        return {}
    figures: dict[str, Any] = json.loads(lines[-1])
    return figures
