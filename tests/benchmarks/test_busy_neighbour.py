"""The benchmark of a busy neighbour on a few rows: that it works, never how fast."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from busy_neighbour import fill_report, measure
from files import kept_corpus
from ours.threads_by_turns import WAYS, take_turns, taking
from report import Report

from lancetnic_dask.models import ScalpelMC
from lancetnic_dask.training import loop, scoring

if TYPE_CHECKING:
    from pathlib import Path

LOOP: Any = loop


@pytest.mark.system
def test_every_choice_of_threads_is_measured_alone_and_beside_a_neighbour(tmp_path: Path) -> None:
    """The speeds are those of real epochs; the report keeps two ratios and one claim."""
    path = kept_corpus(tmp_path / "corpora", num_rows=300)
    report = Report("busy_neighbour", {})

    fill_report(report, measure(tmp_path, path, rounds=1, max_features=100))

    ways = report.figures["ways"]
    assert list(ways) == list(WAYS)
    for way in ways.values():
        assert len(way["alone"]) == len(way["beside"]) == 1
        assert min(way["alone"][0], way["beside"][0], way["kept"]) > 0
    assert [target.measured for target in report.targets] == [ways["ours"]["kept"]]
    assert len(report.ratios) == 2
    written = json.loads(report.finish(tmp_path).read_text(encoding="utf-8"))
    assert list(written["figures"]["ways"]) == list(WAYS)
    assert not list(tmp_path.glob("lancetnic-bench-*"))


def test_the_report_compares_medians_with_the_best_other_choice() -> None:
    """An epoch that was slow by chance counts little."""
    report = Report("busy_neighbour", {})

    fill_report(
        report,
        {
            "ours": {"alone": [100.0, 80.0, 1.0], "beside": [90.0, 30.0, 64.0]},
            "torch 2": {"alone": [200.0], "beside": [32.0]},
            "numba 2": {"alone": [90.0], "beside": [10.0]},
        },
    )

    assert [ratio.value for ratio in report.ratios.values()] == [0.8, 2.0]
    assert report.targets[0].is_met
    assert report.figures["ways"]["torch 2"]["kept"] == 0.16


def test_half_of_the_speed_is_not_enough() -> None:
    """A step takes one of two processors: the neighbour has the other."""
    report = Report("busy_neighbour", {})

    fill_report(
        report,
        {
            "ours": {"alone": [100.0], "beside": [79.0]},
            "torch 2": {"alone": [200.0], "beside": [20.0]},
        },
    )

    assert not report.targets[0].is_met


def test_each_round_has_every_way_with_and_without_a_neighbour() -> None:
    """The first round is for compiling, and without one."""
    turns = take_turns(2)

    assert turns[: len(WAYS)] == [(name, False) for name in WAYS]
    measured = turns[len(WAYS) :]
    assert len(measured) == 4 * len(WAYS)
    assert all(measured.count((name, busy)) == 2 for name in WAYS for busy in (False, True))


def test_a_way_sets_the_threads_and_puts_everything_back() -> None:
    """The package's own choice is left to the package."""
    model = ScalpelMC(10, 4, 1, 2, 0.0)
    layer = model.model[0]
    layer.keeps_factors = True  # type: ignore[assignment]
    before = LOOP.one_torch_thread, scoring.one_torch_thread, torch.get_num_threads()

    with taking(WAYS["ours"], model):
        assert LOOP.one_torch_thread is before[0]
        assert layer.keeps_factors
    with taking(WAYS["numba 1 x torch 2"], model), LOOP.one_torch_thread():
        assert torch.get_num_threads() == 2
        assert not layer.keeps_factors

    assert (LOOP.one_torch_thread, scoring.one_torch_thread, torch.get_num_threads()) == before
    assert layer.keeps_factors
