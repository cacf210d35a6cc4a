"""Corpora of the benchmarks: the same for the same options, kept, open in their vocabulary."""

from __future__ import annotations

import csv
import hashlib
from typing import TYPE_CHECKING

from corpora import make_corpus
from files import forget_pages, kept_corpus, read_pages

if TYPE_CHECKING:
    from pathlib import Path


def distinct_words(path: Path) -> int:
    """Count the words of the texts of a corpus."""
    with path.open(encoding="utf-8", newline="") as stream:
        return len({word for row in csv.DictReader(stream) for word in row["text"].split()})


def test_the_plain_corpus_stays_as_it_is(tmp_path: Path) -> None:
    """Figures of different days are about the same bytes."""
    make_corpus(tmp_path / "a.csv", num_rows=300)

    digest = hashlib.blake2b((tmp_path / "a.csv").read_bytes(), digest_size=8).hexdigest()
    assert digest == "44a337073eef8ce3"


def test_rare_words_open_the_vocabulary(tmp_path: Path) -> None:
    """It grows as the square root of that scale, and of the rows."""
    sizes = {}
    for num_rows, rare_words in ((2_000, 1), (2_000, 10_000), (8_000, 10_000)):
        path = tmp_path / "a.csv"
        make_corpus(path, num_rows=num_rows, rare_words=rare_words, cyrillic=0.0)
        sizes[num_rows, rare_words] = distinct_words(path)

    assert sizes[2_000, 10_000] > 1.3 * sizes[2_000, 1]
    assert sizes[8_000, 10_000] > 1.5 * sizes[2_000, 10_000]


def test_a_corpus_is_made_once(tmp_path: Path) -> None:
    """Other options make another file."""
    first = kept_corpus(tmp_path, num_rows=50)
    written = first.stat().st_mtime_ns

    assert kept_corpus(tmp_path, num_rows=50) == first
    assert first.stat().st_mtime_ns == written
    assert kept_corpus(tmp_path, num_rows=50, seed=1) != first
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".csv", ".csv"]


def test_pages_are_forgotten_and_read_without_a_change(tmp_path: Path) -> None:
    """The bytes stay those that were written."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"text\n" * 10_000)

    forget_pages(path)
    read_pages(path)

    assert path.read_bytes() == b"text\n" * 10_000
