"""From a CSV on disk to the accuracy that fast linear classifiers reach: ours against each.

    make bench-setup
    python benchmarks/to_equal_accuracy.py              about 20 minutes, 1 GB of disk
    python benchmarks/to_equal_accuracy.py --rows 5000 --rounds 1      to try it

Each peer is trained with settings that suit it and scores one fixed validation file: that is its
accuracy, and its time ends when its model is fitted. Ours is trained on the same file; its time
ends when the first model that reaches the peer's accuracy is on disk, validation included. All
times begin with the start of the process, so imports and the start of our cluster count. Ours too
has settings that suit it: a narrower model, large batches and small steps, chosen on another
validation file. What it does with its defaults stands
beside that.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from against_lancetnic import RARE_WORDS, run_ours
from commands import in_turns, run_command
from files import kept_corpus
from report import BUILD, Report, peer_python

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands import Outcome

TRAIN_LINEAR = Path(__file__).with_name("peers") / "train_linear.py"
OURS, DEFAULTS = "ours", "ours, defaults"
# Chosen on another validation file (seed=2), by the accuracy after one epoch.
SUITED = {"hidden_size": 128, "batch_size": 512, "learning_rate": 0.0003}
PEERS = {
    "hashing": "HashingVectorizer + SGD",
    "tfidf": "TF-IDF + SGD",
    "vowpal": "Vowpal Wabbit",
    "fasttext": "fastText-community",
}
VALIDATION_ROWS = 20_000


def run_peer(folder: Path, peer: str, paths: dict[str, str]) -> Outcome:
    """Train and score a peer in its environment."""
    with tempfile.TemporaryDirectory(prefix="lancetnic-bench-", dir=folder) as scratch:
        return run_command(
            [peer_python(), TRAIN_LINEAR, json.dumps({"peer": peer, **paths})],
            folder=Path(scratch),
        )


def seconds_to(accuracy: float, outcome: Outcome) -> float:
    """Return our time to the first model at least as accurate; infinite if none was."""
    for reached, seconds in zip(
        outcome.figures["accuracies"], outcome.figures["seconds_to_epoch"], strict=True
    ):
        if reached >= accuracy:
            return float(seconds)
    return math.inf


def fill_report(report: Report, outcomes: dict[str, list[Outcome]]) -> None:
    """Put times and ratios into the report, and print them."""
    ours, defaults = outcomes[OURS], outcomes[DEFAULTS]
    lines = []
    for peer, runs in outcomes.items():
        if peer not in PEERS:
            continue
        accuracy = statistics.median(one.figures["accuracy"] for one in runs)
        theirs = statistics.median(one.figures["seconds_to_model"] for one in runs)
        mine, by_default = (
            statistics.median(seconds_to(accuracy, one) for one in way) for way in (ours, defaults)
        )
        report.figures[peer] = {
            "accuracy": accuracy,
            "seconds": theirs,
            "our_seconds": mine,
            "our_seconds_by_default": by_default,
            "ratio": theirs / mine,
            "peak_bytes": max(one.peak_bytes for one in runs),
        }
        report.versions.update(
            {f"peer {name}": at for name, at in runs[0].figures["versions"].items()}
        )
        lines.append((PEERS[peer], 100 * accuracy, theirs, mine, theirs / mine, by_default))
        claim = f"{PEERS[peer]}: its time over ours"
        report.ratio(claim, theirs / mine, part=peer)
        report.ratio(f"{claim}, defaults", theirs / by_default, part=peer)
        report.aim(claim, theirs / mine, at_least=1)
    report.table(
        ("peer", "its accuracy, %", "its time, s", "our time, s", "ratio", "our defaults, s"), lines
    )
    for name, runs in ((OURS, ours), (DEFAULTS, defaults)):
        figures = runs[0].figures
        report.figures[name] = {
            **{part: figures[part] for part in ("accuracies", "seconds_to_epoch", "seconds")},
            "peak_bytes": max(one.peak_bytes for one in runs),
        }
        report.table(
            (f"epochs of {name}", "accuracy, %", "seconds since the start"),
            [
                (str(number), 100 * accuracy, seconds)
                for number, (accuracy, seconds) in enumerate(
                    zip(figures["accuracies"], figures["seconds_to_epoch"], strict=True), 1
                )
            ],
        )


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--epochs", type=int, default=5, help="of ours, at most")
    parser.add_argument("--signal", type=float, default=0.03, help="share of words of the class")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--folder", type=Path, default=BUILD, help="for corpora, runs and figures")
    given = parser.parse_args()
    folder = given.folder.absolute()
    corpora = folder / "corpora"
    options = {"rare_words": RARE_WORDS, "signal": given.signal}
    num_validation = min(VALIDATION_ROWS, given.rows)
    train = kept_corpus(corpora, num_rows=given.rows, **options)
    val = kept_corpus(corpora, num_rows=num_validation, seed=1, **options)
    paths = {"train_path": str(train), "val_path": str(val)}
    sizes = {"suited": SUITED, "validation_rows": num_validation, "rare_words": RARE_WORDS}
    report = Report(
        "to_equal_accuracy",
        {**{name: value for name, value in vars(given).items() if name != "folder"}, **sizes},
    )
    ways: dict[str, Callable[[], Outcome]] = {
        peer: lambda peer=peer: run_peer(folder, peer, paths)  # type: ignore[misc]
        for peer in given.peers
    }
    ways[OURS] = lambda: run_ours(folder, {**paths, **SUITED, "num_epochs": given.epochs})
    ways[DEFAULTS] = lambda: run_ours(folder, {**paths, "num_epochs": given.epochs})
    fill_report(report, in_turns(ways, rounds=given.rounds))
    report.finish(folder)


if __name__ == "__main__":
    main()
