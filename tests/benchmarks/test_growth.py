"""Growth of costs: sizes, figures of real runs on a few rows, and pictures that stay the same."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING
from unittest import mock
from xml.etree import ElementTree as ET

import growth
import pytest
from commands import Outcome
from report import Report

if TYPE_CHECKING:
    from pathlib import Path

SVG = "{http://www.w3.org/2000/svg}"


def points(*sizes: int) -> growth.Points:
    """Return made-up points: seconds as the size, a speed that falls, memory that grows slowly."""
    return {
        size: {
            "seconds": 10.0 + size,
            "cpu_seconds": 12.0 + size,
            "tokenize_seconds": 8.0 / size,
            "epoch_seconds": 0.5 * size,
            "rows_per_second": 1000.0 / size,
            "peak_bytes": (100 + size) * growth.MIB,
        }
        for size in sizes
    }


def test_tables_shrink_with_the_scale_and_models_do_not() -> None:
    """At full scale the sizes are those of the table of series, in its order."""
    for quantity, series in growth.SERIES.items():
        assert growth.sizes_at(quantity, 1.0) == list(series.sizes)
    assert growth.sizes_at("rows", 0.01) == [250, 500, 1000, 2500, 5000, 10_000]
    assert growth.sizes_at("vocabulary", 0.001) == [20, 50, 100, 200]
    assert growth.sizes_at("hidden", 0.01) == list(growth.SERIES["hidden"].sizes)


@pytest.mark.parametrize(
    ("quantity", "size", "expected", "workers"),
    [
        ("rows", 300, {"max_features": 20_000}, None),
        ("vocabulary", 50, {"max_features": 50}, None),
        ("hidden", 32, {"hidden_size": 32, "max_features": 20_000}, None),
        ("workers", 2, {"partition_bytes": 2 << 20}, "2"),
    ],
)
def test_only_the_quantity_is_changed(
    tmp_path: Path, quantity: str, size: int, expected: dict[str, int], workers: str | None
) -> None:
    """It reaches the command as an option of train(), or as Dask's setting."""
    figures = {
        "median_rows_per_second": 50.0,
        "num_rows": {"training": 100},
        "seconds": {"tokenize": 0.5},
    }
    with mock.patch.object(growth, "run_command") as run:
        run.return_value = Outcome(3.0, 7, 2.0, figures=figures)
        measured = growth.measure(tmp_path, quantity, [size], scale=0.001)

    command, environment = run.call_args.args[0], run.call_args.kwargs["environment"]
    assert expected.items() <= json.loads(command[2]).items()
    assert environment.get("DASK_LANCETNIC__CLUSTER__WORKERS") == workers
    assert measured[size] == {
        "seconds": 3.0,
        "cpu_seconds": 2.0,
        "tokenize_seconds": 0.5,
        "epoch_seconds": 2.0,
        "rows_per_second": 50.0,
        "peak_bytes": 7,
    }


def test_settings_are_those_of_the_series_that_are_measured() -> None:
    """Another size, corpus or option makes other ratios."""
    settings = growth.settings_of(0.01, ["rows", "hidden"])

    assert (settings["scale"], settings["parts"]) == (0.01, ["rows", "hidden"])
    assert settings["by_part"].keys() == {"rows", "hidden"}
    rows = settings["by_part"]["rows"]
    assert rows["sizes"] == [250, 500, 1000, 2500, 5000, 10_000]
    assert rows["options"] == {"num_epochs": 2, "max_features": 20_000}
    assert rows["rare_words"] == growth.SERIES["rows"].rare_words


def test_a_run_that_was_stopped_gives_no_figure(tmp_path: Path) -> None:
    """The benchmark ends, and says at which size."""
    with (
        mock.patch.object(growth, "run_command", return_value=Outcome(9, 1, 1, "stopped")),
        pytest.raises(SystemExit, match="hidden 64: stopped"),
    ):
        growth.measure(tmp_path, "hidden", [64], scale=0.001)


def test_ratios_are_those_that_are_promised() -> None:
    """Rows and vocabulary are not to slow training down; hidden units have their price."""
    report = Report("growth", {})

    for quantity, sizes in (("rows", (1, 4)), ("vocabulary", (2, 20)), ("hidden", (1, 8)),
                            ("workers", (1, 2, 4))):  # fmt: skip
        growth.fill_report(report, quantity, points(*sizes))

    assert {name: (one.value, one.better) for name, one in report.ratios.items()} == {
        "rows: training rows/s, most over fewest": (0.25, "higher"),
        "rows: memory, most over fewest": (104 / 101, "lower"),
        "vocabulary: training rows/s, most over fewest": (0.1, "higher"),
        "workers: tokenizing speed, two over one": (2, "higher"),
    }
    assert list(report.figures) == list(growth.SERIES)
    assert all(one.part == name.partition(":")[0] for name, one in report.ratios.items())


@pytest.mark.parametrize("quantity", list(growth.SERIES))
def test_the_same_points_give_the_same_picture(tmp_path: Path, quantity: str) -> None:
    """It is small, names its axes with their units, and has a tick for each size."""
    sizes = growth.SERIES[quantity].sizes
    paths = [tmp_path / name for name in ("a.svg", "b.svg", "c.svg")]
    for path, shown in zip(paths, (sizes, sizes, sizes[:-1]), strict=True):
        growth.draw(quantity, points(*shown), path)

    first, second, shorter = (path.read_bytes() for path in paths)
    assert first == second != shorter
    assert len(first) < 60_000
    texts = {"".join(one.itertext()).strip() for one in ET.fromstring(first).iter(f"{SVG}text")}  # noqa: S314 - made here
    assert {"seconds", "peak memory of all processes, MiB", growth.SERIES[quantity].label} <= texts
    assert {"end to end", "tokenize", "train an epoch"} <= texts
    assert {growth.short(size) for size in sizes} <= texts


def test_sizes_are_short_on_ticks() -> None:
    """Without a loss."""
    assert [growth.short(size) for size in (32, 1024, 2_000, 25_000, 1_500_000)] == [
        "32", "1024", "2k", "25k", "1.5M",
    ]  # fmt: skip


@pytest.mark.system
def test_workers_are_measured_and_drawn_again(tmp_path: Path) -> None:
    """A real run of the command, of one size on a few rows; its report is enough to draw."""
    few = growth.SERIES["workers"]._replace(sizes=(1,))
    command = ["growth.py", "--only", "workers", "--folder", str(tmp_path)]
    with (
        mock.patch.dict(growth.SERIES, {"workers": few}),
        mock.patch.object(sys, "argv", [*command, "--scale", "0.001"]),
    ):
        growth.main()
    figures = tmp_path / "figures"
    with mock.patch.object(sys, "argv", [*command, "--redraw", "--figures", str(figures)]):
        growth.main()

    report = json.loads((tmp_path / "growth.json").read_text(encoding="utf-8"))
    point = report["figures"]["workers"]["1"]
    settings = report["settings"]
    assert (settings["scale"], settings["parts"]) == (0.001, ["workers"])
    assert settings["by_part"].keys() == {"workers"}
    assert settings["by_part"]["workers"]["sizes"] == [1]
    assert 0 < point["tokenize_seconds"] < point["seconds"]
    assert point["epoch_seconds"] * point["rows_per_second"] == pytest.approx(400, rel=0.1)
    assert point["peak_bytes"] > 50 * growth.MIB
    assert [path.name for path in figures.iterdir()] == ["growth_workers.svg"]


def test_nothing_is_drawn_without_a_report(tmp_path: Path) -> None:
    """It says how to get one."""
    with pytest.raises(SystemExit, match="without --redraw first"):
        growth.read_figures(tmp_path / "growth.json")
