"""The benchmarks' scripts on a few rows: that they work, never how fast."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

import memory_growth
import pytest
import real_files
import to_equal_accuracy
from against_lancetnic import LANCETNIC, OURS, PEER, WARM, fill_report, make_files, run_ours
from commands import Outcome, run_command
from files import kept_corpus
from pipeline_speed import PARTS, SETTINGS, settings_of
from report import REPOSITORY, Report
from to_equal_accuracy import PEERS, TRAIN_LINEAR, seconds_to

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.system

INSTALLED_HERE = {"hashing", "tfidf"}
PEER_PYTHON = REPOSITORY / ".bench-venv" / "bin" / "python"


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return a training file and a validation file of a few rows."""
    return make_files(tmp_path_factory.mktemp("corpora"), 500)


def test_our_command_tells_where_its_time_went(tmp_path: Path, paths: dict[str, str]) -> None:
    """The stages add up to the time between the start and the last line."""
    outcome = run_ours(tmp_path, {**paths, "num_epochs": 2, "hidden_size": 8})

    figures = outcome.figures
    assert len(figures["rows_per_second"]) == len(figures["seconds_to_epoch"]) == 2
    assert figures["num_rows"]["training"] == 400
    assert 0 < figures["best_accuracy"] <= 100
    assert figures["memory"]["peak_bytes"] > 0
    expected = {"import", "start cluster", "tokenize", "wait for imports", "train", "write"}
    assert expected | {"close cluster"} <= figures["seconds"].keys()
    assert all(seconds >= 0 for seconds in figures["seconds"].values())
    assert math.isclose(sum(figures["seconds"].values()), figures["since_start"], rel_tol=0.1)
    assert list(tmp_path.iterdir()) == []


def test_lancetnics_command_ends_after_its_steps_or_its_epochs(
    tmp_path: Path, paths: dict[str, str]
) -> None:
    """It trains as lancetnic does, and gives the figures that ours gives."""
    options: dict[str, Any] = {**paths, "num_epochs": 1, "hidden_size": 8}
    environment = {"MPLBACKEND": "agg"}

    whole, few = (
        run_command(
            [sys.executable, LANCETNIC, json.dumps(given)],
            folder=tmp_path / str(number),
            environment=environment,
        ).figures
        for number, given in enumerate([options, {**options, "max_steps": 2}])
    )

    assert len(whole["rows_per_second"]) == 1
    assert 0 < whole["best_accuracy"] <= 100
    assert (few["rows_per_second"], few["best_accuracy"]) == ([], None)
    assert few["num_features"] == whole["num_features"] > 1000
    assert (tmp_path / "0" / "runs" / "train_0" / "best_model.pt").exists()
    assert not (tmp_path / "1" / "runs" / "train_0" / "best_model.pt").exists()


@pytest.mark.parametrize("peer", PEERS)
def test_a_linear_peer_learns(tmp_path: Path, peer: str) -> None:
    """Each of them beats the guess of one of 20 classes by far."""
    if peer not in INSTALLED_HERE and not PEER_PYTHON.exists():
        pytest.skip("make bench-setup has not installed this peer")
    python = sys.executable if peer in INSTALLED_HERE else PEER_PYTHON
    options = {
        "peer": peer,
        "train_path": str(kept_corpus(tmp_path, num_rows=4000, signal=0.2)),
        "val_path": str(kept_corpus(tmp_path, num_rows=500, signal=0.2, seed=1)),
    }

    figures = run_command(
        [python, TRAIN_LINEAR, json.dumps(options)], folder=tmp_path / "scratch"
    ).figures

    assert figures["accuracy"] > 0.5
    assert figures["seconds_to_model"] > 0


def test_the_time_to_an_accuracy_is_that_of_the_first_model_that_has_it() -> None:
    """Infinite if there is none."""
    ours = Outcome(9, 0, 0, figures={"accuracies": [0.5, 0.8, 0.7], "seconds_to_epoch": [3, 5, 7]})

    assert [seconds_to(accuracy, ours) for accuracy in (0.4, 0.5, 0.6, 0.8)] == [3, 3, 5, 5]
    assert seconds_to(0.9, ours) == math.inf


def test_a_peer_is_compared_with_the_time_to_its_own_accuracy() -> None:
    """The claim is about our suited settings; the defaults stand beside it."""

    def ours(*seconds: float) -> Outcome:
        figures = {"accuracies": [0.6, 0.8], "seconds_to_epoch": list(seconds), "seconds": {}}
        return Outcome(9, 1, 1, figures=figures)

    peer = {"accuracy": 0.7, "seconds_to_model": 12, "versions": {"vowpalwabbit": "9"}}
    report = Report("to_equal_accuracy", {})

    to_equal_accuracy.fill_report(
        report,
        {
            "vowpal": [Outcome(20, 1, 1, figures=peer)],
            to_equal_accuracy.OURS: [ours(2, 4), ours(3, 6), ours(4, 8)],
            to_equal_accuracy.DEFAULTS: [ours(10, 24)],
        },
    )

    figures = report.figures["vowpal"]
    assert (figures["our_seconds"], figures["our_seconds_by_default"]) == (6, 24)
    assert [(target.measured, target.is_met) for target in report.targets] == [(2, True)]
    assert {ratio.part for ratio in report.ratios.values()} == {"vowpal"}


def test_the_report_compares_medians() -> None:
    """Ratios are of medians over the rounds; stages are ours only."""

    def outcome(seconds: float, speed: float) -> Outcome:
        figures = {
            "rows_per_second": [speed],
            "best_accuracy": 70.0,
            "seconds": {"train": 1.0},
            "since_start": seconds - 0.5,
            "num_features": 5,
            "versions": {"lancetnic": "4.1.0"},
        }
        return Outcome(seconds, 1, 1, figures=figures)

    report = Report("against_lancetnic", {})
    ours = [outcome(2, 1000), outcome(4, 3000), outcome(3, 2000)]
    theirs = [outcome(90, 10), outcome(60, 20), outcome(100, 30)]

    fill_report(report, {PEER: theirs, **dict.fromkeys((WARM, "ours, cold", "ours, Adam"), ours)})

    assert report.figures["end_to_end_ratio"][WARM] == 30
    assert report.figures["rows_per_second_ratio"][WARM] == 100
    assert report.figures["stages"][WARM] == {"train": 1.0, "end of Python": 0.5}
    assert [target.is_met for target in report.targets] == [True, True, True]


def test_memory_is_compared_from_the_size_on_that_counts() -> None:
    """Growth is that between 250,000 rows and the largest; smaller files only show it."""
    memory = {"client_peak_bytes": 1, "workers_peak_bytes": 1}

    def by_rows(*peaks: int) -> dict[int, Outcome]:
        return {
            rows: Outcome(1, peak, 1, figures={"memory": memory})
            for rows, peak in zip((25_000, 250_000, 2_000_000), peaks, strict=True)
        }

    report = Report("memory_growth", {})

    memory_growth.fill_report(
        report,
        {
            memory_growth.OURS: by_rows(50, 100, 110),
            memory_growth.SMALL: by_rows(40, 50, 100),
            memory_growth.PEER: by_rows(20, 90, 1000),
        },
    )

    measured = {target.name: (target.measured, target.is_met) for target in report.targets}
    assert measured["ours: growth from 250,000 rows on"] == (1.1, True)
    assert measured["ours, 2 MiB partitions: growth from 250,000 rows on"] == (2.0, False)
    assert measured["ours: memory over lancetnic's at 250,000 rows"] == (100 / 90, False)
    assert measured["ours: memory over lancetnic's at 2,000,000 rows"] == (0.11, True)
    assert len(measured) == 6


@pytest.mark.parametrize("part", [part for part in PARTS if part != "demo"])
def test_a_part_of_the_pipeline_is_measured(tmp_path: Path, part: str) -> None:
    """Each part gives figures and at least one claim; the demo is run by CI itself."""
    report = Report("pipeline_speed", {})

    PARTS[part](report, tmp_path, 0.002)

    assert len(report.figures) == 1
    assert report.targets
    assert all(ratio.part == part for ratio in report.ratios.values())
    assert not report.ratios or part in SETTINGS
    assert all(target.measured > 0 for target in report.targets)


def test_settings_are_those_of_the_parts_that_are_measured() -> None:
    """A part without constants has none."""
    settings = settings_of(1.0, ["share", "demo"])

    assert settings["by_part"] == {"share": SETTINGS["share"]}
    assert settings["parts"] == ["share", "demo"]


def test_scripts_are_where_the_benchmarks_look_for_them() -> None:
    """They are named by path, not imported: they run in other processes and environments."""
    assert all(path.exists() for path in (OURS, LANCETNIC, TRAIN_LINEAR))


def test_real_files_are_trained_on_with_nothing_said_but_their_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are there; the report has a figure for each column of the table."""
    rows = [f"{n % 2},{'好' if n % 2 else '差'} 外卖{n % 5}\n" for n in range(60)]
    (tmp_path / "waimai_zh").mkdir()
    (tmp_path / "waimai_zh" / "waimai_10k.csv").write_text(
        "label,review\n" + "".join(rows), "utf-8"
    )
    monkeypatch.setattr(
        sys, "argv", ["real_files.py", str(tmp_path), "--report", str(tmp_path / "report")]
    )

    real_files.main()

    report = json.loads((tmp_path / "report" / "real_files.json").read_text(encoding="utf-8"))
    assert list(report["figures"]) == ["waimai_zh"]
    assert report["figures"]["waimai_zh"]["rows"] == 60
    assert report["figures"]["waimai_zh"]["classes"] == 2
    assert "waimai_zh" in capsys.readouterr().out
