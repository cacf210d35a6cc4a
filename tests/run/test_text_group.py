"""Texts as one artist: the pixels of matplotlib's own texts, at their places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import IdentityTransform

from lancetnic_dask.run.fonts import Typeface
from lancetnic_dask.run.text_group import Pen, TextGroup

TYPEFACE = Typeface(("DejaVu Sans",))
TEXTS = ["Ёлки 1,234", "gjpqy", "l", "$x_1$"]
PLACES = [(20, 30), (120, 30), (20, 70), (120, 100)]
WIDTH, HEIGHT = 200, 150


def make_group(**options: Any) -> TextGroup:
    """Return the texts, placed in pixels."""
    pen = Pen(TYPEFACE, dpi=100, colour="#222222", size=9)
    given = {"texts": TEXTS, "places": PLACES, "size": 9, "colors": "#222222", **options}
    return TextGroup(given.pop("texts"), given.pop("places"), IdentityTransform(), pen=pen, **given)


def make_texts(**options: Any) -> list[Text]:
    """Return matplotlib's texts, at the same places."""
    font = TYPEFACE.properties(9)
    return [
        Text(x, y, text, fontproperties=font, color="#222222", parse_math=False, **options)
        for text, (x, y) in zip(TEXTS, PLACES, strict=True)
    ]


def render(*artists: Any) -> np.ndarray:
    """Return artists as pixels, uint8 (height, width, 4)."""
    figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100)
    canvas: Any = FigureCanvasAgg(figure)
    for artist in artists:
        figure.add_artist(artist)
        artist.set_transform(IdentityTransform())
    canvas.draw()
    return np.array(canvas.buffer_rgba())


@pytest.mark.parametrize("is_upright", [False, True])
def test_the_pixels_are_those_of_matplotlib(*, is_upright: bool) -> None:
    """A line begins at its place, whatever letters it has, and no text is a formula."""
    ours = render(make_group(is_upright=is_upright))
    theirs = render(
        *make_texts(va="baseline", rotation=90 * is_upright, rotation_mode="anchor"),
    )

    # Some versions hint letters that are read upwards in another way.
    off = np.abs(ours.astype(int) - theirs).mean()
    assert off == 0 if not is_upright else off < 0.5
    assert np.abs(theirs.astype(int) - 255).mean() > 2


@pytest.mark.parametrize("is_upright", [False, True])
@pytest.mark.parametrize("anchor", [(0, 0), (0.5, 0.5), (1, 1)])
def test_extents_hold_all_ink(anchor: tuple[float, float], *, is_upright: bool) -> None:
    """What takes room says so: nothing of a text is outside of its box by over a pixel."""
    for text in TEXTS:
        group = make_group(texts=[text], places=(100, 75), anchor=anchor, is_upright=is_upright)
        rows, columns = np.nonzero(render(group)[:, :, :3].min(axis=2) < 250)

        left, bottom, right, top = group.extents()[0]
        assert left - 1.5 <= columns.min() <= columns.max() <= right + 1.5
        assert bottom - 1.5 <= HEIGHT - 1 - rows.max() <= HEIGHT - 1 - rows.min() <= top + 1.5


def test_anchors_and_offsets_move_texts() -> None:
    """In shares of the text's own width and of the height of a letter, and in points."""
    start = make_group().extents()
    end = make_group(anchor=(1, 0)).extents()
    above = make_group(offset=(72, -36)).extents()
    upright = make_group(is_upright=True, anchor=(1, 0)).extents()

    assert np.allclose(end[:, 2], start[:, 0])
    assert np.allclose(above - start, [100, -50, 100, -50])
    assert np.allclose(upright[:, 3], [y for _, y in PLACES])
    assert np.allclose(upright[:, 3] - upright[:, 1], start[:, 2] - start[:, 0])
    middle = make_group(texts=["l"], places=(100, 75), anchor=(0.5, 0.5)).extents()[0]
    assert middle[[0, 2]].mean() == pytest.approx(100)


def test_each_text_has_its_colour() -> None:
    """The same letters in two colours share no pixels."""
    places = [(20, 30), (20, 70)]
    group = make_group(texts=["l", "l"], places=places, colors=["#ff0000", "#0000ff"])

    pixels = render(group)[:, :, :3]
    upper, lower = pixels[:95], pixels[95:]
    assert (upper[..., 2] == 255).all()
    assert upper[..., 0].min() < 100
    assert (lower[..., 0] == 255).all()
    assert lower[..., 2].min() < 100


def test_no_texts_and_empty_ones_take_no_room() -> None:
    """A side without names, and a picture without a second title."""
    assert make_group(texts=[], places=[]).get_window_extent().width <= 0
    assert make_group(texts=[""], places=(5, 5)).extents()[0, [0, 2]].tolist() == [5, 5]
    assert (
        render(make_group(texts=[""], places=(5, 5)), make_group(texts=[], places=[])) == 255
    ).all()
