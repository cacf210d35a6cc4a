"""Letters in pictures: any label can be shown, in fonts that have its letters."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fontTools.fontBuilder import FontBuilder  # type: ignore[import-untyped]
from fontTools.ttLib.tables._g_l_y_f import Glyph  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import font_manager, get_data_path
from matplotlib.figure import Figure

from lancetnic_dask.run import fonts
from lancetnic_dask.run.fonts import Typeface, find_typeface, shown_label

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEJAVU = Typeface(("DejaVu Sans",))
WATER, FIRE, WOOD = "水火木"  # in no font that matplotlib ships


def write_font(path: Path, letters: str, *, family: str, weight: int) -> None:
    """Write a font that has some letters, all of them blank."""
    font = FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder([".notdef", "blank"])
    font.setupCharacterMap(dict.fromkeys(map(ord, letters), "blank"))
    font.setupGlyf({".notdef": Glyph(), "blank": Glyph()})
    font.setupHorizontalMetrics({".notdef": (1000, 0), "blank": (1000, 0)})
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
        "木 (U+6728), 火 (U+706B). Names with such letters carry their class number, the place in "
        "Run.classes. To see them, install a font such as Noto Sans CJK (Chinese, Japanese, "
        "Korean) or the Noto Sans of their script, and train again."
    )
    assert record.levelno == logging.WARNING


def test_the_warning_names_a_few_letters_only(caplog: pytest.LogCaptureFixture) -> None:
    """A corpus in Chinese doesn't fill the terminal."""
    find_typeface([chr(0x4E00 + place) for place in range(1200)])

    assert "丄 (U+4E04) and 1,195 more. " in caplog.text
    assert len(caplog.text) < 500


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
    install(WATER, family="Test A")
    install(FIRE, family="Test B")
    monkeypatch.setattr(fonts, "_SEARCH_SECONDS", -1.0)

    assert find_typeface([WATER + FIRE]) == Typeface(("DejaVu Sans", "Test A"), frozenset(FIRE))


@given(st.text(st.characters(exclude_categories=()), max_size=40))
def test_any_label_is_drawn_without_a_warning(label: str) -> None:
    """Emoji, right-to-left, half characters, unassigned codes: none raises or warns."""
    shown = shown_label(label)
    typeface = find_typeface([shown])
    figure = Figure((2, 1))
    properties = typeface.properties(9)

    figure.text(0, 0, typeface.drawable(shown), fontproperties=properties, parse_math=False)

    figure.savefig(io.BytesIO())


@pytest.mark.parametrize(
    ("variables", "existing", "before", "expected"),
    [
        ({"XDG_CONFIG_HOME": "xdg"}, "home/.config/matplotlib", "", "given"),
        ({}, "home/.config/matplotlib", "", "home/.config/matplotlib"),
        (
            {"XDG_CONFIG_HOME": "xdg", "XDG_CACHE_HOME": "xdg"},
            "xdg/matplotlib",
            "",
            "xdg/matplotlib",
        ),
        ({"MPLCONFIGDIR": "own"}, "home", "", "own"),
        ({}, "home", "import matplotlib", "home/.config/matplotlib"),
    ],
)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the folders of Linux")
def test_matplotlib_keeps_its_files_with_us_or_where_its_user_has_them(
    variables: dict[str, str], existing: str, before: str, expected: str, tmp_path: Path
) -> None:
    """Nothing new appears in a home; settings that a user has go on being read."""
    script = f"""
import os
from pathlib import Path
from lancetnic_dask.run.fonts import load_matplotlib
{before}
environment = dict(os.environ)
load_matplotlib(Path("given").absolute())
assert os.environ == environment
import matplotlib
print(matplotlib.get_configdir(), end="")
"""
    (tmp_path / existing).mkdir(parents=True)
    kept = {name: text for name, text in os.environ.items() if name[:4] not in {"XDG_", "MPLC"}}
    given = {name: str(tmp_path / place) for name, place in variables.items()}
    environment = {**kept, "HOME": str(tmp_path / "home"), "PYTHONPATH": str(Path.cwd()), **given}

    command = [sys.executable, "-c", script]
    told = subprocess.check_output(command, timeout=120, cwd=tmp_path, env=environment, text=True)

    assert told == str(tmp_path / expected)
    assert expected.startswith("home") or not list(tmp_path.glob("home/*/matplotlib/*"))
