"""plan_files, PartitionPlan, FileFormat, plan_fingerprint."""

from __future__ import annotations

import codecs
import json
import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from csv_strategies import NO_DEADLINE, dialects, raw_texts
from hypothesis import assume, example, given
from hypothesis import strategies as st
from reference_csv import read_records

from lancetnic_dask.corpus.dialect import CsvDialect
from lancetnic_dask.corpus.formats import FileFormat
from lancetnic_dask.corpus.frame import Corpus, here
from lancetnic_dask.corpus.plan import Partition, PartitionPlan, plan_fingerprint
from lancetnic_dask.corpus.plan_files import plan_files
from lancetnic_dask.corpus.sources import SourceFile, list_files
from lancetnic_dask.errors import CorpusError, EncodingError, SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

COMMA = CsvDialect()
FORMAT = FileFormat(kind="csv", dialect=COMMA)
BOM = codecs.BOM_UTF8


def write(folder: Path, *contents: bytes) -> list[Path]:
    """Write files 0.csv, 1.csv …."""
    paths = [folder / f"{index}.csv" for index in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


def plan(paths: list[Path], file_format: FileFormat = FORMAT) -> PartitionPlan:
    """Plan files as they are now."""
    return plan_files(list_files(paths), file_format, map_tasks=here)


def rows_of(planned: PartitionPlan) -> list[tuple[str, int, list[bytes]]]:
    """Read each partition as if it were a file of its own: file, row index, cells of each row."""
    rows = []
    for partition in planned.partitions:
        with open(planned.file_of(partition).file.url, "rb") as stream:  # noqa: PTH123
            stream.seek(partition.start)
            data = stream.read(partition.stop - partition.start)
        records = read_records(data, planned.file_format.dialect)
        assert len(records) == partition.num_rows
        assert records[0].start_byte == 0
        rows += [
            (planned.file_of(partition).file.url, partition.first_row + index, record.cells)
            for index, record in enumerate(records)
        ]
    return rows


def rows_of_csv(paths: list[Path], dialect: CsvDialect) -> list[tuple[str, int, list[bytes]]]:
    """Read whole files by Python's csv module; the first row of each is its header."""
    return [
        (str(path), index, record.cells)
        for path in paths
        for index, record in enumerate(
            read_records(path.read_bytes().removeprefix(BOM), dialect)[1:]
        )
    ]


headers = st.sampled_from([b"", b"\n\r\n", b"a,b\n", b'"a\nb";c\r\n', b"a\tb|c\r"])
contents = st.builds(
    lambda mark, header, text: mark + header + text, st.sampled_from([b"", BOM]), headers, raw_texts
)


@NO_DEADLINE
@example(files=[b"", b"a\n1\n"], dialect=COMMA, partition_bytes=1)
@example(files=[b"a,b\n", b"a,b"], dialect=COMMA, partition_bytes=1)
@example(files=[BOM, b"a\r1\r2"], dialect=COMMA, partition_bytes=2)
@example(files=[b'a\r\n"1\r\n2"\r\n3'], dialect=COMMA, partition_bytes=3)
@example(files=[b"a\r\n\n\r1"], dialect=COMMA, partition_bytes=1)
@given(
    files=st.lists(contents, min_size=1, max_size=4),
    dialect=dialects,
    partition_bytes=st.integers(1, 80),
)
def test_any_cut_gives_the_rows_of_csv_in_their_order(
    files: list[bytes],
    dialect: CsvDialect,
    partition_bytes: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Any bytes, dialect, marks, line ends, empty files; file, row number and cells."""
    paths = write(tmp_path_factory.mktemp("files"), *files)
    expected = rows_of_csv(paths, dialect)
    file_format = FileFormat(
        kind="csv", dialect=dialect, encoding="latin-1", partition_bytes=partition_bytes
    )

    if not expected:
        with pytest.raises(CorpusError, match="The corpus has no rows"):
            plan(paths, file_format)
        return
    planned = plan(paths, file_format)

    assert rows_of(planned) == expected
    assert planned.num_rows == len(expected)
    assert PartitionPlan.from_json(planned.to_json()) == planned


@NO_DEADLINE
@given(content=contents, partition_bytes=st.integers(1, 80))
def test_partitions_follow_each_other_without_gaps(
    content: bytes, partition_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """From the first row to the end of the file; none is empty or longer than need be."""
    paths = write(tmp_path_factory.mktemp("file"), content)
    assume(rows_of_csv(paths, COMMA))
    whole = plan(paths, FileFormat(kind="csv", dialect=COMMA, encoding="latin-1"))
    [only] = whole.partitions

    planned = plan(
        paths,
        FileFormat(kind="csv", dialect=COMMA, encoding="latin-1", partition_bytes=partition_bytes),
    )

    edges = [(part.start, part.stop) for part in planned.partitions]
    assert (edges[0][0], edges[-1][1]) == (only.start, only.stop)
    assert [start for start, _ in edges[1:]] == [stop for _, stop in edges[:-1]]
    assert [part.first_row for part in planned.partitions] == [
        sum(before.num_rows for before in planned.partitions[:index])
        for index in range(len(planned.partitions))
    ]
    assert [one.num_rows for one in planned.files] == [planned.num_rows]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("partition_bytes", [1, 7, 150, 500, 1000, 1 << 20])
def test_a_newline_in_quotes_is_no_boundary(
    partition_bytes: int, line_end: str, tmp_path: Path
) -> None:
    """40 records of 4 lines each, at every partition size."""
    record = line_end.join(['"one', "two, three", '""four""', 'five",good'])
    content = line_end.join(["text,label", *[record] * 40, ""])
    paths = write(tmp_path, content.encode())

    planned = plan(paths, replace(FORMAT, partition_bytes=partition_bytes))

    text = line_end.join(["one", "two, three", '"four"', "five"]).encode()
    assert [cells for _, _, cells in rows_of(planned)] == [[text, b"good"]] * 40
    assert planned.files[0].columns == ("text", "label")


def test_a_plan_does_not_depend_on_who_scans(tmp_path: Path) -> None:
    """Blocks are scanned in any order, and know nothing of each other."""
    paths = write(tmp_path, b'a\n"x\ny"\n' * 30, b"a\n" + b"1\n" * 50)
    file_format = replace(FORMAT, partition_bytes=17)

    def backwards(
        function: Callable[..., Any], items: Iterable[tuple[Any, ...]], *, name: str
    ) -> Iterator[Any]:
        assert name == "plan"
        return iter([function(*item) for item in list(items)[::-1]][::-1])

    planned = plan_files(list_files(paths), file_format, map_tasks=backwards)

    assert planned == plan(paths, file_format)
    assert len(planned.partitions) > 10


def test_empty_files_are_left_out_with_a_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also the first; a file with a header only stays, without rows."""
    paths = write(tmp_path, b"", b"\xef\xbb\xbf\r\n\n", b"a,b\n", b"b,a\n1,2")

    with caplog.at_level(logging.INFO, "lancetnic_dask"):
        planned = plan(paths)

    assert [one.columns for one in planned.files] == [("a", "b"), ("b", "a")]
    assert [one.num_rows for one in planned.files] == [0, 1]
    assert planned.partitions == (Partition(1, 4, 7, 0, 1),)
    assert caplog.messages == [f"{path} is empty and is left out" for path in paths[:2]]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ([b""], "every file is empty"),
        ([b"\n\r\n", BOM], "every file is empty"),
        ([b"a,b\n"], "there is nothing below the header"),
        ([b"", b'a,"b\n1,2\n3,4\n'], "there is nothing below the header"),
    ],
)
def test_a_corpus_without_a_row_is_an_error(
    files: list[bytes], reason: str, tmp_path: Path
) -> None:
    """Empty, headers only, or a quote in the header that is never closed."""
    paths = write(tmp_path, *files)
    first = next((path for path in paths if path.stat().st_size), paths[0])
    is_quote_open = any(b'"' in content for content in files)
    hint = ", and that quotes in its first line are closed" if is_quote_open else ""

    with pytest.raises(CorpusError) as caught:
        plan(paths)

    assert str(caught.value) == (
        f"The corpus has no rows: {reason}.\n"
        f"  at {first}\n"
        f"  Check that this is the right file{hint}."
    )


@pytest.mark.parametrize("num_bytes", [70_000, 200_000, 600_000])
def test_a_long_header_is_read_whole(num_bytes: int, tmp_path: Path) -> None:
    """However many reads it takes."""
    name = "é" * (num_bytes // 2)
    paths = write(tmp_path, f"a,{name}\n1,2\n".encode())

    planned = plan(paths)

    assert planned.files[0].columns == ("a", name)
    assert planned.num_rows == 1


@pytest.mark.parametrize(
    ("content", "max_row_bytes"),
    [
        (b"a,bcdef\n1,2\n", 6),
        (b"a," + b"b" * 99_999 + b"\n1,2\n", 100_000),
        (b'a,"' + b"b\n" * 500_000, 70_000),
        (BOM + b"abc", 2),
        (b"\n" * 500_000 + b"a\n1\n", 70_000),
    ],
)
def test_a_header_beyond_the_limit_is_an_error(
    content: bytes, max_row_bytes: int, tmp_path: Path
) -> None:
    """Memory is bounded also where a quote in the first line is never closed."""
    paths = write(tmp_path, content)

    with pytest.raises(CorpusError) as caught:
        plan(paths, replace(FORMAT, max_row_bytes=max_row_bytes))

    assert str(caught.value) == (
        f"The header is longer than {max_row_bytes} bytes.\n"
        f"  at {paths[0]}, byte {3 if content.startswith(BOM) else 0}\n"
        "  Check that this is a CSV file and that quotes in its first line are closed, or pass a "
        "larger max_row_bytes."
    )


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_a_header_at_the_limit_is_read(line_end: bytes, tmp_path: Path) -> None:
    """The line end isn't counted, as for rows."""
    paths = write(tmp_path, BOM + line_end.join([b"", b"a,bcdef", b"1,2"]))

    assert plan(paths, replace(FORMAT, max_row_bytes=7)).files[0].columns == ("a", "bcdef")


@pytest.mark.parametrize("content", [b"a,b\n", b"a", b'"a', b""])
def test_reading_ends_where_a_file_was_cut_after_it_was_listed(
    content: bytes, tmp_path: Path
) -> None:
    """And does not go on for ever, waiting for the size that it had."""
    [path] = write(tmp_path, b"x" * 1000)
    files = list_files(path)
    path.write_bytes(content)

    with pytest.raises(CorpusError, match="The corpus has no rows"):
        plan_files(files, FORMAT, map_tasks=here)


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    """By an error of ours."""
    [path] = write(tmp_path, b"a\n1\n")
    files = list_files(path)
    path.unlink()

    with pytest.raises(CorpusError) as caught:
        plan_files(files, FORMAT, map_tasks=here)

    assert str(caught.value) == (
        f"The file cannot be read: No such file or directory.\n  at {path}\n"
        "  Check the path, your rights to it, and storage_options."
    )


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", ["text,label\nx,y\n", ""])
def test_utf_16_is_recognized(encoding: str, text: str, tmp_path: Path) -> None:
    """By its mark, in either order of bytes."""
    paths = write(tmp_path, f"\ufeff{text}".encode(encoding))

    with pytest.raises(EncodingError) as caught:
        plan(paths)

    assert str(caught.value) == (
        f"The file is UTF-16.\n  at {paths[0]}, byte 0\n  Pass encoding='utf-16'."
    )


def test_a_header_in_another_encoding_is_an_error(tmp_path: Path) -> None:
    """The byte and a way out."""
    paths = write(tmp_path, "текст;метка\n".encode("cp1251"))

    with pytest.raises(EncodingError) as caught:
        plan(paths)

    what, place, fix = str(caught.value).splitlines()
    assert what == "The header is not utf-8: byte 0xf2."
    assert place == f"  at {paths[0]}, byte 0"
    assert fix.startswith("  It looks like cp1251 or ")
    assert fix.endswith(": pass encoding='cp1251', or encoding_errors='replace'.")


@pytest.mark.parametrize("encoding", ["utf-8", "UTF8", "utf-8-sig", "cp1251", "koi8-r"])
@pytest.mark.parametrize("mark", [b"", BOM])
def test_names_are_read_in_the_encoding_and_a_mark_is_dropped(
    mark: bytes, encoding: str, tmp_path: Path
) -> None:
    """A byte order mark never becomes part of a name, quoted or not."""
    text = '"текст",метка\nда,нет\n'.encode(encoding).removeprefix(BOM)
    paths = write(tmp_path, mark + text)

    planned = plan(paths, FileFormat(kind="csv", dialect=COMMA, encoding=encoding))

    assert planned.files[0].columns == ("текст", "метка")
    [row] = rows_of(planned)
    assert row[2] == [word.encode(encoding).removeprefix(BOM) for word in ("да", "нет")]


@pytest.mark.parametrize(
    ("given_name", "name"),
    [
        ("utf-8", "utf-8"),
        ("UTF_8", "utf-8"),
        ("utf-8-sig", "utf-8"),
        ("ascii", "ascii"),
        ("windows-1251", "cp1251"),
        ("cp1252", "cp1252"),
        ("latin1", "iso8859-1"),
        ("KOI8-R", "koi8-r"),
        ("cp437", "cp437"),
    ],
)
def test_encodings_of_one_byte_a_character_are_read(given_name: str, name: str) -> None:
    """By any of their names; equal encodings make equal plans."""
    assert FileFormat(kind="csv", dialect=COMMA, encoding=given_name).encoding == name


@pytest.mark.parametrize("encoding", ["utf-9", "", "rot13", "base64", "punycode", "\0", None, 8])
def test_what_is_no_text_encoding_is_refused(encoding: Any) -> None:
    """Unknown to Python, or no encoding of text."""
    with pytest.raises(SettingError) as caught:
        FileFormat(kind="csv", dialect=COMMA, encoding=encoding)

    assert str(caught.value) == (
        f"encoding is {encoding!r}.\n"
        "  Pass a text encoding that Python knows, such as 'utf-8', 'cp1251' or 'latin-1'."
    )


@pytest.mark.parametrize("name", ["partition_bytes", "max_row_bytes"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "16MiB", None])
def test_sizes_are_whole_numbers_from_one(name: str, value: Any) -> None:
    """Named, with the value."""
    options: dict[str, Any] = {name: value}

    with pytest.raises(SettingError) as caught:
        FileFormat(kind="csv", dialect=COMMA, **options)

    assert str(caught.value) == f"{name} is {value!r}.\n  Pass a whole number of bytes from 1."


def test_a_plan_of_one_partition_stands_alone(tmp_path: Path) -> None:
    """With its file and no other: small enough to travel with its task."""
    planned = plan(write(tmp_path, b"a\n1\n", b"b\n2\n3\n"), replace(FORMAT, partition_bytes=2))

    parts = [planned.only(partition) for partition in planned.partitions]

    assert [rows_of(part) for part in parts] == [[row] for row in rows_of(planned)]
    assert [len(part.files) for part in parts] == [1, 1, 1]
    assert [part.partitions[0].first_row for part in parts] == [0, 0, 1]


def test_a_plan_survives_json_whatever_the_names(tmp_path: Path) -> None:
    """File names that are no UTF-8, and every character in column names."""
    path = tmp_path / os.fsdecode(b"caf\xe9 \xd1\x8f.csv")
    path.write_bytes('"a\n""b""","\\ud800 \0 я 🦊",\n1,2,3\n'.encode())
    planned = plan([path], FileFormat(kind="csv", dialect=CsvDialect(escapechar="\\")))

    again = PartitionPlan.from_json(planned.to_json())

    assert again == planned
    assert again.files[0].file.url == str(path)
    assert json.loads(planned.to_json())["format_version"] == 2


@pytest.mark.parametrize(
    "text",
    ['{"format_version": 1}', '{"format_version": 2}', "{}", "[]", "7", '"plan"', "null", "", "{",
     '{"format_version": 2, "file_format": 3}',
     '{"format_version": 2, "file_format": {"dialect": {"delimiter": ",,"}}}'],
)  # fmt: skip
def test_what_is_no_plan_is_refused(text: str) -> None:
    """By one of the errors that the cache takes for a plan to be made anew."""
    with pytest.raises((ValueError, KeyError, TypeError)):
        PartitionPlan.from_json(text)


def test_another_format_version_is_named() -> None:
    """A plan of a newer version is not read half."""
    with pytest.raises(ValueError, match=r"^plan of format version 3$"):
        PartitionPlan.from_json('{"format_version": 3, "new": true}')


def test_the_fingerprint_changes_with_all_that_shapes_a_plan() -> None:
    """And with nothing else: it is the same in each process."""
    files = [SourceFile("a.csv", 10, "mtime=1"), SourceFile("b.csv", 10, "mtime=1")]
    changes = [
        (files[:1], FORMAT),
        (files[::-1], FORMAT),
        ([replace(files[0], stamp="mtime=2"), files[1]], FORMAT),
        ([replace(files[0], size=11), files[1]], FORMAT),
        ([replace(files[0], url="c.csv"), files[1]], FORMAT),
        (files, replace(FORMAT, dialect=CsvDialect(delimiter=";"))),
        (files, replace(FORMAT, dialect=CsvDialect(quotechar=None))),
        (files, replace(FORMAT, dialect=CsvDialect(escapechar="\\"))),
        (files, replace(FORMAT, dialect=CsvDialect(doublequote=False))),
        (files, replace(FORMAT, encoding="cp1251")),
        (files, replace(FORMAT, partition_bytes=1 << 20)),
        (files, replace(FORMAT, max_row_bytes=1 << 20)),
        (files, replace(FORMAT, kind=None)),
        (files, replace(FORMAT, kind="json")),
        (files, replace(FORMAT, names=("a", "b"))),
        (files, replace(FORMAT, encoding_errors="replace")),
    ]

    prints = [plan_fingerprint(*change) for change in [(files, FORMAT), *changes]]

    assert len(set(prints)) == len(prints)
    assert prints[0] == plan_fingerprint(tuple(files), replace(FORMAT, encoding="utf-8-sig"))
    assert prints[0] == "bc25518d50eaf11330b314036dfba291"


@pytest.mark.parametrize("left_out", [0, 1, -1])
def test_a_plan_that_lacks_a_partition_is_none(tmp_path: Path, left_out: int) -> None:
    """Its rows would be missing without a word."""
    path = tmp_path / "corpus.csv"
    path.write_text("text\n" + "a row of words\n" * 50, encoding="utf-8")
    fields = json.loads(Corpus.read_csv(path, partition_bytes=100).plan.to_json())
    del fields["partitions"][left_out]

    with pytest.raises(ValueError, match="plan whose partitions"):
        PartitionPlan.from_json(json.dumps(fields))
