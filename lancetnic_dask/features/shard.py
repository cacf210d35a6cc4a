"""TokenShard <-> Arrow IPC: the tokens, numbers and labels of one partition.

A shard knows no seed, split, vocabulary or max_features: changing those re-reads codes and
never text.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lancetnic_dask.corpus.schema import SetAside
from lancetnic_dask.errors import Location
from lancetnic_dask.features.tokenize import TokenizedText

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

__all__ = ["TokenShard", "read_arrow", "read_shard", "write_arrow", "write_shard"]

FORMAT_VERSION = 1


@dataclass(frozen=True)
class TokenShard:
    """The kept output of one partition.

    Parameters
    ----------
    texts : tuple of TokenizedText
        One for each text column: codes int32 (num_tokens,), row_offsets int64 (num_rows + 1,)
        and the shard's own terms, sorted.
    numeric : ndarray of shape (num_rows, num_data_columns), dtype=float64
        Numbers as read; missing is NaN.
    label_codes : ndarray of shape (num_rows,), dtype=int32
        Positions in `label_values`; empty without a label column.
    label_values : tuple of str
        The shard's own labels, sorted.
    row_hash : ndarray of shape (num_rows, 2), dtype=uint64
        128-bit hash of the feature columns of each row, without label.
    set_aside : tuple of SetAside
        Rows of the partition that are not in the shard.
    """

    texts: tuple[TokenizedText, ...]
    numeric: np.ndarray
    label_codes: np.ndarray
    label_values: tuple[str, ...]
    row_hash: np.ndarray
    set_aside: tuple[SetAside, ...] = ()

    @property
    def num_rows(self) -> int:
        """Rows in the shard."""
        return len(self.row_hash)


def write_shard(shard: TokenShard, path: Path) -> None:
    """Write a shard whole or not at all.

    Parameters
    ----------
    shard : TokenShard
        What to write.
    path : Path
        Where; an older file of that name is replaced.

    Raises
    ------
    OSError
        If the disk is full or the folder cannot be written; nothing is left behind then.
    """
    columns: dict[str, pa.Array] = {
        "numeric": pa.array(shard.numeric.ravel()),
        "label_codes": pa.array(shard.label_codes),
        "label_values": pa.array(shard.label_values, pa.string()),
        "row_hash": pa.array(shard.row_hash.ravel()),
    }
    for index, text in enumerate(shard.texts):
        columns[f"codes_{index}"] = pa.array(text.codes)
        columns[f"row_offsets_{index}"] = pa.array(text.row_offsets)
        columns[f"terms_{index}"] = text.terms
    header = {
        "format_version": FORMAT_VERSION,
        "num_texts": len(shard.texts),
        "num_data_columns": shard.numeric.shape[1],
        "set_aside": [asdict(part) for part in shard.set_aside],
    }
    write_arrow(columns, header, path)


def read_shard(path: Path) -> TokenShard:
    """Read what `write_shard` wrote; the arrays are views of the memory-mapped file.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    TokenShard
        Read-only arrays; pages are read when they are touched.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is no shard of this format version, or cut short.
    """
    columns, header = read_arrow(path)
    if header.get("format_version") != FORMAT_VERSION:
        raise ValueError(f"{path} is a shard of format version {header.get('format_version')}")
    texts = tuple(
        TokenizedText(
            codes=columns[f"codes_{index}"].to_numpy(),
            row_offsets=columns[f"row_offsets_{index}"].to_numpy(),
            terms=columns[f"terms_{index}"],
        )
        for index in range(header["num_texts"])
    )
    row_hash = columns["row_hash"].to_numpy().reshape(-1, 2)
    return TokenShard(
        texts=texts,
        numeric=columns["numeric"].to_numpy().reshape(len(row_hash), header["num_data_columns"]),
        label_codes=columns["label_codes"].to_numpy(),
        label_values=tuple(columns["label_values"].to_pylist()),
        row_hash=row_hash,
        set_aside=tuple(
            SetAside(part["reason"], part["count"], Location(**part["first"]))
            for part in header["set_aside"]
        ),
    )


def write_arrow(columns: dict[str, pa.Array], header: dict[str, Any], path: Path) -> None:
    """Write arrays of unlike lengths and a JSON header as one Arrow IPC file, atomically.

    Parameters
    ----------
    columns : dict of pyarrow.Array
        The arrays by name.
    header : dict
        Plain values.
    path : Path
        Where; written beside its name, synced, renamed.
    """
    # Arrow wants columns of one length: each array is the only element of a list column.
    lists = [
        pa.LargeListArray.from_arrays(pa.array([0, len(array)], pa.int64()), array)
        for array in columns.values()
    ]
    batch = pa.record_batch(lists, names=list(columns))
    batch = batch.replace_schema_metadata({"lancetnic": json.dumps(header)})
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as stream:
            with pa.ipc.new_file(stream, batch.schema) as writer:
                writer.write_batch(batch)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_arrow(path: Path) -> tuple[dict[str, pa.Array], dict[str, Any]]:
    """Read what `write_arrow` wrote, memory-mapped.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    columns : dict of pyarrow.Array
        The arrays by name, views of the mapped file.
    header : dict
        Plain values.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is no such file, or cut short.
    """
    with pa.memory_map(str(path)) as stream, pa.ipc.open_file(stream) as reader:
        if reader.num_record_batches != 1:
            raise ValueError(f"{path} is incomplete")
        header = json.loads((reader.schema.metadata or {}).get(b"lancetnic", b"{}"))
        batch = reader.get_batch(0)
        columns = {name: batch.column(name)[0].values for name in batch.schema.names}
    return columns, header
