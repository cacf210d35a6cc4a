"""How fast a run trains, and when its first gradient step is done.

    python training_speed.py '{"part": "share", "train": {"train_path": "a.csv", …}}'
    python training_speed.py '{"part": "first step", "train": {"train_path": "a.csv", …}}'

``share``: rows a second of whole epochs as the pipeline makes them (shards read, rows permuted,
weighted, cut into batches) beside those of the sparse step alone on the same batches, cut before
and kept in memory: after each epoch of the run, with its model and its optimizer.

``first step``: seconds from the start of this process to the end of the first gradient step, and
by stage. The run is ended there.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

BEGUN = time.time()

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from sparse_step import Way  # noqa: E402 - the folder above

from lancetnic_dask import Classification  # noqa: E402
from lancetnic_dask.models import ScalpelMC  # noqa: E402


class FirstStepDoneError(Exception):
    """Raised after the first gradient step: nothing more is wanted."""


def train(options: dict[str, Any]) -> Any:
    """Train as a user would."""
    classifier = Classification(
        "text", None, "label", max_features=options.pop("max_features", None)
    )
    return classifier.train(ScalpelMC, progress=False, **options)


def measure_share(options: dict[str, Any]) -> dict[str, Any]:
    """Train, with the bare steps of an epoch after each epoch."""
    batches: list[tuple[Any, Any]] = []
    bare_speeds: list[float] = []
    interleave(batches, bare_speeds, options["train"].get("batch_size", 128))
    run = train(options["train"])
    speeds = {
        "pipeline": statistics.median(entry["rows_per_second"] for entry in run.history[1:]),
        "step alone": statistics.median(bare_speeds[1:]),
    }
    return {
        **speeds,
        "share": speeds["pipeline"] / speeds["step alone"],
        "num_rows": sum(len(target) for _, target in batches),
    }


def interleave(batches: list[tuple[Any, Any]], speeds: list[float], batch_size: int) -> None:
    """Keep the batches of the first epoch, and run their steps again after every epoch.

    That is done while the epoch is written down, when no clock of the run is on its training.
    """
    from lancetnic_dask.models.optimizers import factors_kept
    from lancetnic_dask.run.folder import RunFolder
    from lancetnic_dask.training.batches import iter_batches
    from lancetnic_dask.training.loop import Trainer
    from lancetnic_dask.training.scoring import one_torch_thread

    trainer_class: Any = Trainer
    folder_class: Any = RunFolder
    train_group, record = trainer_class.train_group, folder_class.record
    trainers: list[Any] = []

    def kept_group(trainer: Any, group: Any, *args: Any, **kwargs: Any) -> None:
        if not speeds:
            trainers[:] = [trainer]
            batches.extend(
                (batch.rows, batch.target)
                for batch in iter_batches(group.rows, group.order, batch_size)
            )
        train_group(trainer, group, *args, **kwargs)

    def recorded(*args: Any, **kwargs: Any) -> None:
        record(*args, **kwargs)
        trainer = trainers[0]
        trainer.model.train()
        with one_torch_thread(), factors_kept(trainer.model, "auto"):
            speeds.append(Way(trainer.model, [trainer.optimizer], len(batches)).train(batches))

    trainer_class.train_group, folder_class.record = kept_group, recorded


def measure_first_step() -> dict[str, Any]:
    """Train until one step is done."""
    from lancetnic_dask.pipeline.context import RunContext
    from lancetnic_dask.training.loop import Trainer

    trainer: Any = Trainer
    context: Any = RunContext
    step, add_seconds = trainer._train_step, context.add_seconds  # noqa: SLF001 - the step itself
    figures: dict[str, Any] = {"stages": {}}

    def first_step(*args: Any) -> None:
        step(*args)
        started = float(os.environ.get("BENCHMARK_STARTED", BEGUN))
        figures["seconds"] = time.time() - started
        raise FirstStepDoneError

    def noted(self: Any, stage: str, seconds: float) -> None:
        add_seconds(self, stage, seconds)
        figures["stages"][stage] = self.seconds[stage]

    trainer._train_step = first_step  # noqa: SLF001
    context.add_seconds = noted
    options = json.loads(sys.argv[1])
    try:
        train(options["train"])
    except FirstStepDoneError:
        return figures
    raise SystemExit("There was no step.")


def main() -> None:
    """Measure the part that is asked for."""
    options = json.loads(sys.argv[1])
    if options["part"] == "share":
        print(json.dumps(measure_share(options)))
    else:
        print(json.dumps(measure_first_step()))


if __name__ == "__main__":
    main()
