"""What model.json says -> a checked description; nothing else is read, built or allocated here.

A model folder may come from a stranger or from a damaged disk: every field is looked at before
anything is made of it. The files of arrays are checked where they are read: `model_arrays`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from lancetnic_dask.errors import LancetnicError, ModelFileError, quoted
from lancetnic_dask.features.counts import Moments
from lancetnic_dask.features.tokenize import TOKENIZER_VERSION
from lancetnic_dask.features.unicode_tables import UNICODE_VERSION
from lancetnic_dask.models.registry import resolve_model
from lancetnic_dask.run.json_fields import Field, UnfitError, parse_json
from lancetnic_dask.run.kept_files import DIGEST_HEX, KeptFile, kept_name
from lancetnic_dask.settings import ColumnRoles

__all__ = [
    "DAMAGED",
    "FEATURES",
    "FORMAT",
    "FORMAT_VERSION",
    "TASK",
    "Description",
    "VocabularySize",
    "checksum_of",
    "describe",
    "meta_network",
    "parse_manifest",
    "reason_of",
]

logger = logging.getLogger(__name__)

FORMAT: Final = "lancetnic_dask model"
FORMAT_VERSION: Final = 1
TASK: Final = "classification"
FEATURES: Final = "tfidf"

DAMAGED: Final = "It is damaged, or was not written by this program. Use another copy of it."
_UPDATE: Final = "Install a newer lancetnic_dask, or train the model anew."

# Far above what anyone trains, and low enough that nothing here takes long.
_MAX_WIDTH: Final = 1 << 20
_MAX_LAYERS: Final = 1000
_MAX_NGRAM: Final = 16
_MAX_COLUMNS: Final = 2**31 - 1  # columns are int32
# 1 is added to counts of rows, in int64.
_MAX_COUNT: Final = 2**63 - 2
_MODEL_ARGS: Final = ("hidden_size", "num_layers", "num_classes", "dropout")


@dataclass(frozen=True, kw_only=True)
class VocabularySize:
    """Sizes of one vocabulary.

    Parameters
    ----------
    num_terms : int
        Its terms.
    num_training, num_distinct : int
        As in `Vocabulary`.
    """

    num_terms: int
    num_training: int
    num_distinct: int


@dataclass(frozen=True, kw_only=True)
class Description:
    """What model.json says.

    Parameters
    ----------
    model_name, model_args, roles, ngram_range, stop_words, trained
        As in `ModelFile`.
    sublinear_tf, classes, moments
        As in `FittedFeatures`.
    vocabularies : tuple of VocabularySize
        One for each text column.
    files : dict of str to KeptFile
        ``weights`` and ``vocabulary_0``, ``vocabulary_1`` …
    """

    model_name: str
    model_args: dict[str, Any]
    roles: ColumnRoles
    ngram_range: tuple[int, int]
    stop_words: tuple[str, ...]
    sublinear_tf: bool
    vocabularies: tuple[VocabularySize, ...]
    moments: Moments
    classes: tuple[str, ...]
    trained: dict[str, Any]
    files: dict[str, KeptFile]

    @property
    def input_size(self) -> int:
        """Columns of the model's input."""
        num_terms = sum(one.num_terms for one in self.vocabularies)
        return num_terms + len(self.roles.data_columns)


def checksum_of(manifest: dict[str, Any]) -> str:
    """Return the digest of all that model.json says, but for this digest; order doesn't count."""
    rest = {name: value for name, value in manifest.items() if name != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_HEX // 2).hexdigest()


def parse_manifest(data: bytes, where: str) -> dict[str, Any]:
    """Read model.json as far as all versions of the format agree.

    Parameters
    ----------
    data : bytes
        Its bytes.
    where : str
        Its path, for messages.

    Returns
    -------
    dict
        Of this format and version, and as it was written.

    Raises
    ------
    ModelFileError
        If it is not.
    """
    try:
        manifest = parse_json(data)
        root = Field(manifest, "")
        found = root.child("format").text()
        version = root.child("format_version")
        if found == FORMAT:
            version.whole(0, 2**31)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(
            f"This is no model.json of a model: {reason_of(error)}",
            where,
            "Use another copy of the model.",
        ) from error
    if found != FORMAT:
        raise ModelFileError(
            f"The format is {quoted(found)}.", where, f"Pass a folder of the format {FORMAT!r}."
        )
    if version.value != FORMAT_VERSION:
        is_newer = version.value > FORMAT_VERSION
        raise ModelFileError(
            f"The model has format version {version.value}, which is "
            f"{'newer' if is_newer else 'older'} than this lancetnic_dask: "
            f"it reads version {FORMAT_VERSION}.",
            where,
            _UPDATE if is_newer else "Train the model anew.",
        )
    try:
        is_whole = checksum_of(manifest) == manifest.get("checksum")
    except (ValueError, RecursionError):
        is_whole = False
    if not is_whole:
        raise ModelFileError(
            "model.json is not as it was written.", where, "Copy the model's folder again."
        )
    return dict(manifest)


def describe(manifest: dict[str, Any], where: str) -> Description:
    """Check every field of model.json.

    Parameters
    ----------
    manifest : dict
        What `parse_manifest` returned.
    where : str
        Its path, for messages.

    Returns
    -------
    Description
        Fields of the right types and ranges that fit together.

    Raises
    ------
    ModelFileError
        If they don't; if the model is of another task, or of features that this version
        doesn't make.
    """
    try:
        root = Field(manifest, "")
        _check_kind(root, where)
        return _describe(root)
    except ModelFileError:
        raise
    except (ValueError, RecursionError, OverflowError) as error:  # SettingError is a ValueError
        raise ModelFileError(
            f"The model cannot be used: {reason_of(error)}", where, DAMAGED
        ) from error


def meta_network(description: Description) -> torch.nn.Module:
    """Build the network without any memory for its weights.

    Raises
    ------
    LancetnicError, TypeError, RuntimeError
        If there is no such network.
    """
    with torch.device("meta"):
        return resolve_model(description.model_name)(
            description.input_size,
            num_numeric=len(description.roles.data_columns),
            **description.model_args,
        )


def _check_kind(root: Field, where: str) -> None:
    """Refuse what another version of the package may well read, with a clear answer."""
    task = root.child("task").text()
    if task != TASK:
        raise ModelFileError(
            f"The model's task is {quoted(task)}; this lancetnic_dask knows {TASK!r}.",
            where,
            _UPDATE,
        )
    features = root.child("features")
    kind = features.child("kind").text()
    if kind != FEATURES:
        raise ModelFileError(
            f"The model reads features of the kind {quoted(kind)}; this lancetnic_dask makes "
            f"{FEATURES!r}.",
            where,
            _UPDATE,
        )
    tokenizer = features.child("tokenizer_version").whole(0, 2**31)
    if tokenizer != TOKENIZER_VERSION:
        is_newer = tokenizer > TOKENIZER_VERSION
        raise ModelFileError(
            f"The model was trained on the words of tokenizer version {tokenizer}, which is "
            f"{'newer' if is_newer else 'older'} than that of this lancetnic_dask: "
            f"{TOKENIZER_VERSION}.",
            where,
            _UPDATE if is_newer else "Train the model anew.",
        )
    if not features.child("lowercase").flag():
        raise ModelFileError("The model reads texts that are not lower-cased.", where, _UPDATE)
    unicode_version = features.child("unicode_version").text()
    if unicode_version != UNICODE_VERSION:
        logger.warning(
            "The model was trained with Unicode %s, this Python has %s: words with letters that "
            "one of them does not know may be cut otherwise (%s).",
            quoted(unicode_version),
            UNICODE_VERSION,
            where,
        )


def _describe(root: Field) -> Description:
    roles = _roles(root.child("columns"))
    classes = _classes(root.child("classes"))
    features = root.child("features")
    bounds = [bound.whole(1, _MAX_NGRAM) for bound in features.child("ngram_range").items(2)]
    if bounds[0] > bounds[1]:
        raise features.child("ngram_range").unfit("ascending")
    num_texts = len(roles.text_columns)
    vocabularies = tuple(
        _vocabulary_size(entry) for entry in root.child("vocabularies").items(num_texts)
    )
    if sum(one.num_terms for one in vocabularies) + len(roles.data_columns) > _MAX_COLUMNS:
        raise UnfitError(f"the vocabularies have more than {_MAX_COLUMNS} terms.")
    model = root.child("model")
    return Description(
        model_name=model.child("name").text(),
        model_args=_model_args(model.child("args"), len(classes)),
        roles=roles,
        ngram_range=(bounds[0], bounds[1]),
        stop_words=features.child("stop_words").texts(),
        sublinear_tf=features.child("sublinear_tf").flag(),
        vocabularies=vocabularies,
        moments=_moments(root.child("moments"), len(roles.data_columns)),
        classes=classes,
        trained=_trained(root.child("trained")),
        files=_files(root.child("files"), num_texts),
    )


def _roles(columns: Field) -> ColumnRoles:
    label = columns.child("label")
    return ColumnRoles(
        text_columns=columns.child("text").texts(),
        data_columns=columns.child("data").texts(),
        label_column=None if label.value is None else label.text(),
    )


def _classes(field: Field) -> tuple[str, ...]:
    classes = field.texts()
    if not 2 <= len(set(classes)) == len(classes) <= _MAX_WIDTH:
        raise field.unfit(f"2 to {_MAX_WIDTH} distinct classes")
    return classes


def _model_args(field: Field, num_classes: int) -> dict[str, Any]:
    if sorted(field.mapping()) != sorted(_MODEL_ARGS):
        raise field.unfit(f"of {', '.join(_MODEL_ARGS)}")
    field.child("hidden_size").whole(1, _MAX_WIDTH)
    field.child("num_layers").whole(1, _MAX_LAYERS)
    field.child("num_classes").whole(num_classes, num_classes)
    dropout = field.child("dropout")
    if dropout.number(0) >= 1:
        raise dropout.unfit("below 1")
    return dict(field.value)


def _vocabulary_size(entry: Field) -> VocabularySize:
    num_terms = entry.child("num_terms").whole(0, _MAX_COLUMNS)
    return VocabularySize(
        num_terms=num_terms,
        num_training=entry.child("num_training").whole(0, _MAX_COUNT),
        num_distinct=entry.child("num_distinct").whole(num_terms, _MAX_COUNT),
    )


def _moments(field: Field, num_columns: int) -> Moments:
    lows = {"count": 0.0, "mean": -math.inf, "squares": 0.0}
    arrays = [
        np.array([one.number(low) for one in field.child(name).items(num_columns)], np.float64)
        for name, low in lows.items()
    ]
    return Moments(*arrays)


def _trained(field: Field) -> dict[str, Any]:
    """Let through plain values; they are shown to people and used for nothing."""
    for name in field.mapping():
        Field(name, f"a name in {field.path}").text()
        one = field.child(name)
        if isinstance(one.value, str):
            one.text()
        elif one.value is not None and not isinstance(one.value, bool):
            one.number()
    return dict(field.value)


def _files(field: Field, num_texts: int) -> dict[str, KeptFile]:
    """Check names: each follows from role and digest, so that none leads anywhere else."""
    suffixes = {"weights": ".safetensors"}
    suffixes |= {f"vocabulary_{index}": ".arrows" for index in range(num_texts)}
    if sorted(field.mapping()) != sorted(suffixes):
        raise field.unfit(f"of {', '.join(suffixes)}")
    files = {}
    for role, suffix in suffixes.items():
        entry = field.child(role)
        digest = entry.child("blake2b")
        if not re.fullmatch(rf"[0-9a-f]{{{DIGEST_HEX}}}", digest.text()):
            raise digest.unfit(f"{DIGEST_HEX} hexadecimal digits")
        name = entry.child("name")
        if name.text() != kept_name(role, suffix, digest.value):
            raise name.unfit(repr(kept_name(role, suffix, digest.value)))
        files[role] = KeptFile(name.value, entry.child("size").whole(1, 2**62), digest.value)
    return files


def reason_of(error: Exception) -> str:
    """Return what an error says, as the end of a sentence."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply."
    if isinstance(error, UnfitError):
        return str(error)
    if isinstance(error, LancetnicError):
        return error.what
    return f"{type(error).__name__} {quoted(str(error))}."
