"""Compressed, or in an encoding that can't be cut -> a plain file in the cache, by streaming.

Some MiB are in memory at a time, whatever the file unpacks to. Rows and their numbers stay the
same; a file that is as it should be is left where it is. Text is transcoded in ``transcode``.
"""

from __future__ import annotations

import bz2
import io
import logging
import lzma
import struct
import zipfile
import zlib
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow as pa

from lancetnic_dask.corpus.encodings import is_cuttable
from lancetnic_dask.corpus.formats import compression_of
from lancetnic_dask.corpus.sources import open_file
from lancetnic_dask.corpus.transcode import transcode
from lancetnic_dask.corpus.whole_file import explain_cache_errors, replace_file
from lancetnic_dask.errors import CorpusError, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from pathlib import Path

    from lancetnic_dask.corpus.formats import Compression, EncodingErrors

__all__ = ["Unpacked", "UnpackedFile", "iter_unpacked", "open_unpacked", "transcode", "unpack_file"]

_PIECE_BYTES = 1 << 20
# What follows a member is copied for each member, and these may be tiny.
_FED_BYTES = 1 << 16
_SHOWN_MEMBERS = 5
_TAR_MARK_END = 262
# What `xz -9` needs is 65 MiB; a larger window is memory that the budget doesn't know of.
# Zstandard has the same limit by itself: 128 MiB.
_MOST_WINDOW_BYTES = 128 << 20
_IS_CUT = "It was cut while it was copied: fetch it again."
_IS_CHANGED = "It was changed while it was copied: fetch it again."
_BROKEN = (
    EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, pa.ArrowException,
    struct.error, ValueError, OverflowError, NotImplementedError,  # a zip archive's directory
)  # fmt: skip

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Unpacked:
    """What came of unpacking a file.

    Parameters
    ----------
    num_bytes : int
        Bytes of the plain file.
    num_replaced : int
        Characters that were no text and became U+FFFD.
    """

    num_bytes: int
    num_replaced: int


def unpack_file(
    url: str,
    target: Path,
    *,
    compression: Compression | None,
    encoding: str,
    encoding_errors: EncodingErrors = "strict",
    storage_options: Mapping[str, Any] | None = None,
    advance: Callable[[int], object] | None = None,
) -> Unpacked:
    """Write what a file unpacks to as a plain file (a worker's task).

    Parameters
    ----------
    url : str
        As in `SourceFile.url`.
    target : Path
        Where; it is there whole or not at all.
    compression : {'gzip', 'bz2', 'xz', 'zstd', 'zip'} or None
        From the first bytes of the file.
    encoding : str
        Text in an encoding that can't be cut becomes UTF-8 without a byte order mark; else bytes
        are left as they are.
    encoding_errors : {'strict', 'replace'}, default='strict'
        What becomes of bytes that are no text; used where text is transcoded.
    storage_options : mapping or None, default=None
        Options of the fsspec file system.
    advance : callable or None, default=None
        Told the bytes that were read of the file itself.

    Returns
    -------
    Unpacked
        Its size, and what was replaced.

    Raises
    ------
    CorpusError
        As `iter_unpacked`.
    EncodingError
        Under 'strict': bytes that are no text, with their place.
    CacheError
        If the target can't be written; nothing is left of it then.
    """
    num_bytes = 0
    with (
        explain_cache_errors(target.parent),
        replace_file(target) as sink,
        closing(iter_unpacked(url, compression, storage_options, advance=advance)) as pieces,
    ):
        texts = transcode(UnpackedFile(pieces), encoding, encoding_errors, url)
        plain = pieces if is_cuttable(encoding) else (text.encode() for text in texts)
        for data in plain:
            num_bytes += sink.write(data)
    return Unpacked(num_bytes, texts.num_replaced)


@contextmanager
def open_unpacked(
    url: str,
    compression: Compression | None,
    storage_options: Mapping[str, Any] | None = None,
) -> Iterator[UnpackedFile]:
    """Open a file for reading from its start, unpacked.

    Parameters
    ----------
    url, compression, storage_options
        As for `iter_unpacked`.

    Yields
    ------
    file
        With ``read(num_bytes)``, which fails as `iter_unpacked` does.
    """
    with closing(iter_unpacked(url, compression, storage_options)) as pieces:
        yield UnpackedFile(pieces)


class UnpackedFile:
    """Pieces as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = b""

    def read(self, num_bytes: int) -> bytes:
        """Return so many bytes; fewer at the end only."""
        taken, size = [self._left], len(self._left)
        while size < num_bytes and (piece := next(self._pieces, b"")):
            taken.append(piece)
            size += len(piece)
        data = b"".join(taken)
        self._left = data[num_bytes:]
        return data[:num_bytes]


def iter_unpacked(
    url: str,
    compression: Compression | None,
    storage_options: Mapping[str, Any] | None = None,
    *,
    advance: Callable[[int], object] | None = None,
) -> Generator[bytes, None, None]:
    """Yield what a file unpacks to, piece by piece.

    All members, frames and streams of a file are read one after the other, as gzip, xz, bzip2 and
    zstd do it. What stands behind the last one and is none is left out with a warning, zeros
    without. A generator and no context manager: what fails where the pieces go, such as a full
    disk, is then not taken for a fault of the store that they come from.

    Parameters
    ----------
    url : str
        As in `SourceFile.url`.
    compression : {'gzip', 'bz2', 'xz', 'zstd', 'zip'} or None
        From its first bytes.
    storage_options : mapping or None, default=None
        Options of the fsspec file system.
    advance : callable or None, default=None
        Told the bytes that were read of the file itself.

    Yields
    ------
    bytes
        At most 1 MiB, and never none.

    Raises
    ------
    CorpusError
        If it can't be read, ends in the middle, is damaged, is a zip archive of not just one
        file, or holds what is packed itself.
    """
    with open_file(url, storage_options) as stream:
        packed = _PackedFile(stream, advance)
        num_bytes, head = 0, b""
        try:
            buffered = io.BufferedReader(packed, _PIECE_BYTES)
            for piece in _unpacked(buffered, compression, url):
                if compression is not None and num_bytes < _TAR_MARK_END:
                    head += piece[:_TAR_MARK_END]
                    _check_is_plain(head, compression, url)
                num_bytes += len(piece)
                yield piece
        except CorpusError:
            raise
        except _BROKEN as error:
            if compression is None or packed.failure is not None:
                raise packed.failure or error from None
            raise _explained(error, compression, url, num_bytes, packed.num_bytes) from error


class _PackedFile(io.RawIOBase):
    """A file that counts what is read of it, and remembers if its store failed."""

    def __init__(self, stream: Any, advance: Callable[[int], object] | None) -> None:
        self._stream = stream
        self._advance = advance
        self.num_bytes = 0
        self.failure: OSError | None = None

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(len(buffer))
        except OSError as error:
            self.failure = error
            raise
        buffer[: len(data)] = data
        self.num_bytes += len(data)
        if self._advance is not None:
            self._advance(len(data))
        return len(data)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._stream.seek(offset, whence)
        return int(self._stream.tell())


def _unpacked(packed: IO[bytes], compression: Compression | None, url: str) -> Iterator[bytes]:
    if compression == "zip":
        yield from _iter_zip(packed, url)
    elif compression == "zstd":
        # Goes on with the next frame, and tells a cut one: our tests hold it to that.
        yield from _iter_file(pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), "zstd"))
    elif compression is not None:
        yield from _iter_members(packed, compression, url)
    else:
        yield from _iter_file(packed)


def _iter_file(stream: Any) -> Iterator[bytes]:
    while piece := stream.read(_PIECE_BYTES):
        yield piece


class _GzipDecompressor:
    """zlib's with the interface of those of bz2 and lzma; it checks sum and length."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        self.needs_input = True
        self.eof = False
        self.unused_data = b""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        unpacked = self._zlib.decompress(data or self._zlib.unconsumed_tail, max_length)
        self.eof, self.unused_data = self._zlib.eof, self._zlib.unused_data
        self.needs_input = not self._zlib.unconsumed_tail
        return unpacked


_MEMBERS: Final[dict[str, tuple[bytes, Callable[[], Any]]]] = {
    "gzip": (b"\x1f\x8b", _GzipDecompressor),
    "bz2": (b"BZh", bz2.BZ2Decompressor),
    "xz": (b"\xfd7zXZ\x00", partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, _MOST_WINDOW_BYTES)),
}


def _iter_members(packed: IO[bytes], compression: str, url: str) -> Iterator[bytes]:
    """Unpack one member after the other.

    Python's own file objects do so too, but GzipFile fails at what stands behind the last one,
    and BZ2File and LZMAFile leave out a member with a damaged head.
    """
    magic, new_decompressor = _MEMBERS[compression]
    data = packed.read(_FED_BYTES)
    while data:
        decompressor = new_decompressor()
        while not decompressor.eof:
            if decompressor.needs_input:
                data = data or packed.read(_FED_BYTES)
                if not data:
                    raise EOFError
            piece = decompressor.decompress(data, _PIECE_BYTES)
            data = b""
            if piece:
                yield piece
        data = _without_zeros(packed, decompressor.unused_data, len(magic))
        # Of a head that is cut there is less than the magic.
        if not data.startswith(magic[: len(data)]):
            logger.warning("%s: what stands behind the %s data is left out", url, compression)
            return


def _without_zeros(packed: IO[bytes], data: bytes, num_bytes: int) -> bytes:
    """Return what follows the padding, so many bytes at least unless the file ends."""
    data = data.lstrip(b"\0")
    while len(data) < num_bytes and (more := packed.read(_FED_BYTES)):
        data = (data + more).lstrip(b"\0")
    return data


def _iter_zip(packed: IO[bytes], url: str) -> Iterator[bytes]:
    """Unpack the only file in a zip archive."""
    with zipfile.ZipFile(packed) as archive:
        files = [one for one in archive.infolist() if not one.is_dir()]
        if any(one.filename.startswith(("xl/", "[Content_Types].xml")) for one in files):
            raise CorpusError(
                "The file is an Excel workbook.", url, "Open it and save the sheet as CSV."
            )
        files = [one for one in files if not one.filename.startswith("__MACOSX/")]
        if not files:
            raise CorpusError("The zip archive holds no file.", url, "Pass one that does.")
        if len(files) > 1:
            listed = ", ".join(quoted(one.filename) for one in files[:_SHOWN_MEMBERS])
            more = f" and {len(files) - _SHOWN_MEMBERS} more" if len(files) > _SHOWN_MEMBERS else ""
            raise CorpusError(
                f"The zip archive holds {len(files)} files: {listed}{more}.",
                url,
                "Unpack it, and pass the files.",
            )
        if files[0].flag_bits & 1:
            raise CorpusError("The zip archive needs a password.", url, "Unpack it first.")
        # zipfile unpacks the others without a bound, or not at all.
        if files[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise CorpusError(
                f"The zip archive uses method {files[0].compress_type}, and not deflate.",
                url,
                "Unpack it first.",
            )
        with archive.open(files[0]) as member:
            yield from _iter_file(member)


def _check_is_plain(head: bytes, compression: str, url: str) -> None:
    """Raise CorpusError if what was unpacked has to be unpacked once more."""
    inner = compression_of(head)
    if head[257:_TAR_MARK_END] == b"ustar":
        what = "is a tar archive"
    elif inner is not None:
        what = f"is compressed twice, with {inner} inside"
    else:
        return
    raise CorpusError(f"The {compression} file {what}.", url, "Unpack it first.")


def _explained(
    error: Exception, compression: str | None, url: str, num_bytes: int, num_packed_bytes: int
) -> CorpusError:
    said = str(error).lower()
    if "memory" in said:
        return CorpusError(
            f"The {compression} file needs over {_MOST_WINDOW_BYTES >> 20} MiB of memory to be "
            "unpacked.",
            url,
            "Compress it again without options for a long window or a large dictionary.",
        )
    if isinstance(error, EOFError) or "truncated" in said:
        return CorpusError(
            f"The {compression} file ends in the middle: its data stop after {num_bytes:,} "
            f"unpacked bytes ({num_packed_bytes:,} of its own).",
            url,
            _IS_CUT,
        )
    if said == "file is not a zip file":  # what it looks for is at the end
        return CorpusError("The zip file ends in the middle: it has no directory.", url, _IS_CUT)
    what = f"The {compression} file is damaged after {num_bytes:,} unpacked bytes."
    return CorpusError(what, url, _IS_CHANGED)
