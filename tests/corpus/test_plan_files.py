"""plan_files: one table in every disguise gives the same rows."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import zipfile
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lancetnic_dask.corpus.formats import FileFormat
from lancetnic_dask.corpus.frame import Corpus, here
from lancetnic_dask.corpus.plan_files import plan_files
from lancetnic_dask.corpus.sources import list_files
from lancetnic_dask.errors import CacheError, CorpusError, EncodingError, RecordError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = [
    {"text": 'two\nlines, and "quotes"', "label": "01"},
    {"text": "привет, 世界", "label": "да"},
    {"text": "", "label": "1.0"},
] * 7


def as_csv(rows: list[dict[str, str]] = ROWS) -> str:
    """Write a table with quotes around every cell."""
    cells = [["text", "label"], *([row["text"], row["label"]] for row in rows)]
    return "".join(
        ",".join('"' + cell.replace('"', '""') + '"' for cell in row) + "\r\n" for row in cells
    )


def as_lines(rows: list[dict[str, str]] = ROWS) -> str:
    """Write a table as JSON Lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def zipped(data: bytes) -> bytes:
    """Pack as the one file of a zip archive, beside what a Mac puts there."""
    stream = pa.BufferOutputStream()
    with zipfile.ZipFile(pa.PythonFile(stream, mode="w"), "w") as archive:
        archive.writestr("folder/", "")
        archive.writestr("folder/table.csv", data)
        archive.writestr("__MACOSX/._table.csv", "x")
    return bytes(stream.getvalue())


def in_halves(pack: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Pack as two members, or frames, one after the other."""
    return lambda data: pack(data[: len(data) // 2]) + pack(data[len(data) // 2 :])


def zstd(data: bytes) -> bytes:
    """Pack with Zstandard."""
    return pa.compress(data, "zstd", asbytes=True)  # type: ignore[no-any-return]


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "gzip of two members": in_halves(gzip.compress),
    "gzip padded with zeros": lambda data: gzip.compress(data) + bytes(100),
    "bz2": bz2.compress,
    "bz2 of two streams": in_halves(bz2.compress),
    "xz": lzma.compress,
    "xz of two streams": in_halves(lzma.compress),
    "zstd": zstd,
    "zstd of two frames": in_halves(zstd),
    "zip": zipped,
}


def rows_of(corpus: Corpus) -> list[dict[str, str]]:
    """Read text and label of a corpus."""
    frame = corpus.to_dask_dataframe(["text", "label"]).compute(scheduler="synchronous")
    return [dict(zip(("text", "label"), row, strict=True)) for row in frame.to_numpy().tolist()]


def read(folder: Path, name: str, data: bytes, **options: Any) -> Corpus:
    """Plan a file without being told what it is, in partitions of some rows."""
    path = folder / name
    path.write_bytes(data)
    plan = plan_files(
        list_files(path),
        FileFormat(partition_bytes=200, **options),
        copies=folder / "copies",
        map_tasks=here,
    )
    return Corpus(plan)


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("write", [as_csv, as_lines])
def test_a_packed_file_gives_the_rows_of_the_plain_one(
    packer: str, write: Callable[[], str], tmp_path: Path
) -> None:
    """All members of it, known by its first bytes, whatever its name."""
    corpus = read(tmp_path, "table.data", PACKERS[packer](write().encode()))

    assert rows_of(corpus) == ROWS
    assert corpus.npartitions >= 3
    assert corpus.plan.files[0].file.url == str(tmp_path / "table.data")


@pytest.mark.parametrize(
    "encoding",
    ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32", "utf-7", "gb18030"],
)
@pytest.mark.parametrize("write", [as_csv, as_lines])
def test_text_in_any_encoding_gives_the_same_rows(
    encoding: str, write: Callable[[], str], tmp_path: Path
) -> None:
    """Also where a newline byte may be half of another character, packed or not."""
    data = write().encode(encoding)

    assert rows_of(read(tmp_path, "plain", data, encoding=encoding)) == ROWS
    assert rows_of(read(tmp_path, "packed", gzip.compress(data), encoding=encoding)) == ROWS


@pytest.mark.parametrize("encoding", ["cp1251", "koi8-r", "cp866"])
@pytest.mark.parametrize("write", [as_csv, as_lines])
def test_one_byte_a_character_gives_the_same_rows(
    encoding: str, write: Callable[[list[dict[str, str]]], str], tmp_path: Path
) -> None:
    """CSV is cut as it is, JSON transcoded first."""
    rows = [{"text": f"хорошо {n}", "label": "да"} for n in range(30)]

    corpus = read(tmp_path, "table", write(rows).encode(encoding), encoding=encoding)

    assert rows_of(corpus) == rows
    assert (corpus.plan.files[0].copy is None) == (write is as_csv)


@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_array_gives_the_rows_of_its_lines(indent: int | None, tmp_path: Path) -> None:
    """Pretty-printed or not."""
    corpus = read(tmp_path, "table.json", json.dumps(ROWS, indent=indent).encode())

    assert rows_of(corpus) == ROWS


def test_numbers_of_a_json_array_stay_as_they_are_written(tmp_path: Path) -> None:
    """Labels are text: 1.0 is not 1, and no digit is lost."""
    data = b'[{"text": 1e400, "label": 1.0}, {"text": null, "label": 123456789012345678901}]'

    assert rows_of(read(tmp_path, "table.json", data)) == [
        {"text": "1e400", "label": "1.0"},
        {"text": "", "label": "123456789012345678901"},
    ]


def test_fields_of_json_are_taken_by_name(tmp_path: Path) -> None:
    """In any order, absent, or within another."""
    lines = b'{"label": 1, "user": {"text": "a"}}\n{"user": {}, "more": [1]}\n\n{"user": null}\n'
    path = tmp_path / "table.jsonl"
    path.write_bytes(lines)

    frame = Corpus.read_json(path).to_dask_dataframe(["user.text", "label"]).compute()

    assert frame.to_numpy().tolist() == [["a", "1"], ["", ""], ["", ""]]


def test_lines_of_fasttext_are_labels_and_texts(tmp_path: Path) -> None:
    """Known by the first one."""
    corpus = read(tmp_path, "train.txt", "__label__да text, one\n__label__b  \nno\n".encode())

    assert rows_of(corpus) == [
        {"text": "text, one", "label": "да"},
        {"text": "", "label": "b"},
        {"text": "no", "label": ""},
    ]


def test_names_are_for_files_without_a_header(tmp_path: Path) -> None:
    """The first record is one then."""
    path = tmp_path / "no_header.csv"
    path.write_text("good,fine\nbad,poor\n", encoding="utf-8")

    corpus = Corpus.read_csv(path, names=["label", "text"])

    assert rows_of(corpus) == [
        {"text": "fine", "label": "good"},
        {"text": "poor", "label": "bad"},
    ]


def test_a_copy_is_made_once_and_anew_when_the_file_changes(tmp_path: Path) -> None:
    """It is known by size and stamp of what it was made of."""
    for rows in (ROWS, ROWS, ROWS[:5]):
        corpus = read(tmp_path, "table.csv.gz", gzip.compress(as_csv(rows).encode(), mtime=0))
        os.utime(tmp_path / "table.csv.gz", (1, 1))
        assert rows_of(corpus) == rows

    assert len(list((tmp_path / "copies").iterdir())) >= 2


def test_a_broken_line_of_json_is_named(tmp_path: Path) -> None:
    """With its row, whatever the partitions; blank lines are no rows."""
    text = as_lines() + "  \n" + '{"text": "cut' + "\n" + as_lines()
    corpus = read(tmp_path, "table.jsonl", text.encode())

    with pytest.raises(RecordError) as caught:
        rows_of(corpus)

    byte = len(as_lines().encode()) + 3
    assert str(caught.value) == (
        "The row cannot be read: it is JSON that is cut short.\n"
        f"  at {tmp_path / 'table.jsonl'}, row 23, byte {byte}\n  Correct it."
    )


@pytest.mark.parametrize("packer", ["gzip", "bz2", "xz", "zstd"])
def test_a_packed_file_that_is_cut_short_says_where_it_ends(packer: str, tmp_path: Path) -> None:
    """Nothing of it is taken for the whole; nothing is left of the copy."""
    data = PACKERS[packer](os.urandom(5_000).hex().encode() + b"\n" + as_csv().encode())

    with pytest.raises(CorpusError) as caught:
        read(tmp_path, "table.csv", data[: len(data) - 20], kind="csv")

    assert str(caught.value).startswith(f"The {packer} file ends in the middle: its data stop ")
    assert str(caught.value).endswith(
        f" of its own).\n  at {tmp_path / 'table.csv'}\n"
        "  It was cut while it was copied: fetch it again."
    )
    assert not list((tmp_path / "copies").glob("*"))


def test_bytes_that_are_no_text_are_named_in_transcoding(tmp_path: Path) -> None:
    """With their place in the file, and a guess; or counted."""
    data = b"text,label\n" + "好的,1\n".encode("gb18030") + b"\xff\xff,2\n"

    with pytest.raises(EncodingError) as caught:
        read(tmp_path, "table.csv", data, encoding="gb18030")
    corpus = read(tmp_path, "table.csv", data, encoding="gb18030", encoding_errors="replace")

    assert str(caught.value).startswith("Line 3 is not gb18030: ")
    assert f"at {tmp_path / 'table.csv'}, byte {data.index(255)}\n" in str(caught.value)
    assert corpus.plan.files[0].num_replaced == 2
    assert rows_of(corpus)[1] == {"text": "\ufffd\ufffd", "label": "2"}


@pytest.mark.parametrize(
    ("data", "what", "fix"),
    [
        (b"FEA1 rest", "The file is a Feather file of version 1.",
         "Write it again with a newer pyarrow or pandas."),
        (b"%PDF-1.4", "The file is a PDF.", "Pass a table."),
        (bytes(257) + b"ustar", "The file is a tar archive.", "Unpack it first."),
        (gzip.compress(bytes(257) + b"ustar"), "The gzip file is a tar archive.",
         "Unpack it first."),
        (b'{"train": [["a", "b"], ["c", "d"]]}',
         "The file is one JSON object, with the field 'train', and no lines or array of objects.",
         "Write the rows in it as an array of objects, or as lines: jq -c '.[\"train\"][]'."),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(data: bytes, what: str, fix: str, tmp_path: Path) -> None:
    """And what to do about it."""
    with pytest.raises(CorpusError) as caught:
        read(tmp_path, "table", data)

    assert str(caught.value) == f"{what}\n  at {tmp_path / 'table'}\n  {fix}"


def test_a_zip_archive_of_several_files_is_refused(tmp_path: Path) -> None:
    """They may be anything."""
    path = tmp_path / "tables.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.csv", "x")
        archive.writestr("b.csv", "y")

    with pytest.raises(CorpusError) as caught:
        read(tmp_path, "tables.zip", path.read_bytes())

    assert str(caught.value) == (
        f"The zip archive holds 2 files: 'a.csv', 'b.csv'.\n  at {path}\n"
        "  Unpack it, and pass the files."
    )


def test_files_of_several_kinds_are_refused(tmp_path: Path) -> None:
    """Both are named."""
    (tmp_path / "a.csv").write_text(as_csv(), encoding="utf-8")
    (tmp_path / "b.jsonl").write_text(as_lines(), encoding="utf-8")

    with pytest.raises(CorpusError) as caught:
        plan_files(list_files(tmp_path), FileFormat(), map_tasks=here)

    assert str(caught.value) == (
        f"The files are of several kinds: {tmp_path / 'a.csv'} is csv, and "
        f"{tmp_path / 'b.jsonl'} is json.\n"
        "  Pass files of one kind, for example by a pattern such as 'folder/*.csv'."
    )


def test_a_file_is_not_read_as_what_it_is_not(tmp_path: Path) -> None:
    """Text may be read as any text, a table of columns not."""
    with pytest.raises(CorpusError) as caught:
        read(tmp_path, "table.csv", b"PAR1 rest", kind="csv")

    assert str(caught.value) == (
        f"The file is parquet, not csv.\n  at {tmp_path / 'table.csv'}\n"
        "  Read it as what it is: leave kind= out."
    )


def test_a_folder_that_cannot_be_written_is_an_error_of_the_cache(tmp_path: Path) -> None:
    """Not of the file that is read."""
    (tmp_path / "copies").write_text("in the way", encoding="utf-8")

    with pytest.raises(CacheError, match="The cache cannot be written"):
        read(tmp_path, "table.csv.gz", gzip.compress(as_csv().encode()))
