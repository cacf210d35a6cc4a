"""Lines of fastText -> labels and texts."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["read_fasttext"]

_PREFIX = b"__label__"


def read_fasttext(
    lines: pa.LargeBinaryArray,
) -> tuple[pa.LargeBinaryArray, pa.LargeBinaryArray, dict[int, str]]:
    """Cut ``__label__x words`` into a label and words.

    Parameters
    ----------
    lines : pyarrow.LargeBinaryArray of shape (num_lines,)
        Without line ends.

    Returns
    -------
    labels, texts : pyarrow.LargeBinaryArray of shape (num_lines,)
        A line without a label has an empty one.
    broken : dict of int to str
        Lines with several labels, and that it is so.
    """
    labels, texts, broken = [], [], {}
    for index, line in enumerate(lines.to_pylist()):
        found = []
        rest = line.lstrip()
        while rest.startswith(_PREFIX):
            label = rest.split(maxsplit=1)[0]
            found.append(label.removeprefix(_PREFIX))
            rest = rest[len(label) :].lstrip()
        if len(found) > 1:
            broken[index] = "it has several labels, and one is expected"
        labels.append(found[0] if len(found) == 1 else b"")
        texts.append(rest)
    return pa.array(labels, pa.large_binary()), pa.array(texts, pa.large_binary()), broken
