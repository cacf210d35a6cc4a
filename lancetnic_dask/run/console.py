"""Lines and bars for the person at the terminal; everything else goes through `logging`."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lancetnic_dask.run.progress import Stage, TextBar, open_bar, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lancetnic_dask.run.progress import Unit
    from lancetnic_dask.training.loop import EpochResult

__all__ = ["Console"]


class Console:
    """Shows a run's few lines and the bars of its stages, or nothing.

    Lines go to stdout, also where that is a pipe. Bars go to stderr, and only where someone can
    watch them: at a terminal or in a notebook. A stream that is closed, or whose reader has gone,
    makes it silent, and never stops a run.

    Parameters
    ----------
    progress : bool
        False keeps silent.
    memory : callable or None, default=None
        ``memory()`` returns the bytes in use and the budget in bytes. It is called while a bar is
        drawn, four times a second at most; None shows bars without it.
    """

    def __init__(
        self, *, progress: bool, memory: Callable[[], tuple[int, int]] | None = None
    ) -> None:
        self._progress = progress
        self._memory = memory

    def say(self, line: str) -> None:
        """Print a line at once, also where output is a pipe; it stands above the bars."""
        # None in a process without a terminal.
        stream = sys.stdout if self._progress else None
        if stream is None:
            return
        try:
            with TextBar.external_write_mode(file=stream):
                stream.write(f"{printable(line, stream)}\n")
                stream.flush()
        except (OSError, ValueError):  # closed, or its reader has gone: no reason to stop a run
            self._progress = False

    @contextmanager
    def stage(
        self, title: str, *, total: int | None, unit: Unit = "rows", is_kept: bool = True
    ) -> Iterator[Stage]:
        """Show a bar while a block runs.

        After an exception the bar stays as far as it came, and what is printed next starts on a
        line of its own.

        Parameters
        ----------
        title : str
            Stands before the bar, one line.
        total : int or None
            What there is to do, as it is known now; None if it is not. A stage that ends well was
            whole, whatever it came to.
        unit : {'rows', 'bytes', 'lists'}, default='rows'
            Of `total` and of what `Stage.advance` is given.
        is_kept : bool, default=True
            Whether the finished bar stays on the screen.

        Yields
        ------
        Stage
            To be told what is done.

        Examples
        --------
        >>> console = Console(progress=False)
        >>> with console.stage("Tokenize", total=3_000) as stage:
        ...     for num_rows in (1_000, 2_000):
        ...         stage.advance(num_rows)
        """
        bar = None
        if self._progress:
            bar = open_bar(title, total=total, unit=unit, memory=self._memory)
        try:
            yield Stage(bar)
        except BaseException:
            if bar is not None:
                bar.abort()
            raise
        if bar is not None:
            bar.end(is_kept=is_kept)

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
