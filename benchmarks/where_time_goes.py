"""Where the time of one run goes, what bounds each stage, and how far from its bound it is.

    python benchmarks/where_time_goes.py                about 3 minutes
    python benchmarks/where_time_goes.py --rows 5000    to try it

One run of ours in a fresh process, with an empty cache, the corpus in the page cache and machine
code on disk; right before it, in other processes, what this machine can do at best:

- start, pictures: what torch, Dask and matplotlib take for the same alone, pictures without the
  import of matplotlib, which a thread of the run does while workers tokenize;
- cluster: what Dask takes alone, or the loading of our workers' kernels, which is done meanwhile:
  whichever is longer;
- wait for imports: nothing. A thread loads what training needs while workers tokenize; what it
  has not done by then is waited for, all the more of it the smaller the corpus is;
- plan: the file read from the page cache, by as many processes as there are workers;
- tokenize: the bare tokenizer kernel on the same texts, as many of them as there are workers;
- vocabulary: all counts read and merged in memory at once, by a hash table or by a sort;
- train, validation: the rows of the weights that the batches touch gathered, summed and changed
  on one core, with the dense products at the speed of a large one;
- write: as many bytes written one after the other to the same disk, and synced.

Bounds are not reached: each leaves out work that has to be done. But a stage far from its bound
does something else most of the time. Only ratios to bounds that are not our own code are kept: a
slower tokenizer kernel would make its bound longer, too (`pipeline_speed.py` compares it).

A second run on the same corpus finds counts and vocabulary in the cache: its tokenize and
vocabulary take next to nothing. That is not the run that is measured here.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from against_lancetnic import RARE_WORDS
from commands import run_command
from files import kept_corpus, read_pages
from report import BUILD, Report

if TYPE_CHECKING:
    from commands import Outcome

OURS = Path(__file__).with_name("ours")
NUM_PICTURES = 8  # of a run whose rows are split
WAIT = "wait for imports"
REST = "the rest of train()"
# Their times over their bounds are kept: the others are short, other packages', or, as tokenize,
# bounded by our own code.
COMPARED = ("plan", "vocabulary", "train", "validation", "write")


class Stage(NamedTuple):
    """A stage beside its bound.

    Parameters
    ----------
    parts : tuple of str
        What it is called in the figures of the run.
    bound_by : str
        What it can't be faster than.
    bound_seconds : float
        What that takes; 0 if there is nothing that has to be done.
    """

    parts: tuple[str, ...]
    bound_by: str
    bound_seconds: float


def measure(folder: Path, path: Path, options: dict[str, Any]) -> tuple[dict[str, Any], Outcome]:
    """Measure the bounds, then run; return the figures of the machine and the run's."""
    with tempfile.TemporaryDirectory(prefix="lancetnic-bench-", dir=folder) as scratch:
        machine_folder = Path(scratch) / "machine"
        machine_folder.mkdir()
        given = {
            "path": str(path),
            "folder": str(machine_folder),
            **{key: value for key, value in options.items() if key != "num_epochs"},
        }
        machine = run_ours("machine_speed.py", given, Path(scratch)).figures
        # In a process of its own, now that machine code is on disk.
        machine["load kernels"] = run_ours("load_kernels.py", {}, Path(scratch)).figures["seconds"]
        alone = {"num_workers": machine["num_workers"], "num_pictures": NUM_PICTURES}
        outcome = run_ours("dependencies_alone.py", alone, Path(scratch))
        ended = outcome.seconds - outcome.figures["since_start"]
        machine["alone"] = {**outcome.figures, "end of Python": ended}
        read_pages(path)
        run = run_ours(
            "timed_stages.py",
            {
                **options,
                "train_path": str(path),
                "val_path": None,
                "cache_dir": f"{scratch}/cache",
                "progress": False,
            },
            Path(scratch),
        )
        model = Path(scratch) / "runs" / "train_0" / "last_model"
        machine["model_bytes"] = sum(part.stat().st_size for part in model.iterdir())
    return machine, run


def run_ours(script: str, options: dict[str, Any], folder: Path) -> Outcome:
    """Run one of our scripts in a fresh process."""
    return run_command([sys.executable, OURS / script, json.dumps(options)], folder=folder)


def find_stages(machine: dict[str, Any], num_epochs: int) -> dict[str, Stage]:
    """Put together what bounds each stage of a run."""
    alone, disk, reading = machine["alone"], machine["disk"], machine["reading"]
    workers = machine["num_workers"]
    plan = machine["file_bytes"] / disk["read from page cache"] / workers
    tokenize = machine["tokenize"]["seconds"]["tokenizer"] / workers
    train = step_seconds(machine, reading["training_rows"] * num_epochs)
    validation = step_seconds(machine, reading["validation_rows"] * num_epochs, only=("forward",))
    written = machine["model_bytes"] * num_epochs / disk["write and sync"]
    return {
        "start and end of Python": Stage(
            ("start Python", "import", "end of Python"),
            "imports of torch, Dask …",
            alone["import"] + alone["end of Python"],
        ),
        "start cluster": Stage(
            ("start cluster",),
            "Dask alone, or kernels loaded meanwhile",
            max(alone["start cluster"], machine["load kernels"]),
        ),
        "plan": Stage(("plan",), "memory: read the file", plan),
        "tokenize": Stage(("tokenize",), "tokenizer kernel", tokenize),
        "vocabulary": Stage(
            ("vocabulary",), "one merge in memory", machine["vocabulary"]["at once in memory"]
        ),
        WAIT: Stage((WAIT,), "nothing: loaded meanwhile", 0.0),
        "build model": Stage(
            ("build model",), "random weights", machine["step"]["bounds"]["random weights"]
        ),
        "train": Stage(("train",), "memory: rows of weights", train),
        "validation": Stage(("validation",), "memory: rows of weights", validation),
        "write": Stage(("write", "summary"), "disk: write and sync", written),
        "close cluster": Stage(("close cluster",), "Dask alone", alone["close cluster"]),
        "plots": Stage(("plots",), "matplotlib alone, imported", alone["plots"]),
        REST: Stage((REST,), "nothing", 0.0),
    }


def step_seconds(
    machine: dict[str, Any],
    num_rows: int,
    only: tuple[str, ...] = ("forward", "backward and update"),
) -> float:
    """Return the bound of some parts of the step, for a number of rows."""
    step = machine["step"]
    bounds = step_bounds(step["bounds"])
    seconds = sum(bounds[part] for part in only)
    return seconds * num_rows / int(step["num_rows"])


def step_bounds(kernels: dict[str, float]) -> dict[str, float]:
    """Return the seconds that each part of the measured steps can't be faster than."""
    return {
        "forward": kernels["gather"] + kernels["dense forward"],
        # The gradients of the dense layer's weights and of its input are a product each.
        "backward and update": kernels["sum rows"]
        + 2 * kernels["dense forward"]
        + kernels["update"],
    }


def fill_report(report: Report, machine: dict[str, Any], run: Outcome, num_epochs: int) -> None:
    """Put stages and bounds into the report, and print them."""
    seconds = dict(run.figures["seconds"])
    seconds["end of Python"] = run.seconds - run.figures["since_start"]
    lines = []
    stages = report.figures["stages"] = {}
    for name, stage in find_stages(machine, num_epochs).items():
        taken, bound = sum(seconds[part] for part in stage.parts), stage.bound_seconds
        times = taken / bound if bound else None
        stages[name] = {
            "seconds": taken,
            "share": taken / run.seconds,
            "bound_by": stage.bound_by,
            "bound_seconds": bound,
            "times_the_bound": times,
        }
        shown = "" if times is None else times
        lines.append((name, taken, 100 * taken / run.seconds, stage.bound_by, bound, shown))
        if name in COMPARED:
            report.ratio(f"{name}: its time over its bound", taken / bound, "lower")
    report.table(("stage", "s", "% of the run", "bound by", "bound, s", "times the bound"), lines)
    report.figures.update({"seconds": run.seconds, "machine": machine})
    show_machine(report, machine)
    show_worker(report, machine, stages)
    show_step(report, machine, run.figures["rows_per_second"])


def show_machine(report: Report, machine: dict[str, Any]) -> None:
    """Print the speeds behind the bounds."""
    kernels, disk = machine["step"]["bounds"], machine["disk"]
    text_speed = machine["tokenize"]["text_bytes"] / machine["tokenize"]["seconds"]["tokenizer"]
    speeds = {
        **{f"disk: {name}": speed for name, speed in disk.items()},
        "tokenizer kernel, one core": text_speed,
        "rows of weights gathered, one core": kernels["gathered bytes a second"],
        "weights read in order, one core": kernels["bytes a second in order, one core"],
        "weights read in order, all cores": kernels["bytes a second in order, all cores"],
    }
    report.table(("this machine", "MB/s"), [(name, one / 1e6) for name, one in speeds.items()])
    cold = machine["file_bytes"] / disk["read from disk"]
    print(f"Read from disk the corpus takes {cold:.2g} s: that would bound a cold plan.")


def show_worker(report: Report, machine: dict[str, Any], stages: dict[str, Any]) -> None:
    """Print where the workers' time goes: the same tasks on one core, without Dask."""
    parts = machine["tokenize"]["seconds"]
    lines = [(name, value, 100 * value / parts["all"]) for name, value in parts.items()]
    report.table(("tokenize on one core", "s", "%"), lines)
    workers = machine["num_workers"]
    tasks = {"plan": machine["plan"] / workers, "tokenize": parts["all"] / workers}
    report.figures["tasks_alone_by_workers"] = tasks
    report.table(
        (f"tasks of {workers} worker(s)", "by themselves, s", "in the run, s", "times"),
        [
            (name, alone, stages[name]["seconds"], stages[name]["seconds"] / alone)
            for name, alone in tasks.items()
        ],
    )
    alone = machine["alone"]
    print(
        "The difference is Dask, what workers import for their first task, and uneven ends.\n"
        "Meanwhile a thread of the run imports what torch needs for an optimizer (alone "
        f"{alone['first optimizer']:.2g} s) and matplotlib ({alone['import matplotlib']:.2g} s); "
        f"the run waited {stages[WAIT]['seconds']:.2g} s for the first."
    )


def show_step(report: Report, machine: dict[str, Any], speeds: list[float]) -> None:
    """Print where a step's time goes, and the run beside steps alone."""
    step = machine["step"]
    bounds = step_bounds(step["bounds"])
    each = 1e6 / step["num_batches"]
    lines = [
        (name, value * each, bounds[name] * each, value / bounds[name])
        if name in bounds
        else (name, value * each, "", "")
        for name, value in step["parts"].items()
    ]
    bound = sum(bounds.values())
    lines.append(("all, without the clock", step["alone"] * each, bound * each,
                  step["alone"] / bound))  # fmt: skip
    report.table(("one step", "us", "bound, us", "times the bound"), lines)
    report.figures["training_rows_per_second"] = ways = {
        "the run's best epoch": max(speeds),
        "steps alone": step["num_rows"] / step["alone"],
        "bound": step["num_rows"] / bound,
    }
    report.table(("training", "rows/s"), list(ways.items()))


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--max-features", type=int, default=50_000)
    parser.add_argument("--folder", type=Path, default=BUILD, help="for corpora, runs and figures")
    given = parser.parse_args()
    folder = given.folder.absolute()
    path = kept_corpus(folder / "corpora", num_rows=given.rows, rare_words=RARE_WORDS)
    settings = {name: value for name, value in vars(given).items() if name != "folder"}
    report = Report("where_time_goes", {**settings, "rare_words": RARE_WORDS})
    options = {"max_features": given.max_features, "num_epochs": given.epochs}
    machine, run = measure(folder, path, options)
    fill_report(report, machine, run, given.epochs)
    report.finish(folder)


if __name__ == "__main__":
    main()
