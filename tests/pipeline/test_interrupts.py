"""Ctrl-C waits while something is written, and says what is left."""

from __future__ import annotations

import os
import signal
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from lancetnic_dask.pipeline.interrupts import InterruptReport, hold_interrupt


def interrupt() -> None:
    """Press Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_one_waits_until_the_block_is_done() -> None:
    """And the handler is the caller's again."""
    before = signal.getsignal(signal.SIGINT)
    done = []

    def write() -> None:
        with hold_interrupt():
            interrupt()
            done.append("written")

    with pytest.raises(KeyboardInterrupt):
        write()

    assert done == ["written"]
    assert signal.getsignal(signal.SIGINT) is before


def test_the_second_one_stops_at_once() -> None:
    """Whoever presses twice means it."""
    done = []

    def write() -> None:
        with hold_interrupt():
            interrupt()
            done.append("one")
            interrupt()
            done.append("two")

    with pytest.raises(KeyboardInterrupt):
        write()

    assert done == ["one"]


def test_an_error_in_the_block_comes_out() -> None:
    """It tells more than that Ctrl-C was pressed too."""
    before = signal.getsignal(signal.SIGINT)

    def write() -> None:
        with hold_interrupt():
            interrupt()
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write()

    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_hold_nothing_back() -> None:
    """Python lets only the main thread set handlers."""
    failed = []

    def run() -> None:
        try:
            with hold_interrupt():
                pass
        except ValueError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

    assert failed == []


def test_the_report_tells_of_the_run_also_after_a_second_one() -> None:
    """The second comes while the cluster is closed for the first, and has no words."""
    folder: Any = SimpleNamespace(what_is_left=lambda num_epochs: f"left of {num_epochs}")

    def run() -> None:
        with InterruptReport(7) as report:
            report.run_folder = folder
            try:
                raise KeyboardInterrupt
            finally:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        run()

    assert str(caught.value) == "left of 7"
    with pytest.raises(KeyboardInterrupt) as caught, InterruptReport(7):
        raise KeyboardInterrupt
    assert str(caught.value) == "Stopped before training began."
    with pytest.raises(ValueError, match="else"), InterruptReport(7):
        raise ValueError("else")
