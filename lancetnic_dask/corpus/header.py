"""Cells of the first record -> names of columns; names or positions -> where the columns stand.

Pure functions over a few strings: reading the first record is left to ``plan``, and what the
cells of a column mean to ``schema``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lancetnic_dask.errors import ColumnError, CorpusError, SettingError, quoted, suggestion

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "SEPARATORS",
    "check_names",
    "clean_columns",
    "column_positions",
    "looks_like_no_header",
    "missing_column_error",
    "resolve_column",
]

# What separates cells in people's files, the likeliest first.
SEPARATORS: Final = (",", "\t", ";", "|")

# A name is seldom longer, and a sentence seldom shorter.
_LONG_NAME_CHARS: Final = 60


def clean_columns(cells: Sequence[str]) -> tuple[str, ...]:
    """Name the columns that have no name, as pandas does, and leave the others as they are.

    A column without a name is most often the index of a DataFrame that pandas wrote; reading the
    file with pandas shows the same name. Blanks stay part of a name, and a name that stands twice
    stays so: it is an error only where it is asked for (`resolve_column`).

    Parameters
    ----------
    cells : sequence of str
        Cells of the header.

    Returns
    -------
    tuple of str
        As many names; an empty cell at position k, from 0, becomes ``Unnamed: k``, with ``.1``
        after it, or ``.2`` and so on, if another column is called that.

    Examples
    --------
    >>> clean_columns(["", "text", ""])
    ('Unnamed: 0', 'text', 'Unnamed: 2')
    """
    taken = set(cells)
    names = []
    for position, cell in enumerate(cells):
        name = cell or f"Unnamed: {position}"
        number = 0
        while not cell and name in taken:
            number += 1
            name = f"Unnamed: {position}.{number}"
        names.append(name)
    return tuple(names)


def check_names(
    names: object, *, first: Sequence[str] | None = None, url: str | None = None
) -> tuple[str, ...]:
    """Check the names that the user gives to the columns of files without a header.

    Parameters
    ----------
    names : object
        What was passed: a sequence of str.
    first : sequence of str or None, default=None
        Cells of the first record of a file. None: no file is looked at yet.
    url : str or None, default=None
        The file, for a message.

    Returns
    -------
    tuple of str
        The names.

    Raises
    ------
    SettingError
        If they are no names: none, not strings, empty, or one that stands twice.
    CorpusError
        If the record has another number of cells.
    """
    given: tuple[object, ...] = ()
    if isinstance(names, list | tuple):
        given = tuple(names)
    checked = tuple(name for name in given if isinstance(name, str) and name)
    if not given or len(checked) < len(given):
        raise SettingError(
            f"names is {quoted(names)}.", None, "Pass a list with a name for each column."
        )
    for name in checked:
        if checked.count(name) > 1:
            raise SettingError(f"names holds {quoted(name)} twice.", None, "Name each column once.")
    if first is not None and len(first) != len(checked):
        raise CorpusError(
            f"names holds {_counted(len(checked), 'name')}, and the first line has "
            f"{_counted(len(first), 'cell')}: {_line(first)}.",
            url,
            _separator_advice(first) or "Pass a name for each column, in the order of the file.",
        )
    return checked


def column_positions(
    header: Sequence[str],
    columns: Sequence[str | int],
    url: str,
    *,
    rows: Sequence[Sequence[str]] = (),
) -> list[int]:
    """Return the positions of columns in a file, by name or position.

    Parameters
    ----------
    header : sequence of str
        Names of the columns of the file.
    columns : sequence of str or int
        What is wanted, as for `resolve_column`.
    url : str
        The file, for messages.
    rows : sequence of sequence of str, default=()
        Some records below the header, for messages: they tell whether there is a header.

    Returns
    -------
    list of int
        Positions from 0.

    Raises
    ------
    ColumnError
        If a column is not there, or its name stands in the header twice.
    """
    names = [column for column in columns if isinstance(column, str)]
    return [resolve_column(column, header, url, rows=rows, wanted=names) for column in columns]


def resolve_column(
    column: str | int,
    header: Sequence[str],
    url: str,
    *,
    rows: Sequence[Sequence[str]] = (),
    wanted: Sequence[str] = (),
) -> int:
    """Return the position of a column that the user gives by name or by position.

    A str is always a name, also ``"1"``; an int is always a position, from 0 as in Python and
    pandas. Negative ones are refused: files of a corpus may have columns beside the wanted ones,
    so "the last" would not be the same column everywhere.

    Parameters
    ----------
    column : str or int
        A name, which must be that of one column exactly, blanks and case included; or a position.
    header : sequence of str
        Names of the columns of the file.
    url : str
        The file, for messages.
    rows : sequence of sequence of str, default=()
        Some records below the header, for messages.
    wanted : sequence of str, default=()
        All names that are asked for, for messages: if one of them is there, so is a header.

    Returns
    -------
    int
        Position from 0.

    Raises
    ------
    ColumnError
        If there is no such column, or the name stands in the header twice.
    SettingError
        If it is neither a name nor a position.

    Examples
    --------
    >>> resolve_column("label", ["text", "label"], "a.csv"), resolve_column(0, ["text"], "a.csv")
    (1, 0)
    """
    if isinstance(column, str):
        count = header.count(column)
        if count == 0:
            raise missing_column_error(column, header, url, rows=rows, wanted=wanted)
        if count > 1:
            raise ColumnError(
                f"The file has {count} columns named {column!r}.", url, "Rename one of them."
            )
        return header.index(column)
    if isinstance(column, bool) or not isinstance(column, int) or column < 0:
        raise SettingError(
            f"A column is given as {quoted(column)}.", None, "Pass a name, or a position from 0."
        )
    if column >= len(header):
        raise ColumnError(
            f"There is no column at position {column}.",
            url,
            f"Positions count from 0, and the file has {_counted(len(header), 'column')}: "
            f"{_line(header)}.",
        )
    return column


def missing_column_error(
    name: str,
    header: Sequence[str],
    url: str,
    *,
    rows: Sequence[Sequence[str]] = (),
    wanted: Sequence[str] = (),
) -> ColumnError:
    """Return the error for a name that is not in the header, with the likeliest reason.

    Parameters
    ----------
    name : str
        What was asked for.
    header : sequence of str
        Names of the columns of the file.
    url : str
        The file.
    rows : sequence of sequence of str, default=()
        Some records below the header. Without any, a long first line alone tells of none.
    wanted : sequence of str, default=()
        All names that are asked for.

    Returns
    -------
    ColumnError
        It asks, in this order: is the separator another one; is it the nearest name, which may be
        one with blanks around it; has the file no header?
    """
    what = f"There is no column {name!r}."
    separator_advice = _separator_advice(header)
    if separator_advice:
        what += f" The file has one column, named {quoted(header[0])}."
        return ColumnError(what, url, separator_advice)
    nearest = suggestion(name, header)
    is_near = nearest.startswith("Did you mean")
    if not is_near and looks_like_no_header(header, rows, wanted or [name]):
        what += f" The first line is {_line(header)}."
        fix = (
            "Has the file no header? Pass names=[...] with a name for each of its "
            f"{len(header)} columns."
        )
        return ColumnError(what, url, fix)
    return ColumnError(what, url, nearest)


def looks_like_no_header(
    first: Sequence[str], rows: Sequence[Sequence[str]], columns: Sequence[str]
) -> bool:
    """Tell whether the first record looks like one of data: good enough for a question.

    Parameters
    ----------
    first : sequence of str
        Its cells.
    rows : sequence of sequence of str
        Cells of some records below; they may be none.
    columns : sequence of str
        Names that the user asks for.

    Returns
    -------
    bool
        False if one of the names is there, blanks and case aside. Else True if one cell is a
        number above numbers, stands once more in its column, or is as long as a sentence.

    Examples
    --------
    >>> looks_like_no_header(["3", "Fire on the hill"], [["1", "Markets rise"]], ["text"])
    True
    """
    known = {cell.strip().casefold() for cell in first}
    if known & {name.strip().casefold() for name in columns}:
        return False
    # Files that were joined hold their header once more.
    others = [row for row in rows if list(row) != list(first)]
    for position, cell in enumerate(first):
        below = [row[position] for row in others if position < len(row) and row[position]]
        if len(cell) > _LONG_NAME_CHARS or (cell and cell in below):
            return True
        if below and all(map(_is_number, [cell, *below])):
            return True
    return False


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _separator_advice(cells: Sequence[str]) -> str:
    """Return what to do if a line is one cell that holds a separator; else nothing."""
    if len(cells) != 1:
        return ""
    # A comma comes last: it is the one that stands in sentences.
    separator = next((one for one in (*SEPARATORS[1:], ",") if one in cells[0]), None)
    if separator is None:
        return ""
    return f"Is the separator {separator!r}? Pass delimiter={separator!r}."


def _line(cells: Sequence[str]) -> str:
    """Show the start of a record."""
    return quoted(",".join(cells))


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
