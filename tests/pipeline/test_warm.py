"""What is loaded or compiled before it is needed."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lancetnic_dask.pipeline import warm
from lancetnic_dask.settings import TrainingSettings

if TYPE_CHECKING:
    from pathlib import Path

WARM = """
from lancetnic_dask.features.build import ShardRecipe
from lancetnic_dask.settings import ColumnRoles, SplitSettings

roles = ColumnRoles(text_columns=("text",), data_columns=("size",), label_column="label")
recipe = ShardRecipe(roles=roles, policy="error", ngram_range=(1, 2), stop_words=("the",))
"""
COMPILE = """
from lancetnic_dask.pipeline.warm import warm_kernels

warm_kernels(recipe)
"""
WORK = """
import pathlib, sys
from lancetnic_dask import Corpus
from lancetnic_dask.features.counts import count_partition

folder = pathlib.Path(sys.argv[1])
path = folder / "corpus.csv"
word = sys.argv[2]
text = '"{word} w{n} İx{n} ё{m} ""q"" Σας\\nline",{n}.5,c{label}\\n'
rows = [text.format(word=word, n=n, m=n // 2, label=n % 3) for n in range(20_000)]
path.write_text("text,size,label\\n" + "".join(rows), encoding="utf-8")
plan = Corpus.read_csv(path).plan
part = plan.only(plan.partitions[0])
counts = count_partition(part, recipe, SplitSettings(), None, None, folder / "counts")
assert counts.num_training and counts.num_validation
"""


def machine_code(folder: Path) -> set[str]:
    """Return the files of machine code below a folder."""
    return {path.name for path in folder.rglob("*.nbc")}


@pytest.mark.system
def test_workers_find_all_their_kernels_compiled(tmp_path: Path) -> None:
    """A partition with all that text can hold needs none that a run hasn't compiled before."""
    kernels = tmp_path / "kernels"

    def run(script: str, word: str = "") -> set[str]:
        subprocess.run(
            [sys.executable, "-c", WARM + script, str(tmp_path), word],
            env={**os.environ, "NUMBA_CACHE_DIR": str(kernels)},
            check=True,
        )
        return machine_code(kernels)

    compiled = run(COMPILE)

    assert compiled
    assert run(WORK, "the") - compiled == set()
    assert run(WORK, "no-stop-word") - compiled == set()


def test_what_cannot_be_loaded_ahead_is_left_to_its_own_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The run goes on, and the log tells."""

    def fail(*_: object) -> None:
        raise RuntimeError("no optimizer today")

    monkeypatch.setattr(warm, "Trainer", fail)
    caplog.set_level(logging.DEBUG, "lancetnic_dask")

    with warm.LoadAhead(TrainingSettings(num_epochs=1)) as loading:
        loading.wait_for_training()

    assert "could not be tried ahead of time" in caplog.text
    assert "no optimizer today" in caplog.text


@pytest.mark.parametrize("optim_name", ["auto", "Adam", "SGD"])
def test_a_tiny_network_is_trained_ahead(optim_name: str, caplog: pytest.LogCaptureFixture) -> None:
    """With each optimizer; what failed would only be logged."""
    caplog.set_level(logging.DEBUG, "lancetnic_dask")

    warm.warm_training(TrainingSettings(num_epochs=1, optim_name=optim_name))

    assert caplog.text == ""
