"""Texts and where they stand -> pixels of a picture: many texts as one artist of matplotlib.

A tick with its label takes matplotlib about 6 ms and a `Text` 1.5 ms, and the matrix of 150
classes has 300 names, that of 20 classes 400 counts. Here the Agg renderer of matplotlib draws
each text once, however many places and pictures it stands in, and its pixels are copied there.

This module imports matplotlib: `fonts.load_matplotlib` must have been called before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.colors import to_rgba_array
from matplotlib.transforms import Bbox

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.transforms import Transform

    from lancetnic_dask.run.fonts import Typeface

__all__ = ["Pen", "TextGroup"]

# It has no types.
_new_renderer = cast("Callable[..., Any]", RendererAgg)

# Pixels around a text: antialiased edges of letters may lie outside of its measures.
_MARGIN = 2
# Points between a side of axes, the names along it, and their caption.
_PAD = 7.0


@dataclass(frozen=True)
class _Stamp:
    """A drawn text.

    Parameters
    ----------
    ink : ndarray of shape (height, width), dtype=uint8
        How much of each pixel is covered, the upper row first. The text begins `_MARGIN` pixels
        from the left.
    baseline : int
        Rows above the line that letters stand on.
    width, ascent, descent : float
        Pixels that the text takes: in its direction, above the line, below it.
    """

    ink: np.ndarray
    baseline: int
    width: float
    ascent: float
    descent: float


class Pen:
    """Writes in a typeface, and draws each text once.

    Parameters
    ----------
    typeface : Typeface
        Fonts that have the letters.
    dpi : float
        Pixels an inch.
    colour : str
        Of texts of which nothing else is said.
    size : float
        Points, of texts of which nothing else is said.
    """

    def __init__(self, typeface: Typeface, *, dpi: float, colour: str, size: float) -> None:
        self.dpi = dpi
        self._usual = {"colors": colour, "size": size}
        self._properties = cache(typeface.properties)
        self._measure = _new_renderer(1, 1, dpi)
        self.stamp = cache(self._stamp)

    def write(self, axes: Axes, texts: Sequence[str], **given: Any) -> TextGroup:
        """Write texts on axes, as `TextGroup` tells."""
        group = TextGroup(texts, pen=self, **{**self._usual, **given})
        axes.add_artist(group)
        return group

    def name_side(
        self,
        axes: Axes,
        side: Literal["left", "bottom", "right"],
        places: Any,
        names: Sequence[str],
        *,
        caption: str = "",
        is_upright: bool = False,
        **given: Any,
    ) -> None:
        """Write names along a side of axes, and a caption beyond them.

        Parameters
        ----------
        axes : Axes
            The axes; their limits may still change.
        side : {"left", "bottom", "right"}
            Which side; as the group id of the names, it tells them from other texts.
        places : array_like of shape (num_names,)
            Where on the axis along the side.
        names : sequence of str
            What to write there.
        caption : str, default=""
            What to write in the middle.
        is_upright : bool, default=False
            Whether names at the bottom are read upwards.
        **given
            As `TextGroup` tells, for the names.
        """
        edge = 1.0 if side == "right" else 0.0
        anchor: tuple[float, float]
        along = np.asarray(places, np.float64)
        across = np.full_like(along, edge)
        if side == "bottom":
            where, transform = np.stack([along, across], 1), axes.get_xaxis_transform()
            anchor, away = (1, 0.5) if is_upright else (0.5, 1), np.array([0, -1])
        else:
            where, transform = np.stack([across, along], 1), axes.get_yaxis_transform()
            anchor, away = (1 - edge, 0.5), np.array([2 * edge - 1, 0])
        given |= {"anchor": anchor, "is_upright": is_upright, "offset": _PAD * away}
        group = self.write(axes, names, places=where, transform=transform, **given)
        group.set_gid(side)

        box = group.get_window_extent()
        taken = (box.height if side == "bottom" else box.width) * 72 / self.dpi if names else 0
        self.write(
            axes,
            [caption],
            places=(0.5, 0) if side == "bottom" else (edge, 0.5),
            transform=axes.transAxes,
            anchor=(0.5, 0 if side == "left" else 1),
            offset=(2 * _PAD + taken) * away,
            is_upright=side != "bottom",
        )

    def _stamp(self, text: str, size: float) -> _Stamp:
        """Draw a text of one line, of a size in points; what it says is no formula."""
        font = self._properties(size)
        width, height, descent = self._measure.get_text_width_height_descent(
            text, font, ismath=False
        )
        baseline = _MARGIN + math.ceil(height - descent)
        shape = (math.ceil(width) + 2 * _MARGIN, baseline + math.ceil(descent) + _MARGIN)
        renderer = _new_renderer(*shape, self.dpi)
        if text:
            renderer.draw_text(renderer.new_gc(), _MARGIN, baseline, text, font, 0, ismath=False)
        ink = np.array(renderer.buffer_rgba())[:, :, 3]
        return _Stamp(ink, baseline, width, height - descent, descent)


class TextGroup(Artist):
    """Texts of one size, each of one line.

    Parameters
    ----------
    texts : sequence of str
        What to write.
    places : array_like of shape (num_texts, 2)
        Where, in the coordinates of `transform`.
    transform : Transform
        From these to pixels.
    pen : Pen
        Draws the texts.
    size : float
        Points.
    colors : str or sequence of str
        Of all texts, or of each.
    anchor : tuple of (float, float), default=(0, 0)
        What of a text stands at its place: the share of its width before it, and of the height
        of a letter below it. (0, 0) is the start of its line, (1, 0.5) the middle of its end.
    offset : tuple of (float, float), default=(0, 0)
        Points to the right and up from the places.
    is_upright : bool, default=False
        Whether the texts are read upwards.
    """

    def __init__(
        self,
        texts: Sequence[str],
        places: Any,
        transform: Transform,
        *,
        pen: Pen,
        size: float,
        colors: str | Sequence[str],
        anchor: tuple[float, float] = (0, 0),
        offset: tuple[float, float] = (0, 0),
        is_upright: bool = False,
    ) -> None:
        super().__init__()
        self.texts = list(texts)
        self.colors = np.broadcast_to(
            np.rint(255 * to_rgba_array(colors)).astype(np.uint8)[:, :3], (len(self.texts), 3)
        )
        self._places = np.asarray(places, np.float64).reshape(-1, 2)
        self._pen, self._size, self._anchor, self._offset = pen, size, anchor, offset
        self._is_upright = is_upright
        self.set_transform(transform)
        self.set_clip_on(False)

    def _starts(self) -> np.ndarray:
        """Return where the line of each text starts, float64 (num_texts, 2), in pixels."""
        along, across = self._anchor
        # Of one height for all: the lines of names side by side must not jump with their letters.
        up = across * self._pen.stamp("l", self._size).ascent
        back = along * np.array([stamp.width for stamp in self._stamps()])
        shift = np.stack([up + 0 * back, -back] if self._is_upright else [-back, -up + 0 * back])
        points = np.array(self._offset) * self._pen.dpi / 72
        starts: np.ndarray = self.get_transform().transform(self._places) + points + shift.T
        return starts

    def _stamps(self) -> list[_Stamp]:
        return [self._pen.stamp(text, self._size) for text in self.texts]

    def extents(self) -> np.ndarray:
        """Return left, bottom, right and top of each text, float64 (num_texts, 4), in pixels."""
        sizes = [(one.width, one.ascent, one.descent) for one in self._stamps()]
        width, ascent, descent = np.array(sizes, np.float64).reshape(-1, 3).T
        x, y = self._starts().T
        if self._is_upright:
            return np.stack([x - ascent, y, x + descent, y + width]).T
        return np.stack([x, y - descent, x + width, y + ascent]).T

    def get_window_extent(self, renderer: Any = None) -> Bbox:  # noqa: ARG002  # as in Artist
        """Return the box around all texts, in pixels."""
        extents = self.extents()
        if not len(extents):
            return Bbox.null()
        return Bbox.from_extents(*extents[:, :2].min(axis=0), *extents[:, 2:].max(axis=0))

    def draw(self, renderer: Any) -> None:
        """Copy the texts into a picture, at whole pixels as matplotlib does."""
        if not self.get_visible():
            return
        gc = renderer.new_gc()
        starts = np.rint(self._starts()).astype(np.int64)
        for stamp, colour, (x, y) in zip(self._stamps(), self.colors, starts, strict=True):
            below = stamp.ink.shape[0] - stamp.baseline
            left, bottom, ink = x - _MARGIN, y - below, stamp.ink
            if self._is_upright:
                left, bottom, ink = x - stamp.baseline, y - _MARGIN, np.rot90(ink)
            image = np.empty((*ink.shape, 4), np.uint8)
            image[:, :, :3] = colour
            image[:, :, 3] = ink[::-1]  # an image of matplotlib has its lowest row first
            renderer.draw_image(gc, left, bottom, image)
        gc.restore()
        self.stale = False
