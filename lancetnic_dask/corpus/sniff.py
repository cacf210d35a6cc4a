"""The first bytes of a CSV file -> its dialect, as far as the user left it open.

What the file itself can't tell stays at the default, and a doubt becomes a warning: text that is
cut at a wrong byte trains a wrong model without a word. Python's ``csv.Sniffer`` is not used: it
takes the frequent character for the separator, which in text is a blank, a comma or a letter.

Compression, encoding and kind of file are in ``formats`` and ``encodings``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lancetnic_dask.corpus.csv_parse import CsvParser, read_record
from lancetnic_dask.corpus.csv_scan import scan_block
from lancetnic_dask.corpus.dialect import START_RECORD, CsvDialect, closing_bytes, transition_table
from lancetnic_dask.corpus.header import SEPARATORS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Sniffed", "quote_trouble", "sniff_dialect"]

_BOM: Final = b"\xef\xbb\xbf"
_DEFAULT: Final = ","
_QUOTE: Final = '"'
_ESCAPE: Final = "\\"

# A separator gives so many of the records the same number of cells: some are bad.
_NEARLY_ALL: Final = 0.9
_MOST: Final = 0.5
# Shares that are as good as equal.
_MARGIN: Final = 0.02
# Fewer records prove nothing about quotes and escapes.
_FEWEST_RECORDS: Final = 3
_FEWEST_REPAIRS: Final = 2
# Lines of one record: where they look like records, which those of a text with tabs hardly ever
# do, and whatever they look like.
_SWALLOWED_LINES: Final = 5
_SWALLOWED_LINES_BY_TAB: Final = 2
_MANY_LINES: Final = 200
_SHARE_OF_RECORDS: Final = 0.8


@dataclass(frozen=True, kw_only=True)
class Sniffed:
    """A dialect, and how sure it is.

    Parameters
    ----------
    dialect : CsvDialect
        What the user gave, and for the rest what was found.
    reason : str
        Why this separator: for the log.
    warnings : tuple of str
        What the user should know: doubts, and each choice that isn't the default of CSV other
        than the separator. Without a full stop, and with the file.
    """

    dialect: CsvDialect
    reason: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class _Reading:
    """A head, read in one dialect.

    num_fields int32 and start_byte int64 (num_records,): of each record that ends in the head.
    """

    dialect: CsvDialect
    num_fields: npt.NDArray[np.int32]
    start_byte: npt.NDArray[np.int64]

    @property
    def num_records(self) -> int:
        return self.num_fields.size

    @property
    def usual_fields(self) -> int:
        """The most frequent number of cells, the smallest of several; 0 without a record."""
        return int(np.bincount(self.num_fields).argmax()) if self.num_records else 0

    @property
    def share(self) -> float:
        """Share of records with that number of cells; 0 unless it is several, as in the first."""
        usual = self.usual_fields
        if usual < 2 or self.num_fields[0] < 2:
            return 0.0
        return float(np.mean(self.num_fields == usual))

    @property
    def num_odd(self) -> int:
        """Records with another number of cells."""
        return int(np.count_nonzero(self.num_fields != self.usual_fields))


def sniff_dialect(
    head: bytes,
    *,
    encoding: str,
    is_whole: bool,
    columns: Sequence[str] = (),
    num_columns: int | None = None,
    given: Mapping[str, Any] | None = None,
    url: str = "the file",
) -> Sniffed:
    r"""Find the dialect of a CSV file from its first bytes.

    Each of ``, tab ; |`` is tried as the separator. The one under which most of the wanted columns
    stand in the header wins; then one that gives nearly all records the same number of cells,
    more than one. A tab wins over the others there, and a comma over ``;`` and ``|``. If none
    does, as in a file of one column, it is the comma. The same bytes always give the same answer.

    Parameters
    ----------
    head : bytes
        From the start of the first file with content. 64 KiB tell the separator; trouble with
        quotes may come later, so that 1 MiB is better. A byte order mark of UTF-8 is skipped.
    encoding : str
        Of the head: one in which ASCII bytes are ASCII characters.
    is_whole : bool
        Whether this is the whole file; else its last record is not looked at.
    columns : sequence of str, default=()
        Names of columns that are wanted.
    num_columns : int or None, default=None
        Number of columns of a file without a header. None: the first record is the header.
    given : mapping or None, default=None
        Arguments of `CsvDialect` that the user gave; they are kept. Without a separator, or with
        None, it is looked for.
    url : str, default='the file'
        For warnings.

    Returns
    -------
    Sniffed
        The quote character stays ``"`` and there is no escape character, unless the user says
        otherwise, or the head leaves no doubt: in a tab-separated file every line has the same
        number of cells only if quotes are text; or all records have it only if a backslash
        escapes quotes.

    Raises
    ------
    SettingError
        If what the user gave makes no dialect.

    Examples
    --------
    >>> head = b"text\tlabels\nso glad, really\t1,4\nangry, now\t2\n"
    >>> sniffed = sniff_dialect(head, encoding="utf-8", is_whole=True, columns=["text"])
    >>> sniffed.dialect.delimiter, sniffed.reason
    ('\t', "'\\t' separates 'text' in the header")
    """
    given = dict(given or {})
    head = head.removeprefix(_BOM)
    warnings: list[str] = []
    if given.get("delimiter") is None:
        given.pop("delimiter", None)
        separator, reason, doubt = _find_separator(
            head, given, columns, num_columns, encoding=encoding, is_whole=is_whole
        )
        if doubt:
            warnings.append(f"{url}: {doubt}")
    else:
        separator = given.pop("delimiter")
        reason = f"delimiter={separator!r} was passed"
    usual = CsvDialect(delimiter=separator, **given)
    dialect, doubt = _find_quoting(head, usual, given, is_whole=is_whole)
    if doubt:
        warnings.append(f"{url}: {doubt}")
    has_header = num_columns is None
    trouble = quote_trouble(head, dialect, is_whole=is_whole, has_header=has_header, url=url)
    if trouble:
        warnings.append(trouble)
    return Sniffed(dialect=dialect, reason=reason, warnings=tuple(warnings))


def quote_trouble(
    head: bytes, dialect: CsvDialect, *, is_whole: bool, has_header: bool = True, url: str
) -> str | None:
    """Return a warning if a quote seems to have swallowed rows.

    Parameters
    ----------
    head : bytes
        From the start of a record.
    dialect : CsvDialect
        How it is read.
    is_whole : bool
        Whether the file ends here.
    has_header : bool, default=True
        Whether the first record is no row.
    url : str
        The file.

    Returns
    -------
    str or None
        A warning about the first record that spans five lines or more, of a tab-separated file
        two, which look like records themselves; or hundreds of any look; or is never closed.
    """
    if dialect.quotechar is None or dialect.quotechar.encode() not in head:
        return None
    records = _read(head, dialect, is_whole=is_whole)
    lines = _read(head, replace(dialect, quotechar=None), is_whole=is_whole)
    end_state = int(scan_block(head, transition_table(dialect)).end_state[START_RECORD])
    is_open = dialect.quotechar.encode() in closing_bytes(end_state, dialect)
    starts = records.start_byte
    if is_open and not is_whole:
        starts = np.append(starts, _end_of_last(head, records))
    line_of_record = np.append(np.searchsorted(lines.start_byte, starts), lines.num_records)
    fewest_lines = _SWALLOWED_LINES_BY_TAB if dialect.delimiter == "\t" else _SWALLOWED_LINES
    num_fields = int(records.num_fields[0]) if records.num_records else 0
    for index in np.flatnonzero(np.diff(line_of_record) > 1):
        # int32 (num_lines,): cells of each of its lines, if that were a record
        as_records = lines.num_fields[line_of_record[index] : line_of_record[index + 1]]
        num_lines = as_records.size
        num_alike = int(np.count_nonzero(as_records == num_fields)) if num_fields > 1 else 0
        looks_like_records = num_alike >= _SHARE_OF_RECORDS * num_lines
        is_last = is_open and index == starts.size - 1
        is_swallowed = num_lines >= fewest_lines and looks_like_records
        is_unclosed = is_last and is_whole
        if is_swallowed or is_unclosed or num_lines >= _MANY_LINES:
            row = int(index) + 1 - has_header
            which = f"row {row}" if row else "the header"
            what = "a quote opens that is never closed, so that it" if is_unclosed else "it"
            return (
                f"{url}, {which}: {what} spans {num_lines} lines; if quotes mean nothing in this "
                "file, pass quotechar=None"
            )
    return None


def _find_separator(
    head: bytes,
    given: Mapping[str, Any],
    columns: Sequence[str],
    num_columns: int | None,
    *,
    encoding: str,
    is_whole: bool,
) -> tuple[str, str, str]:
    """Return the separator, why it is that, and a doubt or nothing."""
    taken = {given.get("quotechar", _QUOTE), given.get("escapechar"), given.get("comment")}
    readings: dict[str, _Reading] = {}
    found: dict[str, list[str]] = {}
    for separator in SEPARATORS:
        if separator in taken:
            continue
        dialect = CsvDialect(delimiter=separator, **given)
        variants = [_read(head, one, is_whole=is_whole) for one in _variants(head, dialect, given)]
        readings[separator] = max(variants, key=lambda reading: reading.share)
        if num_columns is None:
            found[separator] = _names_found(head, dialect, columns, encoding, is_whole=is_whole)
    most = max(map(len, found.values()), default=0)
    if most:
        readings = {one: readings[one] for one in readings if len(found[one]) == most}
        if len(readings) == 1:
            (separator,) = readings
            return separator, f"{separator!r} separates {found[separator][0]!r} in the header", ""
    fitting = [one for one in readings if readings[one].usual_fields == num_columns]
    if len(fitting) == 1 and readings[fitting[0]].share >= _MOST:
        return fitting[0], f"{fitting[0]!r} gives {num_columns} cells, as many as names", ""
    return _most_regular(readings)


def _most_regular(readings: Mapping[str, _Reading]) -> tuple[str, str, str]:
    """Return the separator that fits the most records, why, and a doubt or nothing."""
    shares = {separator: reading.share for separator, reading in readings.items()}
    regular = [separator for separator in shares if shares[separator] >= _NEARLY_ALL]
    if not regular:
        regular = [separator for separator in shares if shares[separator] >= _MOST]
        regular = regular if len(regular) == 1 else []
    if not regular:
        default = _DEFAULT if _DEFAULT in readings else next(iter(readings))
        return default, f"{default!r} by default: no separator gives rows of equal length", ""
    best = max(shares.values())
    rivals = [one for one in regular if shares[one] >= best - _MARGIN]
    # Hardly any text holds tabs, while commas may stand in every cell of a column.
    choice = "\t" if "\t" in regular else rivals[0]
    reading = readings[choice]
    doubt = ""
    if choice != "\t" and len(rivals) > 1:
        listed = " and ".join(map(repr, rivals))
        doubt = (
            f"{listed} both give rows of equal length, and {choice!r} is taken for the separator"
        )
        doubt += f"; if that is wrong, pass delimiter={rivals[1]!r}"
    num_usual = reading.num_records - reading.num_odd
    reason = f"{choice!r} gives {reading.usual_fields} cells in {num_usual} of the first "
    return choice, reason + f"{reading.num_records} records", doubt


def _find_quoting(
    head: bytes, dialect: CsvDialect, given: Mapping[str, Any], *, is_whole: bool
) -> tuple[CsvDialect, str]:
    """Return the dialect with another quote or escape character if the head leaves no doubt."""
    usual = _read(head, dialect, is_whole=is_whole)
    for variant in _variants(head, dialect, given)[1:]:
        other = _read(head, variant, is_whole=is_whole)
        if other.share < 1 or other.num_records < _FEWEST_RECORDS:
            continue
        num_more = other.num_records - usual.num_records
        if variant.quotechar is not None:
            is_better = usual.num_odd + num_more >= _FEWEST_REPAIRS
            doubt = (
                r"rows have equal numbers of cells only if \" is a quote inside quotes, so that a "
                "backslash is taken for an escape; if it is not, pass escapechar=None"
            )
        else:
            # Where each line of a record is a record by itself, the cell that spans them would
            # have to hold all the separators of its lines: tabs, on each of them, are in no text.
            is_better = dialect.delimiter == "\t" and (usual.share < 1 or num_more > 0)
            is_better = is_better and not _is_wrapped(head, variant)
            doubt = (
                f"every line has {other.usual_fields} cells only if quotes are text, so that they "
                "are taken for text; if they are not, pass quotechar='\"'"
            )
        if is_better:
            return variant, doubt
    return dialect, ""


def _variants(head: bytes, dialect: CsvDialect, given: Mapping[str, Any]) -> list[CsvDialect]:
    """Return the dialect, and others that the head may be written in if the user didn't say."""
    variants = [dialect]
    quote = dialect.quotechar
    if quote is None or quote.encode() not in head:
        return variants
    is_free = _ESCAPE not in (dialect.delimiter, quote, dialect.comment)
    if "escapechar" not in given and is_free and f"{_ESCAPE}{quote}".encode() in head:
        variants.append(replace(dialect, escapechar=_ESCAPE))
    if "quotechar" not in given:
        variants.append(replace(dialect, quotechar=None))
    return variants


def _read(head: bytes, dialect: CsvDialect, *, is_whole: bool) -> _Reading:
    """Count the cells of each record."""
    parser = CsvParser(dialect, columns=[], max_row_bytes=len(head))
    parsed = [parser.feed(head)] + ([parser.finish()] if is_whole else [])
    return _Reading(
        dialect=dialect,
        num_fields=np.concatenate([rows.num_fields for rows in parsed]),
        start_byte=np.concatenate([rows.start_byte for rows in parsed]),
    )


def _names_found(
    head: bytes, dialect: CsvDialect, columns: Sequence[str], encoding: str, *, is_whole: bool
) -> list[str]:
    """Return the wanted names that stand in the header, blanks around them aside."""
    record = read_record(head, dialect, is_end=is_whole)
    if record is None:
        return []
    names = {cell.decode(encoding, errors="replace").strip() for cell in record[0]}
    return [name for name in columns if name.strip() in names]


def _end_of_last(head: bytes, records: _Reading) -> int:
    """Return where the record after those that ended starts."""
    if not records.num_records:
        return 0
    last = int(records.start_byte[-1])
    record = read_record(head[last:], records.dialect)
    return len(head) if record is None else last + record[1]


def _is_wrapped(head: bytes, dialect: CsvDialect) -> bool:
    """Tell whether cells of half the lines or more stand in quotes, as a CSV writer puts them."""
    separator = (dialect.delimiter or "").encode()
    lines = [line.split(separator) for line in head.splitlines() if line]
    wrapped = sum(
        any(len(c) > 1 and c[:1] == c[-1:] == _QUOTE.encode() for c in cells) for cells in lines
    )
    return 2 * wrapped >= len(lines)
