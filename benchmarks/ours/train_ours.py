"""Train our ScalpelMC on a CSV; print figures and where the time went as JSON.

    python train_ours.py '{"train_path": "a.csv", "val_path": "b.csv", "num_epochs": 5}'

The time of each stage is taken around the functions that the pipeline calls, so the figures are
those of a plain run: the clock is read some twenty times.
"""

from __future__ import annotations

import time

BEGUN = time.time()  # before anything else is imported: the time of imports is measured
STARTED = time.perf_counter()

import json  # noqa: E402
import os  # noqa: E402
import statistics  # noqa: E402
import sys  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

from lancetnic_dask import Classification  # noqa: E402
from lancetnic_dask.models import ScalpelMC  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class StageClock:
    """Adds up wall time by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, stage: str, started: float) -> None:
        """Add the time since `started` to a stage."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - started

    def around(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does the same and is timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.add(stage, started)

        return timed

    def around_ends(self, opened: str, closed: str, context: Callable[..., Any]) -> Any:
        """Return a context manager that does the same, its way in and its way out timed."""

        @contextmanager
        def timed(*args: Any, **kwargs: Any) -> Iterator[Any]:
            started = time.perf_counter()
            manager = context(*args, **kwargs)
            value = manager.__enter__()
            self.add(opened, started)
            try:
                yield value
            except BaseException as error:
                manager.__exit__(type(error), error, error.__traceback__)
                raise
            started = time.perf_counter()
            manager.__exit__(None, None, None)
            self.add(closed, started)

        return timed


def time_stages(clock: StageClock) -> None:
    """Time what the pipeline doesn't time itself."""
    from lancetnic_dask.pipeline import fit

    module: Any = fit
    loading = module.LoadAhead
    loading.wait_for_training = clock.around("wait for imports", loading.wait_for_training)
    module.use_client = clock.around_ends("start cluster", "close cluster", module.use_client)
    module.finish = clock.around("summary", module.finish)


def stamp_epochs() -> list[float]:
    """Have the time since 1970 at which each epoch's model is on disk put into a list."""
    from lancetnic_dask.run.folder import RunFolder

    folder: Any = RunFolder
    record = folder.record
    stamps: list[float] = []

    def stamped(*args: Any, **kwargs: Any) -> Any:
        record(*args, **kwargs)
        stamps.append(time.time())

    folder.record = stamped
    return stamps


def main() -> None:
    """Train as asked."""
    options = json.loads(sys.argv[1])
    clock = StageClock()
    created = float(os.environ.get("BENCHMARK_STARTED", BEGUN))
    clock.seconds["start Python"] = BEGUN - created
    clock.add("import", STARTED)
    classifier = Classification(
        "text", None, "label", max_features=options.pop("max_features", None)
    )
    time_stages(clock)
    stamps = stamp_epochs()
    started = time.perf_counter()
    run = classifier.train(ScalpelMC, **options)
    train_seconds = time.perf_counter() - started
    inside = {**run.seconds, **clock.seconds}
    known = sum(value for stage, value in inside.items() if stage not in ("import", "start Python"))
    inside["the rest of train()"] = train_seconds - known
    figures = {
        "rows_per_second": [entry["rows_per_second"] for entry in run.history],
        "median_rows_per_second": statistics.median(
            entry["rows_per_second"] for entry in run.history
        ),
        "seconds_to_epoch": [stamp - created for stamp in stamps],
        "accuracies": [entry["val_accuracy"] for entry in run.history],
        "best_accuracy": 100 * max(entry["val_accuracy"] for entry in run.history),
        "num_rows": run.num_rows,
        "memory": json.loads((run.folder / "summary.json").read_text(encoding="utf-8"))["memory"],
        "seconds": inside,
        "since_start": time.time() - created,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
