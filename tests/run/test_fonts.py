"""Letters in pictures: any label can be shown, in fonts that have its letters."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder  # type: ignore[import-untyped]
from fontTools.pens.ttGlyphPen import TTGlyphPen  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import font_manager, get_data_path
from matplotlib.image import imread

from lancetnic_dask.run import fonts
from lancetnic_dask.run.fonts import Letters, Sheet, Typeface, find_typeface, shown_label

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEJAVU = Typeface(("DejaVu Sans",))
WATER, FIRE, WOOD = "水火木"  # in no font that matplotlib ships


def write_font(path: Path, letters: str, *, family: str, weight: int = 400) -> None:
    """Write a font of triangles, each letter's higher than the one before."""
    glyphs = {".notdef": TTGlyphPen(None).glyph()}
    for place, letter in enumerate(letters):
        pen = TTGlyphPen(None)
        pen.moveTo((100, 0))
        pen.lineTo((500, 300 + 200 * place))
        pen.lineTo((900, 0))
        pen.closePath()
        glyphs[f"u{ord(letter):04X}"] = pen.glyph()
    font = FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder(list(glyphs))
    font.setupCharacterMap({ord(letter): f"u{ord(letter):04X}" for letter in letters})
    font.setupGlyf(glyphs)
    font.setupHorizontalMetrics(dict.fromkeys(glyphs, (1000, 0)))
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": family, "styleName": "Regular"})
    font.setupOS2(sTypoAscender=800, usWeightClass=weight)
    font.setupPost()
    font.save(path)


@pytest.fixture(autouse=True)
def shipped_fonts() -> Iterator[None]:
    """Let matplotlib know its own fonts only, whatever this machine has."""
    known = list(font_manager.fontManager.ttflist)
    shipped = [entry for entry in known if entry.fname.startswith(get_data_path())]
    set_fonts(shipped)
    yield
    set_fonts(known)


def set_fonts(entries: list[font_manager.FontEntry]) -> None:
    """Set the list of known fonts."""
    manager = font_manager.fontManager
    manager.ttflist[:] = entries
    # findfont() remembers its answers; addfont() makes it forget.
    manager.addfont(next(entry.fname for entry in entries if entry.name == "DejaVu Sans"))
    manager.ttflist[:] = entries


@pytest.fixture
def install(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that makes a font known to matplotlib until the test ends."""

    def install_font(letters: str, *, family: str, weight: int = 400) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))} {family}.ttf"
        write_font(path, letters, family=family, weight=weight)
        font_manager.fontManager.addfont(path)
        return path

    return install_font


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("price in $ and x_1^2", "price in $ and x_1^2"),
        ("two\nlines\ta tab\x00\x85\u2028.", "two lines a tab   ."),
        ("x" * 24, "x" * 24),
        ("a" * 20 + "b" * 20, "a" * 12 + "…" + "b" * 11),
        ("", "''"),
        (" \n", "'  '"),
        ("\u200b\ufeff", "''"),
        ("half \ud83d", "half \ufffd"),
        ("left\u202eright\u200d", "leftright"),
        ("\u0438\u0306", "й"),
    ],
)
def test_a_label_is_one_short_line_of_visible_text(label: str, shown: str) -> None:
    """Line breaks, half characters, marks of direction and length don't spoil a picture."""
    assert shown_label(label) == shown


def test_cyrillic_needs_no_other_font(caplog: pytest.LogCaptureFixture) -> None:
    """DejaVu Sans has the letters of Russian, Greek, Hebrew and Arabic."""
    assert find_typeface(["Ёлка", "λόγος", "שלום", "سلام"]) == DEJAVU
    assert not caplog.records


def test_an_installed_font_draws_the_letters_that_dejavu_lacks(
    install: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    """A Chinese letter is drawn with the glyph of the font that has it, not as a square."""
    install(WATER + FIRE, family="Test Chinese")

    typeface = find_typeface([WATER, f"{FIRE} and water"])

    assert typeface == Typeface(("DejaVu Sans", "Test Chinese"))
    assert not caplog.records
    water, fire, square = (Letters(typeface).draw(text, 30)[0] for text in (WATER, FIRE, "□"))
    # Triangles of 800 units in width, 300 and 500 in height, at 30 points and 100 dpi.
    assert np.allclose([water.shape, fire.shape], [(12.5, 33.3), (20.8, 33.3)], atol=1.5)
    assert water.shape != square.shape
    assert Letters(typeface).draw(f"a{WATER}", 30)[0].shape[1] > 33 + 15


def test_letters_in_no_font_are_warned_of_once(
    install: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    """The letters become squares; one line says which and what to do."""
    install(WATER, family="Test Chinese")

    typeface = find_typeface([WATER + FIRE, WOOD, FIRE])

    assert typeface.drawable(f"{WATER} {FIRE}{WOOD}!") == f"{WATER} □□!"
    (record,) = caplog.records
    assert record.getMessage() == (
        "The pictures show □ for letters that are in no installed font: "
        "木 (U+6728), 火 (U+706B). To see them, install a font such as Noto Sans CJK (Chinese, "
        "Japanese, Korean) or the Noto Sans of their script, and train again."
    )
    assert record.levelno == logging.WARNING


def test_the_warning_names_a_few_letters_only(caplog: pytest.LogCaptureFixture) -> None:
    """A corpus in Chinese doesn't fill the terminal."""
    find_typeface([chr(0x4E00 + place) for place in range(1200)])

    assert "一 (U+4E00)" in caplog.text
    assert "七" not in caplog.text.replace("七 (U+4E03)", "")
    assert "丄 (U+4E04) and 1,195 more. " in caplog.text


def test_well_known_fonts_are_tried_first_and_others_in_order(
    install: Callable[..., Path],
) -> None:
    """Which font draws a letter doesn't depend on the order in which fonts were found."""
    install(WATER + WOOD, family="Zebra")
    install(WATER + FIRE, family="Aardvark")
    install(WATER, family="Noto Sans SC")

    families = find_typeface([WATER + FIRE + WOOD]).families

    assert families == ("DejaVu Sans", "Noto Sans SC", "Aardvark", "Zebra")
    assert find_typeface([WATER]).families == ("DejaVu Sans", "Noto Sans SC")


def test_a_font_of_bold_letters_only_is_left_alone(
    install: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    """For each such font that it is asked for, matplotlib would log a line."""
    install(WATER, family="Test Bold", weight=700)

    assert find_typeface([WATER]).families == ("DejaVu Sans",)
    assert [record.name for record in caplog.records] == ["lancetnic_dask.run.fonts"]


def test_a_font_that_was_removed_or_broken_is_passed_over(install: Callable[..., Path]) -> None:
    """The list of fonts that matplotlib keeps is as old as its cache."""
    install(WATER, family="A Removed").unlink()
    install(WATER, family="B Broken").write_bytes(b"no font")
    whole, removed = (install(WATER, family="C Half Removed") for _ in range(2))
    whole.rename(removed)
    install(WATER, family="D Whole")

    assert find_typeface([WATER]).families == ("DejaVu Sans", "D Whole")


def test_the_search_ends_in_time(
    install: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine with thousands of fonts doesn't delay a run."""
    for family in ("A", "B", "C"):
        install(WATER, family=f"Test {family}")
    monkeypatch.setattr(fonts, "_SEARCH_SECONDS", -1.0)
    looked_at = []
    letters_in = fonts._letters_in

    def watched(path: str, letters: set[str]) -> set[str]:
        looked_at.append(Path(path).stem)
        return letters_in(path, letters)

    monkeypatch.setattr(fonts, "_letters_in", watched)

    find_typeface([FIRE])

    assert looked_at == ["DejaVuSans", "0 Test A"]


@given(st.text(st.characters(exclude_categories=()), max_size=40))
def test_any_label_is_drawn_without_a_warning(label: str) -> None:
    """Emoji, right-to-left, half characters, unassigned codes: none raises or warns."""
    shown = shown_label(label)
    typeface = find_typeface([shown])

    opacity, above = Letters(typeface).draw(typeface.drawable(shown), 9.0)

    assert opacity.dtype == np.uint8
    assert -32 <= above <= 32


def test_dollars_are_letters_and_no_formula() -> None:
    """As a formula, the dollars would vanish and the letter would be slanted."""
    letters = Letters(DEJAVU)
    formula, plain = (letters.draw(text, 20)[0] for text in ("$x_1$", "x_1"))

    assert formula.shape[1] > plain.shape[1] + 20
    # The letters between the dollars are those of the plain text.
    offset = (formula.shape[1] - plain.shape[1]) // 2
    shared = [
        formula[-plain.shape[0] - up or None :][: plain.shape[0], offset + right :]
        for up in range(6)
        for right in range(-3, 4)
    ]
    assert any(
        part.shape[0] == plain.shape[0] and (part[:, : plain.shape[1]] == plain).mean() > 0.95
        for part in shared
    )


def make_sheet() -> Sheet:
    """Return a small sheet with a text in each direction."""
    sheet = Sheet(Letters(DEJAVU))
    sheet.resize(200, 120, "Title", "below")
    sheet.write(100, 20, "——", part="middle", colour="#ff0000")
    sheet.write(190, 10, "UP", is_upward=True)
    return sheet


def test_texts_stand_where_they_were_put() -> None:
    """The part that was asked for is at the place, and pixels show it."""
    sheet = make_sheet()
    red = (sheet.pixels()[..., 0] == 255) & (sheet.pixels()[..., 1] < 99)
    rows, columns = np.nonzero(red)

    assert abs((columns.min() + columns.max()) / 2 - 100) <= 1.5
    assert abs(120 - (rows.min() + rows.max()) / 2 - 20) <= 2.5
    up = sheet.texts[-1]
    assert up.opacity.shape[0] > up.opacity.shape[1]
    assert up.top - up.opacity.shape[0] == 10
    assert abs(up.left + up.opacity.shape[1] / 2 - 190) <= 2.5


@pytest.mark.parametrize(("x", "y"), [(0, 60), (200, 60), (100, 0), (100, 120), (390, 0)])
def test_a_text_that_reaches_out_of_the_sheet_is_cut_off(x: int, y: int) -> None:
    """A glyph of odd size costs its edge, not the run; the rest stays in its place."""
    small, large = Sheet(Letters(DEJAVU)), Sheet(Letters(DEJAVU))
    small.resize(200, 120, "")
    large.resize(600, 360, "")

    small.write(x, y, "Mg", part="middle", size=20)
    large.write(x + 200, y + 120, "Mg", part="middle", size=20)

    assert (small.pixels() == large.pixels()[120:240, 200:400]).all()
    assert (large.pixels() < 255).any()


def test_the_file_holds_the_picture(tmp_path: Path) -> None:
    """Another reader of PNG sees the same pixels."""
    sheet = make_sheet()

    sheet.save(tmp_path / "picture.png")

    assert ((255 * imread(tmp_path / "picture.png")).round() == sheet.pixels()).all()
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]


def test_a_full_disk_leaves_the_old_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error passes out as it is; nothing half written stays."""
    path = tmp_path / "picture.png"
    path.write_bytes(b"old")
    write_bytes = Path.write_bytes

    def write_half(self: Path, data: bytes) -> int:
        write_bytes(self, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write_half)

    with pytest.raises(OSError, match="No space left on device"):
        make_sheet().save(path)

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
