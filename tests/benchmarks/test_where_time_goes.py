"""The benchmark of stages and their bounds on a few rows: that it works, never how fast."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
import where_time_goes
from commands import Outcome
from files import kept_corpus
from report import Report
from where_time_goes import COMPARED, REST, WAIT, fill_report, find_stages, measure, run_ours

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.system

NUM_ROWS = 300
# What other packages would take: `test_dependencies_are_timed_alone` measures it.
ALONE = Outcome(4.0, 0, 0, figures={"import": 1.0, "start cluster": 0.5, "close cluster": 0.1,
                                    "first optimizer": 0.6, "import matplotlib": 0.4,
                                    "plots": 0.7, "since_start": 3.9})  # fmt: skip
MADE_UP: dict[str, Any] = {"alone": {**ALONE.figures, "end of Python": 0.1},
                           "load kernels": 0.2, "model_bytes": 1 << 20}  # fmt: skip
# Of a worker's task, as machine_speed.py times them.
TASK = {"look up", "parse", "cast", "hash rows", "tokenizer", "write shard", "count terms", "all"}
# Clocks of two processes are compared.
TOLERANCE = 0.05


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a corpus of a few rows."""
    return kept_corpus(tmp_path_factory.mktemp("corpora"), num_rows=NUM_ROWS)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Outcome:
    """Return what the machine can do, with the work of a small corpus."""
    folder = tmp_path_factory.mktemp("machine")
    options = {"path": str(corpus), "folder": str(folder), "max_features": 1000,
               "written_bytes": 1 << 20, "partition_bytes": 32 << 10}  # fmt: skip
    return run_ours("machine_speed.py", options, folder)


def test_the_machine_does_the_work_of_the_corpus(machine: Outcome, corpus: Path) -> None:
    """Every row is tokenized and read, and each part of a task takes its time."""
    figures = machine.figures

    reading, step, parts = figures["reading"], figures["step"], figures["tokenize"]["seconds"]
    assert reading["training_rows"] + reading["validation_rows"] == NUM_ROWS
    assert step["num_rows"] == reading["training_rows"]
    assert step["num_entries"] == reading["training_entries"]
    assert step["num_terms"] == 1000
    assert NUM_ROWS * 50 < figures["tokenize"]["text_bytes"] < corpus.stat().st_size
    assert parts.keys() == TASK
    assert all(value > 0 for value in [*parts.values(), *step["bounds"].values()])


def test_every_stage_has_a_bound(
    machine: Outcome, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stages of a real run do not overlap, and stand in the report."""
    kept: dict[str, Any] = {"machine_speed.py": machine, "dependencies_alone.py": ALONE}

    def run_once(script: str, options: dict[str, Any], folder: Path) -> Outcome:
        return kept.get(script) or run_ours(script, options, folder)

    monkeypatch.setattr(where_time_goes, "run_ours", run_once)
    report = Report("where_time_goes", {})
    figures, run = measure(tmp_path, corpus, {"max_features": 1000, "num_epochs": 1})
    fill_report(report, figures, run, 1)

    stages = report.figures["stages"]
    assert set(run.figures["seconds"]) | {"end of Python"} == {
        part for stage in find_stages(figures, 1).values() for part in stage.parts
    }
    assert sum(stage["seconds"] for stage in stages.values()) <= run.seconds + TOLERANCE
    assert all(stage["seconds"] > -TOLERANCE for stage in stages.values())
    unbounded = [name for name, stage in stages.items() if not stage["bound_seconds"] > 0]
    assert unbounded == [WAIT, REST]
    assert figures["load kernels"] > 0
    assert figures["model_bytes"] > 1000 * 256 * 4
    assert len(report.ratios) == len(COMPARED)
    assert not any("tokenize" in name for name in report.ratios)
    written = json.loads(report.finish(tmp_path).read_text(encoding="utf-8"))
    assert written["figures"]["stages"] == stages
    assert not list(tmp_path.glob("lancetnic-bench-*"))


def test_dependencies_are_timed_alone(tmp_path: Path) -> None:
    """They are what the report counts on, and no longer than the process."""
    outcome = run_ours("dependencies_alone.py", {"num_workers": 1, "num_pictures": 1}, tmp_path)

    figures = outcome.figures
    assert figures.keys() == ALONE.figures.keys()
    assert all(value > 0 for value in figures.values())
    parts = sum(value for name, value in figures.items() if name != "since_start")
    assert parts <= figures["since_start"] < outcome.seconds


def test_bounds_grow_with_the_epochs(machine: Outcome) -> None:
    """Training, validation and writing happen in each of them; the rest once."""
    figures = {**machine.figures, **MADE_UP}

    once, twice = (find_stages(figures, num_epochs) for num_epochs in (1, 2))

    grown = {
        name for name, stage in once.items() if twice[name].bound_seconds != stage.bound_seconds
    }
    assert grown == {"train", "validation", "write"}
    assert math.isclose(twice["train"].bound_seconds, 2 * once["train"].bound_seconds)


def test_a_cluster_starts_while_kernels_are_loaded(machine: Outcome) -> None:
    """The longer of the two bounds its start."""
    figures = {**machine.figures, **MADE_UP}

    starts = [
        find_stages({**figures, "load kernels": seconds}, 1)["start cluster"].bound_seconds
        for seconds in (0.2, 3.0)
    ]

    assert starts == [ALONE.figures["start cluster"], 3.0]
