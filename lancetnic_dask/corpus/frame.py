"""PartitionPlan -> a lazily partitioned Dask DataFrame of text columns."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lancetnic_dask.corpus.dialect import CsvDialect
from lancetnic_dask.corpus.plan import CsvFormat, PartitionPlan, plan_csv
from lancetnic_dask.corpus.readers import column_positions, iter_rows
from lancetnic_dask.corpus.schema import decode_rows
from lancetnic_dask.corpus.sources import PathLike, list_files
from lancetnic_dask.errors import SettingError, quoted
from lancetnic_dask.html_repr import HtmlTable, html_box, listed
from lancetnic_dask.settings import column_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import dask.dataframe as dd
    import pandas as pd

__all__ = ["Corpus", "here"]

_SHOWN_COLUMNS = 20


class Corpus:
    """A table in files, cut into partitions of whole records and not yet read.

    Make one with `Corpus.read_csv`.

    Parameters
    ----------
    plan : PartitionPlan
        The cut.
    storage_options : mapping or None, default=None
        Options of the fsspec file system. They may hold secrets and are never shown or written.

    Raises
    ------
    SettingError
        If the plan is none, as where a path is passed.
    """

    def __init__(
        self, plan: PartitionPlan, storage_options: Mapping[str, Any] | None = None
    ) -> None:
        if not isinstance(plan, PartitionPlan):
            raise SettingError(
                f"Corpus({quoted(plan)}): this is no PartitionPlan.",
                None,
                "Use Corpus.read_csv(path).",
            )
        self.plan = plan
        self.storage_options = storage_options

    @classmethod
    def read_csv(
        cls,
        path: PathLike | Sequence[PathLike],
        *,
        delimiter: str = ",",
        quotechar: str | None = '"',
        escapechar: str | None = None,
        doublequote: bool = True,
        encoding: str = "utf-8",
        partition_bytes: int = 16 << 20,
        max_row_bytes: int = 16 << 20,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Corpus:
        r"""Plan CSV files: find where their records start, without keeping anything.

        A newline inside quotes is part of its cell at any partition size. Records are those of
        Python's `csv` module; a blank line is none.

        Parameters
        ----------
        path : str, os.PathLike or sequence of these
            File, URL, glob, folder, or a list of these.
        delimiter : str, default=","
            One ASCII character between cells.
        quotechar : str or None, default='"'
            Character around cells that hold separators; None if quotes mean nothing.
        escapechar : str or None, default=None
            Character that takes the next one literally.
        doublequote : bool, default=True
            Whether a doubled quote inside quotes is a quote.
        encoding : str, default="utf-8"
            UTF-8 (a byte order mark is dropped) or an encoding of one byte a character.
        partition_bytes : int, default=16777216
            Length of a partition in bytes, before it is rounded to a record boundary.
        max_row_bytes : int, default=16777216
            A longer record is a bad row.
        storage_options : mapping or None, default=None
            Options of the fsspec file system.

        Returns
        -------
        Corpus
            Lazy: the files are scanned once for boundaries, in this process.

        Raises
        ------
        CorpusError
            If there is no file, or no record below the headers.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "reviews.csv"
        >>> _ = path.write_text('text,label\n"two\nlines",good\nshort,bad\n')
        >>> corpus = Corpus.read_csv(path)
        >>> corpus.nrows, corpus.npartitions
        (2, 1)
        >>> corpus.to_dask_dataframe().compute()["label"].tolist()
        ['good', 'bad']
        """
        dialect = CsvDialect(
            delimiter=delimiter,
            quotechar=quotechar,
            escapechar=escapechar,
            doublequote=doublequote,
        )
        csv_format = CsvFormat(
            dialect=dialect,
            encoding=encoding,
            partition_bytes=partition_bytes,
            max_row_bytes=max_row_bytes,
        )
        files = list_files(path, storage_options)
        plan = plan_csv(files, csv_format, storage_options=storage_options, map_tasks=here)
        return cls(plan, storage_options)

    @property
    def npartitions(self) -> int:
        """Number of partitions."""
        return len(self.plan.partitions)

    @property
    def nrows(self) -> int:
        """Records, bad ones included."""
        return self.plan.num_rows

    @property
    def columns(self) -> tuple[str, ...]:
        """Column names of the first file."""
        return self.plan.files[0].columns

    def to_dask_dataframe(self, columns: str | Sequence[str] | None = None) -> dd.DataFrame:
        """Return the records as a lazy Dask DataFrame, one partition for each of ours.

        Parameters
        ----------
        columns : str, sequence of str or None, default=None
            Names of the wanted columns; None for those of the first file.

        Returns
        -------
        dask.dataframe.DataFrame
            String columns, as written in the file: casting is up to the reader. Each partition
            of about `partition_bytes` is read only when it is computed.

        Raises
        ------
        ColumnError
            If a file lacks one of the columns.
        SettingError
            If a column is named twice.
        RecordError, EncodingError
            When a partition is computed that holds a row of another shape, or no text.
        """
        import dask.dataframe as dd

        names = self.columns if columns is None else column_names("columns", columns)
        for name in () if columns is None else names:
            if names.count(name) > 1:
                raise SettingError(f"columns names {name!r} twice.", None, "Name it once.")
        for planned in self.plan.files:
            column_positions(planned, names)
        parts = [self.plan.only(partition) for partition in self.plan.partitions]
        frame: dd.DataFrame = dd.from_map(
            _read_frame,
            parts,
            columns=names,
            storage_options=self.storage_options,
            meta=_to_pandas(_empty_table(names)),
            label="lancetnic-read",
            enforce_metadata=False,
        )
        return frame

    def __repr__(self) -> str:
        names = ", ".join(map(quoted, self.columns[:_SHOWN_COLUMNS]))
        num_more = len(self.columns) - _SHOWN_COLUMNS
        return (
            f"Corpus({_counted(len(self.plan.files), 'file')}, {_counted(self.nrows, 'row')}, "
            f"{_counted(self.npartitions, 'partition')}, columns {names}"
            f"{f' and {num_more} more' if num_more > 0 else ''})"
        )

    def _repr_html_(self) -> str:
        """Show files, rows and partitions in a notebook, and how the files are read."""
        csv_format = self.plan.csv_format
        dialect = asdict(csv_format.dialect)
        return html_box(
            "Corpus",
            {
                "columns": f"{len(self.columns):,}: {listed(self.columns, show=quoted)}",
                "dialect": ", ".join(f"{name}={value!r}" for name, value in dialect.items()),
                "encoding": csv_format.encoding,
            },
            _file_table(self.plan),
        )


def here(
    function: Callable[..., Any],
    items: Iterable[tuple[Any, ...]],
    *,
    name: str,  # noqa: ARG001 - part of the MapTasks protocol
) -> Iterator[Any]:
    """Run tasks one after the other in this process (the `MapTasks` of a small job)."""
    return (function(*item) for item in items)


def _read_frame(
    part: PartitionPlan, columns: Sequence[str], storage_options: Mapping[str, Any] | None
) -> pd.DataFrame:
    """Read one partition as pandas (a worker's task)."""
    import pandas as pd

    tables = [
        decode_rows(rows, columns, encoding=part.csv_format.encoding)
        for rows in iter_rows(part, part.partitions[0], columns, storage_options)
    ]
    if not columns:  # an Arrow table without columns has no rows
        return pd.DataFrame(index=pd.RangeIndex(part.num_rows))
    return _to_pandas(pa.concat_tables([_empty_table(columns), *tables]))


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _file_table(plan: PartitionPlan) -> HtmlTable:
    """Return partitions, rows and bytes of each file, and of all."""
    from dask.utils import format_bytes

    num_partitions = Counter(partition.file_index for partition in plan.partitions)
    rows = [
        (
            _without_query(planned.file.url),
            num_partitions[index],
            planned.num_rows,
            format_bytes(planned.file.size),
        )
        for index, planned in enumerate(plan.files)
    ]
    size = format_bytes(sum(planned.file.size for planned in plan.files))
    return HtmlTable(
        caption="Files",
        columns=("file", "partitions", "rows", "size"),
        rows=rows,
        total=(_counted(len(rows), "file"), len(plan.partitions), plan.num_rows, size),
    )


def _without_query(url: str) -> str:
    """Leave out what follows "?" in a URL: it may be a signature, and notebooks are shared."""
    address, mark, _ = url.partition("?")
    return f"{address}?…" if mark and "://" in address else url


def _empty_table(columns: Sequence[str]) -> pa.Table:
    return pa.table({name: pa.array([], pa.large_string()) for name in columns})


def _to_pandas(table: pa.Table) -> pd.DataFrame:
    import pandas as pd

    frame: pd.DataFrame = table.to_pandas(types_mapper=lambda _: pd.StringDtype("pyarrow"))
    return frame
