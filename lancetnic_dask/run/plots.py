"""Metrics, class counts and confusion -> the pictures of a run folder, under lancetnic's names.

matplotlib is imported when pictures are drawn, not before, and pyplot never is. No setting of
matplotlib is changed: a caller's figures and style stay as they are, and threads can draw at the
same time. Which fonts the labels need is found in fonts.py. Axes have no ticks, of which matplotlib
makes and measures each: their names are texts of text_group.py, which a matrix has hundreds of.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lancetnic_dask.run.fonts import find_typeface, load_matplotlib, shown_label

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

    from lancetnic_dask.run.fonts import Typeface
    from lancetnic_dask.run.text_group import Pen
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
_INK, _BLUE, _ORANGE, _GRID = "#222222", "#1f77b4", "#d95f02", "#dddddd"
_ROWS = {"train": ("training rows", _BLUE), "val": ("validation rows", _ORANGE)}

# Percent points that an axis spans at least: the noise of a good model is no cliff.
_PERCENT_SPAN = 5

_DPI = 100
_SIZE, _TITLE_SIZE, _SMALL = 9.0, 11.0, 7.0  # points
# Inches: axes of curves, a line of small text, a digit and a wide letter of larger text.
_CURVE_SIZE, _SMALL_LINE, _DIGIT, _LETTER = (8.5, 4.5), 0.13, 0.08, 0.125


def draw_plots(
    folder: Path,
    *,
    history: Sequence[Mapping[str, float]],
    classes: Sequence[str],
    rows_by_class: Sequence[int],
    best: ClassCounts | None,
    last: ClassCounts | None,
    matplotlib_folder: Path,
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
        Rows of ``train_path`` that have each class, also where some of them validate.
    best, last : ClassCounts or None
        Validation rows of the best and of the last epoch; None where no row validates.
    matplotlib_folder : Path
        Where matplotlib keeps its list of fonts, if it has no place of its own.

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

    A name with letters that no installed font has carries its class number, as in "3: □□": its
    place in ``Run.classes``, from 0 on.
    """
    load_matplotlib(matplotlib_folder)
    from lancetnic_dask.run.text_group import Pen

    rows = np.asarray(rows_by_class, np.int64)
    # A stable sort: classes with as many rows stay in the order of their numbers.
    by_rows = np.argsort(-rows, kind="stable")
    has_matrix = any(counts is not None and counts.confusion is not None for counts in (best, last))
    named = by_rows if has_matrix or len(rows) <= _NAMED_CLASSES else by_rows[[0, -1]]
    shown = {int(number): shown_label(classes[number]) for number in named}
    typeface = find_typeface(shown.values())
    names = {number: _class_name(number, text, typeface) for number, text in shown.items()}

    pen = Pen(typeface, dpi=_DPI, colour=_INK, size=_SIZE)
    for file_name, (title, metric) in _CURVES.items():
        curves = _read_curves(history, metric)
        if curves:
            _save(_draw_curves(pen, title, metric, curves), folder / file_name)
    draw_rows = _draw_bars if len(rows) <= _NAMED_CLASSES else _draw_sorted_rows
    _save(draw_rows(pen, names, rows, by_rows), folder / "dataset_counts.png")
    for which, counts in (("best", best), ("last", last)):
        if counts is not None and counts.num_rows:
            figure = _draw_validation(pen, names, counts, which)
            _save(figure, folder / f"confusion_matrix_{which}_model.png")


def _class_name(number: int, text: str, typeface: Typeface) -> str:
    """Return a name that can be drawn; one that lost letters could be another's, too."""
    drawable = typeface.drawable(text)
    return text if drawable == text else f"{number}: {drawable}"


def _new_axes(
    pen: Pen, size: tuple[float, float], title: str, subtitle: str = ""
) -> tuple[Figure, Axes]:
    """Return a figure and its axes, of a width and height in inches, with titles above them.

    Nothing else has a place in the figure; `_save` adds what stands around the axes.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # What a caller's dark or crowded style would spoil is set, here and below.
    figure = Figure(figsize=size, dpi=_DPI, frameon=True)
    figure.set_layout_engine("none")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    above = {"places": [(0, 1)], "transform": axes.transAxes}
    pen.write(axes, [title], **above, offset=(0, 30 if subtitle else 12), size=_TITLE_SIZE)
    pen.write(axes, [subtitle], **above, offset=(0, 12))
    return figure, axes


def _save(figure: Figure, path: Path) -> None:
    """Write a picture as PNG, whole or not at all."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        figure.savefig(
            partial,
            format="png",
            dpi=_DPI,
            facecolor="white",
            # "tight" would lay out all texts once more.
            bbox_inches=figure.get_tightbbox().padded(0.1),
            pil_kwargs={"compress_level": 1},
        )
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


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
    pen: Pen, title: str, metric: str, curves: Mapping[str, tuple[np.ndarray, np.ndarray]]
) -> Figure:
    """Draw a metric by epoch."""
    from matplotlib.ticker import MaxNLocator

    unit, most = ("", math.inf) if metric == "loss" else (" %", 100)
    average = "" if metric in {"loss", "accuracy"} else ", averaged over classes by their rows"
    figure, axes = _new_axes(pen, _CURVE_SIZE, f"{title} by epoch{average}")
    for rows, (x, y) in curves.items():
        _draw_line(axes, x, y, colour=_ROWS[rows][1])
    epochs = np.concatenate([x for x, _ in curves.values()])
    axes.set_xlim(epochs.min() - 0.5, epochs.max() + 0.5)
    low, high = axes.get_ylim()
    low, high = max(low, 0), min(high, most)
    if unit and high - low < _PERCENT_SPAN:
        low = min(max((low + high - _PERCENT_SPAN) / 2, 0), most - _PERCENT_SPAN)
        high = low + _PERCENT_SPAN
    axes.set_ylim(low, high)
    epoch_ticks = MaxNLocator(8, integer=True, min_n_ticks=1).tick_values(*axes.get_xlim())
    value_ticks = MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    names = [f"{tick:.10g}{unit}" for tick in value_ticks]
    _draw_grid(pen, axes, "left", value_ticks, names)
    names = [f"{tick:.0f}" for tick in epoch_ticks]
    _draw_grid(pen, axes, "bottom", epoch_ticks, names, caption="epoch")
    _draw_legend(pen, axes, [_ROWS[rows] for rows in curves])
    return figure


def _draw_legend(pen: Pen, axes: Axes, entries: Sequence[tuple[str, str]]) -> None:
    """Name the lines at the upper right, each in its colour."""
    points = 72 * np.array(_CURVE_SIZE)  # of the axes; all below is in points from their corner
    end: dict[str, Any] = {"places": (1, 1), "transform": axes.transAxes, "anchor": (1, 0)}
    right = 0.0
    for name, colour in reversed(entries):
        group = pen.write(axes, [name], **end, offset=(right, 12), colors=colour)
        right -= group.get_window_extent().width * 72 / _DPI + 26
        handle = 1 + (right + np.array([0, 9, 18])) / points[0], np.full(3, 1 + 15 / points[1])
        _draw_line(axes, *handle, colour=colour, transform=axes.transAxes, markevery=[1])
        right -= 18


def _draw_grid(
    pen: Pen,
    axes: Axes,
    side: Literal["left", "bottom"],
    ticks: Sequence[float],
    names: Sequence[str],
    *,
    caption: str = "",
) -> None:
    """Draw a line and a name at each tick inside the axes, which have their limits already."""
    from matplotlib.collections import LineCollection

    low, high = axes.get_ylim() if side == "left" else axes.get_xlim()
    inside = [(tick, name) for tick, name in zip(ticks, names, strict=True) if low <= tick <= high]
    style: dict[str, Any] = {"colors": _GRID, "linewidths": 0.8, "zorder": 0.5}
    lines: Any = [[(tick, 0), (tick, 1)] for tick, _ in inside]
    style["transform"] = axes.get_xaxis_transform()
    if side == "left":
        lines = [[(0, tick), (1, tick)] for tick, _ in inside]
        style["transform"] = axes.get_yaxis_transform()
    axes.add_collection(LineCollection(lines, **style), autolim=False)
    places, texts = [tick for tick, _ in inside], [name for _, name in inside]
    pen.name_side(axes, side, places, texts, caption=caption)


def _draw_sorted_rows(
    pen: Pen, names: Mapping[int, str], rows: np.ndarray, by_rows: np.ndarray
) -> Figure:
    """Draw the rows of classes that are too many to name, as a curve on logarithmic scales."""
    ordered = rows[by_rows]
    ends = [f"{ordered[end]:,} ({names[int(by_rows[end])]})" for end in (0, -1)]
    subtitle = f"{_rows_summary(rows)}; from {ends[0]} to {ends[1]}"
    figure, axes = _new_axes(pen, _CURVE_SIZE, "Rows by class (log scales)", subtitle)
    ordered = ordered[ordered > 0]
    _draw_line(axes, np.arange(1, len(ordered) + 1), ordered, colour=_BLUE)
    axes.set(xscale="log", yscale="log")
    ticks = [_decades(len(rows)), _decades(int(ordered.max(initial=1)))]
    # As wide as the marks, also where all curves are shorter.
    axes.set(xlim=_spread(axes.get_xlim(), ticks[0]), ylim=_spread(axes.get_ylim(), ticks[1]))
    caption = "classes, from the one with the most rows on"
    _draw_grid(pen, axes, "left", *zip(*ticks[1], strict=True))
    _draw_grid(pen, axes, "bottom", *zip(*ticks[0], strict=True), caption=caption)
    return figure


def _spread(limits: tuple[float, float], ticks: Sequence[tuple[int, str]]) -> tuple[float, float]:
    """Return limits that have room for all ticks."""
    return min(limits[0], ticks[0][0]), max(limits[1], ticks[-1][0])


def _draw_line(axes: Axes, x: np.ndarray, y: np.ndarray, *, colour: str, **given: Any) -> None:
    """Draw a line, with its points if they are few: a single one has nothing else."""
    style: dict[str, Any] = {"color": colour, "linewidth": 1.6, "markersize": 4.5}
    # Not clipped: 100 % is the end of the axis.
    axes.plot(x, y, "o-" if len(x) <= 50 else "-", **style, clip_on=False, **given)


def _draw_bars(pen: Pen, names: Mapping[int, str], rows: np.ndarray, by_rows: np.ndarray) -> Figure:
    """Draw the rows of each class as a bar with its name and count, the most first."""
    from matplotlib.collections import PolyCollection

    ordered, places = rows[by_rows], np.arange(len(rows))
    size = _SIZE if len(rows) <= _COUNTED_CLASSES else _SMALL
    thickness = min(max(3.6 / len(rows), _SMALL_LINE), 0.9)
    height = thickness * len(rows)
    figure, axes = _new_axes(pen, (5.6, height), "Rows by class", _rows_summary(rows))
    axes.set(xlim=(0, max(ordered[0], 1)), ylim=(len(rows) - 0.5, -0.5))
    low, high, zero = places - 0.4, places + 0.4, np.zeros(len(rows))
    corners = [(zero, low), (ordered, low), (ordered, high), (zero, high)]
    outlines: Any = np.stack([np.stack(corner, 1) for corner in corners], 1)
    bars = PolyCollection(outlines, facecolors=_BLUE)
    axes.add_collection(bars, autolim=False)
    pen.write(
        axes,
        [f"{count:,}" for count in ordered],
        places=np.stack([ordered, places], 1),
        transform=axes.transData,
        anchor=(0, 0.5),
        offset=(4, 0),
        size=size,
    )
    named = [names[int(number)] for number in by_rows]
    pen.name_side(axes, "left", places, named, size=size)
    return figure


def _draw_validation(pen: Pen, names: Mapping[int, str], counts: ClassCounts, which: str) -> Figure:
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

    longest = max(table.shape)
    has_texts = longest <= _COUNTED_CLASSES
    room = _DIGIT * len(f"{table.max():,}") + 0.1 if has_texts else _SMALL_LINE
    cell = max(4.5 / longest, room) if longest <= _NAMED_CLASSES else 20 / longest
    width, height = cell * table.shape[1], cell * table.shape[0]
    figure, axes = _new_axes(pen, (width, height), f"{title}, {which} model", summary)
    colours = _draw_cells(pen, axes, table, has_texts=has_texts)
    _draw_scale(pen, figure, colours, int(table.max()), f"{unit} (log scale), white: none")
    step = math.ceil(_SMALL_LINE / cell)  # a name at each cell would overlap the next
    is_upright = _LETTER * max(map(len, column_names)) > cell
    size = _SIZE if has_texts else _SMALL
    rows, columns = range(0, len(row_names), step), range(0, len(column_names), step)
    pen.name_side(axes, "left", rows, row_names[::step], caption=captions[0], size=size)
    under: dict[str, Any] = {"caption": captions[1], "size": size, "is_upright": is_upright}
    pen.name_side(axes, "bottom", columns, column_names[::step], **under)
    return figure


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


def _draw_cells(pen: Pen, axes: Axes, table: np.ndarray, *, has_texts: bool) -> Colormap:
    """Draw counts as coloured cells, those of none white, with their texts if so asked.

    Returns the colours. The logarithm keeps single errors visible beside a full diagonal.
    """
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, LogNorm

    colours = ListedColormap(colormaps["Blues"](np.linspace(0.25, 1, 256)))
    shade = LogNorm(1, max(int(table.max()), 2))
    seen = np.ma.masked_equal(table, 0)
    place: dict[str, Any] = {"aspect": "auto", "interpolation": "nearest", "origin": "upper"}
    axes.imshow(seen, cmap=colours, norm=shade, **place)
    if has_texts:
        cells = np.argwhere(table)
        counts = table[tuple(cells.T)]
        pen.write(
            axes,
            [f"{count:,}" for count in counts],
            places=cells[:, ::-1],
            transform=axes.transData,
            anchor=(0.5, 0.5),
            colors=np.where(shade(counts) > 0.57, "white", _INK).tolist(),
        ).set_gid("cells")
    return colours


def _draw_scale(pen: Pen, figure: Figure, colours: Colormap, largest: int, caption: str) -> None:
    """Draw what the colours of a table mean, at its upper right."""
    width, height = figure.get_size_inches()
    length = min(3 / height, 1)
    beside = figure.add_axes((1 + 0.2 / width, 1 - length, 0.16 / width, length))
    beside.set_axis_off()
    place: dict[str, Any] = {"aspect": "auto", "origin": "lower", "extent": (0, 1, 0, 1)}
    beside.imshow(np.linspace(0, 1, 256)[:, None], cmap=colours, **place)
    whole = math.log(max(largest, 2))
    places, texts = zip(*_decades(largest), strict=True)
    pen.name_side(beside, "right", np.log(places) / whole, texts, caption=caption)


def _rows_summary(rows: np.ndarray) -> str:
    """Return whose rows are counted, and how many rows and classes there are."""
    return f"{rows.sum():,} rows of train_path, {len(rows):,} classes"


def _decades(largest: int) -> list[tuple[int, str]]:
    """Return 1, 10, 100 and so on up to a number, and that number; each with its text."""
    powers = [10**power for power in range(20) if 2 * 10**power <= largest]
    return [(place, f"{place:,}") for place in (*powers, max(largest, 1))]
