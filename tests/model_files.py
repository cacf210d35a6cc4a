"""Small models for tests, and their predictions by scikit-learn and numpy alone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from own_models import OwnDense
from safetensors.numpy import load_file
from sklearn.feature_extraction.text import TfidfVectorizer

from lancetnic_dask.features.moments import Moments
from lancetnic_dask.features.terms import Vocabulary
from lancetnic_dask.features.weighting import FittedFeatures
from lancetnic_dask.models import ScalpelMC
from lancetnic_dask.models.networks import build_network
from lancetnic_dask.run.model_file import ModelFile
from lancetnic_dask.run.model_json import checksum_of
from lancetnic_dask.settings import ColumnRoles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = [
    "CORPUS",
    "edit_manifest",
    "make_model",
    "make_own_model",
    "predict_by_hand",
    "read_manifest",
]

CORPUS = (
    "the quick brown fox jumps over the lazy dog",
    "pack my box with five dozen liquor jugs",
    "quick brown dogs jump over lazy foxes",
    "ΟΔΥΣΣΕΥΣ straße naïve 東京 quick",
)


def make_model(
    *,
    text_columns: tuple[str, ...] = ("text",),
    data_columns: tuple[str, ...] = ("size",),
    classes: tuple[str, ...] = ("cat", "dog", "emu"),
    ngram_range: tuple[int, int] = (1, 1),
    stop_words: tuple[str, ...] = (),
    sublinear_tf: bool = False,
    num_layers: int = 2,
    hidden_size: int = 8,
    seed: int = 0,
    texts: Sequence[str] = CORPUS,
) -> ModelFile:
    """Return a model with random weights, its vocabularies fitted on a few texts."""
    vocabularies = []
    for number in range(len(text_columns)):
        rows = texts[number:]  # unlike vocabularies for unlike columns
        vectorizer = TfidfVectorizer(ngram_range=ngram_range, stop_words=list(stop_words) or None)
        counts = vectorizer.fit_transform(rows)
        vocabularies.append(
            Vocabulary(
                terms=pa.array(vectorizer.get_feature_names_out().tolist(), pa.string()),
                document_frequency=np.asarray((counts > 0).sum(axis=0), np.int64).ravel(),
                num_training=len(rows),
                num_distinct=counts.shape[1] + number,
            )
        )
    numeric = np.arange(4.0 * len(data_columns)).reshape(4, -1) ** 2
    features = FittedFeatures(
        vocabularies=tuple(vocabularies),
        moments=Moments.of(numeric),
        sublinear_tf=sublinear_tf,
        classes=classes,
    )
    args: dict[str, Any] = {
        "hidden_size": hidden_size,
        "num_layers": num_layers,
        "num_classes": len(classes),
        "dropout": 0.25,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = ScalpelMC(features.input_size, num_numeric=len(data_columns), **args)
        state = {name: 3 * tensor for name, tensor in network.state_dict().items()}
    return ModelFile(
        model_class=ScalpelMC,
        model_args=args,
        roles=ColumnRoles(
            text_columns=text_columns, data_columns=data_columns, label_column="label"
        ),
        features=features,
        ngram_range=ngram_range,
        stop_words=stop_words,
        trained={"epoch": 3, "train_loss": 0.25, "val_loss": float("nan")},
        state=state,
    )


def make_own_model() -> ModelFile:
    """Return a model with a class of the user's."""
    model = make_model()
    plan = replace(model.network_plan, model_class=OwnDense)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        state = build_network(plan).state_dict()
    state["network.norm.num_batches_tracked"] += 7
    return replace(model, model_class=OwnDense, state=state)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return what model.json says."""
    manifest: dict[str, Any] = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    return manifest


def edit_manifest(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Change model.json as an attacker would: the checksum is made to fit."""
    manifest = read_manifest(folder)
    edit(manifest)
    manifest["checksum"] = checksum_of(manifest)
    (folder / "model.json").write_text(json.dumps(manifest), encoding="utf-8")


def predict_by_hand(folder: Path, texts: Sequence[Sequence[str]], numbers: Any) -> Any:
    """Return probabilities (num_rows, num_classes) from the arrays in the folder.

    `texts` has one list for each text column, `numbers` shape (num_rows, num_data_columns).
    """
    manifest = read_manifest(folder)
    features, moments = manifest["features"], manifest["moments"]
    blocks = []
    for number, (column, sizes) in enumerate(zip(texts, manifest["vocabularies"], strict=True)):
        name = manifest["files"][f"vocabulary_{number}"]["name"]
        with pa.ipc.open_stream((folder / name).read_bytes()) as stream:
            table = stream.read_all()
        vectorizer = TfidfVectorizer(
            vocabulary=table["term"].to_pylist(),
            ngram_range=tuple(features["ngram_range"]),
            stop_words=features["stop_words"] or None,
            sublinear_tf=features["sublinear_tf"],
        )
        df = np.array(table["document_frequency"].to_pylist())
        vectorizer.idf_ = np.log((1 + sizes["num_training"]) / (1 + df)) + 1
        blocks.append(vectorizer.transform(column).toarray())
    count, mean, squares = (np.array(moments[name]) for name in ("count", "mean", "squares"))
    scaled = (np.asarray(numbers, np.float64) - mean) / np.sqrt(squares / count)
    weights = load_file(folder / manifest["files"]["weights"]["name"])
    hidden = sum(
        (block @ part for block, part in zip(
            (np.hstack(blocks) if blocks else np.empty((len(scaled), 0)), np.nan_to_num(scaled)),
            (weights["model.0.weight"], weights.get("model.0.numeric_weight", np.zeros((0, 1)))),
            strict=True,
        ) if block.shape[1]),
        start=weights["model.0.bias"],
    )  # fmt: skip
    for layer in range(1, manifest["model"]["args"]["num_layers"]):
        hidden = np.maximum(hidden, 0) @ weights[f"model.{3 * layer}.weight"].T
        hidden = hidden + weights[f"model.{3 * layer}.bias"]
    last = 3 * manifest["model"]["args"]["num_layers"]
    logits = (
        np.maximum(hidden, 0) @ weights[f"model.{last}.weight"].T + weights[f"model.{last}.bias"]
    )
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)
