"""MB/s of one core on text: tokenizing and planning, against scikit-learn, pandas and csv.

    python text_speed.py '{"part": "tokenizing", "folder": "corpora", "num_rows": 200000}'
    python text_speed.py '{"part": "planning", "folder": "corpora", "num_rows": 200000}'

MB are millions of bytes: of UTF-8 text for tokenizing, of the file for planning. Texts and files
are in memory; every way runs in this process, by turns, and the figure is the median.
"""

from __future__ import annotations

import csv
import json
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from sklearn.feature_extraction.text import CountVectorizer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from files import kept_corpus, read_pages

from lancetnic_dask import Corpus
from lancetnic_dask.features.tokenize import TokenizedText, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

TURNS = 5
# A slow way gets a part of the rows: its speed does not depend on how many there are.
SLOW_SHARE = 10

DIALECTS: dict[str, dict[str, Any]] = {
    "comma": {"delimiter": ",", "quoting": csv.QUOTE_MINIMAL},
    "comma, quoted": {"delimiter": ",", "quoting": csv.QUOTE_ALL},
    "semicolon": {"delimiter": ";", "quoting": csv.QUOTE_MINIMAL},
    "tab, no quotes": {
        "delimiter": "\t",
        "quoting": csv.QUOTE_NONE,
        "quotechar": None,
        "escapechar": "\\",
    },
    "escaped quotes": {
        "delimiter": ",",
        "quoting": csv.QUOTE_ALL,
        "doublequote": False,
        "escapechar": "\\",
    },
    "a quote every 8 bytes": {"delimiter": ",", "quoting": csv.QUOTE_ALL},
}


def by_turns(ways: dict[str, Callable[[], object]], num_bytes: dict[str, int]) -> dict[str, float]:
    """Return the median MB/s of each way."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(TURNS + 1):  # the first warms up
        for name, run in ways.items():
            started = time.perf_counter()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - started)
    return {
        name: num_bytes[name] / statistics.median(times) / 1e6 for name, times in seconds.items()
    }


def tokenize(texts: pa.Array) -> TokenizedText:
    """Tokenize texts as a worker does."""
    tokenizer = Tokenizer()
    tokenizer.add(texts)
    return tokenizer.finish()


def check_counts(texts: list[str]) -> None:
    """Compare how often each term occurs with scikit-learn.

    Raises
    ------
    SystemExit
        If any count differs.
    """
    vectorizer = CountVectorizer()
    counts = vectorizer.fit_transform(texts).sum(axis=0).A1
    theirs = dict(zip(vectorizer.get_feature_names_out(), counts.tolist(), strict=True))
    ours = tokenize(pa.array(texts))
    terms = ours.terms.to_pylist()
    if {terms[code]: count for code, count in Counter(ours.codes.tolist()).items()} != theirs:
        raise SystemExit("Our counts are not those of scikit-learn.")


def time_tokenizing(folder: Path, num_rows: int) -> dict[str, Any]:
    """Tokenize Latin and Cyrillic texts."""
    figures = {}
    for name, cyrillic in (("ASCII", 0.0), ("Cyrillic", 1.0)):
        path = kept_corpus(
            folder, num_rows=num_rows, cyrillic=cyrillic, newlines=0.0, rare_words=700
        )
        texts = pa.array(pd.read_csv(path)["text"].tolist())
        some = texts.slice(0, max(1, num_rows // SLOW_SHARE))
        listed = some.to_pylist()
        check_counts(listed)
        speeds = by_turns(
            {
                "ours": lambda texts=texts: tokenize(texts),  # type: ignore[misc]
                "CountVectorizer": lambda listed=listed: CountVectorizer().fit_transform(listed),  # type: ignore[misc]
            },
            {"ours": text_bytes(texts), "CountVectorizer": text_bytes(some)},
        )
        figures[name] = {**speeds, "ratio": speeds["ours"] / speeds["CountVectorizer"]}
    return figures


def text_bytes(texts: pa.Array) -> int:
    """Return the length of all texts in UTF-8."""
    import pyarrow.compute as pc

    return int(pc.sum(pc.binary_length(texts)).as_py())


def time_planning(folder: Path, num_rows: int) -> dict[str, Any]:
    """Plan the same table written in several dialects."""
    rows = pd.read_csv(kept_corpus(folder, num_rows=num_rows, rare_words=700))
    figures = {}
    for name, dialect in DIALECTS.items():
        path = folder / "dialect.csv"
        write_rows(path, rows, dialect, every=8 if name.startswith("a quote") else 0)
        figures[name] = compare_planning(path, dialect, len(rows))
        path.unlink()
    # The worst case: every other byte has a meaning.
    path = folder / "digits.csv"
    digits = pd.DataFrame(0, index=range(num_rows), columns=[f"column{i}" for i in range(100)])
    digits.to_csv(path, index=False)
    figures["a comma every 2 bytes"] = compare_planning(path, DIALECTS["comma"], num_rows)
    path.unlink()
    return figures


def write_rows(path: Path, rows: pd.DataFrame, dialect: dict[str, Any], *, every: int) -> None:
    """Write a table in a dialect; a quotation mark stands after so many characters of text."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n", **dialect)
        writer.writerow(["text", "size", "label"])
        for text, size, label in rows.itertuples(index=False):
            if every:
                text = '"'.join(text[at : at + every] for at in range(0, len(text), every))  # noqa: PLW2901
            elif dialect["quoting"] == csv.QUOTE_NONE:
                text = text.replace("\n", " ")  # noqa: PLW2901 - csv cannot escape it
            writer.writerow([text, size, label])


def compare_planning(path: Path, dialect: dict[str, Any], num_rows: int) -> dict[str, float]:
    """Return MB/s of our plan, of pandas' parser and of csv, and the ratio to the faster one."""
    options = {name: value for name, value in dialect.items() if name != "quoting"}
    read_pages(path)
    if Corpus.read_csv(path, **options).nrows != num_rows:
        raise SystemExit(f"The plan has not {num_rows} rows: {dialect}.")

    def read_with_pandas() -> None:
        given = {name: value for name, value in options.items() if value is not None}
        pd.read_csv(path, engine="c", quoting=dialect["quoting"], **given)

    def read_with_csv() -> None:
        with path.open(encoding="utf-8", newline="") as stream:
            for _ in csv.reader(stream, **dialect):
                pass

    size = path.stat().st_size
    ways: dict[str, Callable[[], object]] = {
        "ours": lambda: Corpus.read_csv(path, **options),
        "pandas": read_with_pandas,
        "csv": read_with_csv,
    }
    speeds = by_turns(ways, dict.fromkeys(ways, size))
    return {**speeds, "ratio": speeds["ours"] / max(speeds["pandas"], speeds["csv"])}


def main() -> None:
    """Measure the part that is asked for."""
    options = json.loads(sys.argv[1])
    parts = {"tokenizing": time_tokenizing, "planning": time_planning}
    figures = parts[options["part"]](Path(options["folder"]), options["num_rows"])
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
