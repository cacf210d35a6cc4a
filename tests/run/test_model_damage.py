"""Damaged and hostile model folders: one clear error, in little time and memory, or a model."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
import struct
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_files import CORPUS, edit_manifest, make_model, read_manifest
from safetensors.torch import save_file

from lancetnic_dask import load
from lancetnic_dask.errors import LancetnicError, ModelFileError
from lancetnic_dask.run.kept_files import kept_name
from lancetnic_dask.run.model_file import write_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lancetnic_dask import Model

# A small folder is read in milliseconds; this leaves room for a busy machine.
MAX_SECONDS = 5.0
MAX_BYTES = 64 << 20

any_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**31, 2**63, -1, 0, 10**30, 10**300])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
fuzzed = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hold a model that stays as it is."""
    folder = tmp_path_factory.mktemp("original") / "model"
    write_model(make_model(text_columns=("a",), ngram_range=(1, 2), stop_words=("my",)), folder)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """Hold a copy that may be spoilt."""
    return Path(shutil.copytree(original, tmp_path / "model"))


def scores_of(model: Model) -> np.ndarray:
    """Return what a model makes of a few rows."""
    numbers = np.arange(4.0 * len(model.data_columns)).reshape(4, -1)
    scores: np.ndarray = model.predict_proba(list(CORPUS), numbers)
    return scores


@pytest.fixture(scope="module")
def expected(original: Path) -> np.ndarray:
    """Scores of the model as it was written."""
    return scores_of(load(original))


def status(key: str) -> int:
    """Return a figure of this process in bytes; 0 where there is none."""
    path = Path("/proc/self/status")
    lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(key)), 0)


@contextmanager
def watched() -> Iterator[None]:
    """Bound the time, and by how much the greatest memory of this process grows."""
    if Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before, started = status("VmRSS"), time.perf_counter()
    yield
    assert time.perf_counter() - started < MAX_SECONDS
    assert status("VmHWM") - before < MAX_BYTES


def load_or_refuse(folder: Path) -> Model | None:
    """Return the model, or None after a ModelFileError that names the folder."""
    model, caught = None, None
    with watched():
        try:
            model = load(folder)
        except ModelFileError as error:
            caught = error
    if caught is not None:
        assert str(folder) in str(caught.where)
        assert caught.what
        assert caught.fix
    return model


def refused(folder: Path) -> str:
    """Return what the error says, without where and what to do; in little time and memory."""
    with watched(), pytest.raises(ModelFileError) as caught:
        load(folder)
    assert str(folder) in str(caught.value.where)
    return caught.value.what


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value, those that hold others too."""
    if path:
        yield path
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))


def replaced(manifest: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """Return a copy with another value at a path."""
    changed = copy.deepcopy(manifest)
    inner: Any = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


@fuzzed
@given(data=st.data())
def test_any_changed_value_of_model_json_is_refused(
    data: st.DataObject, original: Path, folder: Path, expected: np.ndarray
) -> None:
    """Unless it is no change. No value gets by, even one that would make a fine model."""
    manifest = read_manifest(original)
    path = data.draw(st.sampled_from(list(leaves(manifest))))
    changed = replaced(manifest, path, data.draw(any_json))
    (folder / "model.json").write_text(json.dumps(changed), encoding="utf-8")

    model = load_or_refuse(folder)
    if model is not None:
        assert changed == manifest
        assert np.array_equal(scores_of(model), expected)


@fuzzed
@given(data=st.data())
def test_any_value_of_an_attacker_is_refused_or_makes_a_model_that_predicts(
    data: st.DataObject, original: Path, folder: Path
) -> None:
    """The checksum fits here, so each value meets the check that is meant for it."""
    manifest = read_manifest(original)
    path = data.draw(st.sampled_from(list(leaves(manifest))))
    value = data.draw(any_json)
    shutil.copy(original / "model.json", folder)
    edit_manifest(folder, lambda found: found.update(replaced(manifest, path, value)))

    model = load_or_refuse(folder)
    if model is not None:
        with watched():
            try:
                scores = scores_of(model)
            except LancetnicError:
                return
        assert scores.shape == (4, 3)
        assert np.isfinite(scores).all()


@fuzzed
@given(
    role=st.sampled_from(["model.json", "weights", "vocabulary_0"]),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1),
    length=st.none() | st.floats(0, 1),
)
def test_changed_bytes_and_cut_files_are_refused(
    role: str,
    changes: list[tuple[float, int]],
    length: float | None,
    original: Path,
    folder: Path,
    expected: np.ndarray,
) -> None:
    """Any bytes of any file, any length: a ModelFileError, or the very same model."""
    name = role if role == "model.json" else read_manifest(original)["files"][role]["name"]
    data = bytearray((original / name).read_bytes())
    for where, byte in changes:
        data[int(where * len(data))] = byte
    if length is not None:
        del data[int(length * len(data)) :]
    (folder / name).write_bytes(data)

    model = load_or_refuse(folder)
    (folder / name).write_bytes((original / name).read_bytes())
    if model is not None:
        assert np.array_equal(scores_of(model), expected)


def put_file(folder: Path, role: str, data: bytes | Path) -> Path:
    """Put a file in place of one of the model's, as an attacker would: every digest fits."""
    content = data.read_bytes() if isinstance(data, Path) else data
    digest = hashlib.blake2b(content, digest_size=16).hexdigest()
    suffix = ".safetensors" if role == "weights" else ".arrows"
    path = folder / kept_name(role, suffix, digest)
    path.write_bytes(content)
    entry = {"name": path.name, "size": len(content), "blake2b": digest}
    edit_manifest(folder, lambda manifest: manifest["files"].update({role: entry}))
    return path


@fuzzed
@given(
    role=st.sampled_from(["weights", "vocabulary_0"]),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1),
    reach=st.sampled_from([16, 700, 1 << 20]),
)
def test_arrays_of_an_attacker_are_refused_or_make_a_model_that_predicts(
    role: str, changes: list[tuple[float, int]], reach: int, original: Path, folder: Path
) -> None:
    """Digests fit, so that headers, lengths and offsets themselves meet the checks."""
    shutil.copy(original / "model.json", folder)
    name = read_manifest(original)["files"][role]["name"]
    data = bytearray((original / name).read_bytes())
    for where, byte in changes:
        data[int(where * min(reach, len(data)))] = byte
    put_file(folder, role, bytes(data))

    model = load_or_refuse(folder)
    if model is not None:
        try:
            scores = scores_of(model)
        except LancetnicError:
            return
        assert np.isfinite(scores).all()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"7",
        b'"lancetnic_dask model"',
        b"[" * 100_000,
        b'{"format":' * 100_000,
        b'{"format": "lancetnic_dask model", "format_version": NaN}',
        b'{"format": "lancetnic_dask model", "format_version": 1e999}',
        b'{"format": "lancetnic_dask model", "format_version": ' + b"9" * 5000 + b"}",
        b'{"format": "a", "format": "b", "format_version": 1}',
        json.dumps({"format": "lancetnic_dask model", "format_version": 1}).encode("utf-16"),
        b'\xef\xbb\xbf{"format": "lancetnic_dask model", "format_version": 1}',
        b'{"format": "\\ud800", "format_version": 1}',
        b"\x80\x04\x95\x1c\x00\x00\x00\x00\x00\x00\x00",
    ],
    ids=[
        "empty", "list", "number", "text", "deep list", "deep object", "NaN", "infinite",
        "huge int", "name twice", "UTF-16", "BOM", "surrogate", "pickle",
    ],
)  # fmt: skip
def test_what_is_no_model_json_is_refused(folder: Path, text: bytes) -> None:
    """Strict JSON only, and not too deep."""
    (folder / "model.json").write_bytes(text)

    assert refused(folder).startswith("This is no model.json of a model: ")


def test_a_deep_value_in_a_model_json_is_refused(folder: Path) -> None:
    """Deep enough to be parsed and too deep to be compared, or deep in a field that is unused."""
    for depth in (100, 400, 900, 5000):
        text = (folder / "model.json").read_text(encoding="utf-8")
        deep = "[" * depth + "]" * depth
        (folder / "model.json").write_text(f'{{"x": {deep},{text[1:]}', encoding="utf-8")
        refused(folder)
        (folder / "model.json").write_text(text, encoding="utf-8")


def test_a_long_name_is_not_shown_whole(folder: Path) -> None:
    """A message is for people."""
    edit_manifest(folder, lambda manifest: manifest["model"]["args"].update({"x" * 100_000: 1}))

    assert len(refused(folder)) < 300


def test_a_large_model_json_is_not_read(folder: Path) -> None:
    """Nor is a sparse one of a terabyte."""
    os.truncate(folder / "model.json", 1 << 40)

    assert refused(folder) == "model.json has more than 16 MiB."


@pytest.mark.parametrize("role", ["weights", "vocabulary_0"])
def test_a_sparse_file_is_not_read(folder: Path, role: str) -> None:
    """A file of holes takes nothing on the disk, and would take all memory."""
    entry = read_manifest(folder)["files"][role]
    size = 1 << 31 if role == "vocabulary_0" else 1 << 40
    os.truncate(folder / entry["name"], size)
    edit_manifest(folder, lambda manifest: manifest["files"][role].update(size=size))

    assert "of them lie on the disk." in refused(folder)


def test_weights_are_not_read_if_the_shapes_need_another_size(folder: Path) -> None:
    """The size in model.json is the attacker's as well; bytes that nothing needs are not read."""
    path = folder / read_manifest(folder)["files"]["weights"]["name"]
    path = put_file(folder, "weights", path.read_bytes() + b"\0" * 1000)

    assert refused(folder).startswith("The model cannot be read: the weights take ")


def test_a_file_of_holes_is_allowed_where_it_is_small(folder: Path) -> None:
    """A file system may keep a page of zeros as a hole."""
    manifest = read_manifest(folder)
    path = folder / manifest["files"]["weights"]["name"]
    data = path.read_bytes()
    with path.open("wb") as stream:
        os.truncate(stream.fileno(), len(data))
        stream.write(data)
    load(folder)


def compressed_vocabulary(num_letters: int) -> bytes:
    """Return an Arrow stream of one term of so many letters, in a few kilobytes."""
    schema = pa.schema([("term", pa.string()), ("document_frequency", pa.int64())])
    batch = pa.record_batch([pa.array(["a" * num_letters]), pa.array([1])], schema=schema)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def test_a_compressed_vocabulary_is_refused_before_it_is_unpacked(folder: Path) -> None:
    """10 kB would become 256 MB."""
    data = compressed_vocabulary(256 << 20)
    assert len(data) < 50_000
    edit_manifest(folder, lambda manifest: manifest["vocabularies"][0].update(num_terms=1))
    put_file(folder, "vocabulary_0", data)

    assert refused(folder) == ("The model cannot be read: the vocabulary is compressed.")


def vocabulary(terms: Any, counts: list[int | None]) -> bytes:
    """Return an Arrow stream of a vocabulary."""
    schema = pa.schema([("term", pa.string()), ("document_frequency", pa.int64())])
    array = terms if isinstance(terms, pa.Array) else pa.array(terms, pa.string())
    batch = pa.record_batch([array, pa.array(counts, pa.int64())], schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


NOT_UTF8 = pa.StringArray.from_buffers(
    3, pa.py_buffer(np.array([0, 2, 4, 6], np.int32)), pa.py_buffer(b"aa\xff\xffbb")
)


def with_offsets(offsets: list[int]) -> bytes:
    """Return a vocabulary of three terms with other offsets than they have."""
    data = vocabulary(["aa", "bb", "cc"], [1, 1, 1])
    return data.replace(struct.pack("<4i", 0, 2, 4, 6), struct.pack("<4i", *offsets))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (vocabulary(["aa", "cc", "bb"], [1, 1, 1]), "the terms of the vocabulary do not ascend."),
        (vocabulary(["aa", "bb", "bb"], [1, 1, 1]), "the terms of the vocabulary do not ascend."),
        (vocabulary(["aa", None, "bb"], [1, 1, 1]), "the vocabulary has nulls."),
        (vocabulary(["aa", "bb", "cc"], [1, None, 1]), "the vocabulary has nulls."),
        (vocabulary(["aa", "bb", "cc"], [1, -1, 1]),
         "a term is in fewer than no rows, or in more than all."),
        (vocabulary(["aa", "bb", "cc"], [1, 5, 1]),
         "a term is in fewer than no rows, or in more than all."),
        (vocabulary(["aa", "bb"], [1, 1]), "the vocabulary has 2 terms, not 3."),
        (vocabulary(NOT_UTF8, [1, 1, 1]), None),
        (with_offsets([0, 2, 4, 2**30]), None),
        (with_offsets([0, 4, 2, 6]), None),
        (b"\0" * 200, None),
        (b"ARROW1\0\0" + vocabulary(["aa", "bb", "cc"], [1, 1, 1]), None),
        (vocabulary(["aa", "bb", "cc"], [1, 1, 1])[:-100],
         None),
    ],
    ids=[
        "order", "twice", "null term", "null count", "negative", "too many rows", "too few terms",
        "not UTF-8", "offsets beyond", "offsets back", "zeros", "file magic", "cut",
    ],
)  # fmt: skip
def test_a_vocabulary_that_is_none_is_refused(folder: Path, data: bytes, what: str | None) -> None:
    """Kernels look terms up without looking at bounds; what they get is looked at before."""
    edit_manifest(folder, lambda manifest: manifest["vocabularies"][0].update(num_terms=3))
    put_file(folder, "vocabulary_0", data)

    text = refused(folder)
    assert text.startswith("The model cannot be read: ")
    if what is not None:
        assert text == f"The model cannot be read: {what}"


def weights_with(folder: Path, **changes: torch.Tensor | None) -> bytes:
    """Return a safetensors file of the model's weights with some exchanged."""
    state = make_model(text_columns=("a",), ngram_range=(1, 2), stop_words=("my",)).state
    changed = {**state, **{name.replace("__", "."): one for name, one in changes.items()}}
    save_file({n: t for n, t in changed.items() if t is not None}, folder / "spoilt")
    data = (folder / "spoilt").read_bytes()
    (folder / "spoilt").unlink()
    return data


NOT_F32 = "the tensor 'model.0.bias' is not of the shape [8] and type F32."
NOT_FINITE = "the tensor 'model.0.bias' holds values that are no finite numbers."


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"model__0__bias": None}, "the tensor 'model.0.bias' is missing."),
        ({"other": torch.zeros(1)}, "the tensor 'other' is none of this model's."),
        ({"model__0__bias": torch.zeros(9)}, NOT_F32),
        ({"model__0__bias": torch.zeros(8, dtype=torch.float64)}, NOT_F32),
        ({"model__0__bias": torch.zeros(8, dtype=torch.int32)}, NOT_F32),
        ({"model__0__bias": torch.full((8,), float("nan"))}, NOT_FINITE),
        ({"model__0__bias": torch.full((8,), float("inf"))}, NOT_FINITE),
    ],
    ids=["missing", "one more", "shape", "double", "int", "NaN", "infinite"],
)
def test_weights_that_do_not_fit_are_refused(
    folder: Path, changes: dict[str, torch.Tensor | None], what: str
) -> None:
    """They are compared with what model.json describes."""
    put_file(folder, "weights", weights_with(folder, **changes))

    assert refused(folder) == f"The model cannot be read: {what}"


def header_of(entries: dict[str, Any], num_bytes: int, length: int | None = None) -> bytes:
    """Return a safetensors file with a header of our own."""
    header = json.dumps(entries).encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + b"\0" * num_bytes


@pytest.mark.parametrize(
    "spoil",
    [
        lambda entries: entries["model.0.bias"].update(data_offsets=[32, 64]),
        lambda entries: entries["model.0.bias"].update(data_offsets=[-32, 0]),
        lambda entries: entries["model.0.bias"].update(data_offsets=[10**15, 10**15 + 32]),
        lambda entries: entries["model.0.bias"].update(data_offsets=[0.0, 32.0]),
        lambda entries: entries["model.0.bias"].update(data_offsets=[False, 32]),
        lambda entries: entries["model.0.bias"].update(data_offsets=None),
        lambda entries: entries["model.0.bias"].update(shape=[10**12]),
        lambda entries: entries["model.0.bias"].update(shape="8"),
        lambda entries: entries.update({"model.0.bias": 7}),
        lambda entries: entries.update({"__metadata__": [], "x": 1}),
    ],
    ids=[
        "overlap",
        "below",
        "far",
        "float",
        "bool",
        "null",
        "shape",
        "text",
        "number",
        "unknown",
    ],
)
def test_headers_of_weights_that_point_elsewhere_are_refused(
    folder: Path, spoil: Callable[[dict[str, Any]], None]
) -> None:
    """Overlaps, gaps, absurd shapes and other types."""
    path = folder / read_manifest(folder)["files"]["weights"]["name"]
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    entries = json.loads(data[8 : 8 + length])
    spoil(entries)
    put_file(folder, "weights", header_of(entries, len(data) - 8 - length))

    assert refused(folder).startswith("The model cannot be read: the ")


@pytest.mark.parametrize(
    "data",
    [
        header_of({}, 0, length=2**63),
        header_of({}, 0, length=2**20 + 1),
        header_of({}, 100),
        struct.pack("<Q", 100_000) + b"[" * 100_000,
        struct.pack("<Q", 2) + b"[]",
        b"\0" * 7,
        b"\x80\x04\x95\x1c\x00\x00\x00\x00\x00\x00\x00cposix\nsystem\n",
    ],
    ids=["length", "above 1 MiB", "no tensors", "deep", "list", "short", "pickle"],
)
def test_what_is_no_file_of_weights_is_refused(folder: Path, data: bytes) -> None:
    """A pickle that was renamed is never unpickled."""
    put_file(folder, "weights", data)

    assert refused(folder).startswith("The model cannot be read: ")


@pytest.mark.parametrize(
    "name",
    ["../outside", "/etc/passwd", "a\0b", "", ".", "sub/file", "C:\\x", "model.json", "weights"],
    ids=repr,
)
def test_names_that_are_not_of_the_model_are_refused(folder: Path, name: str) -> None:
    """A name follows from role and digest, so that nothing else can be meant."""
    edit_manifest(folder, lambda manifest: manifest["files"]["weights"].update(name=name))

    assert refused(folder).startswith(
        f"The model cannot be used: files.weights.name is {name!r}; it must be 'weights-"
    )


def test_links_out_of_the_folder_are_refused(folder: Path, tmp_path: Path) -> None:
    """A model must not make us read a file of the machine."""
    for name in (read_manifest(folder)["files"]["weights"]["name"], "model.json"):
        (folder / name).rename(tmp_path / name)
        (folder / name).symlink_to(tmp_path / name)
        assert refused(folder) == f"{name!r} is no plain file of the model's folder."
        (folder / name).unlink()
        (tmp_path / name).rename(folder / name)
    load(folder)


def test_pipes_devices_and_folders_in_place_of_files_are_refused(folder: Path) -> None:
    """A pipe that nobody writes to would be waited for without end."""
    name = read_manifest(folder)["files"]["vocabulary_0"]["name"]
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert refused(folder) == f"{name!r} is no plain file of the model's folder."

    (folder / name).unlink()
    (folder / name).mkdir()
    assert refused(folder) == f"{name!r} is no plain file of the model's folder."

    (folder / name).rmdir()
    (folder / name).symlink_to("/dev/zero")
    assert refused(folder) == f"{name!r} is no plain file of the model's folder."

    (folder / name).unlink()
    (folder / name).symlink_to(name)
    assert refused(folder) == f"{name!r} is no plain file of the model's folder."


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("model", "args", "hidden_size"), 1 << 20),
        (("model", "args", "num_layers"), 1000),
        (("vocabularies", 0, "num_terms"), 2**31 - 2),
        (("vocabularies", 0, "num_distinct"), 2**63),
        (("vocabularies", 0, "num_training"), 2**63 - 1),
    ],
    ids=str,
)
def test_absurd_sizes_are_refused_before_anything_is_built(
    folder: Path, path: tuple[Any, ...], value: int
) -> None:
    """At the very edge of what each field may be, too."""
    manifest = read_manifest(folder)
    edit_manifest(folder, lambda found: found.update(replaced(manifest, path, value)))

    assert refused(folder).startswith("The model cannot be ")
