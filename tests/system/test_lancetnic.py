"""Scripts of lancetnic's users run against both libraries, import lines apart.

lancetnic 4.1.0 stands beside the tests (see the Makefile); its own mistakes are asserted where a
test says that ours differs.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import yaml
from corpora import make_corpus
from lancetnic_scripts import (
    INFERENCE,
    MISTAKES,
    PICTURES,
    SCRIPTS,
    Mistake,
    Script,
    with_our_imports,
)
from matplotlib.image import imread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.system

all_scripts = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)

TRAINING_ROWS, VALIDATION_ROWS = 1200, 400
# What counts as the same type of prediction: a text stays a text, a whole number a whole number.
KINDS = {
    "builtins.str": "text",
    "numpy.str_": "text",
    "builtins.int": "whole number",
    "numpy.int64": "whole number",
}
# Percentage points that ours may be below. On the same rows two of them may fall otherwise, as
# the weights are drawn differently. Where each library chooses its own rows (240), 4 points are two
# standard errors of the difference of two shares near 95 %.
SAME_ROWS_POINTS = 100 * 2 / VALIDATION_ROWS
OTHER_ROWS_POINTS = 4.0


@dataclass(frozen=True)
class Outcome:
    """What a script left: where it ran, its exit status, and what it printed."""

    folder: Path
    returncode: int
    stdout: str
    stderr: str

    def run_folder(self, number: int = 0) -> Path:
        """Return the folder of a run of a script that came to its end."""
        assert self.returncode == 0, self.stderr
        return self.folder / "runs" / f"train_{number}"

    def results(self, number: int = 0) -> pd.DataFrame:
        """Return the metrics by epoch as a user of pandas reads them."""
        return pd.read_csv(self.run_folder(number) / "result.csv")

    def best_accuracy(self, number: int = 0) -> float:
        """Return the best validation accuracy, in percent."""
        return float(self.results(number)["val_acc, %"].max())

    @property
    def predictions(self) -> list[tuple[str, str]]:
        """Name of the type, and text, of each prediction."""
        assert self.returncode == 0, self.stderr
        lines = [line for line in self.stdout.splitlines() if line.startswith("RESULT ")]
        assert len(lines) == 1, self.stdout
        return [(name, text) for name, text in json.loads(lines[0].removeprefix("RESULT "))]


@dataclass(frozen=True)
class Pair:
    """One script, run by lancetnic and by lancetnic_dask."""

    theirs: Outcome
    ours: Outcome


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the folder of the CSV files, if there is a lancetnic to compare with."""
    try:
        version = importlib.metadata.version("lancetnic")
    except importlib.metadata.PackageNotFoundError:
        version = "not installed"
    if version != "4.1.0":
        pytest.fail(
            f"lancetnic 4.1.0 is what these tests compare with; it is {version}. "
            "Run: pip install --no-deps lancetnic==4.1.0 (make test does)."
        )
    folder = tmp_path_factory.mktemp("tables")
    _write_tables(folder)
    return folder


@pytest.fixture(scope="module")
def run(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Script], Pair]:
    """Return a function that runs a script with both libraries, once for all tests."""

    @functools.cache
    def run_once(script: Script) -> Pair:
        return _run_pair(script.text, tables, tmp_path_factory.mktemp("script"))

    return run_once


@all_scripts
def test_only_import_lines_differ(script: Script) -> None:
    """What our users must change is the word lancetnic in the import lines."""
    theirs, ours = script.text.splitlines(), with_our_imports(script.text).splitlines()

    changed = [(old, new) for old, new in zip(theirs, ours, strict=True) if old != new]
    assert changed
    for old, new in changed:
        assert old.startswith(("import ", "from "))
        assert new == old.replace("lancetnic", "lancetnic_dask")


@all_scripts
def test_a_script_comes_to_its_end(script: Script, run: Callable[[Script], Pair]) -> None:
    """Neither library fails, and both make the same run folders."""
    pair = run(script)

    assert pair.theirs.returncode == 0, pair.theirs.stderr
    assert pair.ours.returncode == 0, pair.ours.stderr
    for outcome in (pair.theirs, pair.ours):
        assert "Traceback" not in outcome.stderr, outcome.stderr
        folders = {path.name for path in (outcome.folder / "runs").iterdir() if path.is_dir()}
        assert folders == {f"train_{number}" for number in range(script.num_runs)}


@all_scripts
def test_a_run_folder_holds_the_same_files(script: Script, run: Callable[[Script], Pair]) -> None:
    """A model is a folder here, under lancetnic's name without its ending."""
    pair = run(script)

    for number in range(script.num_runs):
        theirs, ours = (outcome.run_folder(number) for outcome in (pair.theirs, pair.ours))
        files = {path.name for path in theirs.iterdir() if path.suffix != ".png"}
        assert files == {"best_model.pt", "last_model.pt", "result.csv"}
        for name in files:
            path = ours / name
            if path.suffix == ".pt":
                path = path.with_suffix("") / "model.json"
            assert path.is_file()
        # lancetnic writes it beside its folder, whose name and a backslash begin the file's.
        assert theirs.with_name(rf"{theirs.name}\hyperparams.yaml").is_file()
        assert (ours / "hyperparams.yaml").is_file()
    assert [path for path in (pair.ours.folder / "runs").rglob("*") if "\\" in path.name] == []


@all_scripts
def test_a_run_folder_holds_the_same_pictures(
    script: Script, run: Callable[[Script], Pair]
) -> None:
    """Every PNG of lancetnic's is there, can be read, and shows something."""
    pair = run(script)

    for number in range(script.num_runs):
        theirs, ours = (outcome.run_folder(number) for outcome in (pair.theirs, pair.ours))
        assert {path.name for path in theirs.glob("*.png")} == PICTURES
        assert {path.name for path in ours.glob("*.png")} >= PICTURES
        for name in PICTURES:
            pixels = imread(ours / name)
            assert min(pixels.shape[:2]) >= 200, name
            assert pixels[..., :3].std() > 0.01, name


@all_scripts
def test_result_csv_reads_the_same(script: Script, run: Callable[[Script], Pair]) -> None:
    """The header is the same byte for byte; pandas finds the same columns, types and epochs."""
    pair = run(script)

    for number in range(script.num_runs):
        headers = [
            (outcome.run_folder(number) / "result.csv").read_bytes().partition(b"\n")[0]
            for outcome in (pair.theirs, pair.ours)
        ]
        assert headers[1] == headers[0]
        theirs, ours = pair.theirs.results(number), pair.ours.results(number)
        assert ours.dtypes.to_dict() == theirs.dtypes.to_dict()
        assert ours["epoch"].tolist() == theirs["epoch"].tolist()
        assert not ours.isna().to_numpy().any()
        shares = [name for name in ours.columns if name == "F1_score" or name.endswith("%")]
        percent = ours[shares].to_numpy(float)
        assert percent.shape[1] == 5
        assert percent.min() >= 0
        assert 1 < percent.max() <= 100


@all_scripts
def test_hyperparameters_are_told_the_same(script: Script, run: Callable[[Script], Pair]) -> None:
    """All that lancetnic writes stands in the same place; ours may say more."""
    pair = run(script)

    for number in range(script.num_runs):
        folder = pair.theirs.run_folder(number)
        theirs = _read_yaml(folder.with_name(rf"{folder.name}\hyperparams.yaml"))
        ours = _read_yaml(pair.ours.run_folder(number) / "hyperparams.yaml")
        if not script.names_optimizer:
            assert theirs["train_params"].pop("optimizer") == "Adam"
            assert ours["train_params"]["optimizer"] == "auto"
        if not script.has_val_path:
            # lancetnic takes words from the rows that validate too, which is peeking.
            size = theirs["model_params"].pop("input_size")
            assert 0 < ours["model_params"]["input_size"] <= size
        for section, values in theirs.items():
            assert {name: ours[section][name] for name in values} == values


@all_scripts
def test_predictions_are_the_same(script: Script, run: Callable[[Script], Pair]) -> None:
    """Clear cases get the same class, as a value of the same type."""
    pair = run(script)

    theirs, ours = (
        [(KINDS[name], text) for name, text in outcome.predictions]
        for outcome in (pair.theirs, pair.ours)
    )
    assert ours == theirs


@all_scripts
def test_accuracy_is_not_lower(script: Script, run: Callable[[Script], Pair]) -> None:
    """The best accuracy on validation rows reaches lancetnic's."""
    pair = run(script)
    allowed = SAME_ROWS_POINTS if script.has_val_path else OTHER_ROWS_POINTS

    for number in range(script.num_runs):
        theirs, ours = pair.theirs.best_accuracy(number), pair.ours.best_accuracy(number)
        assert theirs > 90, "lancetnic learned too little to compare with"
        assert ours >= theirs - allowed


def test_a_model_is_used_by_another_process(tables: Path, run: Callable[[Script], Pair]) -> None:
    """Inference as documented names no columns: `Classification()`, then `predict`."""
    trained = run(SCRIPTS[0])

    pair = _run_pair(INFERENCE.text, tables, trained.ours.folder.parent)

    assert pair.ours.predictions == pair.theirs.predictions
    assert len(pair.ours.predictions) == 5


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_ends_the_script(mistake: Mistake, tables: Path, tmp_path: Path) -> None:
    """Exit status 1 and a message with what was passed and what is known; no run folder."""
    ours = _run_script(with_our_imports(mistake.text), tables, tmp_path)

    assert ours.returncode == 1, ours.stdout
    message = ours.stderr.rpartition("lancetnic_dask.errors.")[2]
    for word in mistake.named:
        assert word in message
    assert not (tmp_path / "runs").exists()


def test_lancetnic_goes_on_after_all_of_them(tables: Path, tmp_path: Path) -> None:
    """What the test above is for: it prints a line at most, and exits with 0."""
    theirs = _run_script("".join(mistake.text for mistake in MISTAKES), tables, tmp_path)

    assert theirs.returncode == 0, theirs.stderr
    # Three names that it does not know were replaced; a missing column or file ended `train`.
    assert len(list((tmp_path / "runs").glob("train_*/result.csv"))) == 3


def _run_pair(text: str, tables: Path, folder: Path) -> Pair:
    """Run a script with both libraries at once, in the folders ``theirs`` and ``ours``."""
    theirs, ours = folder / "theirs", folder / "ours"
    with (
        _started(text, tables, theirs) as first,
        _started(with_our_imports(text), tables, ours) as second,
    ):
        return Pair(_outcome(theirs, first), _outcome(ours, second))


def _run_script(text: str, tables: Path, folder: Path) -> Outcome:
    """Run a script as it is, in a folder that is made if need be."""
    with _started(text, tables, folder) as process:
        return _outcome(folder, process)


def _outcome(folder: Path, process: subprocess.Popen[str]) -> Outcome:
    """Wait for a script."""
    stdout, stderr = process.communicate(timeout=200)
    return Outcome(folder, process.returncode, stdout, stderr)


@contextmanager
def _started(text: str, tables: Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a script beside copies of the CSV files; it does not outlive the block."""
    folder.mkdir(parents=True, exist_ok=True)
    for table in ("train.csv", "val.csv"):
        shutil.copyfile(tables / table, folder / table)
    (folder / "script.py").write_text(text, encoding="utf-8")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "Agg",
        "XDG_CACHE_HOME": str(tables / "cache"),  # of matplotlib's fonts, and of our shards
        "PYTHONIOENCODING": "utf-8",  # lancetnic prints Russian
    }
    with subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _write_tables(folder: Path) -> None:
    """Write ``train.csv`` and ``val.csv``: columns for every script.

    ``text`` in whole, and cut into ``title`` and ``body``; the numbers ``size`` (says little
    about the class), ``weight`` (says much); the classes as words in ``label``, as whole numbers
    in ``stars``.
    """
    corpus = folder / "corpus.csv"
    make_corpus(
        corpus,
        num_rows=TRAINING_ROWS + VALIDATION_ROWS,
        num_classes=6,
        words_per_row=30,
        signal=0.3,
    )
    table = pd.read_csv(corpus)
    corpus.unlink()
    rng = np.random.default_rng(0)
    words = table["text"].str.split()
    table["title"] = words.str[:10].str.join(" ")
    table["body"] = words.str[10:].str.join(" ")
    table["stars"] = table["label"].str.removeprefix("class").astype(int)
    table["weight"] = rng.normal(table["stars"], 0.25).round(4)
    table[:TRAINING_ROWS].to_csv(folder / "train.csv", index=False)
    table[TRAINING_ROWS:].to_csv(folder / "val.csv", index=False)


def _read_yaml(path: Path) -> dict[str, dict[str, Any]]:
    """Return the sections of a file of settings."""
    sections: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return sections
