"""Worker processes: any script starts them, Ctrl-C spares them, and they end with the client."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

import nbformat
import psutil
import pytest
from nbclient import NotebookClient

import lancetnic_dask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.system

LIMIT_SECONDS = 60

# No main guard anywhere. `double` stands in the main module, so workers get it by value.
START = """\
import os, sys, time
from lancetnic_dask.cluster.budget import decide_budget
from lancetnic_dask.cluster.limits import MemoryLimit
from lancetnic_dask.cluster.local import use_client

def double(number):
    return 2 * number

budget = decide_budget(
    "2GiB", limit=MemoryLimit(bytes=4 << 30, source="physical"), num_cpus=2, num_workers=2,
    partition_bytes=1 << 20, group_size=2, model_bytes_bound=0,
)
print("main is run", flush=True)
"""

USE = """\
with use_client(None, budget=budget, dashboard_address="127.0.0.1:0") as client:
    print("pids", *sorted(client.run(os.getpid).values()), flush=True)
    print("result", client.submit(double, 21).result(), flush=True)
"""

# Waits within the block until it is interrupted or told to go on by a line.
WAIT = """\
    print("waiting", flush=True)
    sys.stdin.readline()
"""


def environment() -> dict[str, str]:
    """Let a process import the package, however the tests found it."""
    root = str(Path(lancetnic_dask.__file__).parents[1])
    paths = [root, os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


@contextmanager
def running(arguments: list[str], *, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run Python in a session of its own, as a terminal would; leave nothing of it behind."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=LIMIT_SECONDS)


def members(session: int) -> list[psutil.Process]:
    """List the processes of a session that have not ended."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def poll(condition: Callable[[], bool], *, seconds: float = 20) -> None:
    """Wait until a condition holds; fail when it does not for long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def read_until(process: subprocess.Popen[str], start: str) -> str:
    """Return the first line of the output that starts so."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(start):
            return line
    assert process.stderr is not None
    pytest.fail(process.stderr.read())


def script(folder: Path, text: str) -> str:
    """Write a script and return its name."""
    file = folder / "train_it.py"
    file.write_text(text, encoding="utf-8")
    return file.name


def ways_to_run(folder: Path, way: str) -> tuple[list[str], str]:
    """Return arguments of Python and its standard input for one way to run START and USE."""
    text = START + USE
    if way == "file":
        return [script(folder, text)], ""
    if way == "module":
        script(folder, text)
        return ["-m", "train_it"], ""
    if way == "command":
        return ["-c", text], ""
    if way == "standard input":
        return ["-"], text
    blocks = START.replace("def double(number):\n    return 2 * number\n", "") + USE
    return ["-i", "-q", "-c", "def double(number): return 2 * number"], f"{blocks}\n"


@pytest.mark.parametrize("way", ["file", "module", "command", "standard input", "prompt"])
def test_a_script_without_main_guard_just_works(tmp_path: Path, way: str) -> None:
    """However Python is run, the main module is run once, and all processes end with it."""
    arguments, typed = ways_to_run(tmp_path, way)
    with running(arguments, folder=tmp_path) as process:
        output, errors = process.communicate(typed, timeout=LIMIT_SECONDS)

        assert process.returncode == 0, errors
        assert output.count("main is run") == 1
        assert "result 42\n" in output
        assert "Traceback" not in errors
        poll(lambda: not members(process.pid))


@pytest.mark.filterwarnings("ignore::DeprecationWarning:zmq")
def test_a_notebook_just_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel has an event loop running in its main thread."""
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(START), nbformat.v4.new_code_cell(USE)]
    )

    NotebookClient(
        notebook,
        timeout=LIMIT_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()

    printed = "".join(output.get("text", "") for cell in notebook.cells for output in cell.outputs)
    pids = [int(word) for word in printed.split("pids ")[1].split("\n")[0].split()]
    assert "result 42\n" in printed
    poll(lambda: not any(map(psutil.pid_exists, pids)))


def test_ctrl_c_spares_the_workers_even_after_a_restart(tmp_path: Path) -> None:
    """A terminal sends SIGINT to the whole group: the client finishes its step with its workers."""
    text = (
        START
        + """\
import signal

def is_shielded():
    # From the first instruction on by the mask, later by the handler too.
    is_blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return is_blocked and signal.getsignal(signal.SIGINT) is signal.SIG_IGN

with use_client(None, budget=budget, dashboard_address="127.0.0.1:0") as client:
    assert all(client.run(is_shielded).values())
    before = client.run(os.getpid)
    os.kill(min(before.values()), 9)
    while len(set(client.run(os.getpid, on_error="ignore").values()) - {min(before.values())}) < 2:
        time.sleep(0.1)
    pids = sorted(client.run(os.getpid).values())
    assert all(client.run(is_shielded).values())
    try:
        print("waiting", *pids, flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        print("step finished", client.submit(double, 21).result(), flush=True)
        print("same workers", sorted(client.run(os.getpid).values()) == pids, flush=True)
        sys.exit(130)
"""
    )
    with running([script(tmp_path, text)], folder=tmp_path) as process:
        read_until(process, "waiting")
        os.killpg(process.pid, signal.SIGINT)

        assert read_until(process, "step finished") == "step finished 42\n"
        assert read_until(process, "same workers") == "same workers True\n"
        _, errors = process.communicate(timeout=LIMIT_SECONDS)
        assert process.returncode == 130
        assert "Traceback" not in errors
        poll(lambda: not members(process.pid))


@pytest.mark.parametrize("delay_seconds", [0.0, 0.4, 1.0])
def test_ctrl_c_while_workers_start_leaves_no_worker(tmp_path: Path, delay_seconds: float) -> None:
    """At whatever moment of the start it comes, all is closed, though a notebook lives on."""
    text = (
        f"{START}try:\n{indent(USE + WAIT, '    ')}"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    with running([script(tmp_path, text)], folder=tmp_path) as process:
        read_until(process, "main is run")
        # The moment is what is tested, so this is no synchronisation.
        time.sleep(delay_seconds)
        os.killpg(process.pid, signal.SIGINT)
        read_until(process, "interrupted")

        poll(lambda: not any("spawn_main" in " ".join(m.cmdline()) for m in members(process.pid)))
        process.communicate("\n", timeout=LIMIT_SECONDS)
        assert process.returncode == 0
        poll(lambda: not members(process.pid))


@pytest.mark.parametrize(
    ("signal_number", "busy"),
    [(signal.SIGKILL, False), (signal.SIGKILL, True), (signal.SIGTERM, True)],
)
def test_workers_end_with_a_killed_client(
    tmp_path: Path, signal_number: signal.Signals, *, busy: bool
) -> None:
    """No handler runs in the client, and yet no worker outlives it, also in the midst of a task."""
    task = "    client.submit(time.sleep, 120, key='nap')\n" if busy else ""
    with running([script(tmp_path, START + USE + task + WAIT)], folder=tmp_path) as process:
        read_until(process, "waiting")
        process.send_signal(signal_number)

        process.communicate(timeout=LIMIT_SECONDS)
        assert process.returncode == -signal_number
        poll(lambda: not members(process.pid), seconds=10)


@pytest.mark.parametrize(
    ("ending", "code"),
    [("raise ValueError('odd')", 1), ("sys.exit(3)", 3), ("raise KeyboardInterrupt", -2)],
)
def test_an_exception_in_the_block_ends_all(tmp_path: Path, ending: str, code: int) -> None:
    """It goes on to the caller, after the cluster is closed."""
    text = f"{START}{USE}    {ending}\n"
    with running([script(tmp_path, text)], folder=tmp_path) as process:
        process.communicate(timeout=LIMIT_SECONDS)

        assert process.returncode == code
        poll(lambda: not members(process.pid))


def test_an_error_in_a_task_is_shown_once(tmp_path: Path) -> None:
    """The client raises it; the worker's log does not repeat it."""
    text = f"{START}{USE}    client.submit(double, None).result()\n"
    with running([script(tmp_path, text)], folder=tmp_path) as process:
        _, errors = process.communicate(timeout=LIMIT_SECONDS)

        assert errors.splitlines()[-1].startswith("TypeError: unsupported operand")
        assert errors.count("Traceback") == 1


def test_a_script_still_finds_its_own_file_while_workers_start(tmp_path: Path) -> None:
    """What is hidden from new processes is not hidden from the user's other threads."""
    text = (
        START
        + """\
import threading
failed = []
def watch():
    import __main__
    while not done.is_set():
        try:
            assert __file__.endswith("train_it.py") and sys.modules["__main__"].double is double
        except Exception as error:
            failed.append(error)
done = threading.Event()
thread = threading.Thread(target=watch)
thread.start()
"""
        + USE
        + "done.set(); thread.join(); print('failed', failed)\n"
    )
    with running([script(tmp_path, text)], folder=tmp_path) as process:
        output, errors = process.communicate(timeout=LIMIT_SECONDS)

        assert "failed []" in output, errors


@pytest.mark.system
def test_numba_compiles_here_while_workers_start(tmp_path: Path) -> None:
    """What the workers get as environment doesn't change the threads that Numba has started."""
    script = (
        START
        + """\
import numba, numpy

@numba.njit(parallel=True)
def add_up(values):
    total = 0.0
    for i in numba.prange(values.size):
        total += values[i]
    return total

add_up(numpy.ones(10))  # starts the threads

def compile_meanwhile():
    deadline = time.monotonic() + 30
    while os.environ.get("OMP_NUM_THREADS") != "1" and time.monotonic() < deadline:
        time.sleep(0.001)
    print("compiled", numba.njit(lambda number: number + 1)(1), flush=True)

with use_client(None, budget=budget, dashboard_address="127.0.0.1:0", meanwhile=compile_meanwhile):
    print("threads", numba.get_num_threads() == numba.config.NUMBA_DEFAULT_NUM_THREADS, flush=True)
"""
    )
    path = tmp_path / "script.py"
    path.write_text(script, encoding="utf-8")

    with running([str(path)], folder=tmp_path) as process:
        output, errors = process.communicate(timeout=120)

    assert process.returncode == 0, errors
    assert "compiled 2" in output
    assert "threads True" in output
