"""A file of texts beside a file of labels."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from lancetnic_dask.corpus.frame import Corpus
from lancetnic_dask.errors import CorpusError, EncodingError

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ["one", "", '  "three", 3', "четыре\x85\x0b"]
LABELS = ["0", "1", "10", "да"]


def write(folder: Path, name: str, lines: list[str], end: str = "\n") -> Path:
    """Write lines, the last one without an end."""
    path = folder / name
    path.write_bytes(end.join(lines).encode())
    return path


def rows_of(corpus: Corpus) -> list[list[str]]:
    """Read text and label."""
    frame = corpus.to_dask_dataframe(["text", "label"]).compute(scheduler="synchronous")
    return frame.to_numpy().tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_belong_together_by_their_place(end: str, tmp_path: Path) -> None:
    """A blank line is a row: else all later labels would be those of others."""
    texts = write(tmp_path, "text.txt", TEXTS, end)
    labels = write(tmp_path, "labels.txt", [*LABELS, ""], end)

    corpus = Corpus.read_text(texts, labels, partition_bytes=60, cache_dir=tmp_path / "cache")

    assert rows_of(corpus) == [list(row) for row in zip(TEXTS, LABELS, strict=True)]
    assert corpus.npartitions > 1


def test_files_belong_together_by_their_numbers(tmp_path: Path) -> None:
    """2 comes before 10 on both sides; one may be packed."""
    for number in (1, 2, 10):
        write(tmp_path, f"text-{number}.txt", [f"text {number}"])
        (tmp_path / f"labels-{number}.txt.gz").write_bytes(gzip.compress(b"%d" % number))

    corpus = Corpus.read_text(
        tmp_path / "text-*", tmp_path / "labels-*", cache_dir=tmp_path / "cache"
    )

    assert rows_of(corpus) == [[f"text {number}", f"{number}"] for number in (1, 2, 10)]


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    """Too few, or one of another number."""
    for name in ("text-1.txt", "text-2.txt", "labels-1.txt", "labels-3.txt"):
        write(tmp_path, name, ["x"])

    with pytest.raises(CorpusError, match="There are 2 files of texts and 1 of labels"):
        Corpus.read_text(tmp_path / "text-*", tmp_path / "labels-1.txt")
    with pytest.raises(CorpusError) as caught:
        Corpus.read_text(tmp_path / "text-*", tmp_path / "labels-*")

    assert str(caught.value) == (
        f"The file of labels in its place is {tmp_path / 'labels-3.txt'}: their numbers differ.\n"
        f"  at {tmp_path / 'text-2.txt'}\n"
        "  Pass lists of files, each in the order of the other."
    )


@pytest.mark.parametrize(("num_texts", "num_labels"), [(3, 4), (4, 3)])
def test_files_of_unequal_length_are_refused(
    num_texts: int, num_labels: int, tmp_path: Path
) -> None:
    """Nothing is left of the copy."""
    texts = write(tmp_path, "text.txt", TEXTS[:num_texts])
    labels = write(tmp_path, "labels.txt", LABELS[:num_labels])
    short, long = ("texts", "labels") if num_texts < num_labels else ("labels", "texts")

    with pytest.raises(CorpusError) as caught:
        Corpus.read_text(texts, labels, cache_dir=tmp_path / "cache")

    assert caught.value.what == (
        f"The file of {short} ends after 3 lines, and that of {long} goes on: {labels}."
    )
    assert not list((tmp_path / "cache" / "copies").iterdir())


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    """With the file and the byte."""
    texts = tmp_path / "text.txt"
    texts.write_bytes(b"good\ncaf\xe9\n")
    labels = write(tmp_path, "labels.txt", ["0", "1"])

    with pytest.raises(EncodingError) as caught:
        Corpus.read_text(texts, labels, cache_dir=tmp_path / "cache")

    assert str(caught.value.where) == f"{texts}, byte 8"
