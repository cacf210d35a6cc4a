"""Pictures of a run: complete, legible with any number of classes, and without side effects."""

from __future__ import annotations

import hashlib
import itertools
import logging
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.image import imread

from lancetnic_dask.run import plots
from lancetnic_dask.run.fonts import Letters, PlacedText, Sheet, find_typeface, shown_label
from lancetnic_dask.run.plots import draw_plots
from lancetnic_dask.training.metrics import ClassCounts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WITHOUT_VALIDATION = {"dataset_counts.png", "train_val_loss.png", "train_val_acc.png"}
ALL = WITHOUT_VALIDATION | {
    "confusion_matrix_best_model.png",
    "confusion_matrix_last_model.png",
    "f1_score.png",
    "val_precision.png",
    "val_recall.png",
}
BLUE, ORANGE = (0x1F, 0x77, 0xB4), (0xD9, 0x5F, 0x02)


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
    }
    draw_plots(folder, **{**given, **options})
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def new_sheet(labels: Sequence[str]) -> tuple[Sheet, dict[int, str]]:
    """Return an empty sheet and the names of classes."""
    names = dict(enumerate(map(shown_label, labels)))
    return Sheet(Letters(find_typeface(names.values()))), names


def draw_confusion(counts: ClassCounts, labels: Sequence[str]) -> Sheet:
    """Return the drawn picture of validation."""
    sheet, names = new_sheet(labels)
    plots._draw_validation(sheet, names, counts, "best")
    return sheet


def draw_rows(num_classes: int) -> Sheet:
    """Return the drawn picture of the corpus."""
    sheet, names = new_sheet(make_labels(num_classes))
    rows = np.arange(num_classes, 0, -1) ** 2
    kind = plots._draw_bars if num_classes <= 200 else plots._draw_sorted_rows
    kind(sheet, names, rows, np.arange(num_classes))
    return sheet


def draw_curve(history: list[dict[str, float]], metric: str) -> Sheet:
    """Return the drawn picture of a metric."""
    sheet, _ = new_sheet([])
    plots._draw_curves(sheet, "Title", metric, plots._read_curves(history, metric))
    return sheet


def box(text: PlacedText) -> tuple[int, int, int, int]:
    """Return left, bottom, right and top of a text's ink, in pixels."""
    height, width = text.opacity.shape
    return text.left, text.top - height, text.left + width, text.top


def check_legible(sheet: Sheet) -> None:
    """Check that all texts are inside the picture and none touches another."""
    height, width = sheet.pixels().shape[:2]
    boxes = np.array([box(text) for text in sheet.texts if text.text])
    left, bottom, right, top = boxes.T

    assert left.min() >= 0
    assert bottom.min() >= 0
    assert right.max() <= width
    assert top.max() <= height
    across = np.minimum(right[:, None], right) - np.maximum(left[:, None], left)
    up = np.minimum(top[:, None], top) - np.maximum(bottom[:, None], bottom)
    overlapping = np.argwhere(np.triu((across > 0) & (up > 0), 1))
    assert not [(sheet.texts[one].text, sheet.texts[two].text) for one, two in overlapping]


@pytest.mark.parametrize("num_classes", [2, 20, 21, 150, 201, 1500])
def test_a_run_has_lancetnics_pictures(tmp_path: Path, num_classes: int) -> None:
    """All eight are there, hold something, and no screen is too small for them."""
    assert set(draw(tmp_path, num_classes)) == ALL

    for path in tmp_path.iterdir():
        height, width, _ = imread(path).shape
        assert 200 <= height <= 3200
        assert 400 <= width <= 3200
        assert imread(path).std() > 0.01


def test_without_validation_only_training_is_drawn(tmp_path: Path) -> None:
    """No empty picture, and no curve of validation in the others."""
    history = make_history(3, validates=False)

    assert set(draw(tmp_path, 3, history=history, best=None, last=None)) == WITHOUT_VALIDATION
    for metric in ("loss", "accuracy"):
        sheet = draw_curve(history, metric)
        assert "● training rows" in [text.text for text in sheet.texts]
        assert "● validation rows" not in [text.text for text in sheet.texts]


def test_counts_without_rows_are_no_picture(tmp_path: Path) -> None:
    """A matrix of nothing but zeros would say that validation failed."""
    files = draw(tmp_path, 3, best=ClassCounts(3), last=ClassCounts(3))

    assert set(files) == ALL - {
        "confusion_matrix_best_model.png",
        "confusion_matrix_last_model.png",
    }


@pytest.mark.parametrize("num_classes", [2, 3, 20, 21, 150, 200, 201, 333, 1000])
def test_names_are_whole_and_do_not_overlap(num_classes: int) -> None:
    """The picture grows with names and counts; from 201 classes on some names are left out."""
    labels = make_labels(num_classes)
    matrix = draw_confusion(make_counts(num_classes), labels)
    rows = draw_rows(num_classes)

    check_legible(matrix)
    check_legible(rows)
    written = [text.text for text in matrix.texts]
    if num_classes <= 200:
        assert all(written.count(shown_label(label)) == 2 for label in labels)
        assert {shown_label(label) for label in labels} <= {text.text for text in rows.texts}
    else:
        named = [place for place, label in enumerate(labels) if shown_label(label) in written]
        steps = set(np.diff(named))
        assert len(named) >= 100
        assert named[0] == 0
        assert len(steps) == 1


def test_names_of_rows_stand_at_their_cells() -> None:
    """The middle of a name is that of its row or column, within a pixel or two."""
    counts = make_counts(30, 100_000)
    sheet = draw_confusion(counts, [f"X{number:02d}" for number in range(30)])
    axes = sheet.figure.axes[0]

    for number in range(30):
        row, column = (box(text) for text in sheet.texts if text.text == f"X{number:02d}")
        x, y = axes.transData.transform((number, number))
        assert abs((row[1] + row[3]) / 2 - y) <= 2
        assert abs((column[0] + column[2]) / 2 - x) <= 2


def test_cells_have_their_counts_in_legible_colours() -> None:
    """Up to 20 classes each cell tells its rows, light on dark and dark on light."""
    counts = ClassCounts(2)
    counts.add(np.repeat([0, 0, 1], [40_000, 1, 700]), np.repeat([0, 1, 1], [40_000, 1, 700]))

    sheet = draw_confusion(counts, ["a", "b"])

    cells = {(text.text, text.colour) for text in sheet.texts}
    assert {("40,000", "white"), ("700", "white"), ("1", "#222222"), ("0", "#222222")} <= cells
    twenty_one = draw_confusion(make_counts(21), make_labels(21))
    assert "0" not in [text.text for text in twenty_one.texts]


def test_a_single_error_is_visible_beside_a_million_rows() -> None:
    """The colours are logarithmic, and the scale says so."""
    counts = ClassCounts(30)
    every = np.arange(30)
    counts.add(np.repeat(every, 50_000), np.repeat(every, 50_000))
    counts.add(np.array([3]), np.array([5]))

    sheet = draw_confusion(counts, make_labels(30))

    axes, height = sheet.figure.axes[0], len(sheet.pixels())
    (x, y), (empty_x, empty_y) = axes.transData.transform([(5, 3), (6, 3)]).round().astype(int)
    error, empty = sheet.pixels()[height - y, x], sheet.pixels()[height - empty_y, empty_x]
    assert int(empty[0]) - int(error[0]) > 25
    assert "rows (log scale), white: none" in [text.text for text in sheet.texts]


def test_too_many_classes_for_a_matrix_are_summed_up_by_recall() -> None:
    """Each class with validation rows is counted once, and the title says why."""
    counts = ClassCounts(1500)
    # 1 row found; 10 rows, 3 found; 2 rows, none found; 1,000 rows, 999 found.
    target = np.repeat([0, 1, 2, 3], [1, 10, 2, 1000])
    predicted = np.concatenate([[0], [1] * 3, [0] * 7, [0] * 2, [3] * 999, [0]])
    counts.add(target, predicted)

    table, recalls, rows = plots._recall_table(counts)
    sheet = draw_confusion(counts, make_labels(2))

    found = {
        (recalls[row], rows[column]): int(table[row, column]) for row, column in np.argwhere(table)
    }
    assert found == {
        ("100 %", "1"): 1,
        ("up to 30 %", "8–15"): 1,
        ("0 %", "2–3"): 1,
        ("below 100 %", "512–1,023"): 1,
    }
    check_legible(sheet)
    assert any(
        text.text.endswith("1,500 classes are too many for a confusion matrix")
        for text in sheet.texts
    )


def test_a_hundred_thousand_classes_are_a_curve(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the two labels that are named are looked at."""
    rows = [100_000 // (number + 1) for number in range(100_000)]
    labels = ["first", *("\U0010abcd" for _ in range(99_998)), "last"]

    files = draw(tmp_path, 2, classes=labels, rows_by_class=rows, best=None, last=None)

    assert "dataset_counts.png" in files
    assert not caplog.records
    sheet, names = new_sheet(labels[:1] + labels[-1:])
    by_rows = np.arange(100_000)
    plots._draw_sorted_rows(sheet, {0: names[0], 99_999: names[1]}, np.array(rows), by_rows)
    check_legible(sheet)
    assert any(text.text.endswith("; from 100,000 (first) to 1 (last)") for text in sheet.texts)


@pytest.mark.parametrize("num_epochs", [1, 2, 3, 12, 200])
@pytest.mark.parametrize("metric", ["loss", "accuracy", "f1"])
def test_epochs_are_whole_numbers(num_epochs: int, metric: str) -> None:
    """There is no epoch 1.5, and none that didn't run."""
    sheet = draw_curve(make_history(num_epochs), metric)

    check_legible(sheet)
    axes = sheet.figure.axes[0]
    bottom = axes.get_window_extent().y0
    marks = [text.text for text in sheet.texts if 0 < bottom - text.top < 16]
    assert marks
    assert all(1 <= int(mark) <= num_epochs for mark in marks)


@pytest.mark.parametrize("num_epochs", [1, 3, 200])
def test_every_curve_is_visible(num_epochs: int) -> None:
    """A single epoch is a point, not nothing."""
    sheet = draw_curve(make_history(num_epochs), "loss")

    below_the_legend = sheet.pixels()[70:]
    for colour in (BLUE, ORANGE):
        assert (below_the_legend == colour).all(axis=2).sum() > 12


@pytest.mark.parametrize("value", [0.0, 1.0, 1e-7, 1e12, math.inf])
def test_values_that_never_change_are_drawn(tmp_path: Path, value: float) -> None:
    """A flat curve, also at an end of the scale, has an axis; an infinite loss has no point."""
    same = {"train_loss": value, "val_loss": value, "val_f1": min(value, 1.0)}
    history = [{**entry, **same} for entry in make_history(4)]

    files = draw(tmp_path, 2, history=history)

    assert set(files) == ALL - ({"train_val_loss.png"} if math.isinf(value) else set())
    for metric in ("f1",) if math.isinf(value) else ("f1", "loss"):
        check_legible(draw_curve(history, metric))


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
def test_foreign_labels_are_drawn_literally(tmp_path: Path, labels: list[str]) -> None:
    """Whatever a label is, all pictures are there and whole."""
    assert set(draw(tmp_path, 2, classes=labels)) == ALL
    check_legible(draw_confusion(make_counts(2), labels))


def test_missing_letters_are_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Eight pictures, two labels, one line; warnings of matplotlib would fail the test."""
    # Private use: no font has these.
    draw(tmp_path, 2, classes=["\U0010abcd", "\U0010abce"])

    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "U+10ABCD, U+10ABCE" in caplog.text


def test_a_folder_that_is_gone_raises_os_error(tmp_path: Path) -> None:
    """The caller decides what a picture is worth."""
    with pytest.raises(FileNotFoundError):
        draw(tmp_path / "gone", 2)

    assert not list(tmp_path.iterdir())


def test_the_callers_figures_and_style_stay_and_are_not_used(tmp_path: Path) -> None:
    """A picture looks the same under any style, and pyplot doesn't know of it."""
    for name in ("plain", "styled"):
        (tmp_path / name).mkdir()
    plain = draw(tmp_path / "plain", 3)
    style = {
        "text.usetex": True,
        "font.family": "serif",
        "font.size": 30,
        "font.weight": "bold",
        "figure.autolayout": True,
        "figure.dpi": 300,
        "figure.frameon": False,
        "axes.grid": True,
        "lines.linewidth": 9,
        "image.origin": "lower",
        "savefig.facecolor": "black",
    }

    with plt.style.context(["dark_background", style]):
        figure = plt.figure()
        before = (mpl.rcParams.copy(), plt.get_backend(), plt.get_fignums(), plt.gcf())
        styled = draw(tmp_path / "styled", 3)
        after = (mpl.rcParams.copy(), plt.get_backend(), plt.get_fignums(), plt.gcf())
        plt.close(figure)

    assert styled == plain
    assert after == before


def test_threads_draw_at_the_same_time(tmp_path: Path) -> None:
    """Four runs in one process don't mix up their pictures."""
    folders = [tmp_path / str(number) for number in range(4)]
    for folder in folders:
        folder.mkdir()
    alone = draw(folders[0], 15)

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(draw, folders, itertools.repeat(15)))

    assert together == [alone] * 4


def test_only_drawing_imports_matplotlib_and_never_pyplot() -> None:
    """A process that draws nothing doesn't pay; one that does keeps its backend unset."""
    script = """
import sys, tempfile, pathlib
from lancetnic_dask.run.plots import draw_plots
assert not [name for name in sys.modules if name.startswith("matplotlib")]
history = [{"epoch": 1, "train_loss": 1.0, "train_accuracy": 0.5}]
with tempfile.TemporaryDirectory() as folder:
    draw_plots(pathlib.Path(folder), history=history, classes=["a", "b"], rows_by_class=[1, 2],
               best=None, last=None)
assert "matplotlib.pyplot" not in sys.modules
import matplotlib
assert matplotlib.rcParams._get_backend_or_none() is None
assert matplotlib.rcParams.copy() == matplotlib.rcParamsOrig
"""
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=120)
