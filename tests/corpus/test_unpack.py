"""Compressed and transcoded files -> plain files, whole or not at all."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import tracemalloc
import zipfile
import zlib
from typing import TYPE_CHECKING, Any, get_args

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lancetnic_dask.corpus import unpack
from lancetnic_dask.corpus.formats import Compression, compression_of
from lancetnic_dask.corpus.unpack import Unpacked, open_unpacked, unpack_file
from lancetnic_dask.errors import CacheError, CorpusError, EncodingError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CUT = "It was cut while it was copied: fetch it again."
CHANGED = "It was changed while it was copied: fetch it again."
STREAMS: tuple[Compression, ...] = ("gzip", "bz2", "xz", "zstd")
# Does not shrink, so that a cut of the packed bytes is a cut of the data.
NOISE = np.random.default_rng(8).bytes(40_000)


def zstd(data: bytes) -> bytes:
    """Compress to one frame."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Compress to an archive of files by name."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return sink.getvalue()


PACK: dict[Compression, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd,
    "zip": lambda data: zipped(("table.csv", data)),
}


def unpacked(folder: Path, packed: bytes, **options: Any) -> tuple[bytes, Unpacked]:
    """Return what a file of these bytes unpacks to."""
    source, target = folder / "source", folder / "plain" / "target"
    source.write_bytes(packed)
    options = {"compression": compression_of(packed), "encoding": "utf-8"} | options
    result = unpack_file(str(source), target, **options)
    assert [path.name for path in target.parent.iterdir()] == ["target"]
    return target.read_bytes(), result


def failure(folder: Path, packed: bytes, **options: Any) -> str:
    """Return what is said of a file of these bytes; nothing may be left behind."""
    with pytest.raises(CorpusError) as caught:
        unpacked(folder, packed, **options)
    assert list((folder / "plain").iterdir()) == []
    return str(caught.value).replace(str(folder), "FOLDER")


def test_each_compression_is_tested() -> None:
    """A new one must be given its packer."""
    assert set(PACK) == set(get_args(Compression))


@given(
    data=st.binary(max_size=300),
    cuts=st.lists(st.integers(0, 300), max_size=3),
    compression=st.sampled_from(STREAMS),
    piece_bytes=st.sampled_from([1, 7, 1 << 20]),
)
@settings(max_examples=60)
@example(data=b"ab", cuts=[0, 1, 2], compression="xz", piece_bytes=1)
@example(data=b"ab" * 150, cuts=[1], compression="gzip", piece_bytes=7)
def test_all_members_of_a_file_are_read(
    tmp_path_factory: pytest.TempPathFactory,
    data: bytes,
    cuts: list[int],
    compression: Compression,
    piece_bytes: int,
) -> None:
    """However many there are, empty ones too, and however they lie in the pieces that are read."""
    ends = [*sorted({min(cut, len(data)) for cut in cuts}), len(data)]
    starts = [0, *ends[:-1]]
    packed = b"".join(
        PACK[compression](data[start:stop]) for start, stop in zip(starts, ends, strict=True)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unpack, "_PIECE_BYTES", piece_bytes)
        if compression_of(data) is not None:
            return

        plain, result = unpacked(tmp_path_factory.mktemp("unpack"), packed)

    assert plain == data
    assert result == Unpacked(len(data), 0)


@pytest.mark.parametrize("compression", STREAMS)
def test_a_file_that_is_cut_is_never_taken_for_a_whole_one(
    tmp_path: Path, compression: Compression
) -> None:
    """Wherever it is cut: in the data, in the sum at the end, in the head of a second member."""
    member = PACK[compression](NOISE)
    whole = member + member
    places = [6, 20, 30_000, *range(len(member) - 9, len(member)), len(member) + 1]
    places += [len(member) + 2, len(member) + 3, len(whole) - 1]

    for place in places:
        with pytest.raises(CorpusError, match="ends in the middle"):
            unpacked(tmp_path, whole[:place], compression=compression)


def test_the_message_tells_how_much_there_was(tmp_path: Path) -> None:
    """Bytes that were unpacked, and those of the file itself."""
    packed = gzip.compress(NOISE)[:-4]

    assert failure(tmp_path, packed) == (
        "The gzip file ends in the middle: its data stop after 40,000 unpacked bytes "
        f"({len(packed):,} of its own).\n"
        "  at FOLDER/source\n"
        f"  {CUT}"
    )
    assert failure(tmp_path, PACK["zip"](NOISE)[:-4]) == (
        f"The zip file ends in the middle: it has no directory.\n  at FOLDER/source\n  {CUT}"
    )


@pytest.mark.parametrize("compression", ["gzip", "bz2", "xz", "zip"])
def test_changed_bytes_are_found(tmp_path: Path, compression: Compression) -> None:
    """By the sums in the file; what pyarrow writes with Zstandard has none."""
    packed = bytearray(PACK[compression](NOISE))
    packed[20_000] ^= 1

    said = failure(tmp_path, bytes(packed))

    assert said.startswith(f"The {compression} file is damaged after ")
    assert said.endswith(f" at FOLDER/source\n  {CHANGED}")


def test_a_damaged_frame_is_an_error_of_ours(tmp_path: Path) -> None:
    """Where its structure is broken."""
    assert failure(tmp_path, zstd(b"a") + b"\x28\xb5\x2f\xfd" + b"\xff" * 40) == (
        f"The zstd file is damaged after 0 unpacked bytes.\n  at FOLDER/source\n  {CHANGED}"
    )


@pytest.mark.parametrize("compression", ["gzip", "bz2", "xz"])
def test_zeros_between_and_behind_members_are_padding(
    tmp_path: Path, compression: Compression
) -> None:
    """Tapes and block devices leave them."""
    one, two = PACK[compression](b"one"), PACK[compression](b"two")

    assert unpacked(tmp_path, one + b"\0" * 512 + two + b"\0" * 99)[0] == b"onetwo"


@pytest.mark.parametrize("compression", ["gzip", "bz2", "xz"])
def test_what_is_no_member_is_left_out_with_a_warning(
    tmp_path: Path, compression: Compression, caplog: pytest.LogCaptureFixture
) -> None:
    """As the programs do it."""
    packed = PACK[compression](b"a,b\n") + b"signature"

    plain, _ = unpacked(tmp_path, packed)

    assert plain == b"a,b\n"
    assert caplog.messages == [
        f"{tmp_path}/source: what stands behind the {compression} data is left out"
    ]


@pytest.mark.parametrize("compression", get_args(Compression))
def test_memory_does_not_grow_with_what_is_unpacked(
    tmp_path: Path, compression: Compression
) -> None:
    """A file of 100 kB may hold 60 MB."""
    packed = PACK[compression](b"\n" * 66_000_000)
    source = tmp_path / "source"
    source.write_bytes(packed)
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    tracemalloc.start()
    try:
        result = unpack_file(
            str(source), tmp_path / "target", compression=compression, encoding="utf-8"
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert result.num_bytes == 66_000_000
    assert peak < 16 << 20  # the dictionary of xz is half of it
    assert pool.bytes_allocated() - before < 12 << 20


@pytest.mark.parametrize(
    ("packed", "what", "fix"),
    [
        (
            zipped(("one.csv", b""), ("two.csv", b"")),
            "The zip archive holds 2 files: 'one.csv', 'two.csv'.",
            "Unpack it, and pass the files.",
        ),
        (
            zipped(*((f"{index}.c", b"") for index in range(7))),
            "The zip archive holds 7 files: '0.c', '1.c', '2.c', '3.c', '4.c' and 2 more.",
            "Unpack it, and pass the files.",
        ),
        (
            zipped(("folder/", b""), ("__MACOSX/._a.csv", b"")),
            "The zip archive holds no file.",
            "Pass one that does.",
        ),
        (
            zipped(("[Content_Types].xml", b""), ("xl/workbook.xml", b"")),
            "The file is an Excel workbook.",
            "Open it and save the sheet as CSV.",
        ),
        (
            zipped(("a.csv", b"a\n"), method=zipfile.ZIP_BZIP2),
            "The zip archive uses method 12, and not deflate.",
            "Unpack it first.",
        ),
        (
            gzip.compress(b"a.csv".ljust(257, b"\0") + b"ustar"),
            "The gzip file is a tar archive.",
            "Unpack it first.",
        ),
        (
            gzip.compress(b"a.csv".ljust(200, b"\0")) + gzip.compress(b"\0" * 57 + b"ustar"),
            "The gzip file is a tar archive.",
            "Unpack it first.",
        ),
        (
            bz2.compress(gzip.compress(b"a")),
            "The bz2 file is compressed twice, with gzip inside.",
            "Unpack it first.",
        ),
    ],
)
def test_what_is_no_packed_table_is_refused(
    tmp_path: Path, packed: bytes, what: str, fix: str
) -> None:
    """With what it is, and what to do."""
    assert failure(tmp_path, packed) == f"{what}\n  at FOLDER/source\n  {fix}"


def test_a_zip_archive_with_a_password_is_refused(tmp_path: Path) -> None:
    """The flag in its directory tells."""
    packed = bytearray(zipped(("a.csv", b"a\n")))
    packed[6] |= 1
    packed[packed.index(b"PK\x01\x02") + 8] |= 1

    assert failure(tmp_path, bytes(packed)) == (
        "The zip archive needs a password.\n  at FOLDER/source\n  Unpack it first."
    )


def test_folders_and_traces_of_a_mac_are_no_files(tmp_path: Path) -> None:
    """Of what people zip, one table is meant."""
    packed = zipped(("folder/", b""), ("folder/a.csv", b"a\n"), ("__MACOSX/folder/._a.csv", b"x"))

    assert unpacked(tmp_path, packed)[0] == b"a\n"


def test_a_window_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    """It is memory that nobody reckons with."""
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 256 << 20, "mode": lzma.MODE_FAST,
                "mf": lzma.MF_HC3, "nice_len": 8, "depth": 1}]  # fmt: skip
    packed = bytearray(lzma.compress(b"a", filters=[filters[0] | {"dict_size": 1 << 20}]))
    # The size of the dictionary is a byte of the head of the block, which has a sum at its end.
    place = 12
    head_bytes = (packed[place] + 1) * 4
    packed[packed.index(bytes([0x21, 1]), place) + 2] = 32
    head = bytes(packed[place : place + head_bytes - 4])
    packed[place + head_bytes - 4 : place + head_bytes] = zlib.crc32(head).to_bytes(4, "little")

    assert failure(tmp_path, bytes(packed)) == (
        "The xz file needs over 128 MiB of memory to be unpacked.\n"
        "  at FOLDER/source\n"
        "  Compress it again without options for a long window or a large dictionary."
    )


class BrokenStore(MemoryFileSystem):  # type: ignore[misc]
    """A store that hangs up after the first piece."""

    protocol = "brokenstore"
    store: dict[str, Any] = {}  # noqa: RUF012 - as in the class above
    pseudo_dirs = [""]  # noqa: RUF012 - as in the class above

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        stream = super()._open(path, mode, **options)
        if mode == "rb":
            read = stream.read

            def fail(num_bytes: int = -1) -> bytes:
                if stream.tell():
                    raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
                return bytes(read(min(num_bytes, 1000)))

            stream.read = fail
        return stream


@pytest.mark.parametrize("compression", STREAMS)
def test_a_failing_store_is_not_taken_for_a_damaged_file(
    tmp_path: Path, compression: Compression
) -> None:
    """Else people would fetch a file again that is alright."""
    fsspec.register_implementation("brokenstore", BrokenStore, clobber=True)
    with fsspec.open("brokenstore://a", "wb") as stream:
        stream.write(PACK[compression](NOISE))

    with pytest.raises(CorpusError) as caught:
        unpack_file(
            "brokenstore://a", tmp_path / "target", compression=compression, encoding="utf-8"
        )

    assert str(caught.value) == (
        "The file cannot be read: Connection reset by peer.\n"
        "  at brokenstore://a\n"
        "  Check the path, your rights to it, and storage_options."
    )


def test_a_full_disk_is_an_error_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of the file that is read meanwhile; nothing is left behind."""

    class FullFile(io.FileIO):
        def write(self, data: Any) -> int:
            if self.tell() + len(data) > 1000:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(data)

    (tmp_path / "source").write_bytes(gzip.compress(NOISE))
    monkeypatch.setattr("pathlib.Path.open", lambda path, _: FullFile(path, "x"))

    with pytest.raises(CacheError) as caught:
        unpack_file(
            str(tmp_path / "source"),
            tmp_path / "plain" / "target",
            compression="gzip",
            encoding="utf-8",
        )

    assert str(caught.value) == (
        "The cache cannot be written: No space left on device.\n"
        f"  at {tmp_path}/plain\n"
        "  Free some space, pass another cache_dir=, or train with cache=False."
    )
    assert list((tmp_path / "plain").iterdir()) == []


def test_progress_is_told_in_bytes_of_the_file_itself(tmp_path: Path) -> None:
    """They are what is known beforehand."""
    told: list[int] = []
    packed = gzip.compress(b"a" * 5_000_000)

    unpacked(tmp_path, packed, advance=told.append)

    assert sum(told) == len(packed)


def test_a_file_can_be_read_from_its_start_alone(tmp_path: Path) -> None:
    """So many bytes as are wanted, over the ends of members; fewer at the end."""
    source = tmp_path / "source"
    source.write_bytes(gzip.compress(b"abc") + gzip.compress(b"defg"))

    with open_unpacked(str(source), "gzip") as stream:
        pieces = [stream.read(2), stream.read(3), stream.read(10), stream.read(10)]

    assert pieces == [b"ab", b"cde", b"fg", b""]


def test_a_missing_file_is_an_error_of_the_corpus(tmp_path: Path) -> None:
    """Not of the cache that it would be unpacked to."""
    with pytest.raises(CorpusError) as caught:
        unpack_file(
            str(tmp_path / "none.gz"), tmp_path / "target", compression="gzip", encoding="utf-8"
        )

    assert str(caught.value) == (
        "The file cannot be read: No such file or directory.\n"
        f"  at {tmp_path}/none.gz\n"
        "  Check the path, your rights to it, and storage_options."
    )


ENCODINGS = ("utf-8", "utf-16", "utf-16-be", "utf-32", "utf-7", "gb18030")


@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60).map(
        lambda text: text.lstrip("\ufeff")
    ),
    encoding=st.sampled_from(ENCODINGS),
    compression=st.sampled_from([None, *get_args(Compression)]),
    piece_bytes=st.sampled_from([1, 3, 1 << 20]),
)
@settings(max_examples=80)
@example(text="a\ufffdb", encoding="utf-16", compression="gzip", piece_bytes=1)
def test_text_comes_out_as_it_went_in(
    tmp_path_factory: pytest.TempPathFactory,
    text: str,
    encoding: str,
    compression: Compression | None,
    piece_bytes: int,
) -> None:
    """Under any encoding and compression, wherever the pieces end."""
    data = text.encode(encoding)
    if compression is not None and compression_of(data):
        return
    packed = PACK[compression](data) if compression else data
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unpack, "_PIECE_BYTES", piece_bytes)
        patch.setattr("lancetnic_dask.corpus.transcode._PIECE_BYTES", piece_bytes)

        plain, result = unpacked(
            tmp_path_factory.mktemp("text"),
            packed,
            compression=compression,
            encoding=encoding,
            encoding_errors="replace",
        )

    assert plain.decode() == text
    assert result == Unpacked(len(plain), 0)


@pytest.mark.parametrize("encoding", ["utf-8", "cp1251", "iso8859-1"])
def test_files_that_can_be_cut_are_left_as_they_are(tmp_path: Path, encoding: str) -> None:
    """Byte for byte, text or not: cells are decoded where they are read."""
    data = b"\xef\xbb\xbf" + bytes(range(256))

    assert unpacked(tmp_path, gzip.compress(data), encoding=encoding)[0] == data


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "gb18030"])
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path, encoding: str) -> None:
    """Else the first column would have another name; later ones are text."""
    mark = "" if encoding in ("utf-16", "utf-32") else "\ufeff"
    data = f"{mark}a\ufeffb".encode(encoding)

    assert unpacked(tmp_path, data, encoding=encoding)[0] == "a\ufeffb".encode()


@pytest.mark.parametrize("piece_bytes", [2, 1 << 20])
def test_only_the_first_mark_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    """What follows is text, and at the start of a piece as well."""
    monkeypatch.setattr("lancetnic_dask.corpus.transcode._PIECE_BYTES", piece_bytes)
    data = "\ufeff\ufeffa\ufeffb".encode("utf-16-be")

    assert unpacked(tmp_path, data, encoding="utf-16-be")[0].decode() == "\ufeffa\ufeffb"


@pytest.mark.parametrize("piece_bytes", [3, 8, 1 << 20])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_wrong_bytes_are_told_with_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int, mark: str
) -> None:
    """Line and byte of the unpacked file, wherever the pieces end, in either order of bytes."""
    monkeypatch.setattr("lancetnic_dask.corpus.transcode._PIECE_BYTES", piece_bytes)
    encoding = "utf-16" if mark else "utf-16-be"
    good = f"{mark}one\ntwo\nth".encode("utf-16-be")
    data = good + b"\xdc\x00" + "ree\n".encode("utf-16-be")

    with pytest.raises(EncodingError) as caught:
        unpacked(tmp_path, gzip.compress(data), encoding=encoding)

    said = str(caught.value).splitlines()
    assert said[0].startswith(f"Line 3 is not {encoding}: b'")
    assert "\\xdc" in said[0]
    assert said[1] == f"  at {tmp_path}/source, byte {len(good)}"


def test_wrong_bytes_are_told_with_what_they_may_be(tmp_path: Path) -> None:
    """The encoding that was passed is not among it."""
    data = "text\nкнига понравилась, спасибо\n".encode("cp1251")

    assert failure(tmp_path, data, encoding="gb18030") == (
        "Line 2 is not gb18030: "
        "b't\\n\\xea\\xed\\xe8\\xe3\\xe0 \\xef\\xee\\xed\\xf0\\xe0\\xe2'.\n"
        "  at FOLDER/source, byte 9\n"
        "  It looks like cp1251 or mac-cyrillic or cp866: pass encoding='cp1251', or "
        "encoding_errors='replace'."
    )


def test_one_wrong_place_in_much_right_text_is_damage(tmp_path: Path) -> None:
    """To name another encoding would be bad advice."""
    good = "这家餐厅的菜很好吃\n".encode("gb18030") * 40
    data = good + b"\xff\n" + good

    assert failure(tmp_path, data, encoding="gb18030") == (
        "Line 41 is not gb18030: "
        "b'\\xdc\\xba\\xc3\\xb3\\xd4\\n\\xff\\n\\xd5\\xe2\\xbc\\xd2\\xb2\\xcd'.\n"
        f"  at FOLDER/source, byte {len(good)}\n"
        "  The text before it is: correct these bytes, or pass encoding_errors='replace'."
    )


@pytest.mark.parametrize("piece_bytes", [1, 1 << 20])
def test_replaced_characters_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    """And only they: U+FFFD may stand in the file."""
    monkeypatch.setattr("lancetnic_dask.corpus.transcode._PIECE_BYTES", piece_bytes)
    data = "\ufffd好".encode("gb18030") + b"\xff\n\xff" + "好\ufffd".encode("gb18030")

    plain, result = unpacked(tmp_path, data, encoding="gb18030", encoding_errors="replace")

    assert plain.decode() == "\ufffd好\ufffd\n\ufffd好\ufffd"
    assert result == Unpacked(len(plain), 2)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
@pytest.mark.parametrize("encoding_errors", ["strict", "replace"])
def test_a_missing_byte_order_mark_is_told(
    tmp_path: Path, encoding: str, encoding_errors: str
) -> None:
    """Python's own error of it is none of decoding."""
    data = "a,b\n".encode(f"{encoding}-le")

    assert failure(tmp_path, data, encoding=encoding, encoding_errors=encoding_errors) == (
        f"The file does not start with the byte order mark of {encoding}.\n"
        "  at FOLDER/source\n"
        f"  Pass encoding='{encoding}-le', '{encoding}-be' or another one."
    )


def test_half_a_surrogate_pair_is_no_text(tmp_path: Path) -> None:
    """Python's UTF-7 takes it for such."""
    assert failure(tmp_path, b"a\n+2AA-b", encoding="utf-7") == (
        "Line 2 is not utf-7: it holds half a surrogate pair.\n"
        "  at FOLDER/source\n"
        "  Correct it, or pass encoding_errors='replace'."
    )
    plain, result = unpacked(tmp_path, b"+2AA-b", encoding="utf-7", encoding_errors="replace")
    assert (plain.decode(), result.num_replaced) == ("\ufffdb", 1)
