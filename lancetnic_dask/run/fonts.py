"""Labels -> letters on a white sheet: text that can be drawn, fonts that have it, a figure.

What is drawn on the sheets is in plots.py. matplotlib is imported when a sheet is made, not
before, and pyplot never is. No setting of matplotlib is changed: a caller's figures and style
stay as they are, and threads can draw at the same time.
"""

from __future__ import annotations

import logging
import re
import struct
import time
import unicodedata
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.font_manager import FontProperties

__all__ = ["Letters", "Sheet", "Typeface", "find_typeface", "shown_label"]

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

_DPI = 100  # a point is 1.39 pixels

# Sizes of text in points; a line of the small one takes SMALL_LINE pixels.
TITLE, TEXT, SMALL = 11.0, 9.0, 7.0

# Pixels: a line of either size, what lies between two things, the titles above a picture.
LINE, SMALL_LINE, GAP, TOP = 16, 13, 10, 62

INK = "#222222"

_LONGEST_TEXT = 1600  # pixels
_CAPITAL_HEIGHT = 0.73  # of a font's size

_SPACES = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
# Joiners, marks of direction, variation selectors and tags: no letters, and few fonts have them.
_INVISIBLE = re.compile(
    "[\xad\u034f\u061c\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\ufe00-\ufe0f\ufeff\ufff0-\ufffb\U000e0000-\U000e0fff]"
)


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

    def properties(self, size: float) -> FontProperties:
        """Return the fonts for matplotlib, at a size in points, whatever the caller's style."""
        from matplotlib.font_manager import FontProperties

        return FontProperties(
            family=list(self.families),
            style="normal",
            variant="normal",
            weight="normal",
            stretch="normal",
            size=size,
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
        logger.warning(
            "The pictures show %s for letters that are in no installed font: %s. "
            "To see them, install a font such as Noto Sans CJK (Chinese, Japanese, Korean) or "
            "the Noto Sans of their script, and train again.",
            _NO_GLYPH,
            _listed(missing),
        )
    return Typeface(tuple(families), frozenset(missing))


class Letters:
    """Texts in a typeface, as small images; each is drawn once, however often it is used.

    They are drawn literally: ``$``, ``_`` and ``^`` are no formulas. matplotlib 3.11 takes 1 to
    3 ms for a label, and a class's name stands five times in the pictures of a run.
    """

    def __init__(self, typeface: Typeface) -> None:
        from matplotlib.backends.backend_agg import RendererAgg

        self._typeface = typeface
        new_renderer: Any = RendererAgg
        self._renderer = new_renderer(_LONGEST_TEXT, 4 * LINE, _DPI)
        self._drawn: dict[tuple[str, float], tuple[np.ndarray, int]] = {}

    def draw(self, text: str, size: float) -> tuple[np.ndarray, int]:
        """Return the opacity of a line of text, and its rows above the middle of a capital.

        Opacity is uint8 (height, width) and ends where the ink does; `size` is in points. A text
        of more than 1,600 pixels loses its end.
        """
        known = self._drawn.get((text, size))
        if known is not None:
            return known
        self._renderer.clear()
        # Room at the start: some letters reach to the left of where they begin.
        left, middle = LINE, 2 * LINE
        baseline = middle + round(_CAPITAL_HEIGHT * size * _DPI / 72 / 2)
        fonts, gc = self._typeface.properties(size), self._renderer.new_gc()
        self._renderer.draw_text(gc, left, baseline, text, fonts, 0, ismath=False)
        opacity = np.asarray(self._renderer.buffer_rgba())[..., 3]
        rows, columns = np.flatnonzero(opacity.any(axis=1)), np.flatnonzero(opacity.any(axis=0))
        drawn = np.zeros((0, 0), np.uint8), 0
        if len(rows):
            inked = opacity[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
            drawn = inked.copy(), middle - int(rows[0])
        self._drawn[text, size] = drawn
        return drawn


class PlacedText(NamedTuple):
    """A text on a sheet: `left` and `top` in pixels from the sheet's lower left corner."""

    text: str
    left: int
    top: int
    opacity: np.ndarray
    colour: str


class Sheet:
    """A white picture, measured in pixels from its lower left corner, with texts in `letters`.

    Its axes have no ticks of matplotlib's own: these follow the caller's style, and they are
    the slowest part of a picture.
    """

    def __init__(self, letters: Letters) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self.texts: list[PlacedText] = []
        self.figure = Figure(figsize=(1, 1), dpi=_DPI, facecolor="white", frameon=True)
        self.figure.set_layout_engine("none")
        self._canvas: Any = FigureCanvasAgg(self.figure)
        self._letters = letters

    def width_of(self, texts: Iterable[str], size: float = TEXT) -> int:
        """Return the width of the longest text, in pixels."""
        return max((self._letters.draw(text, size)[0].shape[1] for text in texts), default=0)

    def resize(self, width: int, height: int, title: str, subtitle: str = "") -> None:
        """Set the size, at least as wide as the titles, and write these at the top."""
        titles = max(self.width_of([title], TITLE), self.width_of([subtitle]))
        self.figure.set_size_inches(max(width, titles + 2 * GAP) / _DPI, height / _DPI)
        self.write(GAP, height - 20, title, size=TITLE)
        self.write(GAP, height - 42, subtitle)

    def axes(self, left: int, bottom: int, width: int, height: int) -> Axes:
        """Return bare axes at a place."""
        across, up = self.figure.get_size_inches() * _DPI
        axes = self.figure.add_axes((left / across, bottom / up, width / across, height / up))
        axes.set_axis_off()
        return axes

    def write(
        self,
        x: float,
        y: float,
        text: str,
        *,
        axes: Axes | None = None,
        shift: tuple[float, float] = (0, 0),
        part: Literal["start", "middle", "end"] = "start",
        size: float = TEXT,
        colour: str = INK,
        is_upward: bool = False,
    ) -> None:
        """Write a text so that its start, middle or end is at a place; across, its middle.

        `x` and `y` are pixels, or values of `axes`, whose limits are set; `shift` is in pixels,
        `size` in points. Upward is from the bottom up.
        """
        opacity, above = self._letters.draw(text, size)
        if is_upward:
            opacity = np.rot90(opacity)
        length = opacity.shape[0 if is_upward else 1]
        before = round(length * {"start": 0.0, "middle": 0.5, "end": 1.0}[part])
        x, y = (x, y) if axes is None else axes.transData.transform((x, y))
        x, y = round(x + shift[0]), round(y + shift[1])
        left, top = (x - above, y + length - before) if is_upward else (x - before, y + above)
        self.texts.append(PlacedText(text, left, top, opacity, colour))

    def save(self, path: Path) -> None:
        """Write the picture as PNG, whole or not at all.

        Raises
        ------
        OSError
            If the disk is full or the folder can't be written.
        """
        image = _png(self.pixels())
        partial = path.with_name(f"{path.name}.partial")
        try:
            partial.write_bytes(image)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    def pixels(self) -> np.ndarray:
        """Return the picture, uint8 (height, width, 3) from the top; what reaches out is cut."""
        from matplotlib.colors import to_rgb

        self._canvas.draw()
        pixels = np.asarray(self._canvas.buffer_rgba())[..., :3].copy()
        for _, left, top, opacity, colour in self.texts:
            row = len(pixels) - top
            under = pixels[max(row, 0) :, max(left, 0) :]
            share = opacity[max(-row, 0) :, max(-left, 0) :][: under.shape[0], : under.shape[1]]
            under = under[: share.shape[0], : share.shape[1]]
            ink = 255 * np.array(to_rgb(colour))
            under[:] = np.rint(under + (ink - under) * (share[..., None] / 255))
        return pixels


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


def _listed(letters: set[str]) -> str:
    """Return a few letters with their codes, and how many more there are."""
    shown = ", ".join(
        f"{char} (U+{ord(char):04X})" if char.isprintable() else f"U+{ord(char):04X}"
        for char in sorted(letters)[:_SHOWN_LETTERS]
    )
    more = len(letters) - _SHOWN_LETTERS
    return f"{shown} and {more:,} more" if more > 0 else shown


def _png(pixels: np.ndarray) -> bytes:
    """Return a PNG file of pixels, uint8 (height, width, 3).

    Five times faster than matplotlib's way (28 against 140 ms for 2,200 x 2,200 pixels), which
    adds opacity and tries filters meant for photographs; the file is as small.
    """
    height, width, _ = pixels.shape
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # each with its filter before it: 0, none
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits of red, green, blue
    size = struct.pack(">IIB", *2 * (round(_DPI / 0.0254),), 1)  # pixels per metre
    parts = (
        (b"IHDR", header),
        (b"pHYs", size),
        (b"IDAT", zlib.compress(rows.tobytes(), 1)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(part)) + name + part + struct.pack(">I", zlib.crc32(name + part))
        for name, part in parts
    )
