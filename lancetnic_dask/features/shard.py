"""TokenShard <-> Arrow IPC: the tokens, numbers and labels of one partition.

A shard knows no seed, split, vocabulary or max_features: changing those re-reads codes and
never text.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lancetnic_dask.corpus.schema import SetAside
from lancetnic_dask.corpus.whole_file import replace_file
from lancetnic_dask.errors import Location
from lancetnic_dask.features.tokenize import TokenizedText

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "TokenShard",
    "read_arrow",
    "read_shard",
    "write_arrow",
    "write_shard",
]

# Raised when the layout changes, and when the same bytes of a corpus give other numbers, labels
# or hashes: it is part of the fingerprint of every shard.
FORMAT_VERSION = 2

# What Arrow and we say of bytes that are no shard.
_BROKEN = (pa.ArrowException, OSError, LookupError, AttributeError, TypeError, ValueError)


@dataclass(frozen=True)
class TokenShard:
    """The kept output of one partition; its arrays can't be written to, wherever they come from.

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
    num_replaced : int, default=0
        Characters that were no text and became U+FFFD.
    """

    texts: tuple[TokenizedText, ...]
    numeric: np.ndarray
    label_codes: np.ndarray
    label_values: tuple[str, ...]
    row_hash: np.ndarray
    set_aside: tuple[SetAside, ...] = ()
    num_replaced: int = 0

    def __post_init__(self) -> None:
        # One type for arrays that were just made and for mapped ones: kernels are compiled once,
        # and a training leaves them compiled for the first prediction.
        texts = tuple(
            replace(
                text,
                codes=_read_only(text.codes),
                row_offsets=_read_only(text.row_offsets),
            )
            for text in self.texts
        )
        object.__setattr__(self, "texts", texts)
        for name in ("numeric", "label_codes", "row_hash"):
            object.__setattr__(self, name, _read_only(getattr(self, name)))

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
        "num_replaced": shard.num_replaced,
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
        If it is no shard of this format version, cut short, or its arrays don't fit together.
    """
    columns, header = read_arrow(path)
    version = header.get("format_version")
    if version != FORMAT_VERSION:
        raise ValueError(f"{path} is a shard of format version {version}, not {FORMAT_VERSION}")
    try:
        shard = _assemble(columns, header)
        _check_bounds(shard)
    except _BROKEN as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    return shard


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _assemble(columns: dict[str, pa.Array], header: dict[str, Any]) -> TokenShard:
    texts = tuple(
        TokenizedText(
            codes=_numbers(columns, f"codes_{index}", np.int32),
            row_offsets=_numbers(columns, f"row_offsets_{index}", np.int64),
            terms=_strings(columns, f"terms_{index}"),
        )
        for index in range(header["num_texts"])
    )
    row_hash = _numbers(columns, "row_hash", np.uint64).reshape(-1, 2)
    numeric = _numbers(columns, "numeric", np.float64)
    return TokenShard(
        texts=texts,
        numeric=numeric.reshape(len(row_hash), header["num_data_columns"]),
        label_codes=_numbers(columns, "label_codes", np.int32),
        label_values=tuple(_strings(columns, "label_values").to_pylist()),
        row_hash=row_hash,
        set_aside=tuple(
            SetAside(part["reason"], part["count"], Location(**part["first"]))
            for part in header["set_aside"]
        ),
        num_replaced=int(header["num_replaced"]),
    )


def _numbers(columns: dict[str, pa.Array], name: str, dtype: type[np.generic]) -> np.ndarray:
    """Look at a column of numbers; `to_numpy` refuses nulls."""
    numbers: np.ndarray = columns[name].to_numpy(zero_copy_only=True)
    if numbers.dtype != dtype:
        raise ValueError(f"column {name!r} is {numbers.dtype}")
    return numbers


def _strings(columns: dict[str, pa.Array], name: str) -> pa.StringArray:
    strings = columns[name]
    if strings.type != pa.string() or strings.null_count:
        raise ValueError(f"column {name!r} is {strings.type}, or has nulls")
    strings.validate(full=True)
    return strings


def _check_bounds(shard: TokenShard) -> None:
    """Raise ValueError where an index points outside: kernels and Arrow trust what they get."""
    for text in shard.texts:
        offsets, codes = text.row_offsets, text.codes
        if (
            len(offsets) != shard.num_rows + 1
            or offsets[0] != 0
            or offsets[-1] != len(codes)
            or (np.diff(offsets) < 0).any()
        ):
            raise ValueError("its rows don't fit its tokens")
        if len(codes) and not 0 <= codes.min() <= codes.max() < len(text.terms):
            raise ValueError("its tokens don't fit its terms")
    labels = shard.label_codes
    if len(labels) not in (0, shard.num_rows):
        raise ValueError("its labels don't fit its rows")
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(shard.label_values):
        raise ValueError("its labels are not in their list")


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
    with replace_file(path) as stream, pa.ipc.new_file(stream, batch.schema) as writer:
        writer.write_batch(batch)


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
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty")
    try:
        with pa.memory_map(str(path)) as stream, pa.ipc.open_file(stream) as reader:
            header = dict(json.loads((reader.schema.metadata or {})[b"lancetnic"]))
            batch = reader.get_batch(0)
            batch.validate()
            columns = {name: batch.column(name)[0].values for name in batch.schema.names}
    except FileNotFoundError:
        raise
    except _BROKEN as error:
        raise ValueError(f"{path} is no whole file of ours: {error}") from error
    return columns, header
