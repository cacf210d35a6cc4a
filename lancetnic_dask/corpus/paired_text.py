"""A file of texts beside a file of labels, line by line -> lines of JSON in the cache."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import msgspec

from lancetnic_dask.corpus.formats import compression_of
from lancetnic_dask.corpus.plan import CORPUS_VERSION, PlannedFile
from lancetnic_dask.corpus.sources import SourceFile, list_files
from lancetnic_dask.corpus.transcode import transcode
from lancetnic_dask.corpus.unpack import open_unpacked
from lancetnic_dask.corpus.whole_file import explain_cache_errors, replace_file
from lancetnic_dask.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from lancetnic_dask.corpus.formats import FileFormat
    from lancetnic_dask.corpus.plan import MapTasks

__all__ = ["copy_pairs", "pair_files"]

COPY_VERSION = 1


def pair_files(
    texts: Sequence[SourceFile], labels: Sequence[SourceFile]
) -> list[tuple[SourceFile, SourceFile]]:
    """Find the file of labels of each file of texts.

    Parameters
    ----------
    texts, labels : sequence of SourceFile
        In their order; the numbers in the names of two that belong together are the same.

    Returns
    -------
    list of (SourceFile, SourceFile)
        In the order of the texts.

    Raises
    ------
    CorpusError
        If there are more of one than of the other, or the numbers in their names differ.

    Examples
    --------
    >>> texts, labels = (
    ...     [SourceFile(f"/data/{what}-{number}.txt", 1, "") for number in (2, 10)]
    ...     for what in ("text", "labels")
    ... )
    >>> [label.url for _, label in pair_files(texts, labels)]
    ['/data/labels-2.txt', '/data/labels-10.txt']
    """
    if len(texts) != len(labels):
        raise CorpusError(
            f"There are {len(texts)} files of texts and {len(labels)} of labels.",
            texts[0].url,
            "Pass as many of one as of the other.",
        )
    pairs = list(zip(texts, labels, strict=True))
    for text, label in pairs:
        if len(pairs) > 1 and _numbers(text) != _numbers(label):
            raise CorpusError(
                f"The file of labels in its place is {label.url}: their numbers differ.",
                text.url,
                "Pass lists of files, each in the order of the other.",
            )
    return pairs


def copy_pairs(
    pairs: Sequence[tuple[SourceFile, SourceFile]],
    file_format: FileFormat,
    copies: Path,
    *,
    storage_options: Mapping[str, Any] | None,
    map_tasks: MapTasks,
) -> list[PlannedFile]:
    """Have pairs of files copied as lines of JSON; columns and rows are not known yet."""
    items = ((*pair, file_format, copies, storage_options) for pair in pairs)
    planned = []
    for (text, label), (copy, num_replaced) in zip(
        pairs, map_tasks(copy_pair, items, name="unpack"), strict=True
    ):
        source = SourceFile(text.url, text.size, json.dumps([text.stamp, asdict(label)]))
        planned.append(PlannedFile(source, (), 0, copy, num_replaced))
    return planned


def copy_pair(
    text: SourceFile,
    label: SourceFile,
    file_format: FileFormat,
    copies: Path,
    storage_options: Mapping[str, Any] | None,
) -> tuple[SourceFile, int]:
    """Copy a pair of files, or find the copy (a worker's task)."""
    encoding, errors = file_format.encoding, file_format.encoding_errors
    key = [COPY_VERSION, CORPUS_VERSION, asdict(text), asdict(label), encoding, errors]
    name = hashlib.blake2b(json.dumps(key).encode(), digest_size=16).hexdigest()
    kept = next(copies.glob(f"{name}-*.txt"), None)
    if kept is None:
        texts = _Lines(text.url, file_format, storage_options)
        labels = _Lines(label.url, file_format, storage_options)
        partial, num_rows = copies / f"{name}.txt", 0
        with explain_cache_errors(copies), replace_file(partial) as sink:
            for one, its_label in zip_longest(texts, labels):
                if one is None or its_label is None:
                    raise _unequal(text.url, label.url, num_rows, is_text_short=one is None)
                fields = {"text": one, "label": its_label, "file": text.url}
                sink.write(msgspec.json.encode(fields) + b"\n")
                num_rows += 1
        num_replaced = texts.num_replaced + labels.num_replaced
        kept = partial.rename(copies / f"{name}-{num_replaced}.txt")
    return list_files(kept)[0], int(kept.stem.rpartition("-")[2])


class _Lines:
    """The lines of a text file, blank ones too: leaving one out would shift every later label."""

    def __init__(
        self, url: str, file_format: FileFormat, storage_options: Mapping[str, Any] | None
    ) -> None:
        self._url = url
        self._format = file_format
        self._options = storage_options
        self.num_replaced = 0

    def __iter__(self) -> Iterator[str]:
        with open_unpacked(self._url, None, self._options) as stream:
            compression = compression_of(stream.read(1 << 10))
        rest = ""
        with open_unpacked(self._url, compression, self._options) as stream:
            texts = transcode(
                stream, self._format.encoding, self._format.encoding_errors, self._url
            )
            for text in texts:
                *lines, rest = (rest + text).split("\n")
                for line in lines:
                    yield line.removesuffix("\r")
            self.num_replaced = texts.num_replaced
        if rest:
            yield rest


def _unequal(text: str, label: str, num_rows: int, *, is_text_short: bool) -> CorpusError:
    short, long = ("texts", "labels") if is_text_short else ("labels", "texts")
    return CorpusError(
        f"The file of {short} ends after {num_rows} lines, and that of {long} goes on: {label}.",
        text,
        "Each line of one is a row, and its label is in the same line of the other.",
    )


def _numbers(file: SourceFile) -> list[str]:
    return re.findall(r"[0-9]+", file.url.rpartition("/")[2])
