"""Ctrl-C: held back while something is written, and told in terms of what is left."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, TracebackType

    from lancetnic_dask.run.folder import RunFolder

__all__ = ["InterruptReport", "hold_interrupt"]


class InterruptReport:
    """Says what Ctrl-C leaves, instead of where in Dask or torch it came.

    Parameters
    ----------
    num_epochs : int
        Epochs that the run is to have.

    Attributes
    ----------
    run_folder : RunFolder or None
        Set as soon as there is one.
    """

    def __init__(self, num_epochs: int) -> None:
        self.run_folder: RunFolder | None = None
        self._num_epochs = num_epochs

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error_type is KeyboardInterrupt:
            left = "Stopped before training began."
            if self.run_folder is not None:
                left = self.run_folder.what_is_left(self._num_epochs)
            raise KeyboardInterrupt(left) from None


@contextmanager
def hold_interrupt() -> Iterator[None]:
    """Let Ctrl-C wait until a block is done; a second one stops it at once.

    Only the main thread hears of Ctrl-C, so that in others nothing is held back.
    """
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(before):  # ignored, as in a shell's background job
        yield
        return
    is_held = False

    def hold(signum: int, frame: FrameType | None) -> None:
        nonlocal is_held
        if is_held:
            before(signum, frame)
        is_held = True

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if is_held:
        signal.raise_signal(signal.SIGINT)
