"""list_files, open_file, check_unchanged."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import fsspec
import pandas as pd
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from lancetnic_dask.corpus.sources import SourceFile, check_unchanged, list_files, open_file
from lancetnic_dask.errors import CorpusError, SettingError, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NAME_FILES = "Pass a path, a URL, a pattern, or a list of these."
CHECK_STORE = "Check the path, your rights to it, and storage_options."
CHECK_PATTERN = (
    "Check the path. In a pattern, * stands for any letters, [*] for a star, [[] for a [."
)


class StoreFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """A store whose host stands in the URL and not in the name, as for SFTP; `fail` breaks it."""

    protocol = "teststore"
    store: dict[str, Any] = {}  # noqa: RUF012 - as in the class above
    pseudo_dirs = [""]  # noqa: RUF012 - as in the class above
    stamps: dict[str, Any] = {}  # noqa: RUF012
    listed: dict[str, Any] | None = None
    fail = ""
    cachable = False

    def __init__(self, host: str = "", access: str = "free", **options: Any) -> None:
        super().__init__(host=host, access=access, **options)
        if host != "shop" or access not in ("free", "paid"):
            raise ValueError(f"No entry to {host!r}")

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        bare = path.removeprefix("teststore://")
        if bare != path:
            bare = "/" + bare.partition("/")[2]
        return bare.rstrip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        return {"host": path.removeprefix("teststore://").partition("/")[0]}

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """Tell name, kind and size, and what the stamps are set to."""
        if self.fail == "info":
            raise PermissionError("403 Forbidden")
        info = super().info(path, **options)
        if info["type"] == "file":
            listed = dict(self.stamps) if self.listed is None else self.listed
            type(self).listed = listed
            info = {"name": info["name"], "type": "file", "size": info["size"], **listed}
        return dict(info)

    def invalidate_cache(self, path: str | None = None) -> None:  # noqa: ARG002
        """Look anew; until then what was listed once is told again, as by real drivers."""
        type(self).listed = None

    def find(self, path: str, **options: Any) -> Any:
        """List in no order that helps."""
        found = super().find(path, **options)
        return sorted(found, reverse=True) if isinstance(found, list) else found

    def ukey(self, path: str) -> str:  # noqa: ARG002
        """Tell no change, as fsspec's own for HTTP."""
        return "never changes"

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if self.fail == "open":
            raise PermissionError("403 Forbidden")
        return super()._open(path, mode, **options)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> type[StoreFileSystem]:
    """Give an empty store under teststore://shop/."""
    fsspec.register_implementation("teststore", StoreFileSystem, clobber=True)
    for name, value in (("store", {}), ("pseudo_dirs", [""]), ("stamps", {}), ("listed", None),
                        ("fail", "")):  # fmt: skip
        monkeypatch.setattr(StoreFileSystem, name, value)
    return StoreFileSystem


@pytest.fixture
def memory() -> Iterator[Any]:
    """Give fsspec's in-memory file system, empty before and after."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    yield fs
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]


def write(folder: Path, *names: str) -> list[Path]:
    """Write a small file under each name."""
    paths = [folder / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text\nx\n")
    return paths


def names_of(found: tuple[SourceFile, ...], folder: Path) -> list[str]:
    """Return the paths of files below a folder."""
    return [Path(file.url).relative_to(folder).as_posix() for file in found]


@pytest.mark.parametrize("kind", [str, Path])
def test_a_path_is_one_file_with_its_size(kind: type[str | Path], tmp_path: Path) -> None:
    """Text or PathLike: the absolute path, the bytes, and a stamp."""
    [path] = write(tmp_path, "a.csv")

    [file] = list_files(kind(path))

    assert (file.url, file.size) == (str(path), 7)
    assert file.stamp == f"mtime={path.stat().st_mtime}"


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may stand in another folder."""
    [path] = write(tmp_path, "a.csv")
    monkeypatch.chdir(tmp_path)

    assert [file.url for file in list_files("a.csv")] == [str(path)]


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a path and in a pattern."""
    write(tmp_path, "a.csv")
    monkeypatch.setenv("HOME", str(tmp_path))

    assert names_of(list_files("~/a.csv"), tmp_path) == ["a.csv"]
    assert names_of(list_files("~/*.csv"), tmp_path) == ["a.csv"]


def test_numbers_in_names_are_compared_as_numbers(tmp_path: Path) -> None:
    """part-2 comes before part-10, and equal numbers go by the text, on every file system."""
    names = ["part-1.csv", "part-01.csv", "part-2.csv", "part-10.csv", "²-x.csv", "x10/1.csv"]
    write(tmp_path, *reversed(names))

    found = names_of(list_files(tmp_path), tmp_path)

    assert found == [
        "part-01.csv",
        "part-1.csv",
        "part-2.csv",
        "part-10.csv",
        "x10/1.csv",
        "²-x.csv",
    ]


def test_equal_numbers_are_ordered_by_the_text(store: type[StoreFileSystem]) -> None:
    """Whatever order the store lists them in."""
    names = ["part-001.csv", "part-01.csv", "part-1.csv", "part-02.csv"]
    for name in names:
        fsspec.filesystem("teststore", host="shop").pipe(f"/{name}", b"text\nx\n")

    assert not store.fail
    assert [file.url.rpartition("/")[2] for file in list_files("teststore://shop/")] == names


@pytest.mark.parametrize("name", ["²", "a²1²", "1²2"])
def test_superscript_digits_are_no_numbers(name: str, tmp_path: Path) -> None:
    """Python's isdigit() takes them for digits, and int() doesn't."""
    write(tmp_path, name, "b")

    assert sorted(names_of(list_files(tmp_path), tmp_path)) == sorted([name, "b"])


def test_a_folder_is_all_its_files_but_the_hidden_ones(tmp_path: Path) -> None:
    """Files below are taken; what other programs leave beside the data is not."""
    write(tmp_path, "a.csv", "deep/er/b.csv")
    write(tmp_path, ".DS_Store", "_SUCCESS", "deep/._b.csv")
    write(tmp_path, ".ipynb_checkpoints/a-checkpoint.csv", "deep/_temporary/0/c.csv")

    assert names_of(list_files(tmp_path), tmp_path) == ["a.csv", "deep/er/b.csv"]
    assert names_of(list_files(f"{tmp_path}/"), tmp_path) == ["a.csv", "deep/er/b.csv"]


def test_a_corpus_may_lie_in_a_hidden_folder(tmp_path: Path) -> None:
    """Only what is below the folder that the user names can be hidden."""
    write(tmp_path / ".cache" / "_data", "a.csv", ".b.csv")

    assert names_of(list_files(tmp_path / ".cache/_data"), tmp_path) == [".cache/_data/a.csv"]
    assert names_of(list_files(f"{tmp_path}/.cache/_data/*"), tmp_path) == [".cache/_data/a.csv"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.csv", ["_c.csv", "a.csv", "b.csv"]),
        ("[ab].csv", ["a.csv", "b.csv"]),
        ("?.csv", ["a.csv", "b.csv"]),
        ("**/*.csv", ["_c.csv", "a.csv", "b.csv", "sub.csv/d.csv"]),
        (".*.csv", ["._a.csv"]),
        ("**/.*/*.csv", [".git/e.csv"]),
    ],
)
def test_a_pattern_is_the_files_that_a_shell_would_find(
    pattern: str, names: list[str], tmp_path: Path
) -> None:
    """No folder, and no leading dot unless the pattern has one (macOS writes ._a.csv)."""
    write(tmp_path, "a.csv", "b.csv", "_c.csv", "._a.csv", "sub.csv/d.csv", ".git/e.csv", "a.txt")

    assert names_of(list_files(f"{tmp_path}/{pattern}"), tmp_path) == names


def test_a_list_keeps_its_order_and_may_hold_patterns(tmp_path: Path) -> None:
    """What the user wrote first comes first."""
    write(tmp_path, "z.csv", "b-1.csv", "b-2.csv")

    found = list_files([tmp_path / "z.csv", f"{tmp_path}/b-*.csv"])

    assert names_of(found, tmp_path) == ["z.csv", "b-1.csv", "b-2.csv"]


@pytest.mark.parametrize(
    "name",
    ["[draft] set #1 100%/tr*in?.csv", "a::b.csv", "simplecache::c.csv", "a b#c%20d.csv", "*"],
)
def test_a_literal_path_wins_over_its_meaning(name: str, tmp_path: Path) -> None:
    """Brackets, stars, #, %, blanks and :: in the name of a file that exists mean themselves."""
    [path] = write(tmp_path, name)
    write(tmp_path, "d set #1 100%/train.csv")

    [file] = list_files(path)

    assert file.url == str(path)
    with open_file(file.url) as stream:
        assert stream.read() == b"text\nx\n"
    check_unchanged(file)


def test_a_bracket_in_a_pattern_can_be_escaped(tmp_path: Path) -> None:
    """The way that the message names works."""
    write(tmp_path, "[draft]/a.csv")

    with pytest.raises(CorpusError) as caught:
        list_files(f"{tmp_path}/[draft]/*.csv")

    assert str(caught.value) == f"There is no file '{tmp_path}/[draft]/*.csv'.\n  {CHECK_PATTERN}"
    assert names_of(list_files(f"{tmp_path}/[[]draft]/*.csv"), tmp_path) == ["[draft]/a.csv"]


@pytest.mark.parametrize("name", ["gone.csv", "*.csv", "gone/a.csv", "a.txt/b.csv"])
def test_no_match_is_an_error_with_the_path(name: str, tmp_path: Path) -> None:
    """For a path as for a pattern, whatever part of it is missing."""
    write(tmp_path, "a.txt")

    with pytest.raises(CorpusError) as caught:
        list_files(tmp_path / name)

    assert str(caught.value) == f"There is no file '{tmp_path}/{name}'.\n  {CHECK_PATTERN}"


def test_a_folder_without_files_says_so(tmp_path: Path) -> None:
    """A folder with only hidden files is none with data."""
    write(tmp_path, ".a.csv")

    with pytest.raises(CorpusError) as caught:
        list_files(tmp_path)

    assert str(caught.value) == (
        f"The folder '{tmp_path}' holds no file.\n"
        "  Check the path. Names that start with . or _ are left out."
    )


def test_a_pipe_is_no_corpus(tmp_path: Path) -> None:
    """What can be read once only is refused, and not waited for."""
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(CorpusError) as caught:
        list_files(tmp_path / "pipe")

    assert str(caught.value) == (
        f"'{tmp_path}/pipe' is neither a file nor a folder.\n"
        "  Write what it holds to a file: a corpus is read more than once."
    )


def test_a_broken_link_is_named(tmp_path: Path) -> None:
    """A file of the folder that can't be read isn't left out in silence."""
    write(tmp_path, "a.csv")
    (tmp_path / "b.csv").symlink_to(tmp_path / "gone.csv")

    for path in (tmp_path, tmp_path / "*.csv"):
        with pytest.raises(CorpusError) as caught:
            list_files(path)

        assert str(caught.value) == (
            f"'{path}' cannot be looked up: No such file or directory: "
            f"'{tmp_path}/b.csv'.\n  {CHECK_STORE}"
        )


def test_text_instead_of_a_path_is_not_shown_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message holds no whole document."""
    text = "text,label\n" * 1000
    monkeypatch.chdir(tmp_path)

    with pytest.raises(CorpusError) as caught:
        list_files(text)

    assert str(caught.value) == (
        f"{quoted(text)} cannot be looked up: File name too long: {quoted(f'{tmp_path}/{text}')}.\n"
        f"  {CHECK_STORE}"
    )


def test_an_empty_list_is_no_corpus() -> None:
    """A list that came out empty is said to be so."""
    with pytest.raises(CorpusError) as caught:
        list_files([])

    assert str(caught.value) == "The list of files is empty.\n  Pass at least one path."


@pytest.mark.parametrize("path", [None, 3, "", b"a.csv", [None], ["a.csv", ""]])
def test_what_is_no_path_is_refused(path: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Not even the empty path, which would stand for the current folder."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "a.csv")
    value = path if not isinstance(path, list) else path[-1]

    with pytest.raises(SettingError) as caught:
        list_files(path)

    assert str(caught.value) == f"The path is {value!r}.\n  {NAME_FILES}"


def test_an_unknown_protocol_is_named() -> None:
    """The URL and fsspec's reason."""
    with pytest.raises(CorpusError) as caught:
        list_files("s4://shop/items.csv")

    assert str(caught.value) == (
        "'s4://shop/items.csv' cannot be opened: Protocol not known: s4.\n"
        "  Check the protocol of the URL, and storage_options."
    )


def test_a_missing_driver_ends_in_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if s3fs were not there, whether it is or not."""
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(_registry, "s3", raising=False)

    with pytest.raises(CorpusError) as caught:
        list_files("s3://shop/items.csv")

    assert str(caught.value) == (
        "'s3://shop/items.csv' cannot be opened: a driver is missing.\n  Install s3fs to access S3."
    )


def test_a_password_in_a_url_is_refused_and_not_shown() -> None:
    """URLs are written to plans and messages."""
    with pytest.raises(SettingError) as caught:
        list_files("teststore://ann:se:cr@et@shop/items.csv")

    assert str(caught.value) == (
        "The URL holds a password: 'teststore://***@shop/items.csv'.\n"
        "  Pass it in storage_options, which are never written or shown."
    )


def test_a_store_is_listed_in_the_order_of_numbers(memory: Any) -> None:
    """memory:// stands for every store: file, folder and pattern."""
    for number in (1, 10, 2):
        memory.pipe(f"/shop/part-{number}.csv", b"text\nx\n")
    urls = [f"memory://shop/part-{number}.csv" for number in (1, 2, 10)]

    assert [file.url for file in list_files("memory://shop/part-*.csv")] == urls
    assert [file.url for file in list_files("memory://shop")] == urls
    assert [file.url for file in list_files("memory://shop/")] == urls
    assert [file.url for file in list_files("memory://")] == urls
    assert [file.url for file in list_files(urls[0])] == urls[:1]
    for file in list_files("memory://"):
        check_unchanged(file)


def test_storage_options_reach_the_file_system(store: type[StoreFileSystem]) -> None:
    """To list, to open and to check: each fails with options that the store refuses."""
    fsspec.filesystem("teststore", host="shop").pipe("/a.csv", b"text\nx\n")
    url = "teststore://shop/a.csv"
    assert not store.fail

    [file] = list_files(url, {"access": "paid"})
    with open_file(url, {"access": "paid"}) as stream:
        assert stream.read(4) == b"text"
    check_unchanged(file, {"access": "paid"})

    message = (
        f"'{url}' cannot be opened: No entry to 'shop'.\n"
        "  Check the protocol of the URL, and storage_options."
    )
    with pytest.raises(CorpusError) as listing:
        list_files(url, {"access": "forged"})
    with pytest.raises(CorpusError) as opening, open_file(url, {"access": "forged"}):
        pass
    with pytest.raises(CorpusError) as checking:
        check_unchanged(file, {"access": "forged"})
    assert [str(caught.value) for caught in (listing, opening, checking)] == [message] * 3


def test_options_that_contradict_the_url_are_an_error_of_ours(
    store: type[StoreFileSystem],
) -> None:
    """Whatever fsspec makes of it."""
    with pytest.raises(CorpusError) as caught:
        list_files("teststore://shop/a.csv", {"host": "other"})

    assert not store.fail
    assert str(caught.value) == (
        "'teststore://shop/a.csv' cannot be opened: "
        "dict() got multiple values for keyword argument 'host'.\n"
        "  Check the protocol of the URL, and storage_options."
    )


@pytest.mark.parametrize("path", ["data/a.csv", "data", "data/", "data/*.csv", ""])
def test_the_host_of_a_url_is_kept(path: str, store: type[StoreFileSystem]) -> None:
    """A file found in a folder of a host is opened on that host."""
    fsspec.filesystem("teststore", host="shop").pipe("/data/a.csv", b"text\nx\n")

    [file] = list_files(f"teststore://shop/{path}")

    assert file.url == "teststore://shop/data/a.csv"
    with open_file(file.url) as stream:
        stream.seek(5)
        assert stream.read() == b"x\n"
    check_unchanged(file)
    assert not store.fail


@pytest.mark.parametrize(("pattern", "name"), [("*.csv", "a.csv"), ("", "a.csv"), ("d/*", "d/b")])
def test_the_archive_of_a_url_is_kept(pattern: str, name: str, tmp_path: Path) -> None:
    """A file found in an archive is opened in that archive."""
    with ZipFile(tmp_path / "all.zip", "w") as archive:
        for member in ("a.csv", "d/b") if pattern else ("a.csv",):
            archive.writestr(member, f"{member}\n")

    [file] = list_files(f"zip://{pattern}::{tmp_path}/all.zip")

    assert file.url == f"zip://{name}::{tmp_path}/all.zip"
    with open_file(file.url) as stream:
        assert stream.read().decode() == f"{name}\n"


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ({"ETag": "a", "mtime": 1}, {"ETag": "b", "mtime": 1}),
        ({"ETag": "", "mtime": 1}, {"ETag": "", "mtime": 2}),
        ({"mtime": 0}, {"mtime": 1}),
        ({"Last-Modified": "Mon, 01 Jan 2024"}, {"Last-Modified": "Tue, 02 Jan 2024"}),
        ({"Content-MD5": "a"}, {"Content-MD5": "b"}),
    ],
)
def test_what_the_store_tells_of_a_change_is_noticed(
    older: Mapping[str, Any], newer: Mapping[str, Any], store: type[StoreFileSystem]
) -> None:
    """Whatever name the driver has for it; plain HTTP servers tell the time only."""
    fsspec.filesystem("teststore", host="shop").pipe("/a.csv", b"text\nx\n")
    store.stamps = dict(older)
    [file] = list_files("teststore://shop/a.csv")
    check_unchanged(file)
    assert file.stamp in [f"{key}={value}" for key, value in older.items()]

    store.stamps = dict(newer)

    with pytest.raises(CorpusError) as caught:
        check_unchanged(file)
    assert str(caught.value) == (
        "The file has changed since the corpus was planned: 7 other bytes.\n"
        "  at teststore://shop/a.csv\n"
        "  Run again: the plan is then made anew. Don't write to a corpus while it is read."
    )


def test_an_unknown_size_is_not_taken_for_an_empty_file(store: type[StoreFileSystem]) -> None:
    """Some web servers tell no size; the file would be left out in silence."""
    fsspec.filesystem("teststore", host="shop").pipe("/a.csv", b"text\nx\n")
    store.stamps = {"size": None}

    with pytest.raises(CorpusError) as caught:
        list_files("teststore://shop/a.csv")

    assert str(caught.value) == (
        "The store doesn't tell the size of the file, so it can't be read by ranges.\n"
        "  at teststore://shop/a.csv\n"
        "  Copy it to a disk or another store."
    )


def test_a_store_that_refuses_is_an_error_of_ours(store: type[StoreFileSystem]) -> None:
    """Listing, checking and opening alike."""
    fsspec.filesystem("teststore", host="shop").pipe("/a.csv", b"text\nx\n")
    url = "teststore://shop/a.csv"
    [file] = list_files(url)

    store.fail = "info"
    with pytest.raises(CorpusError) as listing:
        list_files(url)
    with pytest.raises(CorpusError) as checking:
        check_unchanged(file)
    store.fail = "open"
    with pytest.raises(CorpusError) as opening, open_file(url):
        pass

    assert str(listing.value) == f"'{url}' cannot be looked up: 403 Forbidden.\n  {CHECK_STORE}"
    assert str(checking.value) == (
        f"The file cannot be looked up: 403 Forbidden.\n  at {url}\n  {CHECK_STORE}"
    )
    assert str(opening.value) == (
        f"The file cannot be read: 403 Forbidden.\n  at {url}\n  {CHECK_STORE}"
    )


def test_a_file_rewritten_with_the_same_size_has_changed(tmp_path: Path) -> None:
    """The time of modification tells."""
    [path] = write(tmp_path, "a.csv")
    [file] = list_files(path)
    check_unchanged(file)

    path.write_text("text\ny\n")
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000))

    with pytest.raises(CorpusError) as caught:
        check_unchanged(file)
    assert str(caught.value) == (
        "The file has changed since the corpus was planned: 7 other bytes.\n"
        f"  at {path}\n"
        "  Run again: the plan is then made anew. Don't write to a corpus while it is read."
    )


def test_a_file_of_another_size_has_changed(tmp_path: Path) -> None:
    """Even if its time of modification was put back."""
    [path] = write(tmp_path, "a.csv")
    [file] = list_files(path)
    stat = path.stat()

    path.write_text("text\nxyz\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    with pytest.raises(CorpusError) as caught:
        check_unchanged(file)
    assert str(caught.value) == (
        "The file has changed since the corpus was planned: 9 bytes, not 7.\n"
        f"  at {path}\n"
        "  Run again: the plan is then made anew. Don't write to a corpus while it is read."
    )


def test_a_file_that_is_gone_is_missed(tmp_path: Path) -> None:
    """By the check before reading, and by opening."""
    [path] = write(tmp_path, "a.csv")
    [file] = list_files(path)
    path.unlink()

    with pytest.raises(CorpusError) as checking:
        check_unchanged(file)
    with pytest.raises(CorpusError) as opening, open_file(file.url):
        pass

    assert str(checking.value) == (
        f"The file is gone since the corpus was planned.\n  at {path}\n  Restore it, or train anew."
    )
    assert str(opening.value) == (
        f"The file cannot be read: No such file or directory.\n  at {path}\n  {CHECK_STORE}"
    )


def test_a_file_named_twice_is_refused(tmp_path: Path) -> None:
    """A pattern that covers a file of the list would count its rows twice."""
    path = tmp_path / "a.csv"
    path.write_text("text\n", encoding="utf-8")

    with pytest.raises(CorpusError) as caught:
        list_files([path, str(tmp_path / "*.csv")])

    assert str(caught.value) == (
        f"The file is named 2 times: its rows would count as often.\n  at {path}\n"
        "  Name each file once; look for a pattern that covers a file in the list."
    )


def test_a_data_frame_is_no_path() -> None:
    """Its column names are not taken for files."""
    with pytest.raises(SettingError) as caught:
        list_files(pd.DataFrame({"text": ["a"]}))  # type: ignore[arg-type]

    assert str(caught.value) == (
        "The path is a DataFrame, and files are read.\n  Write it to CSV, and pass that."
    )


def test_other_spellings_and_links_of_a_file_are_the_same_file(tmp_path: Path) -> None:
    """Its rows must not count twice."""
    path = tmp_path / "a.csv"
    path.write_text("text\n", encoding="utf-8")
    link = tmp_path / "b.csv"
    link.symlink_to(path)

    for other in (f"{tmp_path}/./a.csv", link):
        with pytest.raises(CorpusError, match="named 2 times"):
            list_files([path, other])
