"""Lines for the person at the terminal; everything else goes through `logging`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lancetnic_dask.training.loop import EpochResult

__all__ = ["Console"]


class Console:
    """Prints a run's few lines, or nothing.

    Parameters
    ----------
    progress : bool
        False keeps silent.
    """

    def __init__(self, *, progress: bool) -> None:
        self._progress = progress

    def say(self, line: str) -> None:
        """Print a line at once, also where output is a pipe."""
        # None in a process without a terminal.
        stream = sys.stdout if self._progress else None
        if stream is None:
            return
        encoding = getattr(stream, "encoding", None) or "utf-8"
        shown = line.encode(encoding, "backslashreplace").decode(encoding)
        try:
            stream.write(f"{shown}\n")
            stream.flush()
        except (OSError, ValueError):  # closed, or its reader has gone: no reason to stop a run
            self._progress = False

    def say_epoch(self, result: EpochResult, num_epochs: int) -> None:
        """Print what an epoch brought."""
        line = (
            f"Epoch {result.epoch}/{num_epochs}: "
            f"train loss {result.train_loss:.4f}, accuracy {100 * result.train_accuracy:.2f} %"
        )
        if result.validation is not None:
            counts = result.validation.counts
            line += (
                f"; validation loss {result.validation.loss:.4f}, "
                f"accuracy {100 * counts.accuracy:.2f} %, F1 {100 * counts.f1:.2f} %"
            )
        self.say(f"{line} ({result.num_rows / result.train_seconds:,.0f} rows/s)")
