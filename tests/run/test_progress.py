"""A bar never stops a run, costs nothing where it isn't seen, and is of widgets in a notebook."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from lancetnic_dask.run.console import Console
from lancetnic_dask.run.progress import Stage, TextBar

START = """
import sys, time
from lancetnic_dask.run.console import Console
console = Console(progress=True, memory=lambda: (812 << 20, 4096 << 20))
"""


class FakeTerminal(io.StringIO):
    """Says that it is a terminal, and can be made to fail."""

    encoding = "utf-8"

    def __init__(self) -> None:
        super().__init__()
        self.error: BaseException | None = None

    def isatty(self) -> bool:
        """Say so."""
        return True

    def write(self, text: str) -> int:
        """Write, or fail as told."""
        if self.error is not None:
            raise self.error
        return super().write(text)


def fake_stderr(monkeypatch: pytest.MonkeyPatch) -> FakeTerminal:
    """Replace stderr; in the test itself, since pytest replaces what a fixture has set."""
    fake = FakeTerminal()
    monkeypatch.setattr(sys, "stderr", fake)
    return fake


def last_drawn(terminal: FakeTerminal) -> str:
    """Return what the last drawing left on the line."""
    return terminal.getvalue().rstrip().rsplit("\r", 1)[-1]


@pytest.mark.parametrize(
    ("unit", "done", "total", "shown"),
    [
        ("rows", 999, 1_000_000, "999/1.00M rows ["),
        ("rows", 431_000, 1_000_000, "431k/1.00M rows ["),
        ("bytes", 3 << 20, 5 << 30, "3.00M/5.00GB ["),
        ("lists", 5, 12, "5/12 lists ["),
        ("rows", 1_050, 1_000, "1.05k/1.00k rows ["),
    ],
)
def test_amounts_are_short(
    monkeypatch: pytest.MonkeyPatch, unit: Any, done: int, total: int, shown: str
) -> None:
    """And a stage that does more than was thought is at 100 %."""
    terminal = fake_stderr(monkeypatch)
    with Console(progress=True).stage("Stage", total=total, unit=unit) as stage:
        stage.advance(done)
        stage.rename("Stage")
        before_end = last_drawn(terminal)

    assert f"| {shown}" in before_end
    assert f"{min(100, 100 * done / total):3.0f}%|" in before_end


@pytest.mark.parametrize(
    ("title", "amount", "figures"),
    [
        ("Plan", 10, "10/20 rows [00:10<00:10, 1.00 rows/s"),
        ("Plan", 11_800_000, "11.8M/23.6M rows [00:10<00:10, 1.18M/s"),
        ("Tokenize", 11_800_000, "11.8M/23.6M rows [00:10<00:10"),
        ("Epoch 12/100, validation", 11_800_000, "[00:10<00:10"),
    ],
)
def test_80_columns_have_room_for_the_bar_and_the_memory(
    monkeypatch: pytest.MonkeyPatch, title: str, amount: int, figures: str
) -> None:
    """The unit of the speed gives way, then the speed, and then the amount."""
    terminal = fake_stderr(monkeypatch)
    now_seconds = 0.0
    monkeypatch.setattr("tqdm.std.time", lambda: now_seconds)
    monkeypatch.setattr(terminal, "fileno", lambda: 0)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((80, 24)))
    console = Console(progress=True, memory=lambda: (419 << 20, 16 << 30))
    with console.stage(title, total=2 * amount) as stage:
        now_seconds = 10.0
        stage.advance(amount)
        drawn = last_drawn(terminal)

    bar = re.fullmatch(rf"{title}:  50%\|([^|]+)\| {re.escape(figures)}, 0\.4/16\.0 GiB\]", drawn)
    assert bar, drawn
    assert len(bar[1]) >= 8
    assert len(drawn) == 77  # 80, less the ^C that may follow


@pytest.mark.parametrize(
    ("total", "done", "shown"), [(None, 2048, "Plan: 2.00kB [00:00, "), (0, 0, "Plan: 0/0B [00:00")]
)
def test_without_a_total_only_amount_and_speed_are_shown(
    monkeypatch: pytest.MonkeyPatch, total: int | None, done: int, shown: str
) -> None:
    """There is no share and no time left to tell."""
    terminal = fake_stderr(monkeypatch)
    with Console(progress=True).stage("Plan", total=total, unit="bytes") as stage:
        stage.advance(done)

    assert last_drawn(terminal).startswith(shown)


def test_a_stage_that_ends_well_was_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that were set aside do not leave it at 95 %."""
    terminal = fake_stderr(monkeypatch)
    with Console(progress=True).stage("Tokenize", total=1000) as stage:
        stage.advance(950)

    assert last_drawn(terminal).startswith("Tokenize: 100%|█")
    assert "| 950/950 rows [" in last_drawn(terminal)


def test_a_bar_that_slows_down_still_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when shards that were kept are followed by some that are made."""
    terminal = fake_stderr(monkeypatch)
    with Console(progress=True).stage("Tokenize", total=1_000_000) as stage:
        while terminal.getvalue().count("\r") < 3:
            stage.advance(50_000)
            time.sleep(0.05)
        drawn = terminal.getvalue()
        time.sleep(0.3)
        stage.advance(1)

        assert len(terminal.getvalue()) > len(drawn)


def test_memory_is_asked_when_the_bar_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few times a second, whatever is said or done meanwhile."""
    terminal = fake_stderr(monkeypatch)
    asked = 0

    def memory() -> tuple[int, int]:
        nonlocal asked
        asked += 1
        return 5000 << 20, 8192 << 20

    started = time.monotonic()
    console = Console(progress=True, memory=memory)
    with console.stage("Tokenize", total=100_000) as stage:
        while time.monotonic() < started + 0.6:
            stage.advance(1)
            stage.rename("Tokenize")
    seconds = time.monotonic() - started

    assert "4.9/8.0 GiB]" in last_drawn(terminal)
    assert 2 <= asked <= 2 + seconds / 0.25


def test_memory_is_not_asked_where_no_bar_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody sees it."""

    def memory() -> tuple[int, int]:
        raise AssertionError

    with Console(progress=True, memory=memory).stage("Tokenize", total=3) as stage:
        stage.advance(3)

    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "error", [BrokenPipeError(), OSError(28, "No space left"), ValueError("closed")]
)
@pytest.mark.parametrize("amount", [0, 1])
def test_a_stream_that_fails_silences_the_bar(
    monkeypatch: pytest.MonkeyPatch, error: Exception, amount: int
) -> None:
    """Before the bar is there, or while it is."""
    terminal = fake_stderr(monkeypatch)
    terminal.error = None if amount else error

    console = Console(progress=True)
    with console.stage("Tokenize", total=3) as stage:
        terminal.error = error
        stage.rename("Tokenize again")
        stage.advance(amount)

    assert "again" not in terminal.getvalue()
    # `stage` is held, its place on the screen is not.
    assert list(TextBar._instances) == []


@pytest.mark.parametrize("stderr", [None, io.StringIO(), object()])
def test_no_terminal_is_no_bar(monkeypatch: pytest.MonkeyPatch, stderr: Any) -> None:
    """As under pythonw, with a closed stream, or with one of the caller's making."""
    if isinstance(stderr, io.StringIO):
        stderr.close()
    monkeypatch.setattr(sys, "stderr", stderr)

    with Console(progress=True).stage("Tokenize", total=3) as stage:
        stage.advance(3)


def test_an_interrupt_while_a_bar_is_drawn_gives_the_lock_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else bars of other threads, also the caller's, would wait for ever."""
    terminal = fake_stderr(monkeypatch)
    lock = TextBar._lock
    with Console(progress=True).stage("Tokenize", total=3) as stage:
        terminal.error = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            stage.rename("again")
        terminal.error = None

        with ThreadPoolExecutor(1) as other_thread:
            assert other_thread.submit(lock.acquire, timeout=10).result()
            other_thread.submit(lock.release).result()


def test_a_line_on_a_broken_stdout_gives_the_lock_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the run goes on in silence."""
    terminal = fake_stderr(monkeypatch)
    stdout = FakeTerminal()
    stdout.error = BrokenPipeError()
    with Console(progress=True).stage("Tokenize", total=3) as stage:
        monkeypatch.setattr(sys, "stdout", stdout)
        console = Console(progress=True)
        console.say("a line")
        stage.advance(3)
        with console.stage("Plan", total=3):
            pass

    assert "Plan" not in terminal.getvalue()
    assert last_drawn(terminal).startswith("Tokenize: 100%")


def test_a_closed_stdout_does_not_stop_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bars are on stderr, but tqdm flushes both."""
    fake_stderr(monkeypatch)
    stdout = io.TextIOWrapper(io.BytesIO())
    stdout.close()
    monkeypatch.setattr(sys, "stdout", stdout)

    with Console(progress=True).stage("Tokenize", total=3) as stage:
        stage.advance(3)


def test_lines_come_where_bars_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broken stderr leaves stdout alone."""
    terminal = fake_stderr(monkeypatch)
    console = Console(progress=True)
    with console.stage("Tokenize", total=3):
        terminal.error = BrokenPipeError()
        console.say("a line")
    console.say("another line")

    assert capsys.readouterr().out == "a line\nanother line\n"


def test_a_bar_that_is_not_shown_costs_nothing() -> None:
    """Under 2 µs for each batch."""
    stage = Stage(None)
    started = time.thread_time()
    for _ in range(100_000):
        stage.advance(1)
    seconds_each = (time.thread_time() - started) / 100_000

    assert seconds_each < 2e-6


def run_cells(*cells: str) -> Any:
    """Run cells in a real kernel, and return the notebook."""
    code = [nbformat.v4.new_code_cell(cell) for cell in (START, *cells)]
    notebook = nbformat.v4.new_notebook(cells=code)
    NotebookClient(notebook, timeout=60, allow_errors=True).execute()
    assert notebook.cells[0].outputs == []
    return notebook


def printed(cell: Any, name: str) -> str:
    """Return what a cell wrote to a stream."""
    return "".join(output.text for output in cell.outputs if output.get("name") == name)


STAGE = """
with console.stage("Tokenize", total={total}, is_kept={is_kept}) as stage:
    stage.advance(430)
    stage.rename("<Rows>")
    console.say("a line")
    {then}
"""


@pytest.mark.system
def test_a_notebook_shows_widgets() -> None:
    """Green when done, red after an error, gone if not kept; nothing goes to stderr."""
    notebook = run_cells(
        STAGE.format(total=1000, is_kept=True, then=""),
        STAGE.format(total=1000, is_kept=False, then="1 / 0"),
        STAGE.format(total=None, is_kept=True, then="1 / 0"),
        "from ipywidgets.widgets.widget import _instances; before = len(_instances)",
        STAGE.format(total=1000, is_kept=False, then=""),
        "print(len(_instances) - before)",
        "console = Console(progress=False)" + STAGE.format(total=1000, is_kept=True, then=""),
    )

    _, done, failed, failed_early, _, removed, num_left, silent = notebook.cells
    view = "application/vnd.jupyter.widget-view+json"
    states = notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"].state

    def shown(cell: Any) -> tuple[str, str, str, float]:
        (output,) = [output for output in cell.outputs if output.output_type == "display_data"]
        box = states[output.data[view].model_id].state
        left, bar, right = (states[key.removeprefix("IPY_MODEL_")].state for key in box.children)
        text = f"{left.value}|{right.value}".replace("\u2007", " ")
        return text.split(" [")[0], text.split(", ", 1)[1], bar.bar_style, bar.value / bar.max

    assert shown(done)[0] == "&lt;Rows&gt;: 100%| 430/430 rows"
    assert shown(done)[2:] == ("success", 0.43)
    assert re.fullmatch(r"[\d.]+k? rows/s, 0\.8/4\.0 GiB\]", shown(done)[1])
    assert shown(failed)[0] == "&lt;Rows&gt;:  43%| 430/1.00k rows"
    assert shown(failed)[2] == "danger"
    assert shown(failed_early)[0] == "|&lt;Rows&gt;: 430 rows"
    assert shown(failed_early)[2] == "danger"
    assert failed.outputs[-1].ename == "ZeroDivisionError"
    assert removed.outputs[0].data == {"text/plain": ""}
    assert printed(num_left, "stdout") == "0\n"
    assert silent.outputs == []
    for cell in (done, failed, removed):
        assert printed(cell, "stdout") == "a line\n"
        assert printed(cell, "stderr") == ""


@pytest.mark.system
@pytest.mark.parametrize(
    "trouble",
    [
        "sys.modules['ipywidgets'] = None",
        "import ipywidgets; del ipywidgets.HBox",
        "import comm; comm.create_comm = None",
    ],
)
def test_a_notebook_without_widgets_shows_text(trouble: str) -> None:
    """Without ipywidgets, and with a front end that cannot talk to them."""
    stage = STAGE.format(total=1000, is_kept=True, then="")
    notebook = run_cells(trouble, stage, f"sys.stderr = None\n{stage}")

    *_, cell, without_stderr = notebook.cells
    assert printed(cell, "stdout") == "a line\n"
    assert re.search(
        r"\r<Rows>: 100%\|█{10}\| 430/430 rows \[\d\d:\d\d<00:00, [\d.]+k? rows/s, "
        r"0\.8/4\.0 GiB\]\n$",
        printed(cell, "stderr"),
    )
    assert all(output.output_type == "stream" for output in cell.outputs)
    assert [output.text for output in without_stderr.outputs] == ["a line\n"]


@pytest.mark.system
def test_widgets_that_fail_midway_do_not_stop_a_run() -> None:
    """As when a front end is closed."""
    notebook = run_cells("""
from ipywidgets import Widget

def fail(*_, **__):
    raise RuntimeError("no comm")

with console.stage("Tokenize", total=1000, is_kept=False) as stage:
    Widget.send_state = fail
    Widget.close = fail
    stage.advance(430)
    stage.rename("Rows")
    console.say("a line")
""")

    assert printed(notebook.cells[1], "stdout") == "a line\n"
    assert printed(notebook.cells[1], "stderr") == ""
    assert all(output.output_type != "error" for output in notebook.cells[1].outputs)


@pytest.mark.system
def test_no_notebook_does_not_load_ipython() -> None:
    """A plain script does not pay for it."""
    code = f"{START}\nwith console.stage('Plan', total=3): print('IPython' in sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout == "False\n"
