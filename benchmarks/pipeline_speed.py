"""The speed of each stage, by the claims of the project: one table for each part.

    make bench-setup
    python benchmarks/pipeline_speed.py                 about 40 minutes, 10 GB of disk
    python benchmarks/pipeline_speed.py --scale 0.01    all parts, small: to try it
    python benchmarks/pipeline_speed.py --only tokenizing planning

Parts: tokenizing and planning (MB/s of one core), first-step (from text to the first gradient
step, cold and warm), share (of what the sparse step alone does), shards (rows a second however many
there are), scoring, imports, demo. Each runs in a fresh process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from against_lancetnic import RARE_WORDS
from commands import run_command
from files import forget_pages, kept_corpus, read_pages
from report import BUILD, REPOSITORY, Report

if TYPE_CHECKING:
    from collections.abc import Callable

OURS = Path(__file__).with_name("ours")
MAX_FEATURES = 50_000
TEXT_ROWS = 200_000
# Rows of 1 GB.
ROWS_PER_GB = 2_950_000
SHARE_ROWS, SHARE_EPOCHS = 250_000, 6
NUM_SHARDS = (100, 1000, 5000)
SHARD_BYTES = 256 << 10
# Rows in a shard of that size, roughly.
ROWS_PER_SHARD = 780
# Few shards are a short epoch: more of them, for a steady median.
MANY_ROWS, FEW_EPOCHS, MANY_EPOCHS = 1_000_000, 3, 10
FIT_ROWS, SCORED_ROWS = 50_000, 200_000
# At full scale; what the ratios of each part are about.
SETTINGS: dict[str, dict[str, Any]] = {
    "tokenizing": {"rows": TEXT_ROWS},
    "planning": {"rows": TEXT_ROWS},
    "first-step": {"rows": ROWS_PER_GB, "max_features": MAX_FEATURES},
    "share": {"rows": SHARE_ROWS, "epochs": SHARE_EPOCHS, "max_features": MAX_FEATURES},
    "shards": {
        "shards": NUM_SHARDS,
        "shard_bytes": SHARD_BYTES,
        "rows_per_shard": ROWS_PER_SHARD,
        "epochs": (FEW_EPOCHS, MANY_EPOCHS),
        "many_rows": MANY_ROWS,
        "max_features": MAX_FEATURES,
    },
    "scoring": {"fit_rows": FIT_ROWS, "scored_rows": SCORED_ROWS},
}


def run_part(script: str, options: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run one of our scripts and return its figures."""
    return run_command(
        [sys.executable, OURS / script, json.dumps(options)],
        folder=folder,
        environment={"OMP_NUM_THREADS": "1"} if script == "text_speed.py" else None,
    ).figures


def measure_tokenizing(report: Report, folder: Path, scale: float) -> None:
    """MB/s of text on one core, beside scikit-learn's CountVectorizer."""
    options = {"part": "tokenizing", "folder": str(folder), "num_rows": int(TEXT_ROWS * scale)}
    figures = run_part("text_speed.py", options, folder)
    report.figures["tokenizing"] = figures
    report.table(
        ("tokenizing, MB/s", "ours", "CountVectorizer", "ratio"),
        [(name, *one.values()) for name, one in figures.items()],
    )
    for name, one in figures.items():
        report.ratio(
            f"tokenizing {name}: ours over CountVectorizer", one["ratio"], part="tokenizing"
        )
    for name, wanted in (("ASCII", 150), ("Cyrillic", 100)):
        report.aim(f"tokenizing {name}, MB/s", figures[name]["ours"], at_least=wanted)


def measure_planning(report: Report, folder: Path, scale: float) -> None:
    """MB/s of a file on one core, beside pandas' C parser and the csv module."""
    options = {"part": "planning", "folder": str(folder), "num_rows": int(TEXT_ROWS * scale)}
    figures = run_part("text_speed.py", options, folder)
    report.figures["planning"] = figures
    report.table(
        ("planning, MB/s", "ours", "pandas' C parser", "csv module", "ratio to the faster"),
        [(name, *one.values()) for name, one in figures.items()],
    )
    for name, one in figures.items():
        report.ratio(f"planning {name}: ours over the faster parser", one["ratio"], part="planning")
    slowest = min(figures, key=lambda name: figures[name]["ours"])
    report.aim(f"planning, slowest ({slowest}), MB/s", figures[slowest]["ours"], at_least=300)


def measure_first_step(report: Report, folder: Path, scale: float) -> None:
    """Seconds from the start of Python to the first gradient step, on 1 GB of text.

    Cold reads the file from disk, with an empty cache. Warm is a second run on the same corpus:
    its plan, shards, counts and vocabulary are in the cache.
    """
    path = kept_corpus(folder, num_rows=int(ROWS_PER_GB * scale), rare_words=RARE_WORDS)
    warm_kernels(folder)
    figures = {}
    with tempfile.TemporaryDirectory(prefix="lancetnic-bench-", dir=folder) as scratch:
        options = {
            "part": "first step",
            "train": {
                **training_options(path, scratch),
                "max_features": MAX_FEATURES,
                "num_epochs": 1,
            },
        }
        forget_pages(path)
        figures["cold"] = run_part("training_speed.py", options, Path(scratch))
        read_pages(path)
        figures["warm"] = run_part("training_speed.py", options, Path(scratch))
    report.figures["first step"] = {"bytes": path.stat().st_size, **figures}
    report.table(
        ("to the first step, s", "all", *figures["cold"]["stages"]),
        [(name, one["seconds"], *one["stages"].values()) for name, one in figures.items()],
    )
    report.aim("first step of 1 GB, warm, s", figures["warm"]["seconds"], at_most=5)


def warm_kernels(folder: Path) -> None:
    """Train on a few rows, so that machine code is on disk."""
    path = kept_corpus(folder, num_rows=500)
    with tempfile.TemporaryDirectory(prefix="lancetnic-bench-", dir=folder) as scratch:
        options = {**training_options(path, scratch), "num_epochs": 1}
        run_part("train_ours.py", options, Path(scratch))


def training_options(path: Path, scratch: str) -> dict[str, Any]:
    """Return what every training here is called with."""
    return {"train_path": str(path), "val_path": None, "cache_dir": f"{scratch}/cache"}


def measure_share(report: Report, folder: Path, scale: float) -> None:
    """Rows a second of later epochs as a share of the sparse step alone."""
    path = kept_corpus(folder, num_rows=int(SHARE_ROWS * scale), rare_words=RARE_WORDS)
    with tempfile.TemporaryDirectory(prefix="lancetnic-bench-", dir=folder) as scratch:
        train = {
            **training_options(path, scratch),
            "max_features": MAX_FEATURES,
            "num_epochs": SHARE_EPOCHS,
        }
        options = {"part": "share", "train": train}
        figures = run_part("training_speed.py", options, Path(scratch))
    report.figures["share"] = figures
    report.table(("later epochs", "rows/s"), list(figures.items()))
    report.ratio("later epochs over the step alone", figures["share"], part="share")
    report.aim("later epochs, share of the step alone", figures["share"], at_least=0.85)


def measure_shards(report: Report, folder: Path, scale: float) -> None:
    """Rows a second of later epochs by the number of shards, all of one size."""
    speeds: dict[int, float] = {}
    for num_shards in sorted({max(2, int(count * scale)) for count in NUM_SHARDS}):
        num_rows = num_shards * ROWS_PER_SHARD
        path = kept_corpus(folder, num_rows=num_rows, rare_words=RARE_WORDS)
        with tempfile.TemporaryDirectory(prefix="lancetnic-bench-", dir=folder) as scratch:
            options = {
                **training_options(path, scratch),
                "max_features": MAX_FEATURES,
                "partition_bytes": SHARD_BYTES,
                "num_epochs": FEW_EPOCHS if num_rows > MANY_ROWS * scale else MANY_EPOCHS,
            }
            figures = run_part("train_ours.py", options, Path(scratch))
        speeds[num_shards] = statistics.median(figures["rows_per_second"][1:])
        path.unlink()
    report.figures["shards"] = speeds
    report.table(("shards", "rows/s"), [(f"{count:,}", speed) for count, speed in speeds.items()])
    evenness = min(speeds.values()) / max(speeds.values())
    report.ratio("rows/s, slowest over fastest number of shards", evenness, part="shards")
    report.aim("rows/s, slowest over fastest number of shards", evenness, at_least=0.9)


def measure_scoring(report: Report, folder: Path, scale: float) -> None:
    """One string after loading, and a Dask DataFrame beside scikit-learn's pipeline."""
    train = kept_corpus(folder, num_rows=int(FIT_ROWS * scale), rare_words=RARE_WORDS)
    scored = kept_corpus(folder, num_rows=int(SCORED_ROWS * scale), rare_words=RARE_WORDS, seed=1)
    with tempfile.TemporaryDirectory(prefix="lancetnic-bench-", dir=folder) as scratch:
        options = {**training_options(train, scratch), "num_epochs": 1}
        run_part("train_ours.py", options, Path(scratch))
        given = {
            "train_path": str(train),
            "fit_rows": int(FIT_ROWS * scale),
            "scored_path": str(scored),
            "model": "runs/train_0/best_model",
        }
        figures = run_part("scoring_speed.py", given, Path(scratch))
    report.figures["scoring"] = figures
    report.table(("one string", "ms"), list(figures["one_string"].items()))
    report.table(("a Dask DataFrame", "rows/s"), list(figures["table"].items()))
    ratio = figures["table"]["ratio"]
    report.ratio("scoring a Dask DataFrame: ours over scikit-learn", ratio, part="scoring")
    report.aim("one string after loading, ms", figures["one_string"]["median_ms"], at_most=5)
    report.aim("a Dask DataFrame, over scikit-learn", ratio, at_least=1)


def measure_imports(report: Report, folder: Path, scale: float) -> None:
    """Seconds of `import lancetnic_dask` once Dask is imported, and of what trains and predicts."""
    rounds = 5 if scale >= 1 else 1
    names = {
        "import lancetnic_dask": "import lancetnic_dask",
        "Classification": "from lancetnic_dask import Classification",
        "load": "from lancetnic_dask import load",
    }
    figures: dict[str, float] = {}
    for name, line in names.items():
        code = (
            "import time, distributed, dask.dataframe; started = time.perf_counter()\n"
            f"{line}\n"
            "print('{\"seconds\": %f}' % (time.perf_counter() - started))"
        )
        figures[name] = statistics.median(
            run_command([sys.executable, "-c", code], folder=folder).figures["seconds"]
            for _ in range(rounds)
        )
    report.figures["imports"] = figures
    report.table(("beyond Dask itself", "s"), list(figures.items()))
    report.aim("import beyond Dask, s", figures["import lancetnic_dask"], at_most=0.5)


def measure_demo(report: Report, folder: Path, scale: float) -> None:
    """Seconds of `make demo`, the second time."""
    del folder, scale
    environment = {**os.environ, "MAKEFLAGS": ""}
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        run_command(["make", "demo"], folder=REPOSITORY, environment=environment)
        seconds.append(time.perf_counter() - started)
    report.figures["demo"] = {"first": seconds[0], "second": seconds[1]}
    report.table(("make demo", "s"), [("before", seconds[0]), ("the second time", seconds[1])])
    report.aim("make demo the second time, s", seconds[1], at_most=30)


PARTS: dict[str, Callable[[Report, Path, float], None]] = {
    "tokenizing": measure_tokenizing,
    "planning": measure_planning,
    "first-step": measure_first_step,
    "share": measure_share,
    "shards": measure_shards,
    "scoring": measure_scoring,
    "imports": measure_imports,
    "demo": measure_demo,
}


def settings_of(scale: float, parts: list[str]) -> dict[str, Any]:
    """Return what the ratios are about."""
    by_part = {part: SETTINGS[part] for part in parts if part in SETTINGS}
    return {"scale": scale, "rare_words": RARE_WORDS, "parts": parts, "by_part": by_part}


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full sizes")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--folder", type=Path, default=BUILD, help="for corpora, runs and figures")
    given = parser.parse_args()
    folder = given.folder.absolute()
    report = Report("pipeline_speed", settings_of(given.scale, given.only))
    for name in given.only:
        PARTS[name](report, folder / "corpora", given.scale)
    report.finish(folder)


if __name__ == "__main__":
    main()
