"""Train lancetnic's ScalpelMC on a CSV, in the peers' environment; print figures as JSON.

    python train_lancetnic.py '{"train_path": "a.csv", "val_path": "b.csv", "num_epochs": 5}'

With ``max_steps`` it ends after so many steps: memory has its peak by then.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

STARTED = time.perf_counter()

from lancetnic import Classification  # type: ignore[import-untyped]  # noqa: E402 - timed
from lancetnic.engine import pipelines  # type: ignore[import-untyped]  # noqa: E402
from lancetnic.models import ScalpelMC  # type: ignore[import-untyped]  # noqa: E402

if TYPE_CHECKING:
    import torch


class EnoughStepsError(Exception):
    """Raised in the step after the last one that was asked for."""


class Limited(ScalpelMC):  # type: ignore[misc]
    """A ScalpelMC that ends the run after some steps."""

    steps_left = sys.maxsize

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Score the classes."""
        if self.steps_left == 0:
            raise EnoughStepsError
        self.steps_left -= 1
        scores: torch.Tensor = super().forward(rows)
        return scores


def time_epochs() -> list[float]:
    """Have rows a second of each training epoch put into the list that is returned."""
    speeds: list[float] = []
    trainer = pipelines.ClassificationTrainer
    train_epoch = trainer.train_epoch

    def timed(self: Any, *args: Any) -> Any:
        started = time.perf_counter()
        sums = train_epoch(self, *args)
        speeds.append(len(self.train_loader.dataset) / (time.perf_counter() - started))
        return sums

    trainer.train_epoch = timed
    return speeds


def best_accuracy(runs: Path) -> float | None:
    """Return the best validation accuracy of the last run in percent; None without an epoch."""
    folders = sorted(runs.glob("train_*/result.csv"), key=lambda path: path.stat().st_mtime)
    lines = folders[-1].read_text(encoding="utf-8").splitlines()
    column = lines[0].replace('"val_acc, %"', "val_acc").replace('"train_acc, %"', "train_acc")
    index = column.split(",").index("val_acc")
    return max((float(line.split(",")[index]) for line in lines[1:]), default=None)


def main() -> None:
    """Train as asked."""
    options = json.loads(sys.argv[1])
    imported = time.perf_counter()
    max_steps = options.pop("max_steps", None)
    if max_steps is not None:
        Limited.steps_left = max_steps
    speeds = time_epochs()
    classifier = Classification(
        text_column="text", label_column="label", max_features=options.pop("max_features", None)
    )
    with suppress(EnoughStepsError):
        # A model's class goes into its file: the plain one, so that nothing of ours is in it.
        classifier.train(ScalpelMC if max_steps is None else Limited, **options)
    if classifier.model is None:
        raise SystemExit("lancetnic printed an error instead of raising it, and gave up.")
    trained = time.perf_counter()
    figures = {
        "rows_per_second": speeds,
        "best_accuracy": best_accuracy(Path("runs")) if max_steps is None else None,
        "num_features": classifier.input_size,
        "seconds": {"import": imported - STARTED, "train()": trained - imported},
        "versions": {
            name: version(name)
            for name in ("lancetnic", "torch", "pandas", "scikit-learn", "numpy", "scipy")
        },
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
