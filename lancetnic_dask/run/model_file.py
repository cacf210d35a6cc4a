"""Model <-> a folder of safetensors, Arrow and JSON: arrays and words, never code.

``model.json`` names the other files with their sizes and digests and is replaced last, in one
step. Until then the folder is what it was before: a model is written whole or not at all. Its
fields are checked in `model_json`, the arrays in `model_arrays`.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from safetensors import SafetensorError

from lancetnic_dask.errors import (
    LancetnicError,
    ModelFileError,
    SettingError,
    TrainingError,
    quoted,
)
from lancetnic_dask.features.moments import Moments
from lancetnic_dask.features.weighting import FittedFeatures
from lancetnic_dask.models.networks import NetworkPlan, state_template
from lancetnic_dask.models.registry import is_users_class, resolve_model
from lancetnic_dask.run import kept_files, model_arrays, model_json
from lancetnic_dask.run.kept_files import MANIFEST_NAME, KeptFile
from lancetnic_dask.run.model_json import Manifest, file_suffixes, parse_manifest, reason_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import nn

    from lancetnic_dask.settings import ColumnRoles

__all__ = [
    "MANIFEST_NAME",
    "ModelFile",
    "copy_model",
    "read_model",
    "read_stamped",
    "resolve_folder",
    "stamp_of",
    "write_model",
]

_MANIFEST_BYTES: Final = 16 << 20
# What Arrow, torch, safetensors and we say of a folder that is no model's.
_BROKEN: Final = (
    LancetnicError, OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError,
    MemoryError, RuntimeError, pa.ArrowException, SafetensorError,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """All that is needed to predict.

    Parameters
    ----------
    model_class : type[nn.Module]
        One of the package's models, or the user's.
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
        Epoch, losses and rows: for people, not for predicting. NaN is kept as None.
    state : dict of str to torch.Tensor
        Weights.
    """

    model_class: type[nn.Module]
    model_args: dict[str, Any]
    roles: ColumnRoles
    features: FittedFeatures
    ngram_range: tuple[int, int]
    stop_words: tuple[str, ...]
    trained: dict[str, Any]
    state: Mapping[str, torch.Tensor]

    @property
    def network_plan(self) -> NetworkPlan:
        """What the network is made with."""
        return NetworkPlan(
            model_class=self.model_class,
            input_size=self.features.input_size,
            num_numeric=self.features.num_numeric,
            **self.model_args,
        )


def write_model(model: ModelFile, folder: Path) -> None:
    """Write a model whole or not at all; an older one in the folder is replaced.

    Killed at any moment, the folder holds the older model or the new one. Files that are not
    ours stay. Two processes must not write into one folder at once.

    Parameters
    ----------
    model : ModelFile
        What to write; weights on the CPU are not copied.
    folder : Path
        Made if need be.

    Raises
    ------
    OSError
        If the disk is full or the folder can't be written.
    ModelFileError
        If `read_model` would refuse it.
    TrainingError
        If a weight is no finite number. After each of these the older model is still whole.
    """
    _check_writable(model, folder)
    vocabularies = model.features.vocabularies
    with kept_files.staging(folder) as stage:
        model_arrays.write_weights(model.state, stage / "weights")
        for index, vocabulary in enumerate(vocabularies):
            model_arrays.write_vocabulary(vocabulary, stage / f"vocabulary_{index}")
        files = {
            role: kept_files.keep_file(stage, role, suffix)
            for role, suffix in file_suffixes(len(vocabularies)).items()
        }
        kept_files.publish(stage, _manifest_bytes(model, files))


def copy_model(source_folder: Path, target_folder: Path) -> None:
    """Put a model into a second folder as well, whole or not at all, as `write_model` does.

    Where the file system allows, both folders share the files of arrays (hard links), which
    takes neither time nor room.

    Parameters
    ----------
    source_folder : Path
        Folder of a model.
    target_folder : Path
        Made if need be; an older model in it is replaced.

    Raises
    ------
    OSError
        If the disk is full or the folder can't be written. The older model is still whole then.
    ModelFileError
        If there is no model to copy.
    """
    manifest = _read_manifest(source_folder)
    where = str(source_folder / MANIFEST_NAME)
    files = parse_manifest(manifest, where).files
    with kept_files.staging(target_folder) as stage:
        for kept in files.values():
            kept_files.link_file(kept, source_folder, stage)
        kept_files.publish(stage, manifest)


def resolve_folder(path: str | os.PathLike[str]) -> Path:
    """Return the model's folder; lancetnic's name ``best_model.pt`` stands for ``best_model``.

    Raises
    ------
    ModelFileError
        If there is no model there.
    """
    advice = "Pass a folder like runs/train_0/best_model."
    try:
        given = Path(path).expanduser()
        folder = given
        if not (folder / MANIFEST_NAME).is_file() and folder.suffix == ".pt":
            folder = folder.with_suffix("")
        if (folder / MANIFEST_NAME).is_file():
            return folder
        is_file = given.is_file()
    except (TypeError, RuntimeError, OSError) as error:  # no path at all; no such user; too long
        raise ModelFileError(f"{quoted(path)} is no path of a model.", None, advice) from error
    if is_file:
        raise ModelFileError(
            "This is a file, and a model is a folder.",
            os.fspath(path),
            f"{advice} A model of lancetnic (.pt) can hold code and is not opened: train it anew.",
        )
    if (given / "best_model" / MANIFEST_NAME).is_file():
        advice = f"This is a run: pass {str(given / 'best_model')!r}."
    raise ModelFileError(f"There is no model here: no {MANIFEST_NAME}.", os.fspath(path), advice)


def read_model(
    path: str | os.PathLike[str], model_class: type[nn.Module] | None = None
) -> ModelFile:
    """Read what `write_model` wrote, without running anything that stands in it.

    Parameters
    ----------
    path : str or os.PathLike
        The model's folder.
    model_class : type[nn.Module] or None, default=None
        The user's class, for a model that was trained with one: code is not in the folder.

    Returns
    -------
    ModelFile
        An equal model.

    Raises
    ------
    ModelFileError
        If there is no model, or it is broken, cut short, of another program, or too new.

    Notes
    -----
    Memory holds the weights once. A folder makes it take about as much as the folder takes on
    the disk, and no more, whatever stands in it; for a class of the user's whose constructor
    needs real numbers, what that takes comes on top.
    """
    return read_stamped(path, model_class)[0]


def read_stamped(
    path: str | os.PathLike[str], model_class: type[nn.Module] | None = None
) -> tuple[ModelFile, str]:
    """Read a model, and the stamp that it has; see `read_model` and `stamp_of`."""
    folder = resolve_folder(path)
    manifest = _read_manifest(folder)
    try:
        return _read(folder, manifest, model_class), _digest(manifest)
    except ModelFileError:
        again = _read_manifest(folder)
        if again == manifest:
            raise
    # The model was replaced while it was read, and the files of the older one are gone.
    return _read(folder, again, model_class), _digest(again)


def stamp_of(folder: Path) -> str:
    """Return what tells a model from any other: the digest of its model.json.

    It tells all that the model is, so copies of one model have one stamp on every machine.

    Raises
    ------
    ModelFileError
        If there is no model.
    """
    return _digest(_read_manifest(folder))


def _digest(manifest: bytes) -> str:
    return kept_files.new_digest(manifest).hexdigest()


def _read_manifest(folder: Path) -> bytes:
    path = folder / MANIFEST_NAME
    try:
        kept_files.check_plain(path)
        with path.open("rb") as stream:
            manifest = stream.read(_MANIFEST_BYTES + 1)
    except OSError as error:
        raise ModelFileError(
            f"The model cannot be read: {error.strerror}.", str(path), "Check its permissions."
        ) from error
    if len(manifest) > _MANIFEST_BYTES:
        raise ModelFileError(
            f"{MANIFEST_NAME} has more than {_MANIFEST_BYTES >> 20} MiB.",
            str(path),
            "This is no model. Use another copy of it.",
        )
    return manifest


def _read(folder: Path, manifest: bytes, given: type[nn.Module] | None) -> ModelFile:
    found = parse_manifest(manifest, str(folder / MANIFEST_NAME))
    model_class = _class_of(found.model, given, folder)
    try:
        vocabularies = tuple(
            model_arrays.read_vocabulary(folder, found.files[f"vocabulary_{index}"], sizes)
            for index, sizes in enumerate(found.vocabularies)
        )
        template = state_template(model_json.network_plan(found, model_class))
        state = model_arrays.read_weights(folder, found.files["weights"], template)
    except ModelFileError:
        raise
    except _BROKEN as error:
        advice = model_json.DAMAGED
        if found.model.own_class is not None:
            advice = (
                f"It was trained with the class {quoted(found.model.own_class)}: pass that, as it "
                f"was then. Here model_name is {model_class.__name__}."
            )
        raise ModelFileError(
            f"The model cannot be read: {reason_of(error)}", str(folder), advice
        ) from error
    moments = msgspec.structs.astuple(found.moments)
    return ModelFile(
        model_class=model_class,
        model_args=msgspec.structs.asdict(found.model.args),
        roles=found.roles,
        features=FittedFeatures(
            vocabularies=vocabularies,
            moments=Moments(*(np.array(values, np.float64) for values in moments)),
            sublinear_tf=found.features.sublinear_tf,
            classes=found.classes,
        ),
        ngram_range=found.features.ngram_range,
        stop_words=found.features.stop_words,
        trained=found.trained,
        state=state,
    )


def _class_of(
    network: model_json.Network, given: type[nn.Module] | None, folder: Path
) -> type[nn.Module]:
    """Return the class to build: of the package by its name, of a user only if it is passed."""
    if network.own_class is None:
        try:
            return resolve_model(network.name)
        except SettingError as error:
            raise ModelFileError(error.what, str(folder), model_json.UPDATE) from error
    if given is None or not is_users_class(given):
        raise ModelFileError(
            f"The model was trained with the class {quoted(network.own_class)}, and a model's "
            "folder holds no code.",
            str(folder),
            "Pass that class as model_name=.",
        )
    return given


def _network(model: ModelFile) -> model_json.Network:
    known = model.model_class
    own_class = f"{known.__module__}.{known.__qualname__}" if is_users_class(known) else None
    args = model_json.NetworkArgs(**model.model_args)
    return model_json.Network(known.__name__, args, own_class)


def _manifest_bytes(model: ModelFile, files: dict[str, KeptFile]) -> bytes:
    features, moments, roles = model.features, model.features.moments, model.roles
    manifest = Manifest(
        model=_network(model),
        columns=model_json.Columns(roles.text_columns, roles.data_columns, roles.label_column),
        features=model_json.Features(model.ngram_range, model.stop_words, features.sublinear_tf),
        vocabularies=tuple(
            model_json.VocabularySize(len(one.terms), one.num_training, one.num_distinct)
            for one in features.vocabularies
        ),
        moments=model_json.MomentLists(
            moments.count.tolist(), moments.mean.tolist(), moments.squares.tolist()
        ),
        classes=features.classes,
        trained={name: _plain(value) for name, value in model.trained.items()},
        files=files,
    )
    return model_json.write_manifest(manifest)


def _plain(value: Any) -> Any:
    """Return a metric as JSON knows it: no NaN, and no number of numpy."""
    plain = value.item() if hasattr(value, "item") else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


def _check_writable(model: ModelFile, folder: Path) -> None:
    """Refuse a model that `read_model` would refuse, before anything is written."""
    nothing = "0" * 32
    files = {
        role: KeptFile(kept_files.kept_name(role, suffix, nothing), 1, nothing)
        for role, suffix in file_suffixes(len(model.features.vocabularies)).items()
    }
    try:
        manifest = _manifest_bytes(model, files)
        plan = model_json.network_plan(parse_manifest(manifest, ""), model.model_class)
        template = state_template(plan)
        model_arrays.check_weights(model.state, template)
    except _BROKEN as error:
        raise ModelFileError(
            f"The model could not be read again: {reason_of(error)}",
            str(folder),
            "Change its settings.",
        ) from error
    infinite = model_arrays.find_infinite(model.state, template)
    if infinite is not None:
        raise TrainingError(
            f"The weights {infinite!r} are no finite numbers any more.",
            str(folder),
            "Pass a lower learning_rate.",
        )
    if len(manifest) > _MANIFEST_BYTES - 1024:  # the sizes of files are not in it yet
        raise ModelFileError(
            f"The model's {MANIFEST_NAME} would have {len(manifest):,} bytes, most of them "
            f"classes; {_MANIFEST_BYTES:,} is the most.",
            str(folder),
            "Use shorter labels, or fewer.",
        )
