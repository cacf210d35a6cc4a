"""What a busy neighbour leaves of the training speed, by the choice of threads.

    python benchmarks/busy_neighbour.py                 about 4 minutes
    python benchmarks/busy_neighbour.py --rows 2000 --rounds 1      to try it

Rows a second of whole epochs on two processors, alone and while another process spins: the
package's own choice of threads, and others. All are epochs of one run, by turns; figures are
medians. Two pools of threads that wait for each other can lose far more than the half that a
neighbour may fairly take. The package's choice for a step is one thread: beside a neighbour on the
other processor it is to keep most of its speed.
Ways that collapse decide how long this takes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from against_lancetnic import RARE_WORDS
from commands import run_command
from files import kept_corpus
from report import BUILD, Report

SCRIPT = Path(__file__).with_name("ours") / "threads_by_turns.py"
OURS = "ours"
NUM_CPUS = 2
# Less than all of it: what reads ahead, and the machine's memory, are shared with the neighbour.
KEPT_SHARE = 0.8


def measure(folder: Path, path: Path, *, rounds: int, max_features: int) -> dict[str, Any]:
    """Return the rows a second of all epochs, by way."""
    with tempfile.TemporaryDirectory(prefix="lancetnic-bench-", dir=folder) as scratch:
        train = {
            "train_path": str(path),
            "max_features": max_features,
            "cache_dir": f"{scratch}/cache",
        }
        options = {"rounds": rounds, "num_cpus": NUM_CPUS, "train": train}
        return run_command(
            [sys.executable, SCRIPT, json.dumps(options)],
            folder=Path(scratch),
            environment={"NUMBA_NUM_THREADS": str(NUM_CPUS)},
        ).figures


def fill_report(report: Report, speeds: dict[str, dict[str, list[float]]]) -> None:
    """Put the medians and what is kept of them into the report, and print them."""
    ways = report.figures["ways"] = {}
    for name, by_load in speeds.items():
        alone, beside = (statistics.median(by_load[load]) for load in ("alone", "beside"))
        ways[name] = {**by_load, "rows/s alone": alone, "rows/s beside a busy core": beside,
                      "kept": beside / alone}  # fmt: skip
    report.table(
        ("threads", "alone, rows/s", "beside a busy core, rows/s", "kept"),
        [
            (name, way["rows/s alone"], way["rows/s beside a busy core"], way["kept"])
            for name, way in ways.items()
        ],
    )
    kept = ways[OURS]["kept"]
    fastest = max(way["rows/s beside a busy core"] for name, way in ways.items() if name != OURS)
    over_others = ways[OURS]["rows/s beside a busy core"] / fastest
    report.ratio("kept of ours beside a busy core", kept)
    report.ratio("beside a busy core: ours over the best other choice", over_others)
    report.aim("share of the speed kept beside a busy core of two", kept, at_least=KEPT_SHARE)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-features", type=int, default=50_000)
    parser.add_argument("--folder", type=Path, default=BUILD, help="for corpora, runs and figures")
    given = parser.parse_args()
    folder = given.folder.absolute()
    path = kept_corpus(folder / "corpora", num_rows=given.rows, rare_words=RARE_WORDS)
    sizes = {"num_cpus": NUM_CPUS, "rare_words": RARE_WORDS}
    report = Report(
        "busy_neighbour",
        {**{name: value for name, value in vars(given).items() if name != "folder"}, **sizes},
    )
    speeds = measure(folder, path, rounds=given.rounds, max_features=given.max_features)
    fill_report(report, speeds)
    report.finish(folder)


if __name__ == "__main__":
    main()
