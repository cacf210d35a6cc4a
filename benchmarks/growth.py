"""How costs grow with rows, vocabulary, hidden size and workers: one table and one figure each.

    python benchmarks/growth.py --figures docs/figures  all of them, about 12 minutes, 1 GB of disk
    python benchmarks/growth.py --scale 0.01            few rows: to try it
    python benchmarks/growth.py --only rows workers     some of them
    python benchmarks/growth.py --redraw --figures docs/figures    draw the last figures again

One quantity grows while all else stays. Each size is a run of its own in a fresh process, with an
empty shard cache and the machine code of our kernels on disk. Python's start, imports, cluster,
plots and everything that is written are in the seconds from end to end.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from against_lancetnic import OURS, RARE_WORDS
from commands import FINISHED, run_command
from files import kept_corpus
from report import BUILD, Report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from commands import Outcome
    from matplotlib.axes import Axes

    # What was measured at each size, by size.
    Points = dict[int, dict[str, float]]

MIB = 1 << 20
ROWS, VOCABULARY, HIDDEN, WORKERS = "rows", "vocabulary", "hidden", "workers"
# 268,000 distinct words in 80,000 rows, more than the largest vocabulary that is drawn from them.
OPEN_VOCABULARY = 100_000


class Series(NamedTuple):
    """What grows, and what stays meanwhile.

    Parameters
    ----------
    label : str
        Of the axis, with the unit.
    sizes : tuple of int
        At full scale.
    num_rows : int
        Rows of the corpus at full scale; 0 where they are what grows.
    rare_words : int
        As in `make_corpus`: how open the vocabulary of the corpus is.
    options : dict
        Of `train`, beside the one that grows.
    """

    label: str
    sizes: tuple[int, ...]
    num_rows: int
    rare_words: int
    options: dict[str, Any]


SERIES = {
    ROWS: Series(
        "rows of the table",
        (25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000),
        0,
        RARE_WORDS,
        {"num_epochs": 2, "max_features": 20_000},
    ),
    VOCABULARY: Series(
        "vocabulary, terms",
        (2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000),
        100_000,
        OPEN_VOCABULARY,
        {"num_epochs": 2},
    ),
    HIDDEN: Series(
        "hidden size, units",
        (32, 64, 128, 256, 512, 1024),
        100_000,
        RARE_WORDS,
        {"num_epochs": 2, "max_features": 20_000},
    ),
    # Small partitions: there must be enough of them for each worker to get its share.
    WORKERS: Series(
        "workers, processes",
        (1, 2, 4),
        500_000,
        RARE_WORDS,
        {"num_epochs": 1, "max_features": 20_000, "partition_bytes": 2 * MIB},
    ),
}


def sizes_at(quantity: str, scale: float) -> list[int]:
    """Return the sizes of a quantity; a table and its vocabulary shrink, a model does not."""
    sizes = SERIES[quantity].sizes
    if quantity in (HIDDEN, WORKERS):
        return list(sizes)
    return sorted({max(20, int(size * scale)) for size in sizes})


def settings_of(scale: float, quantities: Sequence[str]) -> dict[str, Any]:
    """Return what the ratios are about: the series that are measured stand under their names."""
    series = {
        quantity: {**SERIES[quantity]._asdict(), "sizes": sizes_at(quantity, scale)}
        for quantity in quantities
    }
    return {"scale": scale, "parts": quantities, "by_part": series}


def measure(folder: Path, quantity: str, sizes: Sequence[int], *, scale: float) -> Points:
    """Train once at each size.

    Parameters
    ----------
    folder : Path
        For corpora and scratch files.
    quantity : {"rows", "vocabulary", "hidden", "workers"}
        What grows.
    sizes : sequence of int
        How far.
    scale : float
        Share of the full number of rows, where these stay.

    Returns
    -------
    dict of int to dict
        Seconds, rows a second and peak memory by size.

    Raises
    ------
    SystemExit
        If a run was stopped: a figure without an end is none.
    """
    series = SERIES[quantity]
    points: Points = {}
    for size in sizes:
        num_rows = size if quantity == ROWS else max(200, int(series.num_rows * scale))
        path = kept_corpus(folder / "corpora", num_rows=num_rows, rare_words=series.rare_words)
        options = {"train_path": str(path), "val_path": None, **series.options}
        environment = {}
        if quantity == WORKERS:
            environment["DASK_LANCETNIC__CLUSTER__WORKERS"] = str(size)
        elif quantity != ROWS:
            options["max_features" if quantity == VOCABULARY else "hidden_size"] = size
        outcome = train(folder, options, environment)
        if outcome.ended != FINISHED:
            raise SystemExit(f"{quantity} {size:,}: {outcome.ended}")
        points[size] = point_of(outcome)
        print(f"{quantity} {size:,}: {outcome.seconds:.1f} s", flush=True)
    return points


def train(folder: Path, options: dict[str, Any], environment: dict[str, str]) -> Outcome:
    """Run our command with an empty shard cache and Dask's settings in its environment."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lancetnic-bench-", dir=folder) as scratch:
        return run_command(
            [sys.executable, OURS, json.dumps({**options, "cache_dir": f"{scratch}/cache"})],
            folder=Path(scratch),
            environment=environment,
        )


def point_of(outcome: Outcome) -> dict[str, float]:
    """Return what is told of a run."""
    figures = outcome.figures
    speed = figures["median_rows_per_second"]
    return {
        "seconds": outcome.seconds,
        "cpu_seconds": outcome.cpu_seconds,
        "tokenize_seconds": figures["seconds"]["tokenize"],
        "epoch_seconds": figures["num_rows"]["training"] / speed,
        "rows_per_second": speed,
        "peak_bytes": outcome.peak_bytes,
    }


def fill_report(report: Report, quantity: str, points: Points) -> None:
    """Put the points of a quantity and its ratios into the report, and print them."""
    report.figures[quantity] = points
    report.table(
        (SERIES[quantity].label, "end to end, s", "processor, s", "tokenize, s",
         "train an epoch, s", "training rows/s", "memory, MiB"),
        [
            (f"{size:,}", *list(point.values())[:-1], point["peak_bytes"] / MIB)
            for size, point in points.items()
        ],
    )  # fmt: skip
    if len(points) == 1:
        return
    fewest, most = points[min(points)], points[max(points)]
    if quantity in (ROWS, VOCABULARY):  # promised not to matter; hidden units have their price
        report.ratio(f"{quantity}: training rows/s, most over fewest",
                     most["rows_per_second"] / fewest["rows_per_second"],
                     part=quantity)  # fmt: skip
    if quantity == ROWS:
        over = most["peak_bytes"] / fewest["peak_bytes"]
        report.ratio("rows: memory, most over fewest", over, "lower", part=quantity)
    if quantity == WORKERS:
        speedup = points[1]["tokenize_seconds"] / points[2]["tokenize_seconds"]
        report.ratio("workers: tokenizing speed, two over one", speedup, part=quantity)


def draw(quantity: str, points: Points, path: Path) -> None:
    """Draw seconds and memory by size.

    The same points give the same bytes, so that a new picture means new figures.

    Parameters
    ----------
    quantity : str
        What grows.
    points : dict of int to dict
        As from `measure`.
    path : Path
        The SVG file; its folder is made if need be.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    curves = {
        "end to end": "seconds",
        "tokenize": "tokenize_seconds",
        "train an epoch": "epoch_seconds",
    }
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    times, memory = figure.subplots(1, 2)
    for (name, field), marker in zip(curves.items(), "osD", strict=True):
        times.plot(list(points), [one[field] for one in points.values()], marker=marker, label=name)
    times.set_ylabel("seconds")
    times.legend()
    peaks = [one["peak_bytes"] / MIB for one in points.values()]
    memory.plot(list(points), peaks, marker="o", color="tab:red")
    memory.set_ylabel("peak memory of all processes, MiB")
    for axes in (times, memory):
        shape_axes(axes, quantity, list(points))
    if quantity != WORKERS:
        times.set_yscale("log")
        times.yaxis.set_major_formatter("{x:g}")
    else:
        times.set_ylim(bottom=0)
    memory.set_ylim(bottom=0, top=1.15 * max(peaks))
    path.parent.mkdir(parents=True, exist_ok=True)
    # Text as text: smaller than its outlines, and found by a search.
    with mpl.rc_context({"svg.hashsalt": "lancetnic_dask", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None, "Creator": None})
    print(path)


def shape_axes(axes: Axes, quantity: str, sizes: list[int]) -> None:
    """Give the axis of sizes its scale, and a tick for each that was measured."""
    if quantity != WORKERS:
        axes.set_xscale("log")
    axes.set_xlabel(SERIES[quantity].label)
    axes.set_xticks(sizes, [short(size) for size in sizes])
    axes.minorticks_off()
    axes.grid(visible=True, color="#dddddd")


def short(size: int) -> str:
    """Return a size as a tick has room for it."""
    for unit, letter in ((1_000_000, "M"), (1_000, "k")):
        if size >= unit and size % (unit // 10) == 0:
            return f"{size / unit:g}{letter}"
    return str(size)


def read_figures(path: Path) -> dict[str, Points]:
    """Return the points of the last report by quantity."""
    if not path.exists():
        raise SystemExit(f"There is no {path}. Run without --redraw first.")
    figures = json.loads(path.read_text(encoding="utf-8"))["figures"]
    return {
        quantity: {int(size): point for size, point in points.items()}
        for quantity, points in figures.items()
    }


def main() -> None:
    """Measure and draw what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full sizes")
    parser.add_argument("--only", nargs="+", choices=list(SERIES), default=list(SERIES))
    parser.add_argument("--folder", type=Path, default=BUILD, help="for corpora, runs and figures")
    parser.add_argument("--figures", type=Path, help="draw into this folder")
    parser.add_argument("--redraw", action="store_true", help="measure nothing, draw the last run")
    given = parser.parse_args()
    folder = given.folder.absolute()
    if given.redraw:
        measured = read_figures(folder / "growth.json")
    else:
        report = Report("growth", settings_of(given.scale, given.only))
        if given.scale >= 1:
            # Unmeasured: byte code, font lists and machine code are then on disk.
            measure(folder, ROWS, [500], scale=1)
        for quantity in given.only:
            sizes = sizes_at(quantity, given.scale)
            fill_report(report, quantity, measure(folder, quantity, sizes, scale=given.scale))
        report.finish(folder)
        measured = report.figures
    if given.figures is not None:
        for quantity in (name for name in given.only if name in measured):
            draw(quantity, measured[quantity], given.figures / f"growth_{quantity}.svg")


if __name__ == "__main__":
    main()
