"""A model folder: written whole or not at all, read as it was written."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from model_files import edit_manifest, make_model, make_own_model, read_manifest
from own_models import OwnDense, OwnSparse
from safetensors.torch import load_file

from lancetnic_dask.corpus.whole_file import owner_tag
from lancetnic_dask.errors import ModelFileError, TrainingError
from lancetnic_dask.models import ScalpelMC
from lancetnic_dask.run import model_arrays, model_file
from lancetnic_dask.run.model_file import (
    ModelFile,
    copy_model,
    read_model,
    resolve_folder,
    stamp_of,
    write_model,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lancetnic_dask.run.kept_files import KeptFile

HEX = "0123456789abcdef"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Hold a model of one text and one number column."""
    write_model(make_model(), tmp_path / "model")
    return tmp_path / "model"


def assert_same_model(found: ModelFile, expected: ModelFile) -> None:
    """Compare bit for bit."""
    for name in ("model_class", "model_args", "roles", "ngram_range", "stop_words"):
        assert getattr(found, name) == getattr(expected, name)
    assert found.features.classes == expected.features.classes
    assert found.features.sublinear_tf is expected.features.sublinear_tf
    for name in ("count", "mean", "squares"):
        left = getattr(found.features.moments, name)
        assert left.dtype == np.float64
        assert left.tobytes() == getattr(expected.features.moments, name).tobytes()
    vocabularies = zip(found.features.vocabularies, expected.features.vocabularies, strict=True)
    for one, other in vocabularies:
        assert one.terms.equals(other.terms)
        assert one.document_frequency.dtype == np.int64
        assert one.document_frequency.tolist() == other.document_frequency.tolist()
        assert (one.num_training, one.num_distinct) == (other.num_training, other.num_distinct)
    assert set(found.state) == set(expected.state)
    for key, tensor in found.state.items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, expected.state[key])


def names_in(folder: Path) -> list[str]:
    """Return what lies in a folder."""
    return sorted(path.name for path in folder.iterdir())


def is_whole(folder: Path, *models: ModelFile) -> bool:
    """Whether the folder holds one of these models; raises if it holds none at all."""
    found = read_model(folder)
    return any(
        all(torch.equal(tensor, model.state[key]) for key, tensor in found.state.items())
        for model in models
    )


@pytest.mark.parametrize(
    "model",
    [
        make_model(),
        make_model(text_columns=("title", "текст"), data_columns=()),
        make_model(text_columns=(), data_columns=("x", "y")),
        make_model(classes=("-1", "2"), ngram_range=(1, 3), stop_words=("the", "ёж")),
        make_model(sublinear_tf=True, num_layers=1),
        make_model(text_columns=tuple(f"c{i:02}" for i in range(12)), texts=["aa bb"] * 12),
    ],
    ids=["text and number", "texts", "numbers", "n-grams", "sublinear", "twelve texts"],
)
def test_a_model_comes_back_as_it_was_written(model: ModelFile, tmp_path: Path) -> None:
    """Bits, types and order; NaN among the metrics is None."""
    write_model(model, tmp_path / "deep" / "model")

    found = read_model(tmp_path / "deep" / "model")
    assert_same_model(found, model)
    assert found.trained == {"epoch": 3, "train_loss": 0.25, "val_loss": None}


def test_the_folder_is_safetensors_arrow_and_json_for_any_other_program(folder: Path) -> None:
    """The weights are read by safetensors itself, and model.json is strict JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    manifest = json.loads((folder / "model.json").read_bytes(), parse_constant=refuse)
    weights = load_file(folder / manifest["files"]["weights"]["name"])

    assert sorted(weights) == sorted(make_model().state)
    assert all(torch.equal(weights[name], one) for name, one in make_model().state.items())
    assert manifest["format"] == "lancetnic_dask model"
    assert manifest["format_version"] == 1
    assert manifest["task"] == "classification"
    assert manifest["features"] == {
        "kind": "tfidf",
        "tokenizer_version": 1,
        "unicode_version": "14.0.0" if sys.version_info < (3, 12) else "15.0.0",
        "lowercase": True,
        "ngram_range": [1, 1],
        "stop_words": [],
        "sublinear_tf": False,
    }
    assert manifest["trained"]["val_loss"] is None


def test_every_file_may_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    """Workers may run under another user; safetensors' own writer lets only its user read."""
    write_model(make_model(), tmp_path)
    (tmp_path / "plain").touch()

    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert modes == {(tmp_path / "plain").stat().st_mode}


def test_a_newer_model_replaces_the_older_and_nothing_else(folder: Path) -> None:
    """Files of the user and sub-folders stay, also ones that look a little like ours."""
    others = {"notes.txt", "weights.safetensors", "vocabulary_0-backup.arrow", "old"}
    (folder / "old").mkdir()
    write_model(make_model(), folder / "old")
    for name in others - {"old"}:
        (folder / name).write_text("mine", encoding="utf-8")
    before = set(names_in(folder))

    write_model(make_model(seed=1), folder)

    after = set(names_in(folder))
    assert after - before == {read_manifest(folder)["files"]["weights"]["name"]}
    assert len(before - after) == 1
    assert others <= after
    assert_same_model(read_model(folder), make_model(seed=1))
    assert_same_model(read_model(folder / "old"), make_model())


def test_an_equal_vocabulary_is_not_written_again_unless_it_is_damaged(folder: Path) -> None:
    """It stays the same through all epochs; but a damaged file must not be taken for it."""
    path = folder / read_manifest(folder)["files"]["vocabulary_0"]["name"]
    inode = path.stat().st_ino
    write_model(make_model(seed=1), folder)
    assert path.stat().st_ino == inode

    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    write_model(make_model(seed=2), folder)
    assert_same_model(read_model(folder), make_model(seed=2))


def test_a_copied_model_is_the_same_and_shares_its_files(folder: Path, tmp_path: Path) -> None:
    """Hard links take no room; the best model must not double the disk."""
    copy_model(folder, tmp_path / "best")

    assert stamp_of(tmp_path / "best") == stamp_of(folder)
    assert names_in(tmp_path / "best") == names_in(folder)
    for entry in read_manifest(folder)["files"].values():
        assert (tmp_path / "best" / entry["name"]).samefile(folder / entry["name"])

    write_model(make_model(seed=1), folder)
    assert_same_model(read_model(tmp_path / "best"), make_model())
    copy_model(folder, tmp_path / "best")
    assert_same_model(read_model(tmp_path / "best"), make_model(seed=1))
    assert names_in(tmp_path / "best") == names_in(folder)


def test_a_model_is_copied_where_there_are_no_links(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another disk, or a file system without links; a damaged file is not copied."""

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", fail)
    copy_model(folder, tmp_path / "best")

    assert_same_model(read_model(tmp_path / "best"), make_model())
    name = read_manifest(folder)["files"]["weights"]["name"]
    assert not (tmp_path / "best" / name).samefile(folder / name)

    write_model(make_model(seed=1), folder)
    path = folder / read_manifest(folder)["files"]["weights"]["name"]
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(ModelFileError) as caught:
        copy_model(folder, tmp_path / "best")
    assert str(caught.value) == (
        f"The file is not as it was written.\n  at {path}\n  Copy the folder again."
    )
    assert_same_model(read_model(tmp_path / "best"), make_model())


def test_a_full_disk_leaves_the_older_model_and_no_rest(folder: Path) -> None:
    """The system's own error is told; a file-size limit stands for the disk."""
    before = names_in(folder)
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, old[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            write_model(make_model(seed=1, hidden_size=64), folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)

    assert caught.value.errno == errno.EFBIG
    assert names_in(folder) == before
    assert_same_model(read_model(folder), make_model())


@pytest.mark.parametrize("step", range(3))
def test_a_failed_sync_leaves_the_older_model_and_no_rest(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """At the weights, the folder, or model.json; the new files go again."""
    before = names_in(folder)
    real, calls = os.fsync, [0]

    def fail(descriptor: int) -> None:
        calls[0] += 1
        if calls[0] == (1, 3, 4)[step]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        write_model(make_model(seed=1), folder)

    assert names_in(folder) == before
    assert_same_model(read_model(folder), make_model())


KILLER = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from model_files import make_model
from lancetnic_dask.run import model_file, kept_files

root, action = Path(sys.argv[2]), sys.argv[3]
EVENTS = ("open", "os.rename", "os.remove", "os.link", "os.mkdir", "fsync")
left, armed = [0], [False]

def step(event, args):
    # Counts what changes the disk, and dies before it happens.
    if armed[0] and event in EVENTS:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

def fsync(descriptor, real=os.fsync):
    step("fsync", ())
    real(descriptor)

os.fsync = fsync
sys.addaudithook(step)
new = make_model(seed=1)
for number in range(200):
    folder = root / str(number)
    model_file.write_model(make_model(), folder)
    model_file.write_model(new, root / "new")
    pid = os.fork()
    if pid == 0:
        left[0], armed[0] = number, True
        if action == "write":
            model_file.write_model(new, folder)
        else:
            model_file.copy_model(root / "new", folder)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert status in (0, signal.SIGKILL), status
    if status == 0:
        break
"""


@pytest.mark.system
@pytest.mark.parametrize("action", ["write", "copy"])
def test_a_process_killed_at_any_step_leaves_a_whole_model(tmp_path: Path, action: str) -> None:
    """SIGKILL before each call that touches the disk: the model is the old one or the new."""
    tests = str(Path(__file__).parents[1])
    subprocess.run(
        [sys.executable, "-c", KILLER, tests, str(tmp_path), action], check=True, timeout=200
    )

    old, new = make_model(), make_model(seed=1)
    folders = sorted((path for path in tmp_path.iterdir() if path.name != "new"), key=str)
    assert len(folders) > 12
    kinds = set()
    for killed in folders:
        assert is_whole(killed, old, new)
        kinds.add(is_whole(killed, new))
        write_model(new, killed)  # the next write clears what the dead process left
        assert len(names_in(killed)) == 3
        assert is_whole(killed, new)
    assert kinds == {True, False}


def test_what_another_machine_or_a_living_process_writes_is_left_alone(folder: Path) -> None:
    """Only what a dead process of this machine left half-written is removed."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    host = owner_tag().rsplit("-", 2)[0]
    names = {
        "dead": f".model.{host}-{child.pid}-0123456789ab.partial",
        "alive": f".model.{host}-{os.getppid()}-0123456789ab.partial",
        "elsewhere": f".model.other-{child.pid}-0123456789ab.partial",
        "a user's": f"mine.{host}-{child.pid}-0123456789ab.partial",
    }
    for name in names.values():
        (folder / name).mkdir()
        (folder / name / "weights").touch()

    write_model(make_model(seed=1), folder)

    left = {kind for kind, name in names.items() if (folder / name).exists()}
    assert left == {"alive", "elsewhere", "a user's"}


def test_a_reader_goes_over_to_the_new_model_while_it_is_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """model.json was read, then its files went: the new model is read, once."""
    real, reads = model_file._read, [0]

    def replaced_meanwhile(where: Path, manifest: bytes, given: Any) -> ModelFile:
        reads[0] += 1
        write_model(make_model(seed=reads[0]), folder)
        return real(where, manifest, given)

    monkeypatch.setattr(model_file, "_read", replaced_meanwhile)
    with pytest.raises(ModelFileError, match="is missing"):
        read_model(folder)
    assert reads == [2]

    def replaced_once(where: Path, manifest: bytes, given: Any) -> ModelFile:
        reads[0] += 1
        if reads[0] == 3:
            write_model(make_model(seed=9), folder)
        return real(where, manifest, given)

    monkeypatch.setattr(model_file, "_read", replaced_once)
    assert_same_model(read_model(folder), make_model(seed=9))


@pytest.mark.parametrize("role", ["weights", "vocabulary_0"])
def test_a_file_that_goes_while_it_is_read_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    """The reader then looks for a new model, as for a file that was never there."""
    name = read_manifest(folder)["files"][role]["name"]

    def remove(path: Path, _: KeptFile) -> None:
        if path.name == name:
            path.unlink()

    monkeypatch.setattr(model_arrays, "check_digest", remove)
    assert refused(folder) == (
        f"The file {name!r} of the model is missing.\n  at {folder}\n  Copy the whole folder."
    )


@pytest.mark.system
def test_a_reader_beside_a_writer_always_finds_a_whole_model(folder: Path) -> None:
    """However the two interleave, each model that is read is one that was written."""
    models = [make_model(seed=seed) for seed in range(4)]
    stop = threading.Event()

    def write_on() -> None:
        number = 0
        while not stop.is_set():
            write_model(models[number % 4], folder)
            number += 1

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        failures = 0
        for _ in range(40):
            try:
                assert is_whole(folder, *models)
            except ModelFileError as error:  # replaced twice during one read
                assert "is missing" in str(error)  # noqa: PT017 - others would be a finding
                failures += 1
    finally:
        stop.set()
        writer.join(60)
    assert failures < 20


def peak_growth(action: Callable[[], object]) -> int:
    """Return by how many bytes the greatest memory of this process grew beyond that before."""

    def status(key: str) -> int:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith(key)).split()[1]) << 10

    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = status("VmRSS")
    kept = action()
    del kept
    return status("VmHWM") - before


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux tells peak memory")
def test_memory_holds_the_weights_once(tmp_path: Path) -> None:
    """Writing copies no weight, reading holds one copy: 96 MB here."""
    model = make_model(hidden_size=4900, num_layers=2)
    size = sum(tensor.nbytes for tensor in model.state.values())
    assert size > 90_000_000
    write_model(make_model(), tmp_path)

    assert peak_growth(lambda: write_model(model, tmp_path)) < 0.1 * size
    assert peak_growth(lambda: read_model(tmp_path)) < 1.1 * size
    assert_same_model(read_model(tmp_path), model)


def refused(folder: str | os.PathLike[str]) -> str:
    """Return the whole text of the error that a folder gives."""
    with pytest.raises(ModelFileError) as caught:
        read_model(folder)
    return str(caught.value)


ADVICE = "Pass a folder like runs/train_0/best_model."


def test_a_path_that_is_no_model_is_told_so(folder: Path, tmp_path: Path) -> None:
    """A missing folder, an empty one, a file, lancetnic's own .pt file, and what is no path."""
    (tmp_path / "empty").mkdir()
    lancetnic = tmp_path / "lancetnic.pt"
    lancetnic.write_bytes(b"PK\3\4")
    pt = f"{ADVICE} A model of lancetnic (.pt) can hold code and is not opened: train it anew."

    for path in (tmp_path / "none", tmp_path / "empty", tmp_path / "none.pt"):
        assert refused(path) == f"There is no model here: no model.json.\n  at {path}\n  {ADVICE}"
    run = tmp_path / "train_0"
    run.mkdir()
    folder = folder.rename(run / "best_model")
    assert refused(run) == (
        f"There is no model here: no model.json.\n  at {run}\n"
        f"  This is a run: pass {str(folder)!r}."
    )
    for path in (lancetnic, folder / "model.json"):
        assert refused(path) == f"This is a file, and a model is a folder.\n  at {path}\n  {pt}"
    for nothing in (None, 7, b"model", "x" * 5000, "~no_such_user_here/model"):
        with pytest.raises(ModelFileError, match=r"path of a model|no model here"):
            read_model(nothing)  # type: ignore[arg-type]


def test_lancetnics_file_name_stands_for_the_folder(folder: Path) -> None:
    """best_model.pt in a script means best_model here."""
    assert resolve_folder(f"{folder}.pt") == folder
    assert_same_model(read_model(f"{folder}.pt"), make_model())


def test_a_folder_may_be_a_link_and_may_be_moved(folder: Path, tmp_path: Path) -> None:
    """`latest -> train_3` is common, and the folder holds no path of its own."""
    (tmp_path / "latest").symlink_to(folder)
    assert_same_model(read_model(tmp_path / "latest"), make_model())

    folder.rename(tmp_path / "elsewhere")
    assert_same_model(read_model(tmp_path / "elsewhere"), make_model())


def test_files_that_are_missing_short_or_changed_are_named(folder: Path) -> None:
    """A folder that was copied in part."""
    for role in ("weights", "vocabulary_0"):
        path = folder / read_manifest(folder)["files"][role]["name"]
        data = path.read_bytes()

        path.write_bytes(data[:-1])
        assert refused(folder) == (
            f"The file has {len(data) - 1} bytes and should have {len(data)}.\n  at {path}\n"
            "  It was cut short or changed: copy the folder again."
        )
        path.write_bytes(data[:-8] + bytes([data[-8] ^ 64]) + data[-7:])
        assert refused(folder) == (
            f"The file is not as it was written.\n  at {path}\n  Copy the folder again."
        )
        path.unlink()
        assert refused(folder) == (
            f"The file {path.name!r} of the model is missing.\n  at {folder}\n"
            "  Copy the whole folder."
        )
        path.write_bytes(data)
    assert_same_model(read_model(folder), make_model())


def test_a_changed_model_json_is_noticed(folder: Path) -> None:
    """Every value counts, white space and order do not."""
    path = folder / "model.json"
    manifest = read_manifest(folder)
    path.write_text(json.dumps(dict(reversed(manifest.items()))), encoding="utf-8")
    assert_same_model(read_model(folder), make_model())

    manifest["moments"]["mean"][0] += 1e-9
    path.write_text(json.dumps(manifest), encoding="utf-8")
    assert refused(folder) == (
        f"model.json is not as it was written.\n  at {path}\n  Copy the model's folder again."
    )


NEWER = "Install a newer lancetnic_dask, or train the model anew."
DAMAGED = "It is damaged, or was not written by this program. Use another copy of it."


@pytest.mark.parametrize(
    ("keys", "value", "text"),
    [
        ("format", "sklearn",
         ("The format is 'sklearn'.\n  at {}\n  Pass a folder of the format "
         "'lancetnic_dask model'.")),
        ("format_version", 2,
         "The model has format version 2, which is newer than this lancetnic_dask: it reads "
         "version 1.\n  at {}\n  " + NEWER),
        ("format_version", 0,
         ("The model has format version 0, which is older than this lancetnic_dask: it reads "
         "version 1.\n  at {}\n  Train the model anew.")),
        ("format_version", True,
         ("This is no model.json of a model: Expected `int`, got `bool` - at `$.format_version`.\n"
         "  at {}\n  Use another copy of the model.")),
        ("task", "regression",
         "The model's task is 'regression'; this lancetnic_dask knows 'classification'.\n  at {}\n"
         "  " + NEWER),
        ("features.kind", "hashing",
         "The model reads features of the kind 'hashing'; this lancetnic_dask makes 'tfidf'.\n"
         "  at {}\n  " + NEWER),
        ("features.tokenizer_version", 2,
         "The model was trained on the words of tokenizer version 2, which is newer than that of "
         "this lancetnic_dask: 1.\n  at {}\n  " + NEWER),
        ("features.tokenizer_version", 0,
         ("The model was trained on the words of tokenizer version 0, which is older than that of "
         "this lancetnic_dask: 1.\n  at {}\n  Train the model anew.")),
        ("features.lowercase", False,
         "The model reads texts that are not lower-cased.\n  at {}\n  " + NEWER),
        ("model.name", "GPT",
         "There is no model 'GPT'.\n  at {folder}\n  " + NEWER),
        ("features.ngram_range", [1, 17],
         "The model cannot be used: Expected `int` <= 16 - at `$.features.ngram_range[1]`.\n"
         "  at {}\n  " + DAMAGED),
        ("features.ngram_range", [3, 2],
         "The model cannot be used: features.ngram_range is a list; it must be ascending.\n"
         "  at {}\n  " + DAMAGED),
        ("classes", ["a", "b", "a"],
         "The model cannot be used: classes is a list; it must be 2 to 1048576 distinct classes.\n"
         "  at {}\n  " + DAMAGED),
        ("moments.squares", [-1],
         "The model cannot be used: Expected `float` >= 0.0 - at `$.moments.squares[0]`.\n"
         "  at {}\n  " + DAMAGED),
        ("columns.data", [],
         "The model cannot be used: moments.count has 1 items; it must have 0.\n  at {}\n  "
         + DAMAGED),
        ("model.args.num_layers", 10**8,
         "The model cannot be used: Expected `int` <= 1000 - at `$.model.args.num_layers`.\n"
         "  at {}\n  " + DAMAGED),
        ("files.weights.name", "../weights",
         "The model cannot be used: files.weights.name is '../weights'; it must be "
         "'{weights}'.\n  at {}\n  " + DAMAGED),
        ("columns.text", ["size"],
         "The model cannot be used: Column 'size' has two roles.\n  at {}\n  " + DAMAGED),
    ],
)  # fmt: skip
def test_a_model_that_cannot_be_used_is_refused_with_the_field(
    folder: Path, keys: str, value: Any, text: str
) -> None:
    """Another version, another task, or a value that no model has; the checksum fits."""
    weights = read_manifest(folder)["files"]["weights"]["name"]

    def edit(manifest: dict[str, Any]) -> None:
        *parents, last = keys.split(".")
        for key in parents:
            manifest = manifest[key]
        manifest[last] = value

    edit_manifest(folder, edit)

    assert refused(folder) == text.format(folder / "model.json", folder=folder, weights=weights)


def test_another_unicode_version_is_logged_and_no_error(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A few rare letters may be cut otherwise; that is no reason to refuse a model."""
    edit_manifest(folder, lambda manifest: manifest["features"].update(unicode_version="99.0.0"))

    assert_same_model(read_model(folder), make_model())
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "trained with Unicode '99.0.0', this Python has" in record.getMessage()


def test_a_model_that_could_not_be_read_is_not_written(folder: Path) -> None:
    """What is written can always be read; the older model stays."""
    model = make_model(seed=1)
    broken = {**model.state, "model.0.bias": torch.full((8,), float("nan"))}
    doubled = {name: tensor.double() for name, tensor in model.state.items()}
    cases: list[tuple[ModelFile, type[Exception], str]] = [
        (replace(model, state=broken), TrainingError,
         (f"The weights 'model.0.bias' are no finite numbers any more.\n  at {folder}\n"
         "  Pass a lower learning_rate.")),
        (replace(model, ngram_range=(1, 20)), ModelFileError,
         ("The model could not be read again: The model cannot be used: Expected `int` <= 16 - at "
         f"`$.features.ngram_range[1]`.\n  at {folder}\n  Change its settings.")),
        (replace(model, state=doubled), ModelFileError,
         ("The model could not be read again: the tensor 'model.0.weight' is torch.float64 (23, 8) "
         f"and should be torch.float32 (23, 8).\n  at {folder}\n  Change its settings.")),
        (replace(model, model_class=torch.nn.ReLU), ModelFileError,
         ("The model could not be read again: ReLU cannot be made with (input_size, hidden_size, "
         "num_layers, num_classes, dropout): TypeError: ReLU.__init__() takes from 1 to 2 "
         f"positional arguments but 6 were given.\n  at {folder}\n  Change its settings.")),
    ]  # fmt: skip
    before = names_in(folder)
    for unfit, kind, text in cases:
        with pytest.raises(kind) as caught:
            write_model(unfit, folder)
        assert str(caught.value) == text
    assert names_in(folder) == before
    assert_same_model(read_model(folder), make_model())


def test_labels_that_would_make_model_json_too_large_are_refused_before_writing(
    tmp_path: Path,
) -> None:
    """A reader takes 16 MiB at most, so a writer writes no more."""
    model = make_model(classes=tuple(f"{i}{'x' * (1 << 20)}" for i in range(16)))
    with pytest.raises(ModelFileError) as caught:
        write_model(model, tmp_path / "model")

    assert str(caught.value).startswith("The model's model.json would have 16,77")
    assert not (tmp_path / "model").exists()


def test_two_models_have_two_stamps_and_a_copy_has_the_same(folder: Path, tmp_path: Path) -> None:
    """Not times or inodes: workers may have copies of their own."""
    first = stamp_of(folder)
    subprocess.run(["cp", "-r", str(folder), str(tmp_path / "copy")], check=True)
    write_model(make_model(), folder)

    assert stamp_of(tmp_path / "copy") == stamp_of(folder) == first
    write_model(make_model(seed=1), folder)
    assert stamp_of(folder) != first


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_named(folder: Path) -> None:
    """Permissions are the user's to change."""
    (folder / "model.json").chmod(0)
    assert refused(folder) == (
        f"The model cannot be read: Permission denied.\n  at {folder / 'model.json'}\n"
        "  Check its permissions."
    )


def test_a_model_of_the_users_is_read_only_with_its_class(tmp_path: Path) -> None:
    """Whole numbers, tied weights and numbers without a shape come back as they were."""
    model = make_own_model()
    write_model(model, tmp_path)

    found = read_model(tmp_path, OwnDense)

    assert {name: (one.dtype, one.shape) for name, one in found.state.items()} == {
        name: (one.dtype, one.shape) for name, one in model.state.items()
    }
    assert all(torch.equal(one, model.state[name]) for name, one in found.state.items())
    for given in (None, ScalpelMC):
        with pytest.raises(ModelFileError) as caught:
            read_model(tmp_path, given)
        assert str(caught.value) == (
            "The model was trained with the class 'own_models.OwnDense', and a model's folder "
            f"holds no code.\n  at {tmp_path}\n  Pass that class as model_name=."
        )


def test_weights_do_not_fit_another_class(tmp_path: Path) -> None:
    """A class of the same name may have changed since."""
    write_model(make_own_model(), tmp_path)

    with pytest.raises(ModelFileError) as caught:
        read_model(tmp_path, OwnSparse)

    assert str(caught.value) == (
        f"The model cannot be read: the tensor 'first.bias' is missing.\n  at {tmp_path}\n"
        "  It was trained with the class 'own_models.OwnDense': pass that, as it was then. Here "
        "model_name is OwnSparse."
    )
