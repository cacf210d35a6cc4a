"""What is done of a stage -> a bar at a terminal or in a notebook.

The bars are tqdm's, and share a screen with those of the caller. Here stands what a library needs
on top: no thread or process beside them, and no failure to draw ever reaches a run.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tqdm.std import TqdmDefaultWriteLock, tqdm  # type: ignore[attr-defined]  # not in its stubs
from tqdm.utils import disp_len

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping
    from typing import TextIO, TypeAlias
    from weakref import WeakSet

    AskMemory: TypeAlias = Callable[[], tuple[int, int]]

__all__ = ["Stage", "TextBar", "Unit", "open_bar", "printable"]

logger = logging.getLogger(__name__)

Unit = Literal["rows", "bytes", "lists", "partitions"]

# Four times a second is smooth to the eye; a notebook sends three messages for each drawing.
_REDRAW_SECONDS = 0.25
_GIB = 1 << 30
# By unit: what follows an amount, and the step between its prefixes.
_SUFFIXES: dict[Unit, tuple[str, int]] = {
    "rows": (" rows", 1000),
    "bytes": ("B", 1024),
    "lists": (" lists", 1000),
    "partitions": (" partitions", 1000),
}
# What gives way where the bar itself would have fewer letters than that: unit, speed, amount.
_BAR_LETTERS = 8
_WITH_TOTAL = tuple(
    f"{{desc}}: {{percentage:3.0f}}%|{{bar}}| {figures}{{postfix}}]"
    for figures in (
        "{amount} [{elapsed}<{remaining}, {speed}",
        "{amount} [{elapsed}<{remaining}, {short_speed}",
        "{amount} [{elapsed}<{remaining}",
        "[{elapsed}<{remaining}",
    )
)
_WITHOUT_TOTAL = "{desc}: {amount} [{elapsed}, {speed}{postfix}]"


class Stage:
    """A stage in hand, told how far it has come from one thread.

    Parameters
    ----------
    bar : TextBar or None
        Shows it; None where there is nothing to show it on.
    """

    __slots__ = ("_bar",)

    def __init__(self, bar: TextBar | None) -> None:
        self._bar = bar

    def advance(self, amount: int) -> None:
        """Add what was done since the last call, in the unit of the stage.

        Meant for each batch: 0.04 µs where no bar is shown, 0.3 µs where one is.
        """
        if self._bar is not None:
            self._bar.update(amount)

    def rename(self, title: str) -> None:
        """Show another title, of one line."""
        if self._bar is not None:
            self._bar.rename(title)


class TextBar(tqdm):  # type: ignore[type-arg]  # generic in its stubs only
    """A bar of letters on stderr; once it can't be drawn, it is silent.

    Parameters
    ----------
    title : str
        One line.
    total : int or None
        What there is to do; None, or 0, shows no share and no time left.
    unit : {'rows', 'bytes', 'lists', 'partitions'}
        Of all amounts.
    memory : callable or None
        ``memory()`` returns bytes in use and the budget in bytes. Asked when the bar is drawn,
        four times a second at most.
    """

    # With it tqdm starts a thread, to redraw bars that count many steps between two looks at the
    # clock. Ours look at each step.
    monitor_interval = 0
    # The half of tqdm's own lock that is for threads, so that bars of the caller and ours take
    # turns. The other half, for processes, would start one that tracks it.
    _lock = TqdmDefaultWriteLock.th_lock
    # All bars of the process, also the caller's.
    _instances: ClassVar[WeakSet[tqdm[Any]]]
    # For tqdm, beside those that a stage decides.
    _options: ClassVar[dict[str, Any]] = {}
    # A stream that is closed, or whose reader has gone.
    _failures: ClassVar[tuple[type[Exception], ...]] = (OSError, ValueError)

    def __init__(
        self, title: str, *, total: int | None, unit: Unit, memory: AskMemory | None
    ) -> None:
        self._amount_unit: Unit = unit
        self._memory = memory
        self._next_memory_seconds = 0.0
        with self._silent_on_failure():
            super().__init__(
                desc=printable(title, sys.stderr),
                total=total,
                mininterval=_REDRAW_SECONDS,
                miniters=1,
                **self._options,
            )

    def rename(self, title: str) -> None:
        """Show another title."""
        self.set_description_str(printable(title, sys.stderr))

    def end(self, *, is_kept: bool) -> None:
        """Leave the bar as a finished line, or remove it."""
        if self.total is not None:
            # Rows can be fewer than was thought, as those that were set aside.
            self.total = self.n
        self._end(is_kept=is_kept)

    def abort(self) -> None:
        """Leave the bar as far as it came, with the cursor on the next line."""
        self._end(is_kept=True)

    def _end(self, *, is_kept: bool) -> None:
        self.leave = is_kept
        self.close()
        # A bar that failed would keep its line as long as its stage is held.
        with self._lock:
            self._instances.discard(self)

    @property
    def format_dict(self) -> MutableMapping[str, Any]:
        """Return the parts of the bar, with amount and speed in our form."""
        parts = super().format_dict
        done, total = parts["n"], parts["total"]
        suffix, divisor = _SUFFIXES[self._amount_unit]
        rate = parts["rate"] or (done / parts["elapsed"] if parts["elapsed"] else None)
        speed = "?" if not rate else tqdm.format_sizeof(rate, divisor=divisor)
        of_total = "" if total is None else f"/{_short(total, divisor)}"
        parts.update(
            n=min(done, total) if total else done,
            amount=f"{_short(done, divisor)}{of_total}{suffix}",
            speed=f"{speed}{suffix}/s",
            short_speed=f"{speed}/s",
        )
        parts["bar_format"] = _fitting_layout(parts) if total else _WITHOUT_TOTAL
        return parts

    def display(self, msg: str | None = None, pos: int | None = None, **signals: Any) -> None:
        """Draw the bar, as wide as the terminal is now."""
        self._ask_memory()
        with self._silent_on_failure():
            if not self.gui:
                self.ncols, self.nrows = _screen_size(self.fp)
            super().display(msg, pos, **signals)

    def refresh(self, nolock: bool = False, lock_args: Any = None) -> None:  # noqa: ARG002, FBT001, FBT002  as tqdm has it
        """Draw the bar; Ctrl-C meanwhile gives the lock back, other than in tqdm."""
        if not self.disable:
            with nullcontext() if nolock else self._lock:
                self.display()

    def clear(self, nolock: bool = False) -> None:  # noqa: FBT001, FBT002  as tqdm has it
        """Make room for a line."""
        if not self.disable:
            with nullcontext() if nolock else self._lock, self._silent_on_failure():
                super().clear(nolock=True)

    def close(self) -> None:
        """End the bar, and draw those below it anew; tqdm would leave their old drawing."""
        if not getattr(self, "disable", True):
            with self._silent_on_failure(), self.external_write_mode(file=self.fp):
                super().close()

    @contextmanager
    def _silent_on_failure(self) -> Iterator[None]:
        try:
            yield
        except self._failures:
            self.disable = True
            logger.debug("a progress bar could not be drawn", exc_info=True)

    def _ask_memory(self) -> None:
        """Bring the memory figure up to date, unless that was just done."""
        now = time.monotonic()
        if self._memory is None or now < self._next_memory_seconds:
            return
        self._next_memory_seconds = now + _REDRAW_SECONDS
        used_bytes, budget_bytes = self._memory()
        self.postfix = f"{used_bytes / _GIB:.1f}/{budget_bytes / _GIB:.1f} GiB"


def open_bar(
    title: str, *, total: int | None, unit: Unit, memory: AskMemory | None
) -> TextBar | None:
    """Show a new bar where this process can: in a notebook, or at a terminal.

    Parameters
    ----------
    title, total, unit, memory
        As for `TextBar`.

    Returns
    -------
    TextBar or None
        None where there is neither.
    """
    in_kernel = _in_kernel()
    if in_kernel and (widget_bar := _widget_bar()) is not None:
        bar = widget_bar(title, total=total, unit=unit, memory=memory)
        if not bar.disable:
            return bar
    if sys.stderr is not None and (in_kernel or _is_terminal(sys.stderr)):
        return TextBar(title, total=total, unit=unit, memory=memory)
    return None


def printable(text: str, stream: TextIO | None) -> str:
    """Escape the letters that the encoding of a stream lacks."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _widget_bar() -> type[TextBar] | None:
    """Return a bar of widgets; None without ipywidgets, or if it can't be loaded.

    Made on demand: `tqdm.notebook` loads IPython.
    """
    if find_spec("ipywidgets") is None:
        return None
    try:
        from IPython.display import display
        from tqdm.notebook import tqdm_notebook
    except Exception:  # versions that don't fit fail in all ways
        logger.debug("ipywidgets could not be loaded", exc_info=True)
        return None

    class WidgetBar(TextBar, tqdm_notebook):  # type: ignore[misc,type-arg]  # as above
        _options: ClassVar[dict[str, Any]] = {"display": False}
        # Any front end brings its own way to talk to widgets, and its own errors.
        _failures = (Exception,)

        def __init__(self, title: str, **arguments: Any) -> None:
            super().__init__(title, **arguments)
            if not self.disable:
                with self._silent_on_failure():
                    self._shown = display(self.container, display_id=True)  # type: ignore[no-untyped-call]

        def abort(self) -> None:
            if not self.disable:
                self.display(bar_style="danger")
            super().abort()

        def _end(self, *, is_kept: bool) -> None:
            was_shown = not self.disable
            super()._end(is_kept=is_kept)
            if was_shown and not is_kept:
                with self._silent_on_failure():
                    # Else a saved notebook shows it at 0 % for ever.
                    self._shown.update({"text/plain": ""}, raw=True)
                    _close_widgets(self.container)

    return WidgetBar


def _close_widgets(container: Any) -> None:
    """Have the kernel forget a bar that tqdm has hidden: it keeps them all, eleven a bar."""
    for widget in (*container.children, container):
        for part in (getattr(widget, "style", None), widget.layout, widget):
            if part is not None:
                part.close()


def _in_kernel() -> bool:
    """Return whether this is a Jupyter kernel, without loading IPython."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = None if get_ipython is None else get_ipython()
    # Spyder's and Colab's shells are derived from it.
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in type(shell).__mro__)


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # no file at all, or closed
        return False


def _screen_size(stream: TextIO) -> tuple[int | None, int | None]:
    """Return columns and rows that a bar can take; None where the terminal doesn't tell.

    tqdm takes the 0 of a terminal that doesn't know its size for a size, and shows nothing.
    """
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except (AttributeError, OSError, ValueError):  # no file, or no terminal, as in a notebook
        return None, None
    # Room for the ^C that Ctrl-C leaves behind the bar: where it wraps, the bar is there twice.
    return max(1, columns - 3) if columns else None, max(2, rows - 1) if rows else None


def _fitting_layout(parts: MutableMapping[str, Any]) -> str:
    """Return the longest layout that leaves room for the bar itself."""
    columns = parts["ncols"]
    if not isinstance(columns, int):  # a notebook, or a terminal that doesn't tell
        return _WITH_TOTAL[0]
    for layout in _WITH_TOTAL:
        without_bar = {**parts, "bar_format": layout.replace("{bar}", ""), "ncols": None}
        if disp_len(tqdm.format_meter(**without_bar)) + _BAR_LETTERS <= columns:
            return layout
    return _WITH_TOTAL[-1]


def _short(amount: int, divisor: int) -> str:
    """Return 431, 431k, 1.00M."""
    return str(amount) if amount < 1000 else tqdm.format_sizeof(amount, divisor=divisor)
