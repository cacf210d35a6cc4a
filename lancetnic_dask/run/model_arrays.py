"""Weights <-> safetensors, vocabulary <-> Arrow IPC.

Both formats hold arrays and nothing that runs. What is read is checked before memory is taken
for it: by the shapes that the model needs, not by what the file says of itself.
"""

from __future__ import annotations

import math
import os
import re
import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from lancetnic_dask.errors import quoted
from lancetnic_dask.features.terms import Vocabulary
from lancetnic_dask.models.plain_torch import plain_torch
from lancetnic_dask.models.trial import KEPT_DTYPES
from lancetnic_dask.run.kept_files import check_digest, located
from lancetnic_dask.run.model_json import UnfitError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import IO

    from lancetnic_dask.run.kept_files import KeptFile
    from lancetnic_dask.run.model_json import VocabularySize

__all__ = [
    "check_weights",
    "find_infinite",
    "read_vocabulary",
    "read_weights",
    "write_vocabulary",
    "write_weights",
]

VOCABULARY_SCHEMA: Final = pa.schema([("term", pa.string()), ("document_frequency", pa.int64())])
_HEADER_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 1 << 22


def write_weights(state: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write weights as safetensors; on the CPU nothing is copied but what is there twice.

    Raises
    ------
    OSError
        If the disk is full or the folder can't be written.
    """
    try:
        save_file(_apart(state), path)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
    # safetensors lets only its user read; workers may run under another.
    path.chmod(path.parent.stat().st_mode & 0o666)


def _apart(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copy tensors that share memory with another one (tied weights): safetensors takes none."""
    apart: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, tensor in state.items():
        plain = tensor.detach().cpu().contiguous()
        memory = plain.untyped_storage().data_ptr()
        apart[name] = plain.clone() if memory in seen else plain
        seen.add(memory)
    return apart


def read_weights(
    folder: Path, kept: KeptFile, template: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Read weights.

    Parameters
    ----------
    folder, kept
        Where.
    template : mapping of str to torch.Tensor
        The tensors that the model has; their values don't matter.

    Returns
    -------
    dict of str to torch.Tensor
        Finite, of these shapes and dtypes.

    Raises
    ------
    ModelFileError, UnfitError, ValueError
        If the file holds anything else.
    """
    num_bytes = sum(one.numel() * one.element_size() for one in template.values())
    misfit = f"the weights take {num_bytes} bytes, their file has {kept.size}"
    with located(kept, folder) as path:
        if not num_bytes < kept.size <= num_bytes + _HEADER_BYTES:
            raise UnfitError(f"{misfit}.")
        check_digest(path, kept)
        try:
            state = _load(path, template)
        except SafetensorError as error:
            raise UnfitError(f"{misfit}, in another form: {quoted(str(error))}.") from error
    infinite = find_infinite(state, template)
    if infinite is not None:
        raise UnfitError(f"the tensor {infinite!r} holds values that are no finite numbers.")
    return state


def check_weights(state: Mapping[str, torch.Tensor], template: Mapping[str, torch.Tensor]) -> None:
    """Compare weights with what the model needs.

    Raises
    ------
    UnfitError
        If a tensor is missing, one too many, or of another shape or dtype.
    """
    _check_names(set(state), template)
    for name, tensor in state.items():
        wanted = template[name]
        if tensor.dtype != wanted.dtype or tensor.shape != wanted.shape:
            raise UnfitError(
                f"the tensor {name!r} is {tensor.dtype} {tuple(tensor.shape)} and should be "
                f"{wanted.dtype} {tuple(wanted.shape)}."
            )
        if tensor.dtype not in KEPT_DTYPES:
            raise UnfitError(f"the tensor {name!r} is {tensor.dtype}, which no file here can hold.")


def find_infinite(
    state: Mapping[str, torch.Tensor], template: Mapping[str, torch.Tensor]
) -> str | None:
    """Return the first weight that holds NaN or infinity; unlike ``torch.isfinite``, in no room.

    Buffers may: a mask is made of infinity.
    """
    for name, tensor in state.items():
        is_weight = isinstance(template.get(name), nn.Parameter) and tensor.is_floating_point()
        ends = torch.aminmax(tensor) if is_weight and tensor.numel() else ()  # NaN if there is any
        if not all(map(math.isfinite, ends)):
            return name
    return None


def write_vocabulary(vocabulary: Vocabulary, path: Path) -> None:
    """Write terms and their counts as one uncompressed batch of an Arrow IPC stream.

    Raises
    ------
    OSError
        If the disk is full or the folder can't be written.
    """
    batch = pa.record_batch(
        [vocabulary.terms, pa.array(vocabulary.document_frequency)], schema=VOCABULARY_SCHEMA
    )
    # Not left to Arrow's defaults: see `_is_compressed`.
    options = pa.ipc.IpcWriteOptions(compression=None)
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_stream(sink, VOCABULARY_SCHEMA, options=options) as writer,
    ):
        writer.write_batch(batch)


def read_vocabulary(folder: Path, kept: KeptFile, sizes: VocabularySize) -> Vocabulary:
    """Read what `write_vocabulary` wrote; the arrays lie in the bytes of the file.

    Parameters
    ----------
    folder, kept
        Where.
    sizes : VocabularySize
        What model.json says of it.

    Returns
    -------
    Vocabulary
        Terms distinct, valid and in order, counts that can be.

    Raises
    ------
    ModelFileError, UnfitError, ValueError, pyarrow.ArrowException
        If the file holds anything else.
    """
    with located(kept, folder) as path:
        check_digest(path, kept)
        batch = _read_batch(pa.py_buffer(path.read_bytes()))
    batch.validate(full=True)
    terms, counts = batch.columns
    if len(batch) != sizes.num_terms:
        raise UnfitError(f"the vocabulary has {len(batch)} terms, not {sizes.num_terms}.")
    if terms.null_count or counts.null_count:
        raise UnfitError("the vocabulary has nulls.")
    if len(terms) > 1 and not pc.all(pc.less(terms[:-1], terms[1:])).as_py():
        raise UnfitError("the terms of the vocabulary do not ascend.")
    # Not `to_numpy`, which imports pandas: 0.3 s for one string.
    frequency = np.frombuffer(counts.buffers()[1] or b"", np.int64, len(counts))
    if len(frequency) and not 0 <= frequency.min() <= frequency.max() <= sizes.num_training:
        raise UnfitError("a term is in fewer than no rows, or in more than all.")
    return Vocabulary(
        terms=terms,
        document_frequency=frequency,
        num_training=sizes.num_training,
        num_distinct=sizes.num_distinct,
    )


def _load(path: Path, template: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Compare names, types and shapes, then copy tensors in pieces that are mapped one by one.

    What has been read of a mapping counts as our memory until it is closed; and a tensor that
    stayed mapped would end the process if the file were cut short later.
    """
    with plain_torch():
        return _copy_tensors(path, template)


def _copy_tensors(path: Path, template: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    with safe_open(path, "pt") as file:
        _check_names(set(file.keys()), template)
        for name, wanted in template.items():
            found = file.get_slice(name)
            kind = KEPT_DTYPES[wanted.dtype]
            if found.get_dtype() != kind or found.get_shape() != list(wanted.shape):
                raise UnfitError(
                    f"the tensor {name!r} is not of the shape {list(wanted.shape)} and type {kind}."
                )
    state = {name: torch.empty(one.shape, dtype=one.dtype) for name, one in template.items()}
    for name, tensor in state.items():
        if tensor.dim() == 0:
            with safe_open(path, "pt") as file:
                tensor.copy_(file.get_tensor(name))
            continue
        rows = max(1, _PIECE_BYTES // max(1, tensor[:1].nbytes))
        for start in range(0, len(tensor), rows):
            with safe_open(path, "pt") as file:
                tensor[start : start + rows] = file.get_slice(name)[start : start + rows]
    return state


def _check_names(names: set[str], template: Mapping[str, torch.Tensor]) -> None:
    if names != set(template):
        wrong = min(names ^ set(template))
        kind = "is missing" if wrong in template else "is none of this model's"
        raise UnfitError(f"the tensor {wrong!r} {kind}.")


def _read_batch(data: pa.Buffer) -> pa.RecordBatch:
    """Decode the only batch of a stream; the schema is ours, whatever the stream says it is."""
    messages: IO[Any] = pa.ipc.MessageReader.open_stream(pa.BufferReader(data))
    found = []
    for message in messages:
        found.append(message)
        if len(found) > 2:
            break
    if [message.type for message in found] != ["schema", "record batch"]:
        raise UnfitError("the vocabulary is no Arrow stream of one batch.")
    if _is_compressed(found[1].metadata.to_pybytes()):
        raise UnfitError("the vocabulary is compressed.")
    return pa.ipc.read_record_batch(found[1], VOCABULARY_SCHEMA)


def _is_compressed(metadata: bytes) -> bool:
    """Whether the buffers of a record batch are compressed.

    pyarrow tells only by decompressing: 19 kB became 1 GB. So the field is looked up in the
    FlatBuffer, which Arrow has verified when it read the message: Message.header (field 2) is a
    RecordBatch, and its field 3 the compression.
    """

    def read(kind: str, position: int) -> int:
        return int(struct.unpack_from(kind, metadata, position)[0])

    def find_field(table: int, number: int) -> int:  # 0 for a field that is not set
        vtable, slot = table - read("<i", table), 4 + 2 * number
        offset = read("<H", vtable + slot) if slot < read("<H", vtable) else 0
        return table + offset if offset else 0

    header = find_field(read("<I", 0), 2)
    return find_field(header + read("<I", header), 3) != 0
