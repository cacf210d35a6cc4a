"""Figures -> a table at the terminal and build/benchmarks/NAME.json.

A report holds the machine, the versions, the date and the sizes beside the figures: figures
without these mean nothing. Ratios within one run count; absolute times are those of the machine.
"""

from __future__ import annotations

import json
import math
import os
import platform
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import psutil

__all__ = ["BUILD", "REPOSITORY", "Report", "peer_python", "print_table"]

REPOSITORY = Path(__file__).resolve().parent.parent
BUILD = REPOSITORY / "build" / "benchmarks"

_PACKAGES = ("lancetnic_dask", "dask", "distributed", "torch", "pyarrow", "numpy", "numba",
             "pandas", "scikit-learn")  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A claim of the project beside what was measured.

    Parameters
    ----------
    name : str
        What is measured, with its unit.
    measured : float
        The figure.
    at_least, at_most : float or None, default=None
        Where it is wanted; None is no bound.
    """

    name: str
    measured: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def is_met(self) -> bool:
        """Whether the figure is where it is wanted."""
        is_high_enough = self.at_least is None or self.measured >= self.at_least
        return is_high_enough and (self.at_most is None or self.measured <= self.at_most)


@dataclass(frozen=True)
class Ratio:
    """A figure without a unit, which means the same on other days: `check.py` compares it.

    Parameters
    ----------
    value : float
        One speed, time or size over another of the same run.
    better : {"higher", "lower"}
        Which way is progress.
    part : str or None, default=None
        The selectable part (or peer) of the benchmark that it is of; None if it is always there.
    """

    value: float
    better: Literal["higher", "lower"]
    part: str | None = None


@dataclass
class Report:
    """What one benchmark brought.

    Parameters
    ----------
    name : str
        Name of the benchmark and of its file.
    settings : dict
        Sizes, options and constants of this run: all that decides what its ratios are about.
        "parts" and "peers" say what of the benchmark was run; "by_part" has settings of parts.
    figures : dict
        Everything measured, by name.
    targets : list of Target
        What the project claims, with the figure of this run.
    ratios : dict of str to Ratio
        What is compared with the ratios kept in the repository.
    versions : dict of str to str
        Of Python and the packages; those of the peers are added by the benchmarks.
    """

    name: str
    settings: dict[str, Any]
    figures: dict[str, Any] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)
    ratios: dict[str, Ratio] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._machine = _machine()
        self._date = datetime.now(UTC).isoformat(timespec="seconds")
        self.versions["python"] = platform.python_version()
        self.versions.update({name: version(name) for name in _PACKAGES})

    def aim(
        self,
        name: str,
        measured: float,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> None:
        """Note what was measured of a claim."""
        self.targets.append(Target(name, measured, at_least, at_most))

    def ratio(
        self,
        name: str,
        value: float,
        better: Literal["higher", "lower"] = "higher",
        *,
        part: str | None = None,
    ) -> None:
        """Note a ratio that is to be compared with the kept one, see `check.py`.

        Parameters
        ----------
        name : str
            What is over what; no other ratio of this report has that name.
        value : float
            Without a unit. No absolute time, speed or size: those are the machine's.
        better : {"higher", "lower"}, default="higher"
            Which way is progress.
        part : str or None, default=None
            The part in "parts" or "peers" of the settings that it is of: without that part it is
            left out, and not missing. None if it always belongs to the report.

        Raises
        ------
        ValueError
            If it is no number at all or negative, or the name is taken.
        """
        if name in self.ratios:
            raise ValueError(f"There are two ratios {name!r} in the report {self.name!r}.")
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"The ratio {name!r} of {self.name!r} is {value}: it can't be kept.")
        self.ratios[name] = Ratio(float(value), better, part)

    def table(self, header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
        """Print a table: texts to the left, numbers to the right."""
        print_table(header, rows)

    def finish(self, folder: Path = BUILD) -> Path:
        """Print the claims and write the report; return its file."""
        if self.targets:
            self.table(
                ("claim", "measured", "wanted", "met"),
                [
                    (
                        target.name,
                        target.measured,
                        _wanted(target),
                        "yes" if target.is_met else "NO",
                    )
                    for target in self.targets
                ],
            )
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        content = {
            "name": self.name,
            "date": self._date,
            "machine": self._machine,
            "versions": self.versions,
            "settings": self.settings,
            "figures": self.figures,
            "targets": [{**asdict(target), "is_met": target.is_met} for target in self.targets],
            "ratios": {name: asdict(ratio) for name, ratio in self.ratios.items()},
        }
        text = json.dumps(_plain(content), indent=1, allow_nan=False)
        path.write_text(text + "\n", encoding="utf-8")
        print(f"\n{path}")
        return path


def print_table(header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    """Print a table: the first column to the left, all others to the right."""
    shown = [header, *(tuple(map(_cell, row)) for row in rows)]
    widths = [max(len(row[column]) for row in shown) for column in range(len(header))]
    print()
    for line in shown:
        cells = [
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def peer_python() -> Path:
    """Return the Python of the peers' environment.

    Raises
    ------
    SystemExit
        If `make bench-setup` has not been run.
    """
    path = REPOSITORY / ".bench-venv" / "bin" / "python"
    if not path.exists():
        raise SystemExit("The peers are not installed. Run: make bench-setup")
    return path


def _machine() -> dict[str, Any]:
    """Describe the machine and how busy it is as the benchmark starts."""
    return {
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "load_before": os.getloadavg(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: an accuracy that is never reached takes null seconds."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def _wanted(target: Target) -> str:
    bounds = [("at least", target.at_least), ("at most", target.at_most)]
    return ", ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)
