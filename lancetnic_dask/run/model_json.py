"""What model.json says: its fields as types, and how they must fit together.

A model folder may come from a stranger or from a damaged disk: every field is looked at before
anything is made of it. Types and ranges are msgspec's to check. The files of arrays are checked
where they are read: `model_arrays`.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from lancetnic_dask.errors import LancetnicError, ModelFileError, quoted
from lancetnic_dask.features.tokenize import TOKENIZER_VERSION
from lancetnic_dask.features.unicode_tables import UNICODE_VERSION
from lancetnic_dask.models.networks import NetworkPlan
from lancetnic_dask.run.kept_files import KeptFile, kept_name, new_digest
from lancetnic_dask.settings import ColumnRoles

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "DAMAGED",
    "UPDATE",
    "Columns",
    "Features",
    "Manifest",
    "MomentLists",
    "Network",
    "NetworkArgs",
    "UnfitError",
    "VocabularySize",
    "checksum_of",
    "file_suffixes",
    "network_plan",
    "parse_manifest",
    "reason_of",
    "write_manifest",
]

logger = logging.getLogger(__name__)

DAMAGED: Final = "It is damaged, or was not written by this program. Use another copy of it."
_SHOWN_CHARS: Final = 200  # it may name a field, and that may be long
UPDATE: Final = "Install a newer lancetnic_dask, or train the model anew."

# Far above what anyone trains, and low enough that nothing here takes long.
_MAX_CLASSES: Final = 1 << 20
_MAX_COLUMNS: Final = 2**31 - 1  # columns are int32
Version = Annotated[int, Meta(ge=0, le=2**31)]
NgramLength = Annotated[int, Meta(ge=1, le=16)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 2)]  # 1 is added to counts of rows, in int64
NotNegative = Annotated[float, Meta(ge=0)]


class UnfitError(ValueError):
    """A field or an array is not as it must be."""


class Head(Struct, frozen=True):
    """What all versions of the format have."""

    format: str
    format_version: Version


class FeatureKind(Struct, frozen=True):
    """How texts become words."""

    kind: str
    tokenizer_version: Version
    unicode_version: str
    lowercase: bool


class Kind(Struct, frozen=True):
    """What tells whether the other fields mean what they mean here."""

    task: str
    features: FeatureKind


HEAD: Final = Head("lancetnic_dask model", 1)
KIND: Final = Kind(
    "classification", FeatureKind("tfidf", TOKENIZER_VERSION, UNICODE_VERSION, lowercase=True)
)


class NetworkArgs(Struct, frozen=True, forbid_unknown_fields=True):
    """What the network was made with."""

    hidden_size: Annotated[int, Meta(ge=1, le=1 << 20)]
    num_layers: Annotated[int, Meta(ge=1, le=1000)]
    num_classes: int
    dropout: Annotated[float, Meta(ge=0, lt=1)]


class Network(Struct, frozen=True):
    """A name in the registry of models, and its arguments.

    ``own_class`` is set where it was a class of the user's: what that is called, for people. Code
    is never kept nor looked for: whoever opens the model passes the class.
    """

    name: str
    args: NetworkArgs
    own_class: str | None = None


class Columns(Struct, frozen=True):
    """As in `ColumnRoles`."""

    text: tuple[str, ...]
    data: tuple[str, ...]
    label: str | None


class Features(Struct, frozen=True):
    """As in `ModelFile` and `FittedFeatures`."""

    ngram_range: tuple[NgramLength, NgramLength]
    stop_words: tuple[str, ...]
    sublinear_tf: bool


class VocabularySize(Struct, frozen=True):
    """Terms of a vocabulary; the others as in `Vocabulary`."""

    num_terms: Annotated[int, Meta(ge=0, le=_MAX_COLUMNS)]
    num_training: Count
    num_distinct: Count


class MomentLists(Struct, frozen=True):
    """As in `Moments`."""

    count: tuple[NotNegative, ...]
    mean: tuple[float, ...]
    squares: tuple[NotNegative, ...]


class Manifest(Struct, frozen=True, kw_only=True):
    """What model.json says of the model, beside `Head` and `Kind`, which are the same for all.

    There is one vocabulary for each text column; ``files`` has the roles of `file_suffixes`;
    what is in ``trained`` is for people, not for predicting.
    """

    model: Network
    columns: Columns
    features: Features
    vocabularies: tuple[VocabularySize, ...]
    moments: MomentLists
    classes: tuple[str, ...]
    trained: dict[str, bool | int | float | str | None]
    files: dict[str, KeptFile]

    @property
    def roles(self) -> ColumnRoles:
        """The columns; raises SettingError if they contradict each other."""
        return ColumnRoles(
            text_columns=self.columns.text,
            data_columns=self.columns.data,
            label_column=self.columns.label,
        )

    @property
    def input_size(self) -> int:
        """Columns of the model's input."""
        return sum(one.num_terms for one in self.vocabularies) + len(self.columns.data)


def file_suffixes(num_texts: int) -> dict[str, str]:
    """Return role -> end of the name, of each file that a model has."""
    return {"weights": ".safetensors"} | {f"vocabulary_{i}": ".arrows" for i in range(num_texts)}


def checksum_of(fields: dict[str, Any]) -> str:
    """Return the digest of all that model.json says, but for this digest; order doesn't count."""
    rest = {name: value for name, value in fields.items() if name != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return new_digest(text.encode()).hexdigest()


def write_manifest(manifest: Manifest) -> bytes:
    """Return model.json, with its checksum.

    Raises
    ------
    ValueError, TypeError
        If a field is none of JSON.
    """
    head, kind, fields = map(msgspec.to_builtins, (HEAD, KIND, manifest))
    fields = head | kind | fields | {"features": kind["features"] | fields["features"]}
    fields["checksum"] = checksum_of(fields)
    return json.dumps(fields, ensure_ascii=False, indent=1, allow_nan=False).encode()


def parse_manifest(data: bytes, where: str) -> Manifest:
    """Read model.json and check every field.

    Parameters
    ----------
    data : bytes
        Its bytes.
    where : str
        Its path, for messages.

    Returns
    -------
    Manifest
        Fields of the right types and ranges that fit together.

    Raises
    ------
    ModelFileError
        If it is none, of another version, task or kind of features, or not as it was written.
    """
    try:
        # msgspec refuses NaN, halves of surrogate pairs and all but UTF-8, but not duplicates.
        msgspec.json.decode(data)
        fields = json.loads(data, object_pairs_hook=_unique_pairs)
        head = msgspec.convert(fields, Head)
        is_whole = checksum_of(fields) == fields.get("checksum")
    except (ValueError, RecursionError) as error:
        raise ModelFileError(
            f"This is no model.json of a model: {reason_of(error)}",
            where,
            "Use another copy of the model.",
        ) from error
    _check_head(head, where)
    if not is_whole:
        raise ModelFileError(
            "model.json is not as it was written.", where, "Copy the model's folder again."
        )
    try:
        _check_kind(msgspec.convert(fields, Kind), where)
        manifest = msgspec.convert(fields, Manifest)
        _check_relations(manifest)
    except ModelFileError:
        raise
    except (ValueError, RecursionError, OverflowError) as error:  # SettingError is a ValueError
        raise ModelFileError(
            f"The model cannot be used: {reason_of(error)}", where, DAMAGED
        ) from error
    return manifest


def network_plan(manifest: Manifest, model_class: type[nn.Module]) -> NetworkPlan:
    """Return what the described network is made with."""
    return NetworkPlan(
        model_class=model_class,
        input_size=manifest.input_size,
        num_numeric=len(manifest.columns.data),
        **msgspec.structs.asdict(manifest.model.args),
    )


def reason_of(error: Exception) -> str:
    """Return what an error says, as the end of a sentence."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply."
    if isinstance(error, msgspec.MsgspecError):
        return f"{str(error)[:_SHOWN_CHARS]}."
    if isinstance(error, UnfitError):
        return str(error)
    if isinstance(error, LancetnicError):
        return error.what
    return f"{type(error).__name__} {quoted(str(error))}."


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise UnfitError("a name stands twice in an object.")
    return mapping


def _check_head(head: Head, where: str) -> None:
    if head.format != HEAD.format:
        raise ModelFileError(
            f"The format is {quoted(head.format)}.",
            where,
            f"Pass a folder of the format {HEAD.format!r}.",
        )
    _check_version(
        "The model has format version {}, which is {} than this lancetnic_dask: "
        "it reads version {}.",
        (head.format_version, HEAD.format_version),
        where,
    )


def _check_kind(found: Kind, where: str) -> None:
    """Refuse what another version of the package may well read, with a clear answer."""
    features, known = found.features, KIND.features
    if found.task != KIND.task:
        what = f"The model's task is {quoted(found.task)}; this lancetnic_dask knows {KIND.task!r}."
        raise ModelFileError(what, where, UPDATE)
    if features.kind != known.kind:
        what = f"The model reads features of the kind {quoted(features.kind)}; "
        raise ModelFileError(f"{what}this lancetnic_dask makes {known.kind!r}.", where, UPDATE)
    _check_version(
        "The model was trained on the words of tokenizer version {}, which is {} than that of "
        "this lancetnic_dask: {}.",
        (features.tokenizer_version, known.tokenizer_version),
        where,
    )
    if not features.lowercase:
        raise ModelFileError("The model reads texts that are not lower-cased.", where, UPDATE)
    if features.unicode_version != known.unicode_version:
        logger.warning(
            "The model was trained with Unicode %s, this Python has %s: words with letters that "
            "one of them does not know may be cut otherwise (%s).",
            quoted(features.unicode_version),
            known.unicode_version,
            where,
        )


def _check_version(what: str, versions: tuple[int, int], where: str) -> None:
    found, known = versions
    if found > known:
        raise ModelFileError(what.format(found, "newer", known), where, UPDATE)
    if found < known:
        raise ModelFileError(what.format(found, "older", known), where, "Train the model anew.")


def _check_relations(found: Manifest) -> None:
    """Compare fields with each other; raises UnfitError or SettingError."""
    roles, num_classes = found.roles, len(found.classes)
    lengths = {"vocabularies": (len(found.vocabularies), len(roles.text_columns))}
    for name, values in msgspec.structs.asdict(found.moments).items():
        lengths[f"moments.{name}"] = (len(values), len(roles.data_columns))
    for name, (length, needed) in lengths.items():
        if length != needed:
            raise UnfitError(f"{name} has {length} items; it must have {needed}.")
    if found.features.ngram_range[0] > found.features.ngram_range[1]:
        raise UnfitError("features.ngram_range is a list; it must be ascending.")
    if not 2 <= len(set(found.classes)) == num_classes <= _MAX_CLASSES:
        raise UnfitError(f"classes is a list; it must be 2 to {_MAX_CLASSES} distinct classes.")
    if found.model.args.num_classes != num_classes:
        raise UnfitError(f"model.args.num_classes must be {num_classes}.")
    if any(one.num_terms > one.num_distinct for one in found.vocabularies):
        raise UnfitError("a vocabulary has more terms than distinct ones.")
    if found.input_size > _MAX_COLUMNS:
        raise UnfitError(f"the vocabularies have more than {_MAX_COLUMNS} terms.")
    _check_files(found.files, file_suffixes(len(roles.text_columns)))


def _check_files(files: dict[str, KeptFile], suffixes: dict[str, str]) -> None:
    """Compare names with roles and digests, which they follow from: none leads anywhere else."""
    if files.keys() != suffixes.keys():
        raise UnfitError(f"files is an object; it must be of {', '.join(suffixes)}.")
    for role, suffix in suffixes.items():
        name = kept_name(role, suffix, files[role].digest)
        if files[role].name != name:
            raise UnfitError(
                f"files.{role}.name is {quoted(files[role].name)}; it must be {name!r}."
            )
