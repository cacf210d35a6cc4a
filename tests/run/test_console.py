"""Printing never stops a run, and bars are whole on a real terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from typing import TYPE_CHECKING

import pytest

from lancetnic_dask.run.console import Console

if TYPE_CHECKING:
    from collections.abc import Mapping

START = """
import sys, time
from lancetnic_dask.run.console import Console
console = Console(progress=True, memory=lambda: (812 << 20, 4096 << 20))
"""


def test_lines_are_printed_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Unless progress is off."""
    Console(progress=True).say("a line")
    Console(progress=False).say("no line")

    assert capsys.readouterr().out == "a line\n"


@pytest.mark.parametrize("encoding", ["ascii", "cp1251"])
def test_letters_that_the_terminal_lacks_are_escaped(
    monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    """A folder of any name can be told anywhere."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))

    Console(progress=True).say("папка 中")

    assert raw.getvalue().decode(encoding).endswith("\\u4e2d\n")


def test_no_terminal_and_a_closed_one_are_no_reason_to_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As under pythonw, or with output closed."""
    monkeypatch.setattr(sys, "stdout", None)
    Console(progress=True).say("a line")
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    Console(progress=True).say("a line")


def test_a_pipe_whose_reader_has_gone_is_no_reason_to_stop() -> None:
    """As in `script | head -1`."""
    code = (
        "import sys\n"
        "from lancetnic_dask.run.console import Console\n"
        "console = Console(progress=True)\n"
        "for _ in range(20_000):\n"
        "    console.say('a line')\n"
        "print('done', file=sys.stderr)\n"
    )

    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read().decode()

    assert said.startswith("done")


class Terminal:
    """A pseudo-terminal with a process on it, and the screen that a person would see.

    Parameters
    ----------
    code : str
        What the process runs.
    rows, columns : int
        Its size; the lines above the screen are kept.
    environment : mapping of str to str or None
        Beside that of this process.
    """

    def __init__(
        self,
        code: str,
        *,
        rows: int = 24,
        columns: int = 100,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.written = ""
        self._columns = columns or 80
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (rows, columns))
        # The first terminal that a session opens is the one whose Ctrl-C reaches it.
        joined = f"import os; os.close(os.open({os.ttyname(slave)!r}, os.O_RDWR))\n{START}{code}"
        self.process = subprocess.Popen(
            [sys.executable, "-c", joined],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", **(environment or {})},
            start_new_session=True,
        )
        os.close(slave)

    def read_until(self, pattern: str) -> None:
        """Read what is written until a pattern has come."""
        while not re.search(pattern, self.written):
            assert self._read(), self.written

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def hang_up(self) -> int:
        """Take the terminal away, and return how the process ended."""
        os.close(self._master)
        return self.process.wait(timeout=60)

    def finish(self) -> int:
        """Read to the end, and return how the process ended."""
        while self._read():
            pass
        return self.hang_up()

    def screen(self) -> list[str]:
        """Return the lines that can be seen, without blanks at their ends."""
        cells: list[list[str]] = [[]]
        row = column = 0
        for shown in re.findall(r"\x1b\[A|[^\x1b]", self.written):
            if shown == "\r":
                column = 0
            elif shown == "\n":
                row += 1
            elif shown == "\x1b[A":
                row -= 1
            else:
                if column == self._columns:
                    row, column = row + 1, 0
                cells += [[] for _ in range(row + 1 - len(cells))]
                cells[row] += " " * (column + 1 - len(cells[row]))
                cells[row][column] = shown
                column += 1
            cells += [[] for _ in range(row + 1 - len(cells))]
        return ["".join(line).rstrip() for line in cells]

    def _read(self) -> bool:
        try:
            brought = os.read(self._master, 1 << 16)
        except OSError:  # EIO, once the last process has closed it
            return False
        self.written += brought.decode()
        return bool(brought)


@pytest.mark.system
def test_a_bar_moves_and_tells_speed_time_left_and_memory() -> None:
    """All of it on one line, that stays when the stage is done."""
    terminal = Terminal("""
with console.stage("Tokenize", total=1_000_000) as stage:
    for _ in range(100):
        stage.advance(9_900)
        time.sleep(0.015)
console.say("done")
""")

    assert terminal.finish() == 0
    finished, said, *rest = terminal.screen()
    assert said == "done"
    assert rest == [""]
    assert re.fullmatch(
        r"Tokenize: 100%\|█+\| 990k/990k rows "
        r"\[\d\d:\d\d<00:00, [\d.]+k rows/s, 0\.8/4\.0 GiB\]",
        finished,
    )
    drawn = re.findall(
        r"Tokenize: +(\d+)%\|[█▏▎▍▌▋▊▉ ]+\| [\d.]+k/1\.00M rows "
        r"\[\d\d:\d\d<\d\d:\d\d, [\d.]+k rows/s, 0\.8/4\.0 GiB\]",
        terminal.written,
    )
    shares = [int(share) for share in drawn]
    assert len(set(shares)) >= 3
    assert shares == sorted(shares)


@pytest.mark.system
def test_lines_stand_whole_above_the_bar() -> None:
    """And a bar that isn't kept leaves nothing but them."""
    terminal = Terminal("""
with console.stage("Epoch 1/2", total=1000, is_kept=False) as stage:
    for number in range(10):
        stage.advance(50)
        console.say(f"line {number}")
    stage.rename("Epoch 1/2, validation")
    stage.advance(500)
    console.say("in validation")
    input()
console.say("Epoch 1/2: good")
""")
    lines = [*(f"line {number}" for number in range(10)), "in validation"]
    terminal.read_until(r"in validation\s+Epoch 1/2, validation: 100%.*GiB\]")

    *above, bar = terminal.screen()
    terminal.type("\n")

    assert above == lines
    assert bar.startswith("Epoch 1/2, validation: 100%|█")
    assert terminal.finish() == 0
    # The key's own newline went to the next line, where the cursor was then.
    assert [line for line in terminal.screen() if not line.startswith(bar)] == [
        *lines,
        "Epoch 1/2: good",
        "",
    ]


@pytest.mark.system
def test_ctrl_c_leaves_the_bar_and_a_clean_line() -> None:
    """What is printed next, as the traceback, starts on a line of its own."""
    terminal = Terminal("""
with console.stage("Epoch 1/2", total=1000, is_kept=False) as stage:
    stage.advance(430)
    stage.rename("Epoch 1/2")
    time.sleep(60)
""")
    terminal.read_until(r" 43%.*GiB\]")

    terminal.type("\x03")

    assert terminal.finish() == -signal.SIGINT
    bar, first, *_, last, _ = terminal.screen()
    assert re.fullmatch(r"Epoch 1/2:  43%\|█.* GiB\]\^C", bar)
    assert first == "Traceback (most recent call last):"
    assert last == "KeyboardInterrupt"


@pytest.mark.system
def test_two_runs_at_once_show_whole_bars() -> None:
    """Their threads share a screen, with a bar of the caller's own above them."""
    terminal = Terminal("""
import threading
from tqdm import tqdm

def run(name):
    for number in range(4):
        with console.stage(f"{name}{number}", total=300, is_kept=number % 2 == 0) as stage:
            for _ in range(30):
                stage.advance(10)
                time.sleep(0.01)
        console.say(f"said {name}{number}")

for _ in tqdm(["only"], desc="Outer"):
    threads = [threading.Thread(target=run, args=[name]) for name in "AB"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
""")

    assert terminal.finish() == 0
    *lines, end = terminal.screen()
    assert end == ""
    assert sorted(line.split("|")[0] for line in lines) == [
        "A0: 100%", "A2: 100%", "B0: 100%", "B2: 100%", "Outer: 100%",
        *(f"said {name}{number}" for name in "AB" for number in range(4)),
    ]  # fmt: skip
    assert lines[-1].startswith("Outer")
    assert all(line.endswith("]") for line in lines if "|" in line)


@pytest.mark.system
def test_a_bar_leaves_no_thread_no_process_and_tqdm_as_it_was() -> None:
    """Neither tqdm's monitor nor the lock between processes, whose tracker is a process."""
    terminal = Terminal("""
import psutil, threading
from tqdm.std import TqdmDefaultWriteLock, tqdm

with console.stage("Plan", total=3, unit="lists") as stage:
    stage.advance(3)
    inside = len(threading.enumerate()), len(psutil.Process().children())
locks = vars(tqdm).get("_lock"), vars(TqdmDefaultWriteLock).get("mp_lock")
print(inside, tqdm.monitor, tqdm.monitor_interval, locks, len(tqdm._instances))
""")

    assert terminal.finish() == 0
    assert terminal.screen()[1] == "(1, 0) None 10 (None, None) 0"


@pytest.mark.system
@pytest.mark.parametrize(
    ("rows", "columns", "environment"),
    [
        (24, 100, {"PYTHONIOENCODING": "ascii", "TERM": "dumb"}),
        (24, 20, {}),
        (1, 1, {}),
        (0, 0, {}),  # a terminal that does not know its size
    ],
)
def test_poor_terminals_show_what_they_can(
    rows: int, columns: int, environment: dict[str, str]
) -> None:
    """Letters that they lack are escaped, lines are cut to their width, and no run stops."""
    terminal = Terminal(
        """
with console.stage("Слова", total=3, unit="lists") as stage:
    for _ in range(3):
        stage.advance(1)
""",
        rows=rows,
        columns=columns,
        environment=environment,
    )

    assert terminal.finish() == 0
    bar, end = terminal.screen()
    whole = r"\u0421\u043b\u043e\u0432\u0430: 100%|#" if environment else "Слова: 100%|█"
    width = max(1, columns - 3) if columns else 100
    assert bar.startswith(whole[:width])
    assert len(bar) <= width
    assert end == ""


@pytest.mark.system
def test_a_terminal_that_goes_away_does_not_stop_a_run() -> None:
    """As when a connection breaks under nohup."""
    terminal = Terminal("""
import os, signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with console.stage("Tokenize", total=1000) as stage:
    stage.advance(1)
    while os.isatty(1):
        time.sleep(0.01)
    for _ in range(4):
        stage.advance(1)
        time.sleep(0.3)
    stage.rename("Tokenize again")
console.say("a line")
with console.stage("Plan", total=3) as stage:
    stage.advance(3)
os._exit(7)
""")
    terminal.read_until("GiB")

    assert terminal.hang_up() == 7


@pytest.mark.system
def test_without_a_terminal_there_is_no_bar() -> None:
    """A log file holds lines only."""
    code = f"""{START}
with console.stage("Tokenize", total=100) as stage:
    stage.advance(50)
    console.say("a line")
"""

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout == "a line\n"
    assert done.stderr == ""


@pytest.mark.system
def test_progress_false_is_silent_at_a_terminal() -> None:
    """Neither lines nor bars."""
    terminal = Terminal("""
console = Console(progress=False)
with console.stage("Tokenize", total=100) as stage:
    stage.advance(50)
    stage.rename("Tokenize again")
    console.say("a line")
""")

    assert terminal.finish() == 0
    assert terminal.written == ""
