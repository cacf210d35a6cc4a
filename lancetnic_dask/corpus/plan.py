"""PartitionPlan: which records of which files make a partition; kept as JSON.

How it is made is in ``plan_text`` and ``plan_arrow``, and which of them makes it in
``plan_files``.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lancetnic_dask.corpus.dialect import CsvDialect
from lancetnic_dask.corpus.formats import FileFormat
from lancetnic_dask.corpus.sources import SourceFile
from lancetnic_dask.errors import Location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = [
    "CORPUS_VERSION",
    "MapTasks",
    "Partition",
    "PartitionPlan",
    "PlannedFile",
    "here",
    "plan_fingerprint",
]

T = TypeVar("T")

FORMAT_VERSION = 2
# To be raised with any change of what rows and cells the same bytes give: a test holds a digest.
CORPUS_VERSION = 2


class MapTasks(Protocol):
    """Runs a function over argument tuples, somewhere, and yields the results in order."""

    def __call__(  # noqa: D102 - the class docstring tells
        self, function: Callable[..., T], items: Iterable[tuple[Any, ...]], *, name: str
    ) -> Iterator[T]: ...


def here(
    function: Callable[..., Any],
    items: Iterable[tuple[Any, ...]],
    *,
    name: str,  # noqa: ARG001 - part of the MapTasks protocol
) -> Iterator[Any]:
    """Run tasks one after the other in this process (the `MapTasks` of a small job)."""
    return (function(*item) for item in items)


@dataclass(frozen=True)
class PlannedFile:
    """A file, the names of its columns, and its rows.

    Parameters
    ----------
    file : SourceFile
        As the user has it.
    columns : tuple of str
        Names, from its header or schema; of JSON the fields of the first rows.
    num_rows : int
        Records, bad ones included.
    copy : SourceFile or None, default=None
        The plain copy in the cache that is read in its place, where the file is compressed or
        can't be cut.
    num_replaced : int, default=0
        Characters that were replaced as the copy was made.
    """

    file: SourceFile
    columns: tuple[str, ...]
    num_rows: int
    copy: SourceFile | None = None
    num_replaced: int = 0

    @property
    def read_from(self) -> SourceFile:
        """The file whose ranges the partitions are."""
        return self.file if self.copy is None else self.copy


@dataclass(frozen=True)
class Partition:
    """A task's input: whole records of one file.

    Parameters
    ----------
    file_index : int
        Position in `PartitionPlan.files`.
    start, stop : int
        Range in `PlannedFile.read_from`: bytes of a text file, the first of which belongs to a
        record and the last ends one; row groups of Parquet; record batches of Arrow.
    first_row : int
        Index of its first record among those of the file, from 0 below the header.
    num_rows : int
        Records, bad ones included; blank lines are none.
    """

    file_index: int
    start: int
    stop: int
    first_row: int
    num_rows: int


@dataclass(frozen=True)
class PartitionPlan:
    """What a corpus consists of, exactly.

    Parameters
    ----------
    file_format : FileFormat
        How the bytes are read.
    files : tuple of PlannedFile
        In the order of the corpus; empty ones are not among them.
    partitions : tuple of Partition
        In the order of the corpus.
    """

    file_format: FileFormat
    files: tuple[PlannedFile, ...]
    partitions: tuple[Partition, ...]

    @property
    def num_rows(self) -> int:
        """Records in all files, bad ones included."""
        return sum(partition.num_rows for partition in self.partitions)

    def file_of(self, partition: Partition) -> PlannedFile:
        """Return the file that a partition is cut from."""
        return self.files[partition.file_index]

    def place(self, partition: Partition) -> Location:
        """Return where a partition begins, for messages."""
        planned = self.file_of(partition)
        if planned.copy is None and self.file_format.is_text:
            return Location(planned.file.url, byte=partition.start)
        return Location(planned.file.url, row=partition.first_row + 1)

    def only(self, partition: Partition) -> PartitionPlan:
        """Return the plan of one partition alone: small enough to travel with its task."""
        planned = self.file_of(partition)
        return PartitionPlan(self.file_format, (planned,), (replace(partition, file_index=0),))

    def to_json(self) -> str:
        """Return the plan as JSON with a format version."""
        return json.dumps({"format_version": FORMAT_VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> PartitionPlan:
        """Read what `to_json` wrote.

        Parameters
        ----------
        text : str
            JSON.

        Returns
        -------
        PartitionPlan
            An equal plan.

        Raises
        ------
        ValueError, KeyError, TypeError
            If it is no plan, or one of another format version.
        """
        fields = json.loads(text)
        if fields["format_version"] != FORMAT_VERSION:
            raise ValueError(f"plan of format version {fields['format_version']}")
        file_format = fields["file_format"] | {
            "dialect": CsvDialect(**fields["file_format"]["dialect"])
        }
        if file_format["names"] is not None:
            file_format["names"] = tuple(file_format["names"])
        files = tuple(
            PlannedFile(
                SourceFile(**one["file"]),
                tuple(one["columns"]),
                one["num_rows"],
                None if one["copy"] is None else SourceFile(**one["copy"]),
                one["num_replaced"],
            )
            for one in fields["files"]
        )
        partitions = tuple(Partition(**one) for one in fields["partitions"])
        rows_of: Counter[int] = Counter()
        for partition in partitions:
            if partition.first_row != rows_of[partition.file_index]:
                raise ValueError("plan whose partitions do not follow each other")
            rows_of[partition.file_index] += partition.num_rows
        if any(rows_of[index] != planned.num_rows for index, planned in enumerate(files)):
            raise ValueError("plan whose partitions do not hold all rows")
        return cls(FileFormat(**file_format), files, partitions)


def plan_fingerprint(
    files: Sequence[SourceFile], file_format: FileFormat, columns: Sequence[str] = ()
) -> str:
    """Return a name for the plan of these files as they are now: 32 hexadecimal digits.

    What is wanted of them counts where it helps to find the separator.
    """
    key = [FORMAT_VERSION, CORPUS_VERSION, asdict(file_format), [asdict(file) for file in files]]
    if file_format.is_sniffed:
        key.append(list(columns))
    return hashlib.blake2b(json.dumps(key).encode(), digest_size=16).hexdigest()
