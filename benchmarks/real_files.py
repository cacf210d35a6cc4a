"""Real public files, from disk to a trained model, with no more said than what the columns are.

    python benchmarks/real_files.py FOLDER                 all files of the list that are there
    python benchmarks/real_files.py FOLDER --only waimai_zh rusentne

FOLDER holds a folder for each set, as they were published; none of them belongs to the project. For
each: rows in the file, rows set aside, accuracy on the rows that validate (a fifth, or the file
made for it), the share of the most frequent class beside it, and the peak of the process tree.
Not in the list: sets with a number as target or with several labels a row (neither can be trained
on yet), and clinc_oos, one JSON object of lists, which is refused with the way to convert it.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from report import BUILD, Report

from lancetnic_dask import Classification, Corpus

EPOCHS = 5


@dataclass(frozen=True)
class RealSet:
    """A set, and what a user says of it.

    Parameters
    ----------
    train, val : str
        File or pattern in the folder of the set; no `val` validates on a fifth.
    text, data : tuple of str
        Columns.
    label : str
        Column.
    labels : str, default=""
        A file of labels beside the texts.
    options : dict
        Whatever else must be said: an encoding, names of columns.
    """

    train: str
    text: tuple[str, ...]
    label: str
    val: str = ""
    data: tuple[str, ...] = ()
    labels: str = ""
    options: dict[str, Any] = field(default_factory=dict)


SETS: dict[str, RealSet] = {
    "ag_news_test": RealSet(
        "test.csv", ("title", "description"), "class",
        options={"names": ["class", "title", "description"]},
    ),
    "airline_clean_csv_gz": RealSet(
        "train.csv.gz", ("clean_text",), "encoded_sentiment", val="test.csv.gz"
    ),
    "banking77": RealSet("train.csv", ("text",), "category", val="test.csv"),
    "bbc_text_dir": RealSet("*/*.txt", ("text",), "label", options={"encoding_errors": "replace"}),
    "danish_tweets_parquet": RealSet(
        "train-00000-of-00001.parquet", ("text",), "label", val="test-00000-of-00001.parquet"
    ),
    "derived_zst": RealSet(
        "ag_news_test_two_frames.csv.zst", ("title", "description"), "class",
        options={"names": ["class", "title", "description"]},
    ),
    "ecommerce_bom": RealSet(
        "E-Commerce-Dataset.csv", ("PreferedOrderCat", "PreferredPaymentMode"), "Churn",
        data=("Tenure", "CityTier", "Complain", "CashbackAmount", "DaySinceLastOrder"),
    ),
    "goemotions": RealSet(
        "train.tsv", ("text",), "emotions",
        options={"names": ["text", "emotions", "id"], "on_bad_rows": "skip"},
    ),
    "jcola": RealSet(
        "in_domain_train-v1.0.tsv", ("sentence",), "label", val="in_domain_valid-v1.0.tsv"
    ),
    "reviews_csv_xz": RealSet("*.csv.xz", ("text",), "sentiment"),
    "ru_video_genre_cp1251": RealSet(
        "dataset_1.csv", ("title", "description"), "genre", options={"encoding": "cp1251"}
    ),
    "rusentne": RealSet(
        "train_data.csv", ("sentence", "entity"), "label", val="validation_data_labeled.csv"
    ),
    "sms_spam_tsv": RealSet("sms.tsv", ("text",), "label", options={"names": ["label", "text"]}),
    "stackoverflow_titles": RealSet(
        "title_StackOverflow.txt", ("text",), "label", labels="label_StackOverflow.txt"
    ),
    "tweeteval/emotion": RealSet(
        "train_text.txt", ("text",), "label", labels="train_labels.txt"
    ),
    "tweeteval/hate": RealSet("train_text.txt", ("text",), "label", labels="train_labels.txt"),
    "tweeteval/irony": RealSet("train_text.txt", ("text",), "label", labels="train_labels.txt"),
    "waimai_zh": RealSet("waimai_10k.csv", ("review",), "label"),
    "adult_income": RealSet(
        "adultTest.csv", ("education", "occupation", "marital_status"), "class",
        data=("age", "capital_gain", "capital_loss", "hours_per_week"),
    ),
}  # fmt: skip


def train(one: RealSet, folder: Path, scratch: Path) -> dict[str, Any]:
    """Train on a set; return its figures."""
    source: Any = folder / one.train
    if one.labels:
        source = Corpus.read_text(source, folder / one.labels, cache_dir=scratch / "cache")
    run = Classification(list(one.text), list(one.data) or None, one.label, **one.options).train(
        "ScalpelMC",
        source,
        folder / one.val if one.val else None,
        num_epochs=EPOCHS,
        cache_dir=scratch / "cache",
        run_dir=scratch / "runs",
        progress=False,
    )
    rows = run.num_rows
    return {
        "rows": rows["read"],
        "set aside": sum(rows["set_aside"].values()),
        "classes": len(run.classes),
        "accuracy, %": 100 * max(entry["val_accuracy"] or 0 for entry in run.history),
        "most frequent class, %": 100 * max(run.rows_by_class) / sum(run.rows_by_class),
        "peak, MiB": run.peak_memory_bytes / 2**20,
    }


def main() -> None:
    """Train on each set, print a table, and write a report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--report", type=Path, default=BUILD, help="for the figures")
    given = parser.parse_args()
    present = {name: SETS[name] for name in given.only if (given.folder / name).is_dir()}
    report = Report("real_files", settings={"epochs": EPOCHS, "sets": list(present)})
    with tempfile.TemporaryDirectory() as scratch:
        for name, one in present.items():
            report.figures[name] = train(one, given.folder / name, Path(scratch))
    rows = [(name, *figures.values()) for name, figures in report.figures.items()]
    if rows:
        report.table(("set", *next(iter(report.figures.values()))), rows)
    report.finish(given.report)


if __name__ == "__main__":
    main()
