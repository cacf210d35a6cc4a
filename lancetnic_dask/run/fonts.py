"""Labels -> text that can be drawn, and the installed fonts that have its letters.

matplotlib is imported when fonts are looked for, not before. What is drawn is in plots.py.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from matplotlib.font_manager import FontProperties

__all__ = ["Typeface", "find_typeface", "load_matplotlib", "preload_matplotlib", "shown_label"]

logger = logging.getLogger(__name__)

# Ships with matplotlib; has Latin, Greek, Cyrillic, Armenian, Georgian, Hebrew and Arabic letters.
_MAIN_FAMILY = "DejaVu Sans"

# Tried before all others: their letters are many and well drawn.
_KNOWN_FAMILIES = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans SC", "Noto Sans JP",
    "Noto Sans KR", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "SimHei", "PingFang SC",
    "Hiragino Sans", "Hiragino Sans GB", "Apple SD Gothic Neo", "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei", "Droid Sans Fallback", "Noto Sans", "Segoe UI", "Noto Sans Devanagari",
    "Nirmala UI", "Noto Sans Thai", "Leelawadee UI", "Noto Emoji", "Segoe UI Emoji",
    "Segoe UI Symbol", "Symbola", "Arial Unicode MS", "Unifont",
)  # fmt: skip

# A machine with 2,000 fonts must not delay a run: about 2 ms a font.
_SEARCH_SECONDS = 1.0

_SHOWN_CHARS = 24
_SHOWN_LETTERS = 5
_NO_GLYPH = "\u25a1"  # white square

_SPACES = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
# Joiners, marks of direction, variation selectors and tags: no letters, and few fonts have them.
_INVISIBLE = re.compile(
    "[\xad\u034f\u061c\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\ufe00-\ufe0f\ufeff\ufff0-\ufffb\U000e0000-\U000e0fff]"
)


def load_matplotlib(folder: Path) -> None:
    """Import matplotlib without leaving anything in the home of a user who doesn't use it.

    When first imported it makes folders there, for settings and for its list of fonts. It
    remembers them, so the environment is as before when this returns. Threads may call this at
    the same time.

    Parameters
    ----------
    folder : Path
        Where it keeps both if it isn't loaded yet and the user has neither set
        ``MPLCONFIGDIR`` nor a folder of matplotlib's settings. Made if need be.
    """
    is_placed = "matplotlib" in sys.modules or "MPLCONFIGDIR" in os.environ
    if not is_placed and not _has_settings():
        # Asked once, both are remembered: the rest of the import needs no environment.
        os.environ["MPLCONFIGDIR"] = str(folder)
        try:
            import matplotlib as mpl

            mpl.get_configdir()
            mpl.get_cachedir()
        finally:
            os.environ.pop("MPLCONFIGDIR", None)
    import matplotlib.font_manager  # noqa: F401


def preload_matplotlib(folder: Path) -> None:
    """Import all that pictures need, so that drawing them later needs no time for it.

    For a thread beside other work: about 0.4 s of one core and 30 MB, and a second or more
    where the list of fonts is not made yet. What can't be imported is told when pictures are
    drawn, and not here.

    Parameters
    ----------
    folder : Path
        As in `load_matplotlib`.
    """
    try:
        load_matplotlib(folder)
        from matplotlib import collections, figure, image, ticker  # noqa: F401
        from PIL import Image

        from lancetnic_dask.run import text_group  # noqa: F401

        Image.preinit()  # else the first picture that is saved imports the formats
    except Exception:  # matplotlib may be broken, too old, or its folder read-only
        logger.debug("matplotlib could not be imported ahead of time", exc_info=True)


def _has_settings() -> bool:
    """Return whether the user has a folder of matplotlib's settings."""
    if sys.platform.startswith(("linux", "freebsd")):
        places = [Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config", "matplotlib")]
    else:
        places = [Path("~/.matplotlib")]
        if "LOCALAPPDATA" in os.environ:  # recent versions on Windows
            places.append(Path(os.environ["LOCALAPPDATA"], "matplotlib"))
    try:
        return any(place.expanduser().is_dir() for place in places)
    except (OSError, RuntimeError):  # a home that is closed to the user, or none
        return False


def shown_label(label: str) -> str:
    r"""Return a label as it is shown in a picture: one line of about 24 characters at most.

    Line breaks, tabs and control characters become spaces, invisible marks go, half characters
    (lone surrogates) become U+FFFD, and a long label loses its middle. An empty or blank one is
    put in quotes.

    Examples
    --------
    >>> shown_label("late\tdelivery")
    'late delivery'
    >>> shown_label("a complaint about the delivery of an order")
    'a complaint …of an order'
    >>> shown_label("")
    "''"
    """
    text = _LONE_SURROGATES.sub("\ufffd", _SPACES.sub(" ", _INVISIBLE.sub("", label)))
    # Letters with their accents as one character: older matplotlib can't stack the two.
    text = unicodedata.normalize("NFC", text)
    if not text.strip():
        text = f"'{text[: _SHOWN_CHARS - 2]}'"
    if len(text) <= _SHOWN_CHARS:
        return text
    half = _SHOWN_CHARS // 2
    return f"{text[:half]}…{text[-half + 1 :]}"


@dataclass(frozen=True)
class Typeface:
    """Fonts that are used together, and the letters that none of them has.

    Parameters
    ----------
    families : tuple of str
        Names of font families; a letter is drawn from the first that has it.
    absent : frozenset of str, default=frozenset()
        Letters that are in none of them.
    """

    families: tuple[str, ...]
    absent: frozenset[str] = frozenset()

    def drawable(self, text: str) -> str:
        """Return the text with a white square for each absent letter.

        matplotlib would draw a like square, but with a warning for each letter and text.
        """
        if self.absent.isdisjoint(text):
            return text
        return "".join(_NO_GLYPH if char in self.absent else char for char in text)

    def properties(self, size: float | str) -> FontProperties:
        """Return the fonts for matplotlib, in their normal form whatever the caller's style."""
        from matplotlib.font_manager import FontProperties

        return FontProperties(
            family=list(self.families),
            size=size,
            style="normal",
            variant="normal",
            weight="normal",
            stretch="normal",
        )


def find_typeface(texts: Iterable[str]) -> Typeface:
    """Find installed fonts that together have all letters of some texts.

    Letters that no font has are logged, in one warning.

    Parameters
    ----------
    texts : Iterable[str]
        What will be drawn.

    Returns
    -------
    Typeface
        DejaVu Sans, and other families where it lacks letters.

    Notes
    -----
    Looks at well-known families first, then at all others, for about a second at most, and
    stops as soon as all letters are found. Nothing is looked at where DejaVu Sans suffices.
    """
    letters = {char for text in texts for char in text if not char.isascii()}
    families = [_MAIN_FAMILY]
    missing = letters - _letters_of(_MAIN_FAMILY, letters)
    if missing:
        stop = time.monotonic() + _SEARCH_SECONDS
        for family, path in _other_fonts():
            # matplotlib is asked last: it logs where a family has no letters of normal weight.
            if _letters_in(path, missing) and (found := _letters_of(family, missing)):
                families.append(family)
                missing -= found
            if not missing or time.monotonic() > stop:
                break
    if missing:
        few = ", ".join(f"{char} (U+{ord(char):04X})" for char in sorted(missing)[:_SHOWN_LETTERS])
        more = len(missing) - _SHOWN_LETTERS
        logger.warning(
            "The pictures show %s for letters that are in no installed font: %s. "
            "Names with such letters carry their class number, the place in Run.classes. "
            "To see them, install a font such as Noto Sans CJK (Chinese, Japanese, Korean) or "
            "the Noto Sans of their script, and train again.",
            _NO_GLYPH,
            f"{few} and {more:,} more" if more > 0 else few,
        )
    return Typeface(tuple(families), frozenset(missing))


def _letters_of(family: str, letters: set[str]) -> set[str]:
    """Return those of some letters that are in the file that matplotlib takes for a family."""
    from matplotlib.font_manager import fontManager

    properties = Typeface((family,)).properties(10)
    try:
        path = fontManager.findfont(properties, fallback_to_default=False, rebuild_if_missing=False)
    except ValueError:  # removed since it was listed
        return set()
    return _letters_in(path, letters)


def _letters_in(path: str, letters: set[str]) -> set[str]:
    """Return those of some letters that are in a font's file; none if it can't be read."""
    from matplotlib.font_manager import get_font

    try:
        font = get_font(path)
    except (OSError, RuntimeError):  # removed, or broken
        return set()
    return {char for char in letters if font.get_char_index(ord(char))}


def _other_fonts() -> Iterator[tuple[str, str]]:
    """Yield family and file of installed fonts of normal weight, well-known families first."""
    from matplotlib import get_data_path
    from matplotlib.font_manager import fontManager

    # matplotlib's own fonts but DejaVu are for formulas: their codes aren't those of Unicode,
    # or, as in "Last Resort", each letter is a box.
    shipped = get_data_path()
    rank = {family: place for place, family in enumerate(_KNOWN_FAMILIES)}
    fonts = {
        (rank.get(entry.name, len(rank)), entry.name, entry.fname)
        for entry in fontManager.ttflist
        if not entry.fname.startswith(shipped)
        and "lastresort" not in entry.name.lower()
        and (entry.weight in {400, "normal", "regular"} or entry.name in rank)
    }
    for _, family, path in sorted(fonts):
        yield family, path
