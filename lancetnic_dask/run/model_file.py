"""Model <-> a folder of safetensors, Arrow and JSON: arrays and words, never code.

``model.json`` names the other files with their sizes and digests and is replaced last, in one
step. Until then the folder is what it was before: a model is written whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from lancetnic_dask.errors import ModelFileError, quoted
from lancetnic_dask.features.counts import Moments
from lancetnic_dask.features.vocabulary import Vocabulary
from lancetnic_dask.features.weighting import FittedFeatures
from lancetnic_dask.settings import ColumnRoles

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

__all__ = ["MANIFEST_NAME", "ModelFile", "read_model", "resolve_folder", "write_model"]

FORMAT = "lancetnic_dask model"
FORMAT_VERSION = 1
MANIFEST_NAME = "model.json"
_MANIFEST_BYTES = 256 << 20
_VOCABULARY_SCHEMA = pa.schema([("term", pa.string()), ("document_frequency", pa.int64())])


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """All that is needed to predict.

    Parameters
    ----------
    model_name : str
        Name in the registry of models.
    model_args : dict
        What the model was made with: hidden_size, num_layers, num_classes, dropout.
    roles : ColumnRoles
        Columns that it reads.
    features : FittedFeatures
        Vocabularies, moments and classes.
    ngram_range : tuple of (int, int)
        Word n-grams.
    stop_words : tuple of str
        Words that are dropped.
    trained : dict
        Epoch, losses and rows: for people, not for predicting.
    state : dict of str to torch.Tensor
        Weights.
    """

    model_name: str
    model_args: dict[str, Any]
    roles: ColumnRoles
    features: FittedFeatures
    ngram_range: tuple[int, int]
    stop_words: tuple[str, ...]
    trained: dict[str, Any]
    state: Mapping[str, torch.Tensor]


def write_model(model: ModelFile, folder: Path) -> None:
    """Write a model whole or not at all; an older one in the folder is replaced.

    Parameters
    ----------
    model : ModelFile
        What to write.
    folder : Path
        Made if need be.

    Raises
    ------
    OSError
        If the disk is full or the folder can't be written. The older model is still whole then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {"weights": _keep(folder, "weights", ".safetensors", save_tensors(dict(model.state)))}
    for index, vocabulary in enumerate(model.features.vocabularies):
        name = f"vocabulary_{index}"
        files[name] = _keep(folder, name, ".arrow", _vocabulary_bytes(vocabulary))
    manifest = json.dumps(_manifest(model, files), ensure_ascii=False, indent=1)
    _write_synced(folder / MANIFEST_NAME, manifest.encode())
    named = {MANIFEST_NAME, *(file["name"] for file in files.values())}
    for stale in folder.iterdir():
        if stale.name not in named:
            stale.unlink()


def resolve_folder(path: str | os.PathLike[str]) -> Path:
    """Return the model's folder; lancetnic's name ``best_model.pt`` stands for ``best_model``.

    Raises
    ------
    ModelFileError
        If there is no model there.
    """
    folder = Path(path).expanduser()
    if not (folder / MANIFEST_NAME).is_file() and folder.suffix == ".pt":
        folder = folder.with_suffix("")
    if (folder / MANIFEST_NAME).is_file():
        return folder
    if Path(path).is_file():
        raise ModelFileError(
            "This is a file, and a model is a folder.",
            os.fspath(path),
            "Pass a folder like runs/train_0/best_model. A model of lancetnic (.pt) can hold "
            "code and is not opened: train it anew.",
        )
    raise ModelFileError(
        f"There is no model here: no {MANIFEST_NAME}.",
        os.fspath(path),
        "Pass a folder like runs/train_0/best_model.",
    )


def read_model(path: str | os.PathLike[str]) -> ModelFile:
    """Read what `write_model` wrote, without running anything that stands in it.

    Parameters
    ----------
    path : str or os.PathLike
        The model's folder.

    Returns
    -------
    ModelFile
        An equal model.

    Raises
    ------
    ModelFileError
        If there is no model, or it is broken, cut short, of another program, or too new.
    """
    folder = resolve_folder(path)
    manifest = _read_manifest(folder)
    try:
        contents = {name: _read_file(folder, entry) for name, entry in manifest["files"].items()}
        roles = ColumnRoles(
            text_columns=tuple(manifest["columns"]["text"]),
            data_columns=tuple(manifest["columns"]["data"]),
            label_column=manifest["columns"]["label"],
        )
        features = FittedFeatures(
            vocabularies=tuple(
                _read_vocabulary(contents[f"vocabulary_{index}"], entry)
                for index, entry in enumerate(manifest["vocabularies"])
            ),
            moments=Moments(
                *(
                    np.array(manifest["moments"][name], np.float64)
                    for name in ("count", "mean", "squares")
                )
            ),
            sublinear_tf=bool(manifest["features"]["sublinear_tf"]),
            classes=tuple(manifest["classes"]),
        )
        low, high = manifest["features"]["ngram_range"]
        return ModelFile(
            model_name=manifest["model"]["name"],
            model_args=manifest["model"]["args"],
            roles=roles,
            features=features,
            ngram_range=(int(low), int(high)),
            stop_words=tuple(manifest["features"]["stop_words"]),
            trained=manifest["trained"],
            state=load_tensors(contents["weights"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, SafetensorError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(
            f"The model cannot be read: {type(error).__name__} {quoted(str(error))}.",
            str(folder),
            "It is damaged, or was not written by this program. Use another copy of it.",
        ) from error


def _manifest(model: ModelFile, files: dict[str, dict[str, Any]]) -> dict[str, Any]:
    features, moments = model.features, model.features.moments
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "model": {"name": model.model_name, "args": model.model_args},
        "columns": {
            "text": model.roles.text_columns,
            "data": model.roles.data_columns,
            "label": model.roles.label_column,
        },
        "features": {
            "ngram_range": model.ngram_range,
            "stop_words": model.stop_words,
            "sublinear_tf": features.sublinear_tf,
        },
        "vocabularies": [
            {"num_training": one.num_training, "num_distinct": one.num_distinct}
            for one in features.vocabularies
        ],
        "moments": {
            "count": moments.count.tolist(),
            "mean": moments.mean.tolist(),
            "squares": moments.squares.tolist(),
        },
        "classes": features.classes,
        "trained": model.trained,
        "files": files,
    }


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST_NAME
    if path.stat().st_size > _MANIFEST_BYTES:
        raise ModelFileError("model.json is absurdly large.", str(path), "This is no model.")
    try:
        manifest = json.loads(path.read_bytes())
        is_ours = manifest["format"] == FORMAT
        version = manifest["format_version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFileError(
            "model.json is not a model's.", str(path), "Use another copy of the model."
        ) from error
    if not is_ours:
        raise ModelFileError(
            f"The format is {quoted(manifest['format'])}.", str(path), f"Pass a {FORMAT}."
        )
    if version != FORMAT_VERSION:
        raise ModelFileError(
            f"The format version is {quoted(version)}; this version of lancetnic_dask reads "
            f"{FORMAT_VERSION}.",
            str(path),
            "Install a newer lancetnic_dask, or train the model anew.",
        )
    return dict(manifest)


def _keep(folder: Path, name: str, suffix: str, data: bytes) -> dict[str, Any]:
    """Write bytes under a name that tells their digest; equal ones are there already."""
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    path = folder / f"{name}-{digest[:12]}{suffix}"
    if not (path.exists() and path.stat().st_size == len(data)):
        _write_synced(path, data)
    return {"name": path.name, "size": len(data), "blake2b": digest}


def _write_synced(path: Path, data: bytes) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _read_file(folder: Path, entry: dict[str, Any]) -> bytes:
    name = entry["name"]
    if name != Path(name).name:
        raise ModelFileError(
            f"model.json names the file {quoted(name)}.", str(folder), "Do not use this model."
        )
    path: Path = folder / name
    if not path.is_file():
        raise ModelFileError(
            f"The file {name!r} of the model is missing.", str(folder), "Copy the whole folder."
        )
    size = path.stat().st_size
    if size != entry["size"]:
        raise ModelFileError(
            f"The file has {size} bytes and should have {entry['size']}.",
            str(path),
            "It was cut short: copy the folder again.",
        )
    data = path.read_bytes()
    if hashlib.blake2b(data, digest_size=16).hexdigest() != entry["blake2b"]:
        raise ModelFileError(
            "The file is not as it was written.", str(path), "Copy the folder again."
        )
    return data


def _vocabulary_bytes(vocabulary: Vocabulary) -> bytes:
    table = pa.table(
        [vocabulary.terms, pa.array(vocabulary.document_frequency)], schema=_VOCABULARY_SCHEMA
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _read_vocabulary(data: bytes, entry: dict[str, Any]) -> Vocabulary:
    table = pa.ipc.open_file(pa.BufferReader(data)).read_all()
    if table.schema != _VOCABULARY_SCHEMA:
        raise ValueError(f"vocabulary of schema {table.schema}")
    table.validate(full=True)
    return Vocabulary(
        terms=pa.concat_arrays(table["term"].chunks),
        document_frequency=table["document_frequency"].to_numpy(),
        num_training=int(entry["num_training"]),
        num_distinct=int(entry["num_distinct"]),
    )
