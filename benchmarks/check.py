"""The ratios of the last benchmarks beside those kept in the repository: what moved by a fifth.

    python benchmarks/check.py                  all reports in build/benchmarks: make bench-check
    python benchmarks/check.py pipeline_speed   only this one
    python benchmarks/check.py --keep           make the ratios of these reports the kept ones

Nothing is measured here. Only ratios are compared, each of figures of one run: absolute times are
those of a machine and a minute. A report with other settings than the kept ones is not compared.
Parts and peers that a report says it left out are not missed.

Exit status: 1 if a ratio got worse by more than a fifth; 2 if none did, but a kept ratio was not
compared: its report is not there, has other settings or lacks it, or there is nothing at all; 0
otherwise, also where something got better.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from report import BUILD, print_table

__all__ = ["KEPT", "Line", "compare", "differences", "main"]

KEPT = Path(__file__).with_name("kept") / "ratios.json"
MOVED = 0.2
# What of a benchmark is run: its parts don't depend on each other, and the rest is left out.
SELECTIONS = {"parts", "peers"}
# How often each way is run: a median of more runs is a better figure of the same thing.
REPEATS = {"rounds"}
# Settings that count for one part only, by part.
BY_PART = "by_part"

Report = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """One ratio, then and now.

    Parameters
    ----------
    name : str
        What is over what.
    better : {"higher", "lower"}
        Which way is progress.
    kept, now : float or None
        The ratio; None where there is none.
    is_left_out : bool, default=False
        Whether it is of a part that the present report says was not run.
    """

    name: str
    better: Literal["higher", "lower"]
    kept: float | None
    now: float | None
    is_left_out: bool = False

    @property
    def change(self) -> float | None:
        """By which share of the kept one it moved; None if one is missing."""
        if self.kept is None or self.now is None:
            return None
        if self.kept == 0:
            return 0.0 if self.now == 0 else math.inf
        return self.now / self.kept - 1

    @property
    def verdict(self) -> str:
        """What happened, in a word; empty if it is about the same."""
        if self.kept is None:
            return "new"
        if self.change is None:
            return "left out" if self.is_left_out else "MISSING"
        if abs(self.change) <= MOVED + 1e-9:  # 1.2 / 1 - 1 is a fifth
            return ""
        return "better" if (self.change > 0) == (self.better == "higher") else "WORSE"


def compare(kept: Report, now: Report) -> list[Line]:
    """Put the ratios of a report beside the kept ones.

    Parameters
    ----------
    kept, now : dict
        Each with "ratios": value, better direction and part by name; `now` with its settings.

    Returns
    -------
    list of Line
        The kept ones in their order, then those that are new.
    """
    lines = []
    for name in [*kept["ratios"], *(name for name in now["ratios"] if name not in kept["ratios"])]:
        then, today = kept["ratios"].get(name), now["ratios"].get(name)
        lines.append(
            Line(
                name,
                (today or then)["better"],
                None if then is None else then["value"],
                None if today is None else today["value"],
                is_left_out=today is None and is_left_out(then, now["settings"]),
            )
        )
    return lines


def is_left_out(ratio: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Return whether a ratio is of a part (or peer) that the settings of a report leave out."""
    chosen = [settings[name] for name in sorted(SELECTIONS & settings.keys())]
    return ratio.get("part") is not None and any(ratio["part"] not in parts for parts in chosen)


def differences(kept: Report, now: Report) -> list[str]:
    """Return what was set otherwise, so that the ratios are about something else.

    Settings of one part count where it was run, and where there are kept ratios of it.
    """
    then, today = comparable(kept["settings"]), comparable(now["settings"])
    then_by_part, today_by_part = then.pop(BY_PART, {}), today.pop(BY_PART, {})
    kept_parts = {ratio.get("part") for ratio in kept["ratios"].values()}
    for part in sorted(kept_parts & today_by_part.keys()):
        then[f"{BY_PART} {part}"] = then_by_part.get(part)
        today[f"{BY_PART} {part}"] = today_by_part[part]
    return [
        f"{name} is {today.get(name)}, kept with {then.get(name)}"
        for name in sorted(then.keys() | today.keys())
        if then.get(name) != today.get(name)
    ]


def comparable(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings without what doesn't count: files' places, parts that were run, repeats."""
    return {
        name: value
        for name, value in settings.items()
        if name not in SELECTIONS | REPEATS
        and not (isinstance(value, str) and Path(value).is_absolute())
    }


def kept_form(report: Report) -> Report:
    """Return what is kept of a report; four digits are more than a run tells."""
    machine = report["machine"]
    return {
        "date": report["date"],
        "machine": {name: machine[name] for name in ("processor", "cpus", "memory_bytes")},
        "settings": comparable(report["settings"]),
        "ratios": {
            name: {**ratio, "value": float(f"{ratio['value']:.4g}")}
            for name, ratio in report["ratios"].items()
        },
    }


def read_reports(folder: Path) -> dict[str, Report]:
    """Return the reports of a folder that state ratios, by name."""
    reports = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))
    ]
    return {one["name"]: one for one in reports if isinstance(one, dict) and one.get("ratios")}


def check(kept: dict[str, Report], reports: dict[str, Report], names: list[str]) -> int:
    """Compare the named reports, print what moved, and return the exit status."""
    moved: list[tuple[str, Line]] = []
    num_compared = num_missed = num_left_out = 0
    for name in names:
        if name not in kept:
            print(
                f"\n{name}: nothing is kept. To keep it: python benchmarks/check.py --keep {name}"
            )
        elif name not in reports:
            num_missed += len(kept[name]["ratios"])
            print(f"\n{name}: NOT MEASURED. Run: {command_of(name)}")
        elif others := differences(kept[name], reports[name]):
            num_missed += len(kept[name]["ratios"])
            print(f"\n{name}: NOT COMPARED: {'; '.join(others)}. Run: {command_of(name)}")
        else:
            lines = compare(kept[name], reports[name])
            print_comparison(name, kept[name], reports[name], lines)
            moved += [(name, line) for line in lines if line.verdict in ("better", "WORSE")]
            num_missed += sum(line.verdict == "MISSING" for line in lines)
            num_left_out += sum(line.verdict == "left out" for line in lines)
            num_compared += sum(line.change is not None for line in lines)
    print()
    for name, line in moved:
        print(f"{line.verdict}: {name}: {line.name}: {line.kept:.3g} -> {line.now:.3g}")
    print(
        f"Kept ratios: {num_compared} compared, {num_missed} not compared, "
        f"{num_left_out} of parts that were left out."
    )
    if not num_compared:
        print("Nothing was compared. Run: make bench")
    elif not moved:
        print("No ratio moved by more than a fifth.")
    if any(line.verdict == "WORSE" for _, line in moved):
        return 1
    return 2 if num_missed or not num_compared else 0


def print_comparison(name: str, kept: Report, now: Report, lines: list[Line]) -> None:
    """Print the table of one report, and where its two sides come from."""
    print(f"\n{name}: kept {kept['date']}, now {now['date']}")
    then, today = (
        f"{one['processor']}, {one['cpus']} CPUs" for one in (kept["machine"], now["machine"])
    )
    if then != today:
        print(f"The kept ones are of another machine: {then}; these: {today}.")
    print_table(
        ("ratio", "better", "kept", "now", "change", "moved?"),
        [
            (
                line.name,
                line.better,
                "-" if line.kept is None else line.kept,
                "-" if line.now is None else line.now,
                "" if line.change is None else f"{100 * line.change:+.0f} %",
                line.verdict,
            )
            for line in lines
        ],
    )


def command_of(name: str) -> str:
    """Return the command that makes a report: it has the name of its script."""
    return f"python benchmarks/{name}.py"


def keep(path: Path, kept: dict[str, Report], reports: dict[str, Report]) -> None:
    """Write the ratios of the reports as the kept ones; those of other reports stay."""
    for name, report in reports.items():
        lost = kept.get(name, {"ratios": {}})["ratios"].keys() - report["ratios"].keys()
        print(f"{name}: {len(report['ratios'])} ratios kept, {comparable(report['settings'])}")
        for ratio in sorted(lost):
            print(f"  no longer kept, as it is not in the report: {ratio}")
    merged = {**kept, **{name: kept_form(report) for name, report in reports.items()}}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(dict(sorted(merged.items())), indent=1, allow_nan=False, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    print(path)


def main(arguments: list[str] | None = None) -> int:
    """Compare or keep what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("reports", nargs="*", metavar="REPORT", help="only these; all by default")
    parser.add_argument("--keep", action="store_true", help="make the present ratios the kept ones")
    parser.add_argument("--folder", type=Path, default=BUILD, help="where the reports are")
    parser.add_argument("--kept", type=Path, default=KEPT, help="the file of kept ratios")
    given = parser.parse_args(arguments)
    kept = json.loads(given.kept.read_text(encoding="utf-8")) if given.kept.exists() else {}
    reports = read_reports(given.folder)
    for name in given.reports:
        if name not in kept and name not in reports:
            known = ", ".join(sorted(kept.keys() | reports.keys())) or "none"
            print(f"There is no report {name!r}, neither kept nor measured. There are: {known}.")
            return 2
    names = given.reports or sorted(kept.keys() | reports.keys())
    if not given.keep:
        return check(kept, reports, names)
    chosen = {name: reports[name] for name in names if name in reports}
    if not chosen:
        print(f"There is nothing to keep in {given.folder}. Run: make bench")
        return 2
    keep(given.kept, kept, chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
