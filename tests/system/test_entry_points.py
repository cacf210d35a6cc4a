"""The same lines work as a script, at a prompt and in a notebook; Ctrl-C leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import nbformat
import psutil
import pytest
from corpora import make_corpus
from nbclient import NotebookClient

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.system

LINES = """\
from lancetnic_dask import Classification
clf = Classification(text_column="text", data_column=["size"], label_column="label")
run = clf.train("ScalpelMC", train_path="tickets.csv", num_epochs=1, hidden_size=8, cache_dir="c")
print("predicted", clf.predict(run.best_model, text_data="a fast compiler", scalar_data=120))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with a corpus."""
    make_corpus(tmp_path / "tickets.csv", num_rows=1000, signal=0.3)
    return tmp_path


def descendants(pid: int) -> list[psutil.Process]:
    """Return all processes below one."""
    return psutil.Process(pid).children(recursive=True)


def wait_until_gone(processes: list[psutil.Process], timeout_seconds: float = 30) -> None:
    """Fail if a process outlives its owner."""
    _, alive = psutil.wait_procs(processes, timeout=timeout_seconds)
    assert alive == []


def start_script(folder: Path, lines: str) -> subprocess.Popen[str]:
    """Start a script in a process group of its own, as a shell does."""
    (folder / "script.py").write_text(lines, encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("how", ["script", "prompt"])
def test_no_main_guard_is_needed(folder: Path, how: str) -> None:
    """A plain script, and the same lines typed at a prompt."""
    (folder / "script.py").write_text(LINES, encoding="utf-8")
    arguments = ["script.py"] if how == "script" else ["-i", "-q"]

    done = subprocess.run(
        [sys.executable, *arguments],
        input=LINES if how == "prompt" else None,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "predicted class" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_notebook_cell_can_be_run_twice(folder: Path) -> None:
    """In a kernel an event loop runs already; the second run finds the first one's shards."""
    cells = [nbformat.v4.new_code_cell(LINES), nbformat.v4.new_code_cell(LINES)]
    notebook = nbformat.v4.new_notebook(cells=cells)

    NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(folder)}}).execute()

    for cell in notebook.cells:
        printed = "".join(output.get("text", "") for output in cell.outputs)
        assert "predicted class" in printed
    assert (folder / "runs" / "train_1" / "best_model" / "model.json").exists()


@pytest.mark.parametrize(
    ("stop", "is_pressed_twice"),
    [(signal.SIGINT, False), (signal.SIGINT, True), (signal.SIGKILL, False)],
)
def test_a_stopped_run_leaves_no_process_behind(
    folder: Path, stop: signal.Signals, *, is_pressed_twice: bool
) -> None:
    """Ctrl-C reaches the whole process group, SIGKILL the script alone."""
    lines = LINES.replace("num_epochs=1", "num_epochs=10_000")
    with start_script(folder, lines) as script:
        assert script.stdout is not None
        assert any(line.startswith("Epoch 2/") for line in script.stdout)
        workers = descendants(script.pid)
        assert workers

        if stop is signal.SIGINT:
            os.killpg(script.pid, stop)
            if is_pressed_twice:
                time.sleep(0.3)
                os.killpg(script.pid, stop)
        else:
            script.send_signal(stop)
        _, complaint = script.communicate(timeout=60)

    assert script.returncode == -stop  # which a shell shows as 130 and 137
    wait_until_gone(workers)
    assert (folder / "runs" / "train_0" / "last_model" / "model.json").exists()
    if stop is signal.SIGINT:
        told = re.fullmatch(
            r"KeyboardInterrupt: Stopped in epoch (\d+): last_model is of epoch (\d+) and "
            r"best_model of epoch \d+ in .*/runs/train_0\.",
            complaint.splitlines()[-1],
        )
        assert told is not None, complaint
        assert int(told[1]) == int(told[2]) + 1
        results = (folder / "runs" / "train_0" / "result.csv").read_text(encoding="utf-8")
        assert len(results.splitlines()) == 1 + int(told[2])
        trained = json.loads(
            (folder / "runs" / "train_0" / "last_model" / "model.json").read_text(encoding="utf-8")
        )["trained"]
        assert trained["epoch"] == int(told[2])


def test_ctrl_c_before_training_says_so(folder: Path) -> None:
    """No model yet, no process left, and what was tokenized is kept."""
    make_corpus(folder / "tickets.csv", num_rows=300_000)
    with start_script(folder, LINES) as script:
        assert script.stdout is not None
        assert any(line.startswith("Dask dashboard") for line in script.stdout)
        workers = descendants(script.pid)
        os.killpg(script.pid, signal.SIGINT)
        _, complaint = script.communicate(timeout=60)

    assert script.returncode == -signal.SIGINT
    assert complaint.splitlines()[-1] == "KeyboardInterrupt: Stopped before training began."
    wait_until_gone(workers)
    assert not (folder / "runs").exists()


def test_two_runs_at_once_share_port_and_cache(folder: Path) -> None:
    """The second one takes a free port, another run folder, and the same shards."""
    (folder / "script.py").write_text(LINES, encoding="utf-8")

    scripts = [
        subprocess.Popen(
            [sys.executable, "script.py"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    outcomes = [script.communicate(timeout=200) for script in scripts]

    assert [script.returncode for script in scripts] == [0, 0], outcomes
    folders = {path.name for path in (folder / "runs").iterdir()}
    assert folders == {"train_0", "train_1"}
    printed = [output.split("predicted ")[1] for output, _ in outcomes]
    assert printed[0] == printed[1]
