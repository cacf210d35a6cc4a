"""The benchmark of steps: what its ratios are of, and what it writes; never how fast it is."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import sparse_step
import torch
from report import Report

if TYPE_CHECKING:
    from pathlib import Path

SPEEDS = {
    "ours, torch 1": 1000.0,
    "ours, torch 2": 5000.0,
    "ours in parallel numba 1, torch 1": 10.0,
    "EmbeddingBag + Adagrad, torch 1": 100.0,
    "EmbeddingBag + Adagrad, torch 2": 250.0,
    "nn.Linear + Adam, torch 1": 20.0,
    "nn.Linear + Adam, torch 2": 10.0,
}
KERNELS = {"group: numba counting sort (ours)": 10.0, "group: torch.sort": 40.0}


def test_a_peer_is_compared_at_its_best_threads(capsys: pytest.CaptureFixture[str]) -> None:
    """Ours takes one thread, as a run does; all speeds are shown."""
    report = Report("sparse_step", {})

    sparse_step.note_ratios(report, SPEEDS, KERNELS)

    assert {name: ratio.value for name, ratio in report.ratios.items()} == {
        "step: ours over EmbeddingBag + Adagrad, at its best threads": 4.0,
        "step: ours over nn.Linear + Adam, at its best threads": 50.0,
        "time of group: torch.sort over ours": 4.0,
    }
    shown = capsys.readouterr().out
    assert "EmbeddingBag + Adagrad" in shown
    assert all(speed in shown for speed in ("100", "250", "20", "10"))


def test_the_dense_part_of_a_peer_is_that_of_ours() -> None:
    """Both have torch's fused Adam."""
    ours, peer = sparse_step.make_ours(50, 1), sparse_step.make_bag(50, 1, torch.optim.Adagrad)

    assert peer.optimizers[1].param_groups[0]["fused"]
    assert any(group.get("fused") for group in ours.optimizers[0].param_groups if "betas" in group)


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_busy_neighbour_leaves_no_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_busy: bool
) -> None:
    """Its figures would be compared with those of a quiet machine; --json has them."""
    figures = tmp_path / "figures.json"
    command: list[Any] = ["sparse_step.py", "--rows", "200", "--columns", "300"]
    command += ["--folder", str(tmp_path / "reports"), "--json", str(figures)]
    with (
        mock.patch.object(sparse_step, "time_steps", return_value=SPEEDS),
        mock.patch.object(sparse_step, "time_kernels", return_value=KERNELS),
        mock.patch.object(sys, "argv", [*command, *["--busy"] * is_busy]),
    ):
        sparse_step.main()

    assert json.loads(figures.read_text(encoding="utf-8"))["busy"] is is_busy
    report = tmp_path / "reports" / "sparse_step.json"
    assert report.exists() is not is_busy
    assert ("No report" in capsys.readouterr().out) is is_busy
    if not is_busy:
        settings = json.loads(report.read_text(encoding="utf-8"))["settings"]
        assert settings == {
            "rows": 200, "columns": 300, "rounds": 5, "seed": 0,
            "hidden": sparse_step.HIDDEN, "batch": sparse_step.BATCH,
            "num_classes": sparse_step.NUM_CLASSES,
        }  # fmt: skip
