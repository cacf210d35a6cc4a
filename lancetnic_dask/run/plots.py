"""Metrics, class counts and confusion -> the pictures of a run folder, under lancetnic's names.

matplotlib is imported when pictures are drawn, not before, and pyplot never is. No setting of
matplotlib is changed: a caller's figures and style stay as they are, and threads can draw at the
same time. Which fonts the labels need is found in fonts.py.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lancetnic_dask.run.fonts import find_typeface, load_matplotlib, shown_label

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from lancetnic_dask.run.fonts import Typeface
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
_SMALL = 7.0  # points
_TEXT: dict[str, Any] = {"fontsize": 9.0, "color": _INK}
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
    rows = np.asarray(rows_by_class, np.int64)
    # A stable sort: classes with as many rows stay in the order of their numbers.
    by_rows = np.argsort(-rows, kind="stable")
    has_matrix = any(counts is not None and counts.confusion is not None for counts in (best, last))
    named = by_rows if has_matrix or len(rows) <= _NAMED_CLASSES else by_rows[[0, -1]]
    shown = {int(number): shown_label(classes[number]) for number in named}
    typeface = find_typeface(shown.values())
    names = {number: _class_name(number, text, typeface) for number, text in shown.items()}

    for file_name, (title, metric) in _CURVES.items():
        curves = _read_curves(history, metric)
        if curves:
            _save(_draw_curves(title, metric, curves), folder / file_name, typeface)
    draw_rows = _draw_bars if len(rows) <= _NAMED_CLASSES else _draw_sorted_rows
    _save(draw_rows(names, rows, by_rows), folder / "dataset_counts.png", typeface)
    for which, counts in (("best", best), ("last", last)):
        if counts is not None and counts.num_rows:
            figure = _draw_validation(names, counts, which)
            _save(figure, folder / f"confusion_matrix_{which}_model.png", typeface)


def _class_name(number: int, text: str, typeface: Typeface) -> str:
    """Return a name that can be drawn; one that lost letters could be another's, too."""
    drawable = typeface.drawable(text)
    return text if drawable == text else f"{number}: {drawable}"


def _new_axes(size: tuple[float, float], title: str, subtitle: str = "") -> tuple[Figure, Axes]:
    """Return a figure and its axes, of a width and height in inches, with titles above them.

    Nothing else has a place in the figure; `_save` adds what stands around the axes.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # What a caller's dark or crowded style would spoil is set, here and below.
    figure = Figure(figsize=size, dpi=_DPI, frameon=True)
    figure.set_layout_engine("none")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1), facecolor="white")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(left=False, bottom=False, labelsize=_TEXT["fontsize"], colors=_INK)
    pad = 30 if subtitle else 9
    axes.set_title(title, loc="left", y=1, pad=pad, fontsize=11, color=_INK)
    offset: dict[str, Any] = {"xytext": (0, 12), "textcoords": "offset points"}
    axes.annotate(subtitle, (0, 1), xycoords="axes fraction", **offset, **_TEXT)
    return figure, axes


def _save(figure: Figure, path: Path, typeface: Typeface) -> None:
    """Write a picture as PNG, whole or not at all, with all texts in fonts that have them."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        # A label is no formula, whatever it holds.
        text.set(usetex=False, parse_math=False)
        text.set(fontproperties=typeface.properties(text.get_fontsize()))
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
    title: str, metric: str, curves: Mapping[str, tuple[np.ndarray, np.ndarray]]
) -> Figure:
    """Draw a metric by epoch."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    unit, most = ("", math.inf) if metric == "loss" else (" %", 100)
    average = "" if metric in {"loss", "accuracy"} else ", averaged over classes by their rows"
    figure, axes = _new_axes(_CURVE_SIZE, f"{title} by epoch{average}")
    for rows, (x, y) in curves.items():
        name, colour = _ROWS[rows]
        _draw_line(axes, x, y, caption="epoch", colour=colour, name=name)
    epochs = np.concatenate([x for x, _ in curves.values()])
    axes.set_xlim(epochs.min() - 0.5, epochs.max() + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:.0f}"))
    low, high = axes.get_ylim()
    low, high = max(low, 0), min(high, most)
    if unit and high - low < _PERCENT_SPAN:
        low = min(max((low + high - _PERCENT_SPAN) / 2, 0), most - _PERCENT_SPAN)
        high = low + _PERCENT_SPAN
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(StrMethodFormatter(f"{{x:.10g}}{unit}"))
    place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 2}
    axes.legend(**place, frameon=False, fontsize=_TEXT["fontsize"], labelcolor="linecolor")
    return figure


def _draw_sorted_rows(names: Mapping[int, str], rows: np.ndarray, by_rows: np.ndarray) -> Figure:
    """Draw the rows of classes that are too many to name, as a curve on logarithmic scales."""
    ordered = rows[by_rows]
    ends = [f"{ordered[end]:,} ({names[int(by_rows[end])]})" for end in (0, -1)]
    subtitle = f"{_rows_summary(rows)}; from {ends[0]} to {ends[1]}"
    figure, axes = _new_axes(_CURVE_SIZE, "Rows by class (log scales)", subtitle)
    ordered = ordered[ordered > 0]
    caption = "classes, from the one with the most rows on"
    _draw_line(axes, np.arange(1, len(ordered) + 1), ordered, caption=caption, colour=_BLUE)
    axes.set(xscale="log", yscale="log")
    axes.minorticks_off()
    axes.set_xticks(*_decades(len(rows)))
    axes.set_yticks(*_decades(int(ordered.max(initial=1))))
    return figure


def _draw_line(
    axes: Axes, x: np.ndarray, y: np.ndarray, *, caption: str, colour: str, name: str = ""
) -> None:
    """Draw a line over a grid, with its points if they are few: a single one has nothing else."""
    axes.set_axisbelow(True)
    axes.grid(visible=True, color=_GRID, linestyle="-", linewidth=0.8)
    axes.set_xlabel(caption, **_TEXT)
    style: dict[str, Any] = {"color": colour, "linewidth": 1.6, "markersize": 4.5}
    # Not clipped: 100 % is the end of the axis.
    axes.plot(x, y, "o-" if len(x) <= 50 else "-", **style, label=name, clip_on=False)


def _draw_bars(names: Mapping[int, str], rows: np.ndarray, by_rows: np.ndarray) -> Figure:
    """Draw the rows of each class as a bar with its name and count, the most first."""
    ordered, places = rows[by_rows], range(len(rows))
    size = _TEXT["fontsize"] if len(rows) <= _COUNTED_CLASSES else _SMALL
    thickness = min(max(3.6 / len(rows), _SMALL_LINE), 0.9)
    figure, axes = _new_axes((5.6, thickness * len(rows)), "Rows by class", _rows_summary(rows))
    bars = axes.barh(places, ordered, color=_BLUE, edgecolor="none")
    counts = [f"{count:,}" for count in ordered]
    axes.bar_label(bars, counts, padding=4, fontsize=size, color=_INK)
    axes.set(xlim=(0, max(ordered[0], 1)), ylim=(len(rows) - 0.5, -0.5), xticks=[])
    axes.set_yticks(places, [names[int(number)] for number in by_rows], fontsize=size)
    return figure


def _draw_validation(names: Mapping[int, str], counts: ClassCounts, which: str) -> Figure:
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
    size = (cell * table.shape[1], cell * table.shape[0])
    figure, axes = _new_axes(size, f"{title}, {which} model", summary)
    image = _draw_cells(axes, table, has_texts=has_texts)
    _draw_scale(figure, image, int(table.max()), f"{unit} (log scale), white: none")
    step = math.ceil(_SMALL_LINE / cell)  # a name at each cell would overlap the next
    rotation = 90 if _LETTER * max(map(len, column_names)) > cell else 0
    axes.set_yticks(range(0, len(row_names), step), row_names[::step])
    axes.set_xticks(range(0, len(column_names), step), column_names[::step], rotation=rotation)
    axes.tick_params(labelsize=_TEXT["fontsize"] if has_texts else _SMALL)
    axes.set_ylabel(captions[0], **_TEXT)
    axes.set_xlabel(captions[1], **_TEXT)
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


def _draw_cells(axes: Axes, table: np.ndarray, *, has_texts: bool) -> AxesImage:
    """Draw counts as coloured cells, those of none white, with their texts if so asked.

    The logarithm keeps single errors visible beside a full diagonal.
    """
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, LogNorm

    colours = ListedColormap(colormaps["Blues"](np.linspace(0.25, 1, 256)))
    shade = LogNorm(1, max(int(table.max()), 2))
    seen = np.ma.masked_equal(table, 0)
    place: dict[str, Any] = {"aspect": "auto", "interpolation": "nearest", "origin": "upper"}
    image = axes.imshow(seen, cmap=colours, norm=shade, **place)
    middle: dict[str, Any] = {"ha": "center", "va": "center_baseline"}
    for row, column in np.argwhere(table) if has_texts else ():
        count = table[row, column]
        colour = "white" if shade(count) > 0.57 else _INK
        axes.text(column, row, f"{count:,}", **middle, **{**_TEXT, "color": colour})
    return image


def _draw_scale(figure: Figure, image: AxesImage, largest: int, caption: str) -> None:
    """Draw what the colours of a table mean, at its upper right."""
    width, height = figure.get_size_inches()
    length = min(3 / height, 1)
    beside = figure.add_axes((1 + 0.2 / width, 1 - length, 0.16 / width, length))
    scale = figure.colorbar(image, cax=beside)
    scale.outline.set_visible(False)
    scale.minorticks_off()
    places, texts = _decades(largest)
    scale.set_ticks(places, labels=texts)
    beside.tick_params(right=False, labelsize=_TEXT["fontsize"], colors=_INK)
    scale.set_label(caption, **_TEXT)


def _rows_summary(rows: np.ndarray) -> str:
    """Return whose rows are counted, and how many rows and classes there are."""
    return f"{rows.sum():,} rows of train_path, {len(rows):,} classes"


def _decades(largest: int) -> tuple[list[int], list[str]]:
    """Return 1, 10, 100 and so on up to a number, and that number; and all as texts."""
    powers = [10**power for power in range(20) if 2 * 10**power <= largest]
    places = [*powers, max(largest, 1)]
    return places, [f"{place:,}" for place in places]
