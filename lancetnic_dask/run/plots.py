"""Metrics, class counts and confusion -> the pictures of a run folder, under lancetnic's names.

matplotlib is imported when pictures are drawn, not before. Letters, fonts and the sheets that
the pictures are drawn on are in fonts.py.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lancetnic_dask.run.fonts import (
    GAP,
    INK,
    LINE,
    SMALL,
    SMALL_LINE,
    TEXT,
    TOP,
    Letters,
    Sheet,
    find_typeface,
    shown_label,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from lancetnic_dask.training.metrics import ClassCounts

__all__ = ["draw_plots"]

# Up to these, each cell has its count as text, and each class its name.
_COUNTED_CLASSES = 20
_NAMED_CLASSES = 200

_CURVES = {
    # file: title, metric; the loss is a number, all others are shares of 1
    "train_val_loss.png": ("Loss", "loss"),
    "train_val_acc.png": ("Accuracy", "accuracy"),
    "f1_score.png": ("F1-score", "f1"),
    "val_precision.png": ("Precision", "precision"),
    "val_recall.png": ("Recall", "recall"),
}
_BLUE, _ORANGE, _GRID = "#1f77b4", "#d95f02", "#dddddd"
_ROWS = {"train": ("training rows", _BLUE), "val": ("validation rows", _ORANGE)}
_CURVE_WIDTH, _CURVE_HEIGHT = 900, 560  # pixels


class _Scale(NamedTuple):
    """One direction of a picture: where it begins and ends, and its marks."""

    limits: tuple[float, float]
    marks: Sequence[float]
    texts: Sequence[str]


def draw_plots(
    folder: Path,
    *,
    history: Sequence[Mapping[str, float]],
    classes: Sequence[str],
    rows_by_class: Sequence[int],
    best: ClassCounts | None,
    last: ClassCounts | None,
) -> None:
    """Draw a run's pictures into its folder, under lancetnic's names.

    They are ``train_val_loss.png``, ``train_val_acc.png``, ``dataset_counts.png`` and, where rows
    validate, ``f1_score.png``, ``val_precision.png``, ``val_recall.png``,
    ``confusion_matrix_best_model.png`` and ``confusion_matrix_last_model.png``. A picture that
    would be empty is left out: without validation rows the last five are missing, and the
    first two show the training rows alone.

    Parameters
    ----------
    folder : Path
        An existing folder.
    history : sequence of mappings
        Metrics of each epoch, as `history_entry` returns them: shares of 1, NaN for none.
    classes : sequence of str
        Labels in the order of their class numbers; any text, shown literally on one line.
    rows_by_class : sequence of int
        Rows of the corpus that have each class.
    best, last : ClassCounts or None
        Validation rows of the best and of the last epoch; None where no row validates.

    Raises
    ------
    OSError
        If the disk is full or the folder can't be written. Each file is written whole or not
        at all, and those before it stay.

    Notes
    -----
    Up to 200 classes each has its name. With more, the confusion matrix names one in two or
    fewer, and ``dataset_counts.png`` is the sorted curve of the counts. Above 1,000 classes there
    is no matrix, and ``confusion_matrix_*.png`` tells how many classes have which recall.
    """
    rows = np.asarray(rows_by_class, np.int64)
    # A stable sort: classes with as many rows stay in the order of their numbers.
    by_rows = np.argsort(-rows, kind="stable")
    has_matrix = any(counts is not None and counts.confusion is not None for counts in (best, last))
    named = by_rows if has_matrix or len(rows) <= _NAMED_CLASSES else by_rows[[0, -1]]
    shown = {int(number): shown_label(classes[number]) for number in named}
    typeface = find_typeface(shown.values())
    names = {number: typeface.drawable(text) for number, text in shown.items()}
    letters = Letters(typeface)

    for file_name, (title, metric) in _CURVES.items():
        curves = _read_curves(history, metric)
        if curves:
            sheet = Sheet(letters)
            _draw_curves(sheet, title, metric, curves)
            sheet.save(folder / file_name)
    sheet = Sheet(letters)
    draw_rows = _draw_bars if len(rows) <= _NAMED_CLASSES else _draw_sorted_rows
    draw_rows(sheet, names, rows, by_rows)
    sheet.save(folder / "dataset_counts.png")
    for which, counts in (("best", best), ("last", last)):
        if counts is not None and counts.num_rows:
            sheet = Sheet(letters)
            _draw_validation(sheet, names, counts, which)
            sheet.save(folder / f"confusion_matrix_{which}_model.png")


def _read_curves(
    history: Sequence[Mapping[str, float]], metric: str
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return epochs and values of a metric, for training and validation rows if there are any."""
    curves = {}
    for rows in _ROWS:
        there = [
            (entry["epoch"], entry[f"{rows}_{metric}"])
            for entry in history
            if math.isfinite(entry.get(f"{rows}_{metric}", math.nan))
        ]
        if there:
            epochs, values = np.array(there, np.float64).T
            curves[rows] = (epochs, values if metric == "loss" else 100 * values)
    return curves


def _draw_curves(
    sheet: Sheet, title: str, metric: str, curves: Mapping[str, tuple[np.ndarray, np.ndarray]]
) -> None:
    """Draw a metric by epoch."""
    unit, most = ("", math.inf) if metric == "loss" else (" %", 100)
    epochs = np.concatenate([x for x, _ in curves.values()])
    values = np.concatenate([y for _, y in curves.values()])
    limits = _limits(values, least=1 if unit else max(0.02 * float(values.max()), 1e-6))
    heights = [height for height in _round_values(*limits) if 0 <= height <= most]
    places = _round_values(epochs.min(), epochs.max(), is_whole=True)
    average = "" if metric in {"loss", "accuracy"} else ", averaged over classes by their rows"
    axes = _draw_axes(
        sheet,
        (f"{title} by epoch{average}", ""),
        x=_Scale(_limits(epochs, least=1), places, _number_texts(places)),
        y=_Scale(limits, heights, [f"{text}{unit}" for text in _number_texts(heights)]),
        caption="epoch",
    )
    right = _CURVE_WIDTH - 2 * GAP
    for rows, (x, y) in reversed(list(curves.items())):
        name, colour = _ROWS[rows]
        _draw_line(axes, x, y, colour)
        legend = f"● {name}"
        sheet.write(right, _CURVE_HEIGHT - 42, legend, part="end", colour=colour)
        right -= sheet.width_of([legend]) + 2 * GAP


def _draw_sorted_rows(
    sheet: Sheet, names: Mapping[int, str], rows: np.ndarray, by_rows: np.ndarray
) -> None:
    """Draw the rows of classes that are too many to name, as a curve on logarithmic scales."""
    ordered = rows[by_rows]
    ends = [f"{ordered[end]:,} ({names[int(by_rows[end])]})" for end in (0, -1)]
    ordered = ordered[ordered > 0]
    axes = _draw_axes(
        sheet,
        ("Rows by class (log scales)", f"{_rows_summary(rows)}; from {ends[0]} to {ends[1]}"),
        x=_log_scale(len(rows)),
        y=_log_scale(max(ordered, default=1)),
        caption="classes, from the one with the most rows on",
    )
    _draw_line(axes, np.log10(np.arange(1, len(ordered) + 1)), np.log10(ordered), _BLUE)


def _draw_axes(
    sheet: Sheet, titles: tuple[str, str], *, x: _Scale, y: _Scale, caption: str
) -> Axes:
    """Return axes for lines, with their marks and a caption below."""
    left, bottom = sheet.width_of(y.texts) + 2 * GAP, 2 * LINE + 2 * GAP
    width, height = _CURVE_WIDTH - left - 2 * GAP, _CURVE_HEIGHT - bottom - TOP
    sheet.resize(_CURVE_WIDTH, _CURVE_HEIGHT, *titles)
    axes = sheet.axes(left, bottom, width, height)
    axes.set_xlim(*x.limits)
    axes.set_ylim(*y.limits)
    axes.hlines(y.marks, *x.limits, colors=_GRID, linewidth=0.8, zorder=0)
    axes.vlines(x.marks, *y.limits, colors=_GRID, linewidth=0.8, zorder=0)
    for mark, text in zip(y.marks, y.texts, strict=True):
        sheet.write(x.limits[0], mark, text, axes=axes, shift=(-GAP, 0), part="end")
    for mark, text in zip(x.marks, x.texts, strict=True):
        sheet.write(mark, y.limits[0], text, axes=axes, shift=(0, -LINE), part="middle")
    sheet.write(left + width / 2, 1.5 * GAP, caption, part="middle")
    return axes


def _draw_line(axes: Axes, x: np.ndarray, y: np.ndarray, colour: str) -> None:
    """Draw a line, with its points if they are few: a single one has nothing else."""
    axes.plot(x, y, "o-" if len(x) <= 50 else "-", color=colour, linewidth=1.6, markersize=4.5)


def _draw_bars(
    sheet: Sheet, names: Mapping[int, str], rows: np.ndarray, by_rows: np.ndarray
) -> None:
    """Draw the rows of each class as a bar with its name and count, the most first."""
    ordered = rows[by_rows]
    size = TEXT if len(rows) <= _COUNTED_CLASSES else SMALL
    counts = [f"{count:,}" for count in ordered]
    thickness = min(max(360 // len(rows), SMALL_LINE), 90)
    left = sheet.width_of(names.values(), size) + 2 * GAP
    length, height = 560, thickness * len(rows)
    width = left + length + sheet.width_of(counts, size) + 2 * GAP
    sheet.resize(width, height + TOP + GAP, "Rows by class", _rows_summary(rows))
    axes = sheet.axes(left, GAP, length, height)
    axes.barh(range(len(rows)), ordered, height=0.8, color=_BLUE, edgecolor="none", linewidth=0)
    axes.set_xlim(0, max(ordered[0], 1))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    for place, (number, count) in enumerate(zip(by_rows, counts, strict=True)):
        name = names[int(number)]
        sheet.write(0, place, name, axes=axes, shift=(-GAP, 0), part="end", size=size)
        sheet.write(ordered[place], place, count, axes=axes, shift=(GAP / 2, 0), size=size)


def _draw_validation(
    sheet: Sheet, names: Mapping[int, str], counts: ClassCounts, which: str
) -> None:
    """Draw the confusion matrix, or the classes by recall where they are too many for it."""
    title, captions, unit = "Confusion matrix", ("true class", "predicted class"), "rows"
    summary = f"{counts.num_rows:,} validation rows, accuracy {100 * counts.accuracy:.2f} %"
    if counts.confusion is not None:
        table, row_names = counts.confusion, [names[number] for number in range(len(names))]
        column_names = row_names
    else:
        table, row_names, column_names = _recall_table(counts)
        title, unit = "Classes by recall", "classes"
        captions = ("recall of a class", "its validation rows")
        summary += f"; {counts.num_classes:,} classes are too many for a confusion matrix"
    titles = (f"{title}, {which} model", summary)
    _draw_table(
        sheet, table, names=(row_names, column_names), captions=captions, titles=titles, unit=unit
    )


def _recall_table(counts: ClassCounts) -> tuple[np.ndarray, list[str], list[str]]:
    """Count the classes by recall, in tenths, and by validation rows, in doublings.

    Returns the counts, the best recall first, and the names of rows and columns. A class without
    validation rows has no recall and isn't counted.
    """
    is_seen = counts.true_rows > 0
    true, correct = counts.true_rows[is_seen], counts.correct_rows[is_seen]
    # Whole numbers, so that 3 of 10 is exactly 30 %: 0 for none, 1 up to 10 %, 10 below 100 %.
    tenth = np.where(correct == true, 11, -(-10 * correct // true))
    doubling = np.frexp(true.astype(np.float64))[1] - 1
    table = np.zeros((12, int(doubling.max()) + 1), np.int64)
    np.add.at(table, (11 - tenth, doubling), 1)
    recalls = ["100 %", "below 100 %", *(f"up to {part}0 %" for part in range(9, 0, -1)), "0 %"]
    bounds = [(1 << power, (2 << power) - 1) for power in range(table.shape[1])]
    row_counts = [f"{low:,}–{high:,}" if low < high else f"{low}" for low, high in bounds]
    return table, recalls, row_counts


def _draw_table(
    sheet: Sheet,
    table: np.ndarray,
    *,
    names: tuple[Sequence[str], Sequence[str]],
    captions: tuple[str, str],
    titles: tuple[str, str],
    unit: str,
) -> None:
    """Draw counts of shape (rows, columns) as coloured cells, with text where they are few."""
    longest, largest = max(table.shape), int(table.max())
    has_texts = longest <= _COUNTED_CLASSES
    size = TEXT if has_texts else SMALL
    room = sheet.width_of([f"{largest:,}"]) + GAP if has_texts else SMALL_LINE
    cell = max(450 // longest, room) if longest <= _NAMED_CLASSES else max(2000 // longest, 2)
    every = math.ceil(SMALL_LINE / cell)  # a name at each cell would overlap the next
    row_names, column_names = names[0][::every], names[1][::every]
    column_room = sheet.width_of(column_names, size)
    is_upward = column_room + GAP > cell
    height, width = cell * table.shape[0], cell * table.shape[1]
    left = LINE + sheet.width_of(row_names, size) + 3 * GAP
    bottom = LINE + (column_room if is_upward else LINE) + 3 * GAP
    right = left + width
    scale = _log_scale(largest)
    sheet.resize(
        right + 2 * LINE + sheet.width_of(scale.texts) + 5 * GAP, bottom + height + TOP, *titles
    )

    axes = sheet.axes(left, bottom, width, height)
    colours = _shades(table, largest)
    axes.imshow(colours, aspect="auto", interpolation="nearest", origin="upper")
    for row in range(len(row_names)):
        y = bottom + height - cell * (every * row + 0.5)
        sheet.write(left - GAP, y, row_names[row], part="end", size=size)
    for column in range(len(column_names)):
        x, name = left + cell * (every * column + 0.5), column_names[column]
        if is_upward:
            sheet.write(x, bottom - GAP, name, part="end", size=size, is_upward=True)
        else:
            sheet.write(x, bottom - LINE, name, part="middle", size=size)
    if has_texts:
        _write_counts(sheet, axes, table, colours)
    sheet.write(2 * GAP, bottom + height / 2, captions[0], part="middle", is_upward=True)
    sheet.write(left + width / 2, 1.5 * GAP, captions[1], part="middle")
    _draw_scale(sheet, right + 2 * GAP, bottom + height, scale, f"{unit} (log scale), white: none")


def _write_counts(sheet: Sheet, axes: Axes, table: np.ndarray, colours: np.ndarray) -> None:
    """Write each cell's count, light on dark and dark on light."""
    is_dark = colours[..., :3] @ (0.299, 0.587, 0.114) < 140
    for row, column in np.ndindex(*table.shape):
        colour = "white" if is_dark[row, column] else INK
        sheet.write(column, row, f"{table[row, column]:,}", axes=axes, part="middle", colour=colour)


def _draw_scale(sheet: Sheet, left: int, top: int, scale: _Scale, caption: str) -> None:
    """Draw what the colours of a table mean, from 1 up."""
    height = 300
    axes = sheet.axes(left, top - height, LINE, height)
    high = max(scale.marks[-1], 0.1)
    counts = 10 ** np.linspace(0, high, height)
    axes.imshow(_shades(counts[:, None], counts[-1]), aspect="auto", origin="lower")
    for mark, text in zip(scale.marks, scale.texts, strict=True):
        sheet.write(left + LINE + GAP / 2, top - height + height * mark / high, text)
    x = left + LINE + sheet.width_of(scale.texts) + 2 * GAP
    sheet.write(x, top - height / 2, caption, part="middle", is_upward=True)


def _shades(counts: np.ndarray, largest: float) -> np.ndarray:
    """Return a colour for each count: RGBA uint8 (rows, columns, 4), white to blue.

    The logarithm keeps single errors visible beside a full diagonal.
    """
    from matplotlib import colormaps

    shade = np.log1p(counts) / math.log1p(max(largest, 1))
    colours: np.ndarray = colormaps["Blues"](
        np.where(counts > 0, 0.12 + 0.88 * shade, 0), bytes=True
    )
    return colours


def _rows_summary(rows: np.ndarray) -> str:
    """Return how many rows and classes there are."""
    return f"{rows.sum():,} rows, {len(rows):,} classes"


def _limits(values: np.ndarray, *, least: float) -> tuple[float, float]:
    """Return the ends of an axis that shows some values with a margin, and spans something."""
    low, high = float(values.min()), float(values.max())
    margin = max(0.05 * (high - low), (least - (high - low)) / 2)
    return low - margin, high + margin


def _round_values(low: float, high: float, *, is_whole: bool = False) -> list[float]:
    """Return up to nine round numbers between two ends; whole ones if so asked."""
    from matplotlib.ticker import MaxNLocator

    values = MaxNLocator(nbins=8, integer=is_whole, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    return [float(value) for value in values if low <= value <= high]


def _number_texts(values: Sequence[float]) -> list[str]:
    """Return round numbers as texts, all with the same decimals and no more than they need."""
    for decimals in range(7 if max(values, default=0) < 1e9 else 0):
        if np.allclose(values, np.round(values, decimals), rtol=1e-9, atol=1e-9):
            return [f"{value:,.{decimals}f}" for value in values]
    return [f"{value:g}" for value in values]


def _log_scale(largest: int) -> _Scale:
    """Return a scale of the logarithms from 1 to a number."""
    marks = _decades(largest)
    limits = _limits(np.log10([1, marks[-1]]), least=1)
    return _Scale(limits, np.log10(marks).tolist(), [f"{mark:,}" for mark in marks])


def _decades(largest: int) -> list[int]:
    """Return 1, 10, 100 and so on up to a number, and that number."""
    powers = [10**power for power in range(20) if 2 * 10**power <= largest]
    return [*powers, max(largest, 1)]
