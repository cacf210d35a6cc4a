"""One folder a class, a file for each document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lancetnic_dask.corpus.documents import are_documents
from lancetnic_dask.corpus.formats import FileFormat
from lancetnic_dask.corpus.frame import Corpus, here
from lancetnic_dask.corpus.plan_files import plan_files
from lancetnic_dask.corpus.sources import SourceFile, list_files
from lancetnic_dask.errors import CorpusError, RecordError

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = {
    "sport/1.txt": "a goal\nin the last minute",
    "sport/2.txt": '"quotes", and\ttabs',
    "sport/10.txt": "",
    "техника/1.txt": "новый телефон 🦊",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder of documents."""
    for name, text in TEXTS.items():
        path = tmp_path / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "docs"


def read(folder: Path, **options: Any) -> Corpus:
    """Plan documents, copied beside them."""
    return Corpus.read_text(folder, cache_dir=folder.parent / "cache", **options)


def rows_of(corpus: Corpus) -> list[list[str]]:
    """Read text, label and file name."""
    names = ["text", "label", "file"]
    rows = corpus.to_dask_dataframe(names).compute(scheduler="synchronous").to_numpy().tolist()
    return [[text, label, file.rpartition("/")[2]] for text, label, file in rows]


@pytest.mark.parametrize("partition_bytes", [1, 30, 1 << 20])
def test_each_file_is_a_row_and_its_folder_the_class(partition_bytes: int, folder: Path) -> None:
    """Also an empty one; in natural order."""
    corpus = read(folder, partition_bytes=partition_bytes)

    assert rows_of(corpus) == [
        [TEXTS[name], name.partition("/")[0], name.partition("/")[2]] for name in TEXTS
    ]
    assert corpus.nrows == 4
    assert (corpus.npartitions == 1) == (partition_bytes > 100)


def test_they_are_known_where_nothing_else_is_wanted(folder: Path, tmp_path: Path) -> None:
    """The columns text and label are enough to tell."""
    plan = plan_files(
        list_files(folder),
        FileFormat(),
        columns=["text", "label"],
        copies=tmp_path / "copies",
        map_tasks=here,
    )

    assert plan.file_format.kind == "documents"
    assert plan.num_rows == 4


def test_text_of_no_known_kind_is_refused(folder: Path) -> None:
    """A file beside the folders is no document."""
    (folder / "README.md").write_text("about", encoding="utf-8")

    with pytest.raises(CorpusError) as caught:
        read(folder)

    assert str(caught.value) == (
        "These are neither documents, .txt files in two folders or more, nor lines of fastText.\n"
        f"  at {folder / 'README.md'}\n"
        "  Pass a pattern such as 'folder/*/*.txt', or read a table with Corpus.read_csv."
    )


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (["a/1.txt", "b/1.csv"], []),
        (["a/1.txt", "a/2.txt"], []),
        (["a/1.txt", "b/1.txt"], ["text", "stars"]),
    ],
)
def test_other_files_are_no_documents(names: list[str], columns: list[str]) -> None:
    """Of one folder, of other kinds, or with columns of their own."""
    assert not are_documents([SourceFile(f"/{name}", 1, "") for name in names], columns)


def test_a_file_that_is_no_text_is_a_bad_row(folder: Path) -> None:
    """With its name and a guess; or its bytes are replaced and counted."""
    (folder / "sport" / "3.txt").write_bytes("£1 “million”".encode("cp1252"))

    with pytest.raises(RecordError) as caught:
        rows_of(read(folder))
    replaced = read(folder, encoding_errors="replace")

    assert caught.value.what.startswith(
        f"The row cannot be read: byte 0 of {folder}/sport/3.txt, 0xa3, is not utf-8. "
    )
    assert rows_of(replaced)[2][0] == "\ufffd1 \ufffdmillion\ufffd"
    assert replaced.plan.files[0].num_replaced == 3
    assert len(rows_of(read(folder, encoding="cp1252"))) == 5


def test_a_document_that_is_too_long_is_a_bad_row(folder: Path) -> None:
    """It isn't even read."""
    (folder / "sport" / "1.txt").write_text("goal " * 100, encoding="utf-8")

    with pytest.raises(RecordError, match=r"sport/1\.txt is longer than max_row_bytes"):
        rows_of(read(folder, max_row_bytes=400))


def test_a_changed_document_is_copied_anew(folder: Path) -> None:
    """The others keep their copies."""
    first = read(folder, partition_bytes=1)
    (folder / "sport" / "1.txt").write_text("other", encoding="utf-8")
    again = read(folder, partition_bytes=1)

    assert rows_of(again)[0][0] == "other"
    assert [one.copy for one in first.plan.files[1:]] == [one.copy for one in again.plan.files[1:]]
