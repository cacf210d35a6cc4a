"""Train one of the linear peers on a CSV, in the peers' environment; print figures as JSON.

    python train_linear.py '{"peer": "hashing", "train_path": "a.csv", "val_path": "b.csv"}'

The time of a peer ends when its model is fitted: reading the CSV, and writing it in the format
that the peer wants, are part of it, scoring the validation file is not.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

BEGUN = time.time()

import numpy as np  # noqa: E402 - the time of imports is measured
import pandas as pd  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROWS_PER_READ = 50_000
TOKEN = re.compile(r"(?u)\b\w\w+\b")


def fit_hashing(train_path: str, scratch: Path) -> Callable[[pd.DataFrame], Any]:
    """HashingVectorizer and SGDClassifier, out of core: what scikit-learn's guide shows."""
    del scratch
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.linear_model import SGDClassifier

    vectorizer = HashingVectorizer()
    classifier = SGDClassifier(alpha=1e-5, random_state=0)
    classes = None
    for rows in read_rows(train_path):
        if classes is None:
            classes = np.unique(rows["label"])
        classifier.partial_fit(vectorizer.transform(rows["text"]), rows["label"], classes)
    return lambda rows: classifier.predict(vectorizer.transform(rows["text"]))


def fit_tfidf(train_path: str, scratch: Path) -> Callable[[pd.DataFrame], Any]:
    """TfidfVectorizer and SGDClassifier on all cores, in memory."""
    del scratch
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import SGDClassifier

    rows = pd.read_csv(train_path)
    vectorizer = TfidfVectorizer()
    features = vectorizer.fit_transform(rows["text"].fillna(""))
    classifier = SGDClassifier(alpha=1e-5, max_iter=5, tol=None, n_jobs=-1, random_state=0)
    classifier.fit(features, rows["label"])
    return lambda frame: classifier.predict(vectorizer.transform(frame["text"].fillna("")))


def fit_vowpal(train_path: str, scratch: Path) -> Callable[[pd.DataFrame], Any]:
    """Vowpal Wabbit: one against all, logistic loss, two passes over its own cache."""
    vowpal: Any = importlib.import_module("vowpalwabbit")
    names: dict[str, int] = {}
    path = scratch / "train.vw"
    with path.open("w", encoding="utf-8") as stream:
        for rows in read_rows(train_path):
            for text, label in zip(rows["text"], rows["label"], strict=True):
                number = names.setdefault(label, len(names) + 1)
                stream.write(f"{number} | {' '.join(TOKEN.findall(text.lower()))}\n")
    model = vowpal.Workspace(
        f"--oaa {len(names)} --loss_function logistic -b 22 --passes 2 -c -k --holdout_off --quiet "
        f"-d {path} --cache_file {scratch / 'vw.cache'}"
    )
    labels = np.array(list(names))

    def predict(rows: pd.DataFrame) -> Any:
        numbers = [
            model.predict(f"| {' '.join(TOKEN.findall(text.lower()))}") for text in rows["text"]
        ]
        return labels[np.array(numbers, dtype=int) - 1]

    return predict


def fit_fasttext(train_path: str, scratch: Path) -> Callable[[pd.DataFrame], Any]:
    """Train fastText: five epochs on all cores, the step size of its tutorial."""
    fasttext: Any = importlib.import_module("fasttext")
    path = scratch / "train.txt"
    with path.open("w", encoding="utf-8") as stream:
        for rows in read_rows(train_path):
            for text, label in zip(rows["text"], rows["label"], strict=True):
                stream.write(f"__label__{label} {' '.join(TOKEN.findall(text.lower()))}\n")
    model = fasttext.train_supervised(
        input=str(path), epoch=5, lr=0.5, thread=os.cpu_count() or 1, verbose=0
    )

    def predict(rows: pd.DataFrame) -> Any:
        texts = [" ".join(TOKEN.findall(text.lower())) for text in rows["text"]]
        return np.array([found[0].removeprefix("__label__") for found in model.predict(texts)[0]])

    return predict


PEERS: dict[str, tuple[Callable[[str, Path], Callable[[pd.DataFrame], Any]], str]] = {
    "hashing": (fit_hashing, "scikit-learn"),
    "tfidf": (fit_tfidf, "scikit-learn"),
    "vowpal": (fit_vowpal, "vowpalwabbit"),
    "fasttext": (fit_fasttext, "fasttext-community"),
}


def read_rows(path: str) -> Iterator[pd.DataFrame]:
    """Read a CSV in blocks of rows; an empty text is a text."""
    for rows in pd.read_csv(path, chunksize=ROWS_PER_READ):
        yield rows.assign(text=rows["text"].fillna(""))


def main() -> None:
    """Train and score."""
    options = json.loads(sys.argv[1])
    fit, package = PEERS[options["peer"]]
    predict = fit(options["train_path"], Path.cwd())
    seconds = time.time() - float(os.environ.get("BENCHMARK_STARTED", BEGUN))
    num_right = num_rows = 0
    for rows in read_rows(options["val_path"]):
        num_right += int((predict(rows) == rows["label"].to_numpy()).sum())
        num_rows += len(rows)
    figures = {
        "seconds_to_model": seconds,
        "accuracy": num_right / num_rows,
        "versions": {package: version(package), "pandas": version("pandas")},
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
