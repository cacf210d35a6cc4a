"""Reports: tables, claims, and the file that is kept."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from report import Report, Target

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_claim_is_met_within_its_bounds() -> None:
    """The bound itself is met."""
    assert Target("speed", 150, at_least=150).is_met
    assert not Target("speed", 149.9, at_least=150).is_met
    assert Target("memory", 1.0, at_most=1).is_met
    assert not Target("memory", 1.2, at_most=1).is_met


def test_a_report_holds_what_figures_need(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Machine, versions, date and sizes stand beside the figures."""
    report = Report("speeds", {"rows": 10})
    report.figures.update(speed=2.5, by_rows={10: math.inf})
    report.aim("speed", 2.5, at_least=3)

    content = json.loads(report.finish(tmp_path).read_text(encoding="utf-8"))

    assert content["settings"] == {"rows": 10}
    assert content["figures"] == {"speed": 2.5, "by_rows": {"10": None}}
    assert content["targets"] == [
        {"name": "speed", "measured": 2.5, "at_least": 3, "at_most": None, "is_met": False}
    ]
    assert content["machine"]["cpus"] >= 1
    assert content["machine"]["memory_bytes"] > 0
    assert {"python", "torch", "lancetnic_dask"} <= content["versions"].keys()
    assert content["date"].endswith("+00:00")
    assert "speed  " in capsys.readouterr().out


def test_a_table_is_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    """Texts to the left, numbers to the right, thousands with commas."""
    Report("speeds", {}).table(("way", "rows/s"), [("ours", 12345.6), ("another", 7)])

    assert capsys.readouterr().out == "\nway      rows/s\nours     12,346\nanother       7\n"
