"""Kept ratios beside those of made-up reports: what moved, what can't be compared, what is kept."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from check import Line, command_of, comparable, main
from report import REPOSITORY, Report

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Return a folder of reports with a file of kept ratios."""
    return Bench(tmp_path)


class Bench:
    """Writes reports as the benchmarks do, and runs `check.py` on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept = folder / "kept" / "ratios.json"

    def measure(self, name: str, settings: dict[str, Any] | None = None, **ratios: float) -> None:
        """Write a report; a memory is better if lower, and what begins with part_ is of a part."""
        report = Report(name, {"rows": 100} if settings is None else settings)
        for ratio, value in ratios.items():
            better: Any = "lower" if ratio == "memory" else "higher"
            part = ratio.removeprefix("part_") if ratio.startswith("part_") else None
            report.ratio(ratio, value, better, part=part)
        report.finish(self.folder)

    def check(self, *arguments: str) -> int:
        """Return the exit status."""
        return main([*arguments, "--folder", str(self.folder), "--kept", str(self.kept)])

    def kept_values(self, name: str) -> dict[str, float]:
        """Return the kept ratios of a report."""
        kept = json.loads(self.kept.read_text(encoding="utf-8"))[name]["ratios"]
        return {ratio: one["value"] for ratio, one in kept.items()}


@pytest.mark.parametrize(
    ("better", "now", "verdict"),
    [
        ("higher", 0.79, "WORSE"),
        ("higher", 0.8, ""),
        ("higher", 1.2, ""),
        ("higher", 1.21, "better"),
        ("lower", 0.79, "better"),
        ("lower", 1.2, ""),
        ("lower", 1.21, "WORSE"),
        ("higher", None, "MISSING"),
    ],
)
def test_more_than_a_fifth_is_a_move(better: Any, now: float | None, verdict: str) -> None:
    """Its direction says whether for the better; a fifth itself is none."""
    assert Line("speed", better, 1.0, now).verdict == verdict


def test_a_kept_zero_is_no_division() -> None:
    """An accuracy that was never reached is a ratio of zero."""
    assert Line("speed", "higher", 0.0, 0.0).verdict == ""
    assert Line("speed", "higher", 0.0, 0.1).verdict == "better"
    assert Line("speed", "higher", None, 0.1).verdict == "new"


def test_a_worse_ratio_fails_and_is_named(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """So is one that got better, in the same run."""
    bench.measure("speeds", speed=10, memory=1, share=0.9)
    assert bench.check("--keep") == 0
    bench.measure("speeds", speed=13, memory=1.5, share=0.88)
    capsys.readouterr()

    assert bench.check() == 1

    shown = capsys.readouterr().out
    assert "better: speeds: speed: 10 -> 13" in shown
    assert "WORSE: speeds: memory: 1 -> 1.5" in shown
    assert "+50 %" in shown
    assert "share: " not in shown


def test_a_better_ratio_does_not_fail(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named, so that it can be kept."""
    bench.measure("speeds", memory=1)
    bench.check("--keep")
    bench.measure("speeds", memory=0.5)
    capsys.readouterr()

    assert bench.check() == 0
    assert "better: speeds: memory: 1 -> 0.5" in capsys.readouterr().out


def test_ratios_about_the_same_pass(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """Their table is shown all the same."""
    bench.measure("speeds", speed=10)
    bench.check("--keep")
    bench.measure("speeds", speed=9)
    capsys.readouterr()

    assert bench.check() == 0

    shown = capsys.readouterr().out
    assert "-10 %" in shown
    assert "No ratio moved by more than a fifth." in shown


def test_other_settings_are_not_compared(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """However bad the ratios are: they are about something else. Other reports are compared."""
    bench.measure("speeds", {"rows": 100, "rounds": 3}, speed=10)
    bench.measure("others", speed=10)
    bench.check("--keep")
    bench.measure("speeds", {"rows": 5, "rounds": 3}, speed=1)
    capsys.readouterr()

    assert bench.check() == 2

    shown = capsys.readouterr().out
    assert "speeds: NOT COMPARED: rows is 5, kept with 100." in shown
    assert "python benchmarks/speeds.py" in shown
    assert "others: kept" in shown
    assert "WORSE" not in shown


def test_folders_and_parts_are_no_settings() -> None:
    """The same is measured elsewhere, and where less of it is."""
    settings = {"scale": 1.0, "parts": ["shards"], "train_path": "/a/b.csv", "name": "a/b"}

    assert comparable(settings) == {"scale": 1.0, "name": "a/b"}


@pytest.mark.parametrize("selection", ["parts", "peers"])
def test_parts_of_a_report_are_compared(
    bench: Bench, capsys: pytest.CaptureFixture[str], selection: str
) -> None:
    """What the report says it left out is shown, counted, and no failure."""
    bench.measure("speeds", {selection: ["a", "b"]}, part_a=10, part_b=0.9)
    bench.check("--keep")
    bench.measure("speeds", {selection: ["a"]}, part_a=10)
    capsys.readouterr()

    assert bench.check() == 0

    shown = capsys.readouterr().out
    assert "left out" in shown
    assert "Kept ratios: 1 compared, 0 not compared, 1 of parts that were left out." in shown


@pytest.mark.parametrize("settings", [{"rows": 100}, {"parts": ["a", "b"]}])
def test_a_ratio_that_is_missing_does_not_pass(
    bench: Bench, capsys: pytest.CaptureFixture[str], settings: dict[str, Any]
) -> None:
    """Whether its part was run without a figure of it, or it is of no part at all."""
    bench.measure("speeds", settings, part_a=10, part_b=0.9, speed=3)
    bench.check("--keep")
    bench.measure("speeds", settings, part_a=10)
    capsys.readouterr()

    assert bench.check() == 2

    shown = capsys.readouterr().out
    assert shown.count("MISSING") == 2
    assert "Kept ratios: 1 compared, 2 not compared, 0 of parts that were left out." in shown


def test_a_worse_ratio_counts_more_than_a_missing_one(bench: Bench) -> None:
    """The exit status tells the worse news."""
    bench.measure("speeds", speed=10, share=0.9)
    bench.check("--keep")
    bench.measure("speeds", speed=5)

    assert bench.check() == 1


def test_settings_of_a_part_count_where_it_was_run(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of a part that was left out, or of which nothing is kept, are no difference."""
    bench.measure(
        "speeds",
        {"parts": ["a", "b"], "by_part": {"a": {"rows": 1}, "b": {"rows": 2}}},
        part_a=10,
        part_b=0.9,
    )
    bench.check("--keep")
    bench.measure(
        "speeds",
        {"parts": ["a", "c"], "by_part": {"a": {"rows": 1}, "c": {"rows": 5}}},
        part_a=10,
        part_c=2,
    )
    assert bench.check() == 0
    bench.measure("speeds", {"parts": ["b"], "by_part": {"b": {"rows": 7}}}, part_b=0.1)
    capsys.readouterr()

    assert bench.check() == 2

    shown = capsys.readouterr().out
    assert "NOT COMPARED: by_part b is {'rows': 7}, kept with {'rows': 2}." in shown


def test_a_missing_report_does_not_pass_and_is_named_with_its_command(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is there is compared, and passes if only that one is asked for."""
    bench.measure("speeds", speed=10)
    bench.measure("others", speed=10, memory=3)
    bench.check("--keep")
    (bench.folder / "others.json").unlink()
    capsys.readouterr()

    assert bench.check() == 2

    shown = capsys.readouterr().out
    assert "others: NOT MEASURED. Run: python benchmarks/others.py" in shown
    assert "Kept ratios: 1 compared, 2 not compared" in shown
    assert bench.check("speeds") == 0
    assert bench.check("others") == 2


def test_without_reports_it_says_what_to_run(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether something is kept or not; there is nothing to keep then, either."""
    assert bench.check() == 2
    assert "make bench" in capsys.readouterr().out
    assert bench.check("--keep") == 2
    assert "make bench" in capsys.readouterr().out
    assert not bench.kept.exists()


def test_reports_without_kept_ratios_say_how_to_keep_them(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """A report that states none is left alone."""
    bench.measure("speeds", speed=10)
    bench.measure("plain")
    capsys.readouterr()

    assert bench.check() == 2

    shown = capsys.readouterr().out
    assert "python benchmarks/check.py --keep speeds" in shown
    assert "plain" not in shown


def test_keeping_one_report_leaves_the_others(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kept are value, direction, settings, date and machine, and no path."""
    bench.measure("speeds", {"rows": 5, "train_path": str(bench.folder)}, speed=1.23456, memory=2)
    bench.measure("others", speed=10)
    bench.check("--keep")
    bench.measure("speeds", {"rows": 5}, speed=3)
    bench.measure("others", speed=30)

    assert bench.check("--keep", "speeds") == 0

    assert "no longer kept, as it is not in the report: memory" in capsys.readouterr().out
    assert bench.kept_values("speeds") == {"speed": 3}
    assert bench.kept_values("others") == {"speed": 10}
    kept = json.loads(bench.kept.read_text(encoding="utf-8"))["speeds"]
    assert kept["settings"] == {"rows": 5}
    assert kept["machine"].keys() == {"processor", "cpus", "memory_bytes"}
    assert kept["date"].endswith("+00:00")
    assert str(bench.folder) not in bench.kept.read_text(encoding="utf-8")


def test_a_name_that_is_nowhere_is_an_error(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """It tells the names that there are."""
    bench.measure("speeds", speed=10)

    assert bench.check("speed") == 2
    assert "There is no report 'speed'" in capsys.readouterr().out


def test_a_ratio_is_a_number_with_a_name_of_its_own() -> None:
    """What can't be compared must not be stated."""
    report = Report("speeds", {})
    report.ratio("speed", 2)

    with pytest.raises(ValueError, match="two ratios 'speed'"):
        report.ratio("speed", 3)
    for value in (float("nan"), float("inf"), -1.0):
        with pytest.raises(ValueError, match="can't be kept"):
            report.ratio("other", value)


def test_a_report_has_the_name_of_its_script() -> None:
    """The command that makes it is told by its name."""
    folder = REPOSITORY / "benchmarks"
    names = {
        path.stem: re.findall(r'\bReport\(\s*"(\w+)"', path.read_text(encoding="utf-8"))
        for path in folder.glob("*.py")
    }

    assert {name for name, found in names.items() if found} >= {"against_lancetnic", "growth"}
    assert all(found == [name] for name, found in names.items() if found)
    assert all((folder.parent / command_of(name).split()[1]).exists() for name in names)
