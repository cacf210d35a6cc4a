"""Pictures of a run: complete, legible with any number of classes, and without side effects."""

from __future__ import annotations

import errno
import hashlib
import itertools
import logging
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread

from lancetnic_dask.run import plots
from lancetnic_dask.run.fonts import preload_matplotlib, shown_label
from lancetnic_dask.run.plots import draw_plots
from lancetnic_dask.run.text_group import TextGroup
from lancetnic_dask.training.metrics import ClassCounts

if TYPE_CHECKING:
    from collections.abc import Callable

DrawFigures: TypeAlias = "Callable[..., dict[str, Figure]]"

WITHOUT_VALIDATION = {"dataset_counts.png", "train_val_loss.png", "train_val_acc.png"}
MATRIX = "confusion_matrix_best_model.png"
CONFUSION = {MATRIX, "confusion_matrix_last_model.png"}
METRICS = {"f1_score.png", "val_precision.png", "val_recall.png"}
ALL = WITHOUT_VALIDATION | CONFUSION | METRICS


def make_history(num_epochs: int, *, validates: bool = True) -> list[dict[str, float]]:
    """Return metrics that become better."""
    history = []
    for epoch in range(1, num_epochs + 1):
        bad = math.exp(-epoch / 5)
        entry = {"epoch": epoch, "train_loss": bad, "train_accuracy": 1 - bad / 2}
        for name in ("loss", "accuracy", "precision", "recall", "f1"):
            entry[f"val_{name}"] = 0.1 + 0.5 * bad if validates else math.nan
        history.append(entry)
    return history


def make_counts(num_classes: int, num_rows: int = 3000) -> ClassCounts:
    """Return counts of predictions of which nine in ten are right."""
    generator = np.random.default_rng(0)
    target = generator.integers(num_classes, size=num_rows)
    other = generator.integers(num_classes, size=num_rows)
    counts = ClassCounts(num_classes)
    counts.add(target, np.where(generator.random(num_rows) < 0.9, target, other))
    return counts


def make_labels(num_classes: int) -> list[str]:
    """Return labels that are long, Russian and have letters below and above the line."""
    return [f"Ёлки, рыба и другие товары № {number} Щ" for number in range(num_classes)]


def draw(folder: Path, num_classes: int, num_epochs: int = 3, **options: Any) -> dict[str, str]:
    """Draw all pictures and return a hash of each."""
    counts = make_counts(num_classes)
    given = {
        "history": make_history(num_epochs),
        "classes": make_labels(num_classes),
        "rows_by_class": [7 * number + 1 for number in range(num_classes)],
        "best": counts,
        "last": counts,
        "matplotlib_folder": folder / "unused",
    }
    draw_plots(folder, **{**given, **options})
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.fixture
def draw_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DrawFigures:
    """Return a function that draws as `draw` and returns the figures by file name."""
    save, figures = plots._save, {}

    def save_and_keep(figure: Figure, path: Path) -> None:
        save(figure, path)
        figures[path.name] = figure

    def draw_and_keep(num_classes: int, **options: Any) -> dict[str, Figure]:
        draw(tmp_path, num_classes, **options)
        return figures

    monkeypatch.setattr(plots, "_save", save_and_keep)
    return draw_and_keep


def groups_of(figure: Figure, gid: str | None = None) -> list[TextGroup]:
    """Return what is written in a figure, or the names along a side, or those of the cells."""
    found = figure.findobj(TextGroup)
    groups = [one for one in found if isinstance(one, TextGroup) and one.texts]
    return [one for one in groups if gid is None or one.get_gid() == gid]


def texts_of(figure: Figure, gid: str | None = None) -> list[str]:
    """Return what can be read."""
    return [text for group in groups_of(figure, gid) for text in group.texts if text]


def colours_of(figure: Figure, gid: str | None = None) -> list[str]:
    """Return the colour of each text of `texts_of`."""
    return [
        to_hex(colour / 255)
        for group in groups_of(figure, gid)
        for text, colour in zip(group.texts, group.colors, strict=True)
        if text
    ]


def table_of(figure: Figure) -> np.ndarray:
    """Return the counts of a table; those of none are masked."""
    table = figure.axes[0].images[0].get_array()
    assert table is not None
    return table


def check_legible(figure: Figure) -> None:
    """Check that no text of a table or of bars touches another."""
    shown = texts_of(figure)
    boxes = np.concatenate([group.extents() for group in groups_of(figure)])
    left, bottom, right, top = boxes[boxes[:, 0] < boxes[:, 2]].T
    across = np.minimum(right[:, None], right) - np.maximum(left[:, None], left)
    up = np.minimum(top[:, None], top) - np.maximum(bottom[:, None], bottom)
    overlapping = np.argwhere(np.triu((across > 0.5) & (up > 0.5), 1))

    assert len(shown) == len(left) > 4
    assert not [(shown[one], shown[two]) for one, two in overlapping]


@pytest.mark.parametrize("num_classes", [2, 200, 1500])
def test_a_run_has_lancetnics_pictures(tmp_path: Path, num_classes: int) -> None:
    """All eight are there, hold something, and no screen is too small for them."""
    assert set(draw(tmp_path, num_classes)) == ALL

    for path in tmp_path.iterdir():
        height, width, _ = imread(path).shape
        assert 200 <= height <= 3200
        assert 400 <= width <= 3200
        assert imread(path).std() > 0.01


def test_without_validation_only_training_is_drawn(
    tmp_path: Path, draw_figures: DrawFigures
) -> None:
    """No empty picture, and no curve of validation in the others."""
    history = make_history(3, validates=False)

    figures = draw_figures(3, history=history, best=None, last=None)

    assert {path.name for path in tmp_path.iterdir()} == set(figures) == WITHOUT_VALIDATION
    for name in ("train_val_loss.png", "train_val_acc.png"):
        assert "training rows" in texts_of(figures[name])
        assert "validation rows" not in texts_of(figures[name])


def test_counts_without_rows_are_no_picture(tmp_path: Path) -> None:
    """A matrix of nothing but zeros would say that validation failed."""
    files = draw(tmp_path, 3, best=ClassCounts(3), last=ClassCounts(3))

    assert set(files) == ALL - CONFUSION


@pytest.mark.parametrize("num_classes", [2, 20, 21, 200, 201, 1000])
def test_names_are_whole_and_do_not_overlap(num_classes: int, draw_figures: DrawFigures) -> None:
    """The picture grows with names and counts; from 201 classes on some names are left out."""
    labels = [shown_label(label) for label in make_labels(num_classes)]

    figures = draw_figures(num_classes, last=None)

    check_legible(figures[MATRIX])
    for side in ("left", "bottom"):
        names = texts_of(figures[MATRIX], side)
        step = math.ceil(num_classes / len(names))
        assert names == labels[::step]
        assert step == 1 or (num_classes > 200 and len(names) >= 100)
    if num_classes <= 200:
        check_legible(figures["dataset_counts.png"])
        assert texts_of(figures["dataset_counts.png"], "left") == labels[::-1]


def test_cells_have_their_counts_in_legible_colours(draw_figures: DrawFigures) -> None:
    """Light on dark and dark on light; no rows are white, and a single one is not."""
    counts = ClassCounts(2)
    counts.add(np.repeat([0, 0, 1], [40_000, 1, 700]), np.repeat([0, 1, 1], [40_000, 1, 700]))

    figure = draw_figures(2, classes=["a", "b"], best=counts)[MATRIX]

    cells = dict(zip(texts_of(figure, "cells"), colours_of(figure, "cells"), strict=True))
    assert cells == {"40,000": "#ffffff", "700": "#ffffff", "1": "#222222"}
    colours = figure.axes[0].images[0].to_rgba(table_of(figure))
    assert colours[1, 0, 3] == 0
    assert colours[0, 1, 0] < 0.85
    assert {"rows (log scale), white: none", "10,000", "40,000"} <= set(texts_of(figure))
    assert not groups_of(draw_figures(21)[MATRIX], "cells")


def test_counts_on_a_middle_blue_are_white(draw_figures: DrawFigures) -> None:
    """From 0.57 of the way to the darkest on: 10,000 ** 0.57 is 190.5."""
    counts = ClassCounts(2)
    rows = [10_000, 190, 191]
    counts.add(np.repeat([0, 0, 1], rows), np.repeat([0, 1, 1], rows))

    figure = draw_figures(2, classes=["a", "b"], best=counts)[MATRIX]

    cells = dict(zip(texts_of(figure, "cells"), colours_of(figure, "cells"), strict=True))
    assert cells == {"10,000": "#ffffff", "191": "#ffffff", "190": "#222222"}


@pytest.mark.parametrize("num_classes", [2, 201])
def test_the_counts_say_whose_rows_they_are(num_classes: int, draw_figures: DrawFigures) -> None:
    """Those of train_path, where some of them validate as well; as bars and as a curve."""
    rows = [11_787, *[1] * (num_classes - 2), 200]

    figure = draw_figures(num_classes, rows_by_class=rows)["dataset_counts.png"]

    summary = texts_of(figure)[1].split(";")[0]
    assert summary == f"{sum(rows):,} rows of train_path, {num_classes} classes"


def test_too_many_classes_for_a_matrix_are_summed_up_by_recall(draw_figures: DrawFigures) -> None:
    """Each class with validation rows is counted once, and the title says why."""
    counts = ClassCounts(1500)
    # 1 row found; 10 rows, 3 found; 2 rows, none found; 1,000 rows, 999 found.
    target = np.repeat([0, 1, 2, 3], [1, 10, 2, 1000])
    predicted = np.concatenate([[0], [1] * 3, [0] * 7, [0] * 2, [3] * 999, [0]])
    counts.add(target, predicted)

    figure = draw_figures(1500, best=counts)[MATRIX]

    recalls, rows = texts_of(figure, "left"), texts_of(figure, "bottom")
    table = table_of(figure)
    found = {(recalls[row], rows[column]): table[row, column] for row, column in np.argwhere(table)}
    assert found == {
        ("100 %", "1"): 1,
        ("up to 30 %", "8–15"): 1,
        ("0 %", "2–3"): 1,
        ("below 100 %", "512–1,023"): 1,
    }
    check_legible(figure)
    assert texts_of(figure)[1].endswith("1,500 classes are too many for a confusion matrix")


def test_a_hundred_thousand_classes_are_a_curve(
    draw_figures: DrawFigures, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the two labels that are named are looked at."""
    rows = [100_000 // (number + 1) for number in range(100_000)]
    labels = ["first", *("\U0010abcd" for _ in range(99_998)), "last"]

    figures = draw_figures(2, classes=labels, rows_by_class=rows, best=None, last=None)

    figure = figures["dataset_counts.png"]
    assert not caplog.records
    assert texts_of(figure)[1].endswith("; from 100,000 (first) to 1 (last)")
    assert np.asarray(figure.axes[0].lines[0].get_ydata())[:3].tolist() == [100_000, 50_000, 33_333]
    assert texts_of(figure, "bottom")[-2:] == ["10,000", "100,000"]


@pytest.mark.parametrize("num_epochs", [1, 2, 3, 12, 200])
def test_epochs_are_whole_numbers_and_all_values_visible(
    num_epochs: int, draw_figures: DrawFigures, tmp_path: Path
) -> None:
    """There is no epoch 1.5, and none that didn't run; a single epoch is a point, not nothing."""
    figure = draw_figures(2, num_epochs=num_epochs)["train_val_loss.png"]

    marks = texts_of(figure, "bottom")
    assert marks
    assert len(set(marks)) == len(marks)
    assert all(1 <= int(mark) <= num_epochs for mark in marks)
    # Each name stands below its epoch.
    box = groups_of(figure, "bottom")[0].extents()
    middle = [figure.axes[0].transData.transform((int(mark), 0))[0] for mark in marks]
    assert np.allclose((box[:, 0] + box[:, 2]) / 2, middle, atol=1)
    # Below the legend.
    pixels = imread(tmp_path / "train_val_loss.png")[45:, :, :3]
    for colour in ("#1f77b4", "#d95f02"):
        assert np.isclose(pixels, to_rgb(colour), atol=0.01).all(axis=2).sum() > 12


@pytest.mark.parametrize("value", [0.0, 1.0, 1e-7, 1e12, math.inf])
def test_values_that_never_change_are_drawn(value: float, draw_figures: DrawFigures) -> None:
    """A flat curve, also at an end of the scale, has an axis; an infinite loss has no point."""
    same = {"train_loss": value, "val_loss": value, "val_f1": min(value, 1.0)}

    figures = draw_figures(2, history=[{**entry, **same} for entry in make_history(4)])

    assert set(figures) == ALL - ({"train_val_loss.png"} if math.isinf(value) else set())
    for name in set(figures) & {"train_val_loss.png", "f1_score.png"}:
        low, high = figures[name].axes[0].get_ylim()
        assert 0 <= low < high
        values = np.asarray(figures[name].axes[0].lines[0].get_ydata())
        assert low <= values.min() <= values.max() <= high
        assert high <= 100 or name == "train_val_loss.png"


@pytest.mark.parametrize("shares", [(0.9700, 0.9717), (0.0, 0.001), (0.999, 1.0), (0.2, 0.9)])
def test_a_percent_axis_makes_no_cliff_of_noise(
    shares: tuple[float, float], draw_figures: DrawFigures
) -> None:
    """It spans 5 points at least, all of them between 0 and 100; a loss has its own scale."""
    history = make_history(2)
    for entry, share in zip(history, shares, strict=True):
        entry.update(train_accuracy=share, val_accuracy=share, train_loss=share, val_loss=share)

    figures = draw_figures(2, history=history)

    low, high = figures["train_val_acc.png"].axes[0].get_ylim()
    percents = [100 * share for share in shares]
    assert 0 <= low <= percents[0] < percents[1] <= high <= 100
    assert high - low >= 5 - 1e-9
    low, high = figures["train_val_loss.png"].axes[0].get_ylim()
    assert high - low < 1.2 * (shares[1] - shares[0])


@pytest.mark.parametrize(
    "labels",
    [
        ["$x_1$", "a^b_c"],
        ["", "\ud83d"],
        ["one\ntwo\tthree", "\x00"],
        ["שלום עולם", "سلام"],
        ["😀👨‍👩‍👧", "l" * 10_000],
    ],
)
def test_foreign_labels_are_drawn_literally(labels: list[str], draw_figures: DrawFigures) -> None:
    """Whatever a label is, all pictures are there, and none takes it for a formula."""
    figures = draw_figures(2, classes=labels)

    assert set(figures) == ALL
    check_legible(figures[MATRIX])
    for label, text in zip(labels, texts_of(figures[MATRIX], "left"), strict=True):
        # A font may lack other letters.
        assert text == shown_label(label) or not label.isascii()


def test_missing_letters_are_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Eight pictures, two labels, one line; warnings of matplotlib would fail the test."""
    # Private use: no font has these.
    draw(tmp_path, 2, classes=["\U0010abcd", "\U0010abce"])

    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "(U+10ABCD)" in caplog.text
    assert "(U+10ABCE)" in caplog.text


def test_names_that_lost_letters_carry_their_class_number(draw_figures: DrawFigures) -> None:
    """Else two classes would both be called "□□"; names that are whole stay as they are."""
    labels = ["food", "\U0010abcd\U0010abce", "\U0010abcf\U0010abce", "□ box"]

    figures = draw_figures(4, classes=labels)

    expected = ["food", "1: □□", "2: □□", "□ box"]
    assert texts_of(figures[MATRIX], "left") == expected
    assert texts_of(figures[MATRIX], "bottom") == expected
    assert texts_of(figures["dataset_counts.png"], "left")[::-1] == expected


def test_a_folder_that_is_gone_raises_os_error(tmp_path: Path) -> None:
    """The caller decides what a picture is worth."""
    with pytest.raises(FileNotFoundError):
        draw(tmp_path / "gone", 2)

    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_the_old_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error passes out as it is; nothing half written stays."""
    path = tmp_path / "train_val_loss.png"
    path.write_bytes(b"old")

    def save_half(_: Figure, path: Path, **__: Any) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", save_half)

    with pytest.raises(OSError, match="No space left on device"):
        draw(tmp_path, 2)

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_callers_figures_stay_and_no_style_makes_a_picture_unreadable(
    draw_figures: DrawFigures, tmp_path: Path
) -> None:
    """A dark style, or one that needs LaTeX, gives dark texts on white; pyplot isn't touched."""
    style = {"text.usetex": True, "font.family": "serif", "font.weight": "bold"}
    style |= {"figure.autolayout": True, "figure.frameon": False, "savefig.transparent": True}

    with plt.style.context(["dark_background", style]):
        figure = plt.figure()
        before = (mpl.rcParams.copy(), plt.get_backend(), plt.get_fignums(), plt.gcf())
        figures = draw_figures(3)
        after = (mpl.rcParams.copy(), plt.get_backend(), plt.get_fignums(), plt.gcf())
        plt.close(figure)

    assert after == before
    for name, drawn in figures.items():
        pixels = imread(tmp_path / name)
        assert (pixels[[0, -1]] == 1).all()  # white and opaque
        colours = set(colours_of(drawn)) - {"#ffffff"}  # on dark cells, tested above
        assert colours <= {"#222222", "#1f77b4", "#d95f02"}


def test_threads_draw_at_the_same_time(tmp_path: Path) -> None:
    """Four runs in one process don't mix up their pictures."""
    folders = [tmp_path / str(number) for number in range(4)]
    for folder in folders:
        folder.mkdir()
    alone = draw(folders[0], 5)

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(draw, folders, itertools.repeat(5)))

    assert together == [alone] * 4


def test_only_drawing_imports_matplotlib_and_nothing_is_left_at_home(tmp_path: Path) -> None:
    """Who draws nothing doesn't pay; pyplot, settings and home of one who does stay untouched."""
    script = """
import os, pathlib, sys
from lancetnic_dask.run.plots import draw_plots
assert not [name for name in sys.modules if name.startswith("matplotlib")]
history = [{"epoch": 1, "train_loss": 1.0, "train_accuracy": 0.5}]
before = dict(os.environ)
draw_plots(pathlib.Path("run"), history=history, classes=["a", "b"], rows_by_class=[1, 2],
           best=None, last=None, matplotlib_folder=pathlib.Path("cache", "matplotlib").absolute())
assert os.environ == before
assert "matplotlib.pyplot" not in sys.modules
import matplotlib
assert matplotlib.rcParams._get_backend_or_none() is None
assert matplotlib.rcParams.copy() == matplotlib.rcParamsOrig
"""
    home, run = tmp_path / "home", tmp_path / "run"
    home.mkdir()
    run.mkdir()
    places = ("XDG_", "MPL")
    environment = {name: text for name, text in os.environ.items() if not name.startswith(places)}

    environment |= {"HOME": str(home), "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-W", "error", "-c", script]
    subprocess.run(command, check=True, timeout=120, cwd=tmp_path, env=environment)

    assert not list(home.iterdir())
    assert [path.suffix for path in (tmp_path / "cache" / "matplotlib").iterdir()] == [".json"]
    assert len(list(run.iterdir())) == 3


def test_preloading_in_a_thread_leaves_nothing_to_import(tmp_path: Path) -> None:
    """All that drawing imports is there already, from two threads too; no environment changes."""
    script = """
import os, pathlib, sys, threading
from lancetnic_dask.run.fonts import preload_matplotlib
from lancetnic_dask.run.plots import draw_plots
from lancetnic_dask.training.metrics import ClassCounts
folder = pathlib.Path("cache", "matplotlib").absolute()
before = dict(os.environ)
threads = [threading.Thread(target=preload_matplotlib, args=(folder,)) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert os.environ == before
loaded = set(sys.modules)
assert {"matplotlib.figure", "PIL.PngImagePlugin"} <= loaded
assert "matplotlib.pyplot" not in loaded
counts = ClassCounts(2)
counts.true_rows[:] = counts.correct_rows[:] = counts.confusion[:] = 3
history = [{"epoch": 1, "train_loss": 1.0, "train_accuracy": 0.5}]
draw_plots(pathlib.Path("run"), history=history, classes=["a", "b"], rows_by_class=[1, 2],
           best=counts, last=counts, matplotlib_folder=folder)
late = {name.split(".")[0] for name in set(sys.modules) - loaded}
assert not late & {"matplotlib", "PIL", "lancetnic_dask"}, sorted(set(sys.modules) - loaded)
"""
    (tmp_path / "run").mkdir()
    environment = {name: text for name, text in os.environ.items() if not name.startswith("MPL")}
    environment |= {"HOME": str(tmp_path), "PYTHONPATH": str(Path.cwd())}

    subprocess.run(
        [sys.executable, "-c", script], check=True, timeout=120, cwd=tmp_path, env=environment
    )

    assert {path.name for path in tmp_path.iterdir()} == {"cache", "run"}


def test_preloading_a_broken_matplotlib_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A run isn't stopped long before its pictures; drawing them says what is wrong."""
    monkeypatch.setitem(sys.modules, "matplotlib.font_manager", None)
    caplog.set_level(logging.DEBUG, "lancetnic_dask.run.fonts")

    preload_matplotlib(tmp_path)

    assert "could not be imported" in caplog.text
    with pytest.raises(ImportError):
        draw(tmp_path, 2)
