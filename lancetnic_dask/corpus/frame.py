"""Files, tables and collections -> Corpus: planned, and not yet read."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from lancetnic_dask.config import cache_folder
from lancetnic_dask.corpus.collections import (
    check_recomputed,
    collection_kind,
    collection_token,
    plan_frame,
    plan_staged,
    stage_partition,
)
from lancetnic_dask.corpus.dask_frame import dask_frame
from lancetnic_dask.corpus.dialect import CsvDialect
from lancetnic_dask.corpus.formats import FileFormat
from lancetnic_dask.corpus.paired_text import copy_pairs, pair_files
from lancetnic_dask.corpus.plan import PartitionPlan, here
from lancetnic_dask.corpus.plan_files import plan_files, table_kind, text_kind
from lancetnic_dask.corpus.plan_table import copied_piece_bytes
from lancetnic_dask.corpus.plan_text import plan_text
from lancetnic_dask.corpus.shown import counted, file_table
from lancetnic_dask.corpus.sources import PathLike, list_files
from lancetnic_dask.errors import SettingError, quoted
from lancetnic_dask.html_repr import html_box, listed
from lancetnic_dask.settings import column_names

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import dask.bag as db
    import dask.dataframe as dd
    import pandas as pd

    from lancetnic_dask.corpus.formats import EncodingErrors

__all__ = ["Corpus", "here"]

_SHOWN_COLUMNS = 20


class Corpus:
    """A table in files, cut into partitions of whole records and not yet read.

    Make one with `read_csv`, `read_json`, `read_text`, `read_parquet`, `from_pandas`
    or `from_dask`.

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
        delimiter: str | None = None,
        quotechar: str | None = '"',
        escapechar: str | None = None,
        doublequote: bool = True,
        comment: str | None = None,
        names: Sequence[str] | None = None,
        encoding: str = "utf-8",
        encoding_errors: EncodingErrors = "strict",
        partition_bytes: int = 16 << 20,
        max_row_bytes: int = 16 << 20,
        storage_options: Mapping[str, Any] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> Corpus:
        r"""Plan CSV files: find where their records start, without keeping anything.

        A newline inside quotes is part of its cell at any partition size. Records are those of
        Python's `csv` module; a blank line is none.

        Parameters
        ----------
        path : str, os.PathLike or sequence of these
            File, URL, glob, folder, or a list of these.
        delimiter : str or None, default=None
            One ASCII character between cells. None finds it in the first file, among comma, tab,
            semicolon and bar; where that leaves no doubt, also whether quotes mean nothing or a
            backslash escapes them.
        quotechar : str or None, default='"'
            Character around cells that hold separators; None if quotes mean nothing.
        escapechar : str or None, default=None
            Character that takes the next one literally.
        doublequote : bool, default=True
            Whether a doubled quote inside quotes is a quote.
        comment : str or None, default=None
            ASCII character that starts a line which is no record.
        names : sequence of str or None, default=None
            Names of the columns of files without a header.
        encoding : str, default="utf-8"
            Any text encoding that Python knows. A byte order mark is dropped.
        encoding_errors : {'strict', 'replace'}, default='strict'
            Whether bytes that are no text in the encoding are an error, or become U+FFFD.
        partition_bytes : int, default=16777216
            Length of a partition in bytes, before it is rounded to a record boundary.
        max_row_bytes : int, default=16777216
            A longer record is a bad row.
        storage_options : mapping or None, default=None
            Options of the fsspec file system.
        cache_dir : str, os.PathLike or None, default=None
            Where the plain copy is kept of a file that is compressed, or in an encoding that
            can't be cut at newlines. None for ``lancetnic.cache.dir``.

        Returns
        -------
        Corpus
            Lazy: the files are scanned once for boundaries, in this process.

        Raises
        ------
        CorpusError
            If there is no file, or no record below the headers.
        EncodingError, CacheError
            If a file that is copied is not in the encoding; if the copy can't be written.

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
            delimiter="," if delimiter is None else delimiter,
            quotechar=quotechar,
            escapechar=escapechar,
            doublequote=doublequote,
            comment=comment,
        )
        file_format = FileFormat(
            kind="csv",
            dialect=dialect,
            is_sniffed=delimiter is None,
            names=None if names is None else tuple(names),
            encoding=encoding,
            encoding_errors=encoding_errors,
            partition_bytes=partition_bytes,
            max_row_bytes=max_row_bytes,
        )
        return cls._plan(path, file_format, storage_options, cache_dir)

    @classmethod
    def read_json(
        cls,
        path: PathLike | Sequence[PathLike],
        *,
        encoding: str = "utf-8",
        encoding_errors: EncodingErrors = "strict",
        partition_bytes: int = 16 << 20,
        max_row_bytes: int = 16 << 20,
        storage_options: Mapping[str, Any] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> Corpus:
        r"""Plan files of JSON Lines, or of an array of objects.

        A field is a column. ``user.name`` is the field ``name`` of the object ``user``, a number
        a place in an array. An absent field, and null, is missing.

        Parameters
        ----------
        path, encoding, encoding_errors, partition_bytes, max_row_bytes, storage_options, cache_dir
            As in `read_csv`. Copies are made of compressed files, of arrays, and of all that is
            not UTF-8.

        Returns
        -------
        Corpus
            Its columns are the fields of the first rows of the first file.

        Raises
        ------
        CorpusError, EncodingError, CacheError
            As in `read_csv`, and for a file that is one object.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "reviews.jsonl"
        >>> _ = path.write_text('{"text": "fine", "user": {"id": 7}}\n{"text": "bad"}\n')
        >>> corpus = Corpus.read_json(path)
        >>> corpus.columns, corpus.nrows
        (('text', 'user.id'), 2)
        """
        file_format = FileFormat(
            kind="json",
            encoding=encoding,
            encoding_errors=encoding_errors,
            partition_bytes=partition_bytes,
            max_row_bytes=max_row_bytes,
        )
        return cls._plan(path, file_format, storage_options, cache_dir)

    @classmethod
    def read_text(
        cls,
        path: PathLike | Sequence[PathLike],
        labels: PathLike | Sequence[PathLike] | None = None,
        *,
        encoding: str = "utf-8",
        encoding_errors: EncodingErrors = "strict",
        partition_bytes: int = 16 << 20,
        max_row_bytes: int = 16 << 20,
        storage_options: Mapping[str, Any] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> Corpus:
        r"""Plan plain text: a folder a class, a file of labels, or fastText's ``__label__x words``.

        Parameters
        ----------
        labels : str, os.PathLike, sequence of these or None, default=None
            Files with a label a line, one for each file of texts, a text a line. Blank lines
            count. None: the folder or the line itself tells the label.
        path, encoding, encoding_errors, partition_bytes, max_row_bytes, storage_options, cache_dir
            As in `read_csv`. Documents (``.txt``, in two folders or more) are copied into files of
            about `partition_bytes`.

        Returns
        -------
        Corpus
            Of columns ``text`` and ``label``, for documents also ``file``.

        Raises
        ------
        CorpusError, CacheError
            As in `read_csv`, and for text of another kind.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> for name, text in [("good", "fine"), ("bad", "poor\nthing")]:
        ...     (folder / name).mkdir()
        ...     _ = (folder / name / "1.txt").write_text(text)
        >>> corpus = Corpus.read_text(folder, cache_dir=folder / "cache")
        >>> corpus.to_dask_dataframe(["text", "label"]).compute().to_numpy().tolist()
        [['poor\nthing', 'bad'], ['fine', 'good']]
        """
        files = list_files(path, storage_options)
        file_format = FileFormat(
            kind="documents" if labels is not None else text_kind(files, storage_options),
            encoding=encoding,
            encoding_errors=encoding_errors,
            partition_bytes=partition_bytes,
            max_row_bytes=max_row_bytes,
        )
        if labels is None:
            return cls._plan(path, file_format, storage_options, cache_dir)
        pairs = pair_files(files, list_files(labels, storage_options))
        copies = cache_folder(cache_dir) / "copies"
        planned = copy_pairs(
            pairs, file_format, copies, storage_options=storage_options, map_tasks=here
        )
        return cls(plan_text(planned, file_format, map_tasks=here))

    @classmethod
    def read_parquet(
        cls,
        path: PathLike | Sequence[PathLike],
        *,
        partition_bytes: int = 16 << 20,
        max_row_bytes: int = 16 << 20,
        storage_options: Mapping[str, Any] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> Corpus:
        """Plan files of Parquet, or of Arrow (Feather).

        Values of any plain type become text, as they would be written in a CSV file; a field
        within a column is ``user.name``.

        Parameters
        ----------
        path, partition_bytes, max_row_bytes, storage_options, cache_dir
            As in `read_csv`. A file whose row groups are much larger than a partition is copied.

        Returns
        -------
        Corpus
            Planned by the ends of the files.

        Raises
        ------
        CorpusError, CacheError
            As in `read_csv`, and for a file that is damaged.
        """
        file_format = FileFormat(partition_bytes=partition_bytes, max_row_bytes=max_row_bytes)
        files = list_files(path, storage_options)
        kind = table_kind(files, file_format, storage_options)
        return cls._plan(path, replace(file_format, kind=kind), storage_options, cache_dir)

    @classmethod
    def from_pandas(
        cls,
        frame: pd.DataFrame,
        columns: str | Sequence[str] | None = None,
        *,
        partition_bytes: int = 16 << 20,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> Corpus:
        """Keep a pandas DataFrame in the cache folder, and plan that.

        Parameters
        ----------
        frame : pandas.DataFrame
            Its values become text as those of Parquet do; NaN, None and NaT are missing.
        columns : str, sequence of str or None, default=None
            What is kept; None for all columns.
        partition_bytes, cache_dir
            As in `read_csv`.

        Returns
        -------
        Corpus
            Equal frames make equal corpora.

        Raises
        ------
        ColumnError, CorpusError, CacheError
            If a column is missing or holds lists; there is no row; the folder can't be written.

        Examples
        --------
        >>> import pandas as pd, tempfile
        >>> frame = pd.DataFrame({"text": ["fine", None], "stars": [5, 1]})
        >>> corpus = Corpus.from_pandas(frame, cache_dir=tempfile.mkdtemp())
        >>> corpus.nrows, corpus.columns
        (2, ('text', 'stars'))
        """
        names = (
            tuple(map(str, frame.columns)) if columns is None else column_names("columns", columns)
        )
        copies = cache_folder(cache_dir) / "copies"
        return cls(plan_frame(frame, names, copies, partition_bytes=partition_bytes))

    @classmethod
    def from_dask(
        cls,
        collection: dd.DataFrame | db.Bag,
        columns: str | Sequence[str] | None = None,
        *,
        partition_bytes: int = 16 << 20,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> Corpus:
        """Compute a Dask DataFrame or Bag once, keep it in the cache folder, and plan that.

        Parameters
        ----------
        collection : dask.dataframe.DataFrame or dask.bag.Bag
            Computed one partition after the other, by Dask's current scheduler. Elements of a
            Bag are dicts, or tuples of the columns.
        columns : str, sequence of str or None, default=None
            What is kept; None for all columns of a DataFrame.
        partition_bytes, cache_dir
            As in `read_csv`.

        Returns
        -------
        Corpus
            Of what was computed.

        Raises
        ------
        CorpusError
            If it gave other rows than an earlier time, or none.
        ColumnError, CacheError
            As in `from_pandas`.
        SettingError
            If the columns of a Bag are not named.
        """
        kind = collection_kind(collection)
        if kind not in ("dask", "bag"):
            raise SettingError(
                f"{quoted(collection)} is no Dask collection.",
                None,
                "Pass a dask.dataframe.DataFrame or a dask.bag.Bag.",
            )
        if columns is None and kind == "bag":
            raise SettingError("The columns of a Bag are not known.", None, "Pass columns=[...].")
        given: Any = collection
        names = column_names("columns", list(given.columns) if columns is None else columns)
        copies = cache_folder(cache_dir) / "copies"
        wanted = given[list(names)] if kind == "dask" else given
        what = f"Dask {type(collection).__name__}"
        piece_bytes = copied_piece_bytes(partition_bytes)
        staged = [
            stage_partition(part.compute(), names, copies, what, piece_bytes)
            for part in wanted.to_delayed()
        ]
        check_recomputed(staged, collection_token(collection, names), copies, kind=kind)
        return cls(plan_staged(staged, names, kind=kind, partition_bytes=partition_bytes))

    @classmethod
    def _plan(
        cls,
        path: PathLike | Sequence[PathLike],
        file_format: FileFormat,
        storage_options: Mapping[str, Any] | None,
        cache_dir: str | os.PathLike[str] | None,
    ) -> Corpus:
        plan = plan_files(
            list_files(path, storage_options),
            file_format,
            copies=cache_folder(cache_dir) / "copies",
            storage_options=storage_options,
            map_tasks=here,
        )
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
        names = self.columns if columns is None else column_names("columns", columns)
        for name in () if columns is None else names:
            if names.count(name) > 1:
                raise SettingError(f"columns names {name!r} twice.", None, "Name it once.")
        return dask_frame(self.plan, names, self.storage_options)

    def __repr__(self) -> str:
        names = ", ".join(map(quoted, self.columns[:_SHOWN_COLUMNS]))
        num_more = len(self.columns) - _SHOWN_COLUMNS
        return (
            f"Corpus({counted(len(self.plan.files), 'file')}, {counted(self.nrows, 'row')}, "
            f"{counted(self.npartitions, 'partition')}, columns {names}"
            f"{f' and {num_more} more' if num_more > 0 else ''})"
        )

    def _repr_html_(self) -> str:
        """Show files, rows and partitions in a notebook, and how the files are read."""
        file_format = self.plan.file_format
        shown = {
            "columns": f"{len(self.columns):,}: {listed(self.columns, show=quoted)}",
            "kind": str(file_format.kind),
        }
        if file_format.kind == "csv":
            dialect = asdict(file_format.dialect).items()
            shown["dialect"] = ", ".join(f"{name}={value!r}" for name, value in dialect)
        if file_format.is_text:
            shown["encoding"] = file_format.encoding
        return html_box("Corpus", shown, file_table(self.plan))
