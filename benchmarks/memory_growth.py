"""Peak memory of the whole process tree as the corpus grows: ours against lancetnic 4.1.0.

    make bench-setup
    python benchmarks/memory_growth.py                  about 40 minutes, 3 GB of disk
    python benchmarks/memory_growth.py --rows 2000 20000     to try it

Both get the same CSV, with ``max_features`` fixed and a vocabulary that stays open, and validate on
a fifth of the rows. Ours trains one epoch and writes its model, and so does lancetnic up to
``--whole-up-to`` rows. On larger files it is ended after ten steps: its matrix, its model and its
optimizer's state are in memory by then, and an epoch would take hours. It is killed above a limit,
or after a time, and the table says so.

Ours runs with its defaults, and once more with small partitions, as a laptop with little memory
would. A wide budget is no reason to use it: memory follows from the sizes of partitions and groups.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from against_lancetnic import RARE_WORDS, run_lancetnic, run_ours
from commands import FINISHED, GIB
from files import kept_corpus
from report import BUILD, Report

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands import Outcome

MIB = 1 << 20
OURS, SMALL, PEER = "ours", "ours, 2 MiB partitions", "lancetnic"
SMALL_BYTES = 2 * MIB
# The same for all ways.
OPTIONS: dict[str, Any] = {"num_epochs": 1, "hidden_size": 256}
# Of lancetnic on files of which it does not train a whole epoch.
MAX_STEPS = 10
# From here on ours is to be flat.
FLAT_FROM = 250_000


def measure(
    folder: Path,
    rows: list[int],
    *,
    max_features: int,
    whole_up_to: int,
    limit_gib: float,
    timeout_seconds: float,
) -> dict[str, dict[int, Outcome]]:
    """Run each way on each size; return outcomes by way and rows."""
    outcomes: dict[str, dict[int, Outcome]] = {OURS: {}, SMALL: {}, PEER: {}}
    for num_rows in rows:
        path = kept_corpus(folder / "corpora", num_rows=num_rows, rare_words=RARE_WORDS)
        options: dict[str, Any] = {
            "train_path": str(path),
            "val_path": None,
            "max_features": max_features,
            **OPTIONS,
        }
        steps = {} if num_rows <= whole_up_to else {"max_steps": MAX_STEPS}
        ways: dict[str, Callable[[dict[str, Any]], Outcome]] = {
            OURS: lambda given: run_ours(folder, given, timeout_seconds=timeout_seconds),
            SMALL: lambda given: run_ours(
                folder, {**given, "partition_bytes": SMALL_BYTES}, timeout_seconds=timeout_seconds
            ),
            PEER: lambda given, steps=steps: run_lancetnic(  # type: ignore[misc]
                folder,
                {**given, **steps},
                limit_bytes=int(limit_gib * GIB),
                timeout_seconds=timeout_seconds,
            ),
        }
        for name, run in ways.items():
            outcome = run(options)
            if name == PEER and steps and outcome.ended == FINISHED:
                outcome = replace(outcome, ended="ended after ten steps")
            outcomes[name][num_rows] = outcome
            print(
                f"{num_rows:,} rows: {name}: {outcome.peak_bytes / MIB:,.0f} MiB, "
                f"{outcome.seconds:.0f} s, {outcome.ended}",
                flush=True,
            )
    return outcomes


def fill_report(report: Report, outcomes: dict[str, dict[int, Outcome]]) -> None:
    """Put peaks, growth and what was killed into the report, and print them."""
    rows = list(outcomes[PEER])
    report.table(
        ("peak memory, MiB", *(f"{num_rows:,} rows" for num_rows in rows), "how they ended"),
        [
            (
                name,
                *(by_rows[num_rows].peak_bytes / MIB for num_rows in rows),
                ", ".join(by_rows[num_rows].ended for num_rows in rows),
            )
            for name, by_rows in outcomes.items()
        ],
    )
    peaks = {
        name: {num_rows: outcome.peak_bytes for num_rows, outcome in by_rows.items()}
        for name, by_rows in outcomes.items()
    }
    report.figures.update(
        peak_bytes=peaks,
        our_parts={
            name: {rows: one.figures["memory"] for rows, one in outcomes[name].items()}
            for name in (OURS, SMALL)
        },
        ended={
            name: {num_rows: outcome.ended for num_rows, outcome in by_rows.items()}
            for name, by_rows in outcomes.items()
        },
        growth={
            name: {
                f"{few} to {many} rows": by_rows[many] / by_rows[few]
                for few, many in itertools.pairwise(rows)
            }
            for name, by_rows in peaks.items()
        },
    )
    report.table(
        ("ours by its own count, MiB", "client", "workers"),
        [
            (
                f"{name}, {num_rows:,} rows",
                outcome.figures["memory"]["client_peak_bytes"] / MIB,
                outcome.figures["memory"]["workers_peak_bytes"] / MIB,
            )
            for name in (OURS, SMALL)
            for num_rows, outcome in outcomes[name].items()
        ],
    )
    for name in (OURS, SMALL):
        for num_rows in rows:
            claim = f"{name}: memory over lancetnic's at {num_rows:,} rows"
            over_peer = peaks[name][num_rows] / peaks[PEER][num_rows]
            report.ratio(claim, over_peer, "lower")
            if num_rows >= FLAT_FROM:
                report.aim(claim, over_peer, at_most=1)
        large = [peaks[name][num_rows] for num_rows in rows if num_rows >= FLAT_FROM]
        if len(large) > 1:
            claim = f"{name}: growth from {FLAT_FROM:,} rows on"
            report.ratio(claim, large[-1] / large[0], "lower")
            report.aim(claim, large[-1] / large[0], at_most=1.15)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, nargs="+", default=[25_000, 250_000, 2_000_000])
    parser.add_argument("--max-features", type=int, default=20_000)
    parser.add_argument(
        "--whole-up-to", type=int, default=250_000, help="rows of a whole epoch of lancetnic"
    )
    parser.add_argument("--limit-gib", type=float, default=16, help="kill lancetnic above this")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for one command")
    parser.add_argument("--folder", type=Path, default=BUILD, help="for corpora, runs and figures")
    given = parser.parse_args()
    folder = given.folder.absolute()
    sizes = {
        **OPTIONS,
        "small_partition_bytes": SMALL_BYTES,
        "max_steps": MAX_STEPS,
        "rare_words": RARE_WORDS,
    }
    report = Report(
        "memory_growth",
        {**{name: value for name, value in vars(given).items() if name != "folder"}, **sizes},
    )
    outcomes = measure(
        folder,
        given.rows,
        max_features=given.max_features,
        whole_up_to=given.whole_up_to,
        limit_gib=given.limit_gib,
        timeout_seconds=given.timeout,
    )
    for name in (OURS, SMALL):
        for num_rows, outcome in outcomes[name].items():
            if outcome.ended != FINISHED:
                raise SystemExit(f"{name} did not finish {num_rows:,} rows: {outcome.ended}")
    fill_report(report, outcomes)
    report.finish(folder)


if __name__ == "__main__":
    main()
