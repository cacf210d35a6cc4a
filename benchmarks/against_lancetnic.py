"""From CSV to a saved model, whole commands: ours against lancetnic 4.1.0.

    make bench-setup
    python benchmarks/against_lancetnic.py              about 25 minutes
    python benchmarks/against_lancetnic.py --rows 2500 --rounds 1      to try it

Both train ScalpelMC with their defaults on the same training file and validate on the same other
file, each in a fresh process, by turns (A B A B); figures are medians. Python's start, imports,
cluster, plots and everything that is written are included. The shard cache is empty at each
start. "Warm" is with the machine code of our kernels on disk, as from the second run on; "cold"
compiles all of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands import in_turns, run_command
from files import kept_corpus
from report import BUILD, Report, peer_python

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands import Outcome

OURS = Path(__file__).with_name("ours") / "train_ours.py"
LANCETNIC = Path(__file__).with_name("peers") / "train_lancetnic.py"

WARM, COLD, ADAM, PEER = "ours, warm", "ours, cold", "ours, Adam", "lancetnic"
# With 25,000 rows about 50,000 distinct words.
RARE_WORDS = 700


def make_files(folder: Path, num_rows: int) -> dict[str, str]:
    """Make a training file with four fifths of the rows and a validation file with the rest."""
    num_validation = num_rows // 5
    corpora = folder / "corpora"
    train = kept_corpus(corpora, num_rows=num_rows - num_validation, rare_words=RARE_WORDS)
    val = kept_corpus(corpora, num_rows=num_validation, rare_words=RARE_WORDS, seed=1)
    return {"train_path": str(train), "val_path": str(val)}


def run_ours(
    folder: Path, options: dict[str, Any], *, is_cold: bool = False, timeout_seconds: float = 3600
) -> Outcome:
    """Run our command with an empty shard cache; cold: with no machine code either."""
    with tempfile.TemporaryDirectory(prefix="lancetnic-bench-", dir=folder) as scratch:
        given = {**options, "cache_dir": f"{scratch}/cache"}
        return run_command(
            [sys.executable, OURS, json.dumps(given)],
            folder=Path(scratch),
            environment={"NUMBA_CACHE_DIR": f"{scratch}/kernels"} if is_cold else None,
            timeout_seconds=timeout_seconds,
        )


def run_lancetnic(folder: Path, options: dict[str, Any], **limits: Any) -> Outcome:
    """Run lancetnic's command in the peers' environment."""
    with tempfile.TemporaryDirectory(prefix="lancetnic-bench-", dir=folder) as scratch:
        return run_command(
            [peer_python(), LANCETNIC, json.dumps(options)],
            folder=Path(scratch),
            environment={"MPLBACKEND": "agg"},
            **limits,
        )


def ways_to_run(folder: Path, options: dict[str, Any]) -> dict[str, Callable[[], Outcome]]:
    """Return what is run by turns."""
    return {
        PEER: lambda: run_lancetnic(folder, options),
        WARM: lambda: run_ours(folder, options),
        COLD: lambda: run_ours(folder, options, is_cold=True),
        ADAM: lambda: run_ours(folder, {**options, "optim_name": "Adam"}),
    }


def fill_report(report: Report, outcomes: dict[str, list[Outcome]]) -> None:
    """Put medians, ratios and our seconds by stage into the report, and print them."""
    seconds, cpu, memory = (
        {
            name: statistics.median(getattr(one, field) for one in runs)
            for name, runs in outcomes.items()
        }
        for field in ("seconds", "cpu_seconds", "peak_bytes")
    )
    speed = {
        name: statistics.median(rate for one in runs for rate in one.figures["rows_per_second"])
        for name, runs in outcomes.items()
    }
    accuracy = {
        name: statistics.median(one.figures["best_accuracy"] for one in runs)
        for name, runs in outcomes.items()
    }
    report.table(
        ("", "end to end, s", "processor, s", "training rows/s", "accuracy, %", "memory, MiB",
         "times faster", "rows/s ratio"),
        [
            (name, seconds[name], cpu[name], speed[name], accuracy[name], memory[name] / (1 << 20),
             seconds[PEER] / seconds[name], speed[name] / speed[PEER])
            for name in outcomes
        ],
    )  # fmt: skip
    stages = {name: stages_of(outcomes[name]) for name in (WARM, COLD)}
    report.table(
        ("our seconds by stage", *stages),
        [(stage, *(stages[name][stage] for name in stages)) for stage in stages[WARM]],
    )
    report.figures.update(
        seconds=seconds, cpu_seconds=cpu, peak_bytes=memory, rows_per_second=speed,
        best_accuracy=accuracy, stages=stages,
        end_to_end_ratio={name: seconds[PEER] / seconds[name] for name in (WARM, COLD, ADAM)},
        rows_per_second_ratio={name: speed[name] / speed[PEER] for name in (WARM, COLD, ADAM)},
        runs={name: [one.seconds for one in runs] for name, runs in outcomes.items()},
        num_features=outcomes[PEER][0].figures["num_features"],
    )  # fmt: skip
    report.versions.update(
        {f"peer {name}": at for name, at in outcomes[PEER][0].figures["versions"].items()}
    )
    for name in (WARM, COLD, ADAM):
        report.ratio(f"end to end: lancetnic's seconds over {name}", seconds[PEER] / seconds[name])
        report.ratio(f"training rows/s: {name} over lancetnic", speed[name] / speed[PEER])
        report.ratio(f"memory: {name} over lancetnic", memory[name] / memory[PEER], "lower")
    report.aim(
        "end to end, times faster than lancetnic", seconds[PEER] / seconds[WARM], at_least=30
    )
    report.aim("training rows/s over lancetnic's", speed[WARM] / speed[PEER], at_least=100)
    report.aim("accuracy above lancetnic's, points", accuracy[WARM] - accuracy[PEER], at_least=0)


def stages_of(runs: list[Outcome]) -> dict[str, float]:
    """Return our median seconds by stage, in the order of the run, and those of the way out."""
    stages = {
        stage: statistics.median(one.figures["seconds"][stage] for one in runs)
        for stage in runs[0].figures["seconds"]
    }
    stages["end of Python"] = statistics.median(
        one.seconds - one.figures["since_start"] for one in runs
    )
    return stages


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=25_000, help="training and validation rows")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=BUILD, help="for corpora, runs and figures")
    given = parser.parse_args()
    folder = given.folder.absolute()
    paths = make_files(folder, given.rows)
    options = {**paths, "num_epochs": given.epochs, "hidden_size": 256}
    sizes = {"rows": given.rows, "rounds": given.rounds, "rare_words": RARE_WORDS}
    report = Report("against_lancetnic", {**sizes, **options})
    # Once with few rows, unmeasured: byte code, font lists and machine code are then on disk.
    few = {**options, **make_files(folder, 500), "num_epochs": 1}
    for warm_up in (run_lancetnic, run_ours):
        warm_up(folder, few)
    fill_report(report, in_turns(ways_to_run(folder, options), rounds=given.rounds))
    report.finish(folder)


if __name__ == "__main__":
    main()
