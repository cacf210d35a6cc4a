"""Parquet and Arrow files -> units that can be read by themselves, and the cells of these.

A unit is a row group of Parquet or a record batch of an Arrow file. One is read piece by piece:
of a row group of 399 MB 31 MB were in memory at a time, where reading it whole took 1,257 MB.
Where units are too large to be partitions, the file is copied into one with small ones.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lancetnic_dask.corpus.sources import open_file
from lancetnic_dask.corpus.typed_cells import flat_names, pick, text_cells
from lancetnic_dask.corpus.whole_file import explain_cache_errors, replace_file
from lancetnic_dask.errors import ColumnError, CorpusError, LancetnicError, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["TableKind", "Unit", "Units", "Written", "iter_batches", "read_units", "write_pieces"]

TableKind = Literal["parquet", "arrow"]

_READ_BYTES = 1 << 20
_MOST_ROWS = 8192
_SAMPLED_ROWS = 512
_PIECE_BYTES = 4 << 20
# Record batches of a copy: a partition is a range of them.
_COPIED_BYTES = 1 << 20


@dataclass(frozen=True)
class Unit:
    """What of a table can be read by itself.

    Parameters
    ----------
    num_rows : int
        Rows.
    num_bytes : int
        Bytes that they take unpacked, roughly.
    """

    num_rows: int
    num_bytes: int


@dataclass(frozen=True)
class Units:
    """A table: its columns, and its units in order.

    Parameters
    ----------
    columns : tuple of str
        Names, those of fields within a column as ``user.name``.
    units : tuple of Unit
        Row groups, or record batches.
    """

    columns: tuple[str, ...]
    units: tuple[Unit, ...]


@dataclass(frozen=True)
class Written:
    """A file of cells that was written.

    Parameters
    ----------
    units : tuple of Unit
        Its record batches.
    digest : str
        Of the cells, however they came in pieces: 32 hexadecimal digits.
    """

    units: tuple[Unit, ...]
    digest: str

    @property
    def num_rows(self) -> int:
        """Rows of the file."""
        return sum(unit.num_rows for unit in self.units)


def read_units(
    url: str, kind: TableKind, storage_options: Mapping[str, Any] | None = None
) -> Units:
    """Return the columns of a table, and its units.

    Parameters
    ----------
    url : str
        As in `SourceFile.url`.
    kind : {'parquet', 'arrow'}
        What the file is.
    storage_options : mapping or None, default=None
        Options of the fsspec file system.

    Returns
    -------
    Units
        Of Parquet only the end of the file and some rows are read.

    Raises
    ------
    CorpusError
        If the file is damaged, cut short or encrypted.
    """
    with _opened(url, kind, storage_options) as table:
        if isinstance(table, pq.ParquetFile):
            groups = [table.metadata.row_group(at) for at in range(table.num_row_groups)]
            row_bytes = _sampled_row_bytes(table)
            units = [
                Unit(group.num_rows, max(group.total_byte_size, int(group.num_rows * row_bytes)))
                for group in groups
            ]
            return Units(flat_names(table.schema_arrow), tuple(units))
        batches = (table.get_batch(at) for at in range(table.num_record_batches))
        found = [Unit(batch.num_rows, batch.nbytes) for batch in batches]
        return Units(flat_names(table.schema), tuple(found))


def iter_batches(
    url: str,
    kind: TableKind,
    start: int,
    stop: int,
    columns: Sequence[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    piece_bytes: int = _PIECE_BYTES,
) -> Iterator[list[pa.LargeBinaryArray]]:
    """Yield the cells of some units, some MiB at a time.

    Parameters
    ----------
    url, kind
        As for `read_units`.
    start, stop : int
        The units.
    columns : sequence of str
        Names, as `read_units` gives them; only these are read.
    storage_options : mapping or None, default=None
        Options of the fsspec file system.
    piece_bytes : int, default=4 MiB
        Bytes that are in memory at a time, roughly.

    Yields
    ------
    list of pyarrow.LargeBinaryArray
        One array of (num_rows,) for each column.

    Raises
    ------
    ColumnError
        If a column is missing, or holds lists or objects.
    CorpusError
        If the file is damaged.
    """
    with _opened(url, kind, storage_options, columns) as table:
        is_parquet = isinstance(table, pq.ParquetFile)
        schema = table.schema_arrow if is_parquet else table.schema
        known = flat_names(schema)
        for name in columns:
            if name not in known and name not in schema.names:
                raise ColumnError(f"There is no column {name!r}.", url, suggestion(name, known))
        for batch in _iter_tables(table, start, stop, columns, piece_bytes):
            for piece in _cut(batch, piece_bytes):
                yield [text_cells(pick(piece, name, url), name, url) for name in columns]


def write_pieces(
    pieces: Iterable[list[pa.LargeBinaryArray]],
    columns: Sequence[str],
    target: Path,
    *,
    piece_bytes: int = _COPIED_BYTES,
) -> Written:
    """Write cells as an Arrow file whose units are small.

    Parameters
    ----------
    pieces : iterable of list of pyarrow.LargeBinaryArray
        Arrays of one length, one for each column; pieces of any size.
    columns : sequence of str
        Their names.
    target : Path
        Where; it is there whole or not at all.
    piece_bytes : int, default=1 MiB
        Bytes of a unit, roughly.

    Returns
    -------
    Written
        The units of the file, and the digest of its cells.

    Raises
    ------
    CacheError
        If it can't be written.
    """
    schema = pa.schema([(name, pa.large_binary()) for name in columns])
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    digests = [(hashlib.blake2b(), hashlib.blake2b()) for _ in columns]
    units: list[Unit] = []
    try:
        with (
            explain_cache_errors(target.parent),
            replace_file(target) as stream,
            pa.ipc.new_file(stream, schema, options=options) as writer,
        ):
            for cells in _marked(pieces):
                for pair, column in zip(digests, cells, strict=True):
                    _add_to_digests(pair, column)
                for piece in _cut(pa.table(cells, schema=schema), piece_bytes):
                    writer.write_batch(piece.combine_chunks().to_batches()[0])
                    units.append(Unit(piece.num_rows, piece.nbytes))
    except _SourceFault as fault:
        raise fault.error from None
    whole = hashlib.blake2b(
        b"".join(one.digest() for pair in digests for one in pair), digest_size=16
    )
    return Written(tuple(units), whole.hexdigest())


class _SourceFault(Exception):  # noqa: N818 - never seen outside
    """A fault of where the pieces come from, which the cache is not to be blamed for."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.error = error


def _marked(pieces: Iterable[list[pa.LargeBinaryArray]]) -> Iterator[list[pa.LargeBinaryArray]]:
    try:
        yield from pieces
    except OSError as error:
        raise _SourceFault(error) from error


def _add_to_digests(
    digests: tuple[hashlib.blake2b, hashlib.blake2b], cells: pa.LargeBinaryArray
) -> None:
    """Add what cells hold: their lengths and their bytes, each in a row of its own.

    So it doesn't matter how they come in pieces.
    """
    if not len(cells):
        return
    _, offsets_buffer, data = cells.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[cells.offset : cells.offset + len(cells) + 1]
    lengths, content = digests
    lengths.update(np.diff(offsets).tobytes())
    content.update(memoryview(data or b"")[offsets[0] : offsets[-1]])


@contextmanager
def _opened(
    url: str,
    kind: TableKind,
    storage_options: Mapping[str, Any] | None,
    columns: Sequence[str] | None = None,
) -> Iterator[pq.ParquetFile | pa.ipc.RecordBatchFileReader]:
    """Open a table; what Arrow says of a damaged one becomes an error of ours."""
    with open_file(url, storage_options) as stream:
        try:
            if kind == "parquet":
                # Else a whole row group is read at once.
                with pq.ParquetFile(stream, pre_buffer=False, buffer_size=_READ_BYTES) as table:
                    yield table
            else:
                with pa.ipc.open_file(stream) as table:
                    names = table.schema.names
                if columns is None:
                    fields = list(range(len(names)))
                else:
                    roots = {_root(name, names) for name in columns}
                    fields = [at for at, name in enumerate(names) if name in roots]
                options = pa.ipc.IpcReadOptions(included_fields=fields)
                stream.seek(0)
                with pa.ipc.open_file(stream, options=options) as table:
                    yield table
        except LancetnicError:
            raise
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the store failed, and not the file
            what = "Parquet" if kind == "parquet" else "Arrow"
            if "ncrypt" in str(error):
                raise CorpusError(
                    f"The {what} file is encrypted.", url, "Decrypt it first."
                ) from error
            first = str(error).partition("\n")[0].rstrip(".")
            raise CorpusError(
                f"The {what} file is damaged or cut short: {first}.",
                url,
                "Fetch it again, or write it again.",
            ) from error


def _iter_tables(
    table: pq.ParquetFile | pa.ipc.RecordBatchFileReader,
    start: int,
    stop: int,
    columns: Sequence[str],
    piece_bytes: int,
) -> Iterator[pa.Table]:
    """Yield units, those of Parquet in pieces, with the columns that are needed."""
    if not isinstance(table, pq.ParquetFile):
        for at in range(start, stop):
            yield pa.Table.from_batches([table.get_batch(at)])
        return
    for at in range(start, stop):
        group = table.metadata.row_group(at)
        row_bytes = group.total_byte_size / max(1, group.num_rows)
        # Values that are written once for many rows count once in the size: not too many rows.
        batch_rows = int(max(1, min(_MOST_ROWS, piece_bytes / max(1.0, row_bytes))))
        for batch in table.iter_batches(batch_rows, row_groups=[at], columns=list(columns)):
            yield pa.Table.from_batches([batch])


def _sampled_row_bytes(table: pq.ParquetFile) -> float:
    """Return what a row takes unpacked; the file tells what it takes packed by dictionaries."""
    for batch in table.iter_batches(_SAMPLED_ROWS):
        if batch.num_rows:
            return float(batch.nbytes / batch.num_rows)
    return 0.0


def _cut(table: pa.Table, num_bytes: int) -> Iterator[pa.Table]:
    """Cut a table into pieces of about so many bytes."""
    num_pieces = max(1, -(-table.nbytes // num_bytes))
    step = max(1, -(-table.num_rows // num_pieces))
    for first in range(0, table.num_rows, step):
        yield table.slice(first, step)


def _root(name: str, names: Sequence[str]) -> str:
    """Return the column that a name is in."""
    leading = [one for one in names if name == one or name.startswith(f"{one}.")]
    return max(leading, key=len, default=name)
