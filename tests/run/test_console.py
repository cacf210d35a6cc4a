"""Printing never stops a run."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from lancetnic_dask.run.console import Console


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
