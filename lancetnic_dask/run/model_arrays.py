"""Weights <-> safetensors, vocabulary <-> Arrow IPC; each file is read once, in pieces.

Both formats hold arrays and nothing that runs. What is read is checked before memory is taken
for it: by the shapes that the model needs, not by what the file says of itself.
"""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from lancetnic_dask.features.vocabulary import Vocabulary
from lancetnic_dask.run.json_fields import UnfitError, parse_json
from lancetnic_dask.run.kept_files import PieceReader, open_kept

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import IO

    from lancetnic_dask.run.kept_files import KeptFile
    from lancetnic_dask.run.model_checks import VocabularySize

__all__ = [
    "check_weights",
    "is_finite",
    "read_vocabulary",
    "read_weights",
    "write_vocabulary",
    "write_weights",
]

Shapes = dict[str, tuple[int, ...]]

VOCABULARY_SCHEMA: Final = pa.schema([("term", pa.string()), ("document_frequency", pa.int64())])
_HEADER_BYTES: Final = 1 << 20
_FLOAT_BYTES: Final = 4
# Of a term: an offset of 4 bytes and a count of 8, beside its letters.
_BYTES_PER_TERM: Final = 12
_MAX_LETTERS: Final = 2**31
_ARROW_EXTRA_BYTES: Final = 1 << 16


def write_weights(state: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write weights as safetensors; on the CPU nothing is copied.

    The few lines are ours because `safetensors.torch.save_file` writes under a name of its own
    first: a killed process would leave that behind, as large as the weights, and readable by its
    user alone.

    Raises
    ------
    OSError
        If the disk is full or the folder can't be written.
    """
    header, position = {}, 0
    for name, tensor in sorted(state.items()):
        stop = position + _FLOAT_BYTES * tensor.numel()
        entry = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [position, stop]}
        header[name], position = entry, stop
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers begin at a multiple of 8
    with path.open("xb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for name in header:
            array: Any = state[name].detach().cpu().contiguous().numpy().reshape(-1)
            stream.write(memoryview(array.astype("<f4", copy=False)).cast("B"))


def read_weights(folder: Path, kept: KeptFile, shapes: Shapes) -> dict[str, torch.Tensor]:
    """Read weights.

    Parameters
    ----------
    folder, kept
        Where.
    shapes : dict of str to tuple of int
        The tensors that the model has.

    Returns
    -------
    dict of str to torch.Tensor
        float32 and finite, of these shapes; parts of one block of memory.

    Raises
    ------
    ModelFileError, UnfitError, ValueError
        If the file holds anything else.
    """
    with open_kept(folder, kept) as stream:
        reader = PieceReader(stream)
        starts, num_bytes = _check_header(_read_header(reader, kept.size), shapes)
        if kept.size != stream.tell() + num_bytes:
            raise UnfitError(f"the weights take {num_bytes} bytes and have {kept.size}.")
        block = torch.empty(num_bytes // _FLOAT_BYTES, dtype=torch.float32)
        floats: Any = block.numpy()  # numpy's stubs know no buffer before Python 3.12
        reader.read_into(memoryview(floats).cast("B"))
        reader.check(kept, folder)
    state = {
        name: block[start : start + math.prod(shapes[name])].view(shapes[name])
        for name, start in starts.items()
    }
    check_weights(state, shapes)
    return state


def check_weights(state: Mapping[str, torch.Tensor], shapes: Shapes) -> None:
    """Compare weights with what the model needs.

    Raises
    ------
    UnfitError
        If a tensor is missing, one too many, of another shape or dtype, or not finite.
    """
    _check_names(set(state), shapes)
    for name, tensor in state.items():
        if tensor.dtype != torch.float32 or tuple(tensor.shape) != shapes[name]:
            raise UnfitError(
                f"the tensor {name!r} is {tensor.dtype} {tuple(tensor.shape)} and should be "
                f"torch.float32 {shapes[name]}."
            )
        if not is_finite(tensor):
            raise UnfitError(f"the tensor {name!r} holds values that are no finite numbers.")


def is_finite(tensor: torch.Tensor) -> bool:
    """Whether all values are finite numbers; takes no memory, unlike ``torch.isfinite``."""
    if not tensor.numel():
        return True
    low, high = torch.aminmax(tensor)  # NaN if there is any
    return math.isfinite(float(low)) and math.isfinite(float(high))


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
    least = _BYTES_PER_TERM * sizes.num_terms
    if not least <= kept.size <= least + _MAX_LETTERS + _ARROW_EXTRA_BYTES:
        raise UnfitError(f"a vocabulary of {sizes.num_terms} terms has not {kept.size} bytes.")
    with open_kept(folder, kept) as stream:
        data = bytearray(kept.size)
        reader = PieceReader(stream)
        reader.read_into(memoryview(data))
        reader.check(kept, folder)
    batch = _read_batch(pa.py_buffer(data))
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


def _read_header(reader: PieceReader, size: int) -> dict[str, Any]:
    """Read the header of a safetensors file: 8 bytes of length, then JSON."""
    length_bytes = bytearray(8)
    reader.read_into(memoryview(length_bytes))
    (length,) = struct.unpack("<Q", length_bytes)
    if length > min(size, _HEADER_BYTES):
        raise UnfitError(f"the weights' header has {length} bytes.")
    header = bytearray(length)
    reader.read_into(memoryview(header))
    parsed = parse_json(bytes(header))
    if not isinstance(parsed, dict):
        raise UnfitError("the weights' header is no object.")
    parsed.pop("__metadata__", None)
    return parsed


def _check_header(header: dict[str, Any], shapes: Shapes) -> tuple[dict[str, int], int]:
    """Return where each tensor starts, in floats, and the bytes of all; they leave no gap."""
    _check_names(set(header), shapes)
    spans = []
    for name, entry in header.items():
        shape, span = list(shapes[name]), None
        num_bytes = _FLOAT_BYTES * math.prod(shape)
        if isinstance(entry, dict) and entry.get("dtype") == "F32" and entry.get("shape") == shape:
            span = entry.get("data_offsets")
        if (
            not isinstance(span, list)
            or [type(end) for end in span] != [int, int]
            or span[1] - span[0] != num_bytes
        ):
            raise UnfitError(f"the tensor {name!r} is not of the shape {shape} and type F32.")
        spans.append((span[0], span[1], name))
    position = 0
    for start, stop, name in sorted(spans):
        if start != position:
            raise UnfitError(f"the tensor {name!r} does not follow the one before.")
        position = stop
    return {name: start // _FLOAT_BYTES for start, _, name in spans}, position


def _check_names(names: set[str], shapes: Shapes) -> None:
    if names != set(shapes):
        wrong = min(names ^ set(shapes))
        kind = "is missing" if wrong in shapes else "is none of this model's"
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
    RecordBatch, and its field 3 the compression; a field that is not set has no offset.
    """
    (message,) = struct.unpack_from("<I", metadata, 0)
    header_field = message + _field_offset(metadata, message, 2)
    (header,) = struct.unpack_from("<I", metadata, header_field)
    return _field_offset(metadata, header_field + header, 3) != 0


def _field_offset(metadata: bytes, table: int, field: int) -> int:
    """Return where a field of a FlatBuffer table stands, from the table's start; 0 if nowhere."""
    (back,) = struct.unpack_from("<i", metadata, table)
    vtable = table - back
    (vtable_bytes,) = struct.unpack_from("<H", metadata, vtable)
    slot = 4 + 2 * field
    if slot + 2 > vtable_bytes:
        return 0
    (offset,) = struct.unpack_from("<H", metadata, vtable + slot)
    return int(offset)
