"""Titles, fields and rows -> the box that a notebook shows in place of a text repr.

One look for all classes. The HTML stands alone: no script, no style sheet, nothing fetched, no
id, and no colour of its own, so that it takes those of a light or a dark page.
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

__all__ = ["HtmlTable", "html_box", "listed"]

# Ten names of 60 characters, as messages show them, fit.
_SHOWN_CHARS = 1000
_SHOWN_NAMES = 10
# At the start of a table, and at its end.
_SHOWN_ROWS = 5
# A larger number is shown as 1.234e+08: a column must stay narrow.
_LARGEST_PLAIN = 1e6

_LINE = "1px solid currentColor"
_BOX = (
    "width:fit-content;max-width:100%;box-sizing:border-box;overflow-x:auto;"
    f"margin:0 0 4px 0;padding:4px 8px;border:{_LINE};border-radius:4px"
)
# Notebooks give tables and cells styles of their own; each that would spoil the box is overruled.
_TABLE = (
    "display:inline-table;vertical-align:top;width:auto;table-layout:auto;"
    "margin:0 16px 4px 0;border:none;border-collapse:collapse;color:inherit;"
    "font-variant-numeric:tabular-nums"
)
_CAPTION = (
    "caption-side:top;text-align:left;font-weight:bold;padding:2px 8px;color:inherit;"
    "white-space:nowrap"
)
_CELL = "padding:1px 8px;border:none;vertical-align:top"
_TEXT = f"{_CELL};text-align:left;overflow-wrap:anywhere"
_FIGURE = f"{_CELL};text-align:right;white-space:nowrap"
_NAME = f"{_CELL};text-align:left;white-space:nowrap;font-weight:normal;opacity:0.8"
# Else a notebook typesets a column named $x$ as mathematics (tex2jax: MathJax 2; the other: 3).
_NO_MATH = "tex2jax_ignore mathjax_ignore"


@dataclass(frozen=True, kw_only=True)
class HtmlTable:
    """Rows of figures in a box.

    Parameters
    ----------
    caption : str
        What the rows are.
    columns : sequence of str
        Names of the columns.
    rows : sequence of sequence of object
        Cells, one for each column: the first names its row, the others are figures and stand
        on the right. Of more than 12 rows the first and last five are shown.
    marked : int or None, default=None
        Position of a row that is always shown, bold and behind a star. The caption tells why.
    total : sequence of object or None, default=None
        Cells of one more row below all others.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    marked: int | None = None
    total: Sequence[object] | None = None


def html_box(title: str, fields: Mapping[str, object], *tables: HtmlTable) -> str:
    """Return a box with a title, named values, and tables below.

    All text is escaped: a column named ``<script>`` is shown as that name.

    Parameters
    ----------
    title : str
        What is shown: the name of a class.
    fields : mapping of str to object
        Values by name, in order, shown as `str` gives them; numbers with separators. An empty
        str and None are left out.
    *tables : HtmlTable
        Shown side by side where there is room; one without rows is left out.

    Returns
    -------
    str
        HTML with balanced tags.

    Examples
    --------
    >>> box = html_box("Corpus", {"columns": "<b>"})
    >>> "<caption" in box, "&lt;b&gt;" in box
    (True, True)
    """
    rows = "".join(
        f"<tr>{_cell('th', name, _NAME, scope='row')}{_cell('td', value, _TEXT)}</tr>"
        for name, value in fields.items()
        if value not in ("", None)
    )
    head = _table(title, f"<tbody>{rows}</tbody>")
    figures = "".join(_figures(table) for table in tables if table.rows)
    return f'<div class="{_NO_MATH}" style="{_BOX}"><div>{head}</div>{figures}</div>'


def listed(
    items: Collection[object], *, show: Callable[[object], str] = str, most: int = _SHOWN_NAMES
) -> str:
    """Join the first few of many items, and say how many more there are.

    Parameters
    ----------
    items : collection of object
        What is listed.
    show : callable, default=str
        Turns an item into text; called for those that are shown.
    most : int, default=10
        Items that are shown.

    Returns
    -------
    str
        Such as "a, b and 140 more".

    Examples
    --------
    >>> listed(range(150), most=3)
    '0, 1, 2 and 147 more'
    """
    shown = ", ".join(show(item) for item in islice(items, most))
    num_more = len(items) - most
    return f"{shown} and {num_more:,} more" if num_more > 0 else shown


def _figures(table: HtmlTable) -> str:
    is_right = bool(table.rows) and isinstance(table.rows[0][0], (int, float))
    styles = [_FIGURE if is_right else _TEXT, *[_FIGURE] * (len(table.columns) - 1)]
    head = "".join(
        _cell("th", name, style, scope="col")
        for name, style in zip(table.columns, styles, strict=True)
    )
    rows = "".join(
        f'<tr><td colspan="{len(styles)}" style="{_TEXT}">{_escaped(position)}</td></tr>'
        if isinstance(position, str)
        else _row(table.rows[position], styles, is_marked=position == table.marked)
        for position in _shown_positions(len(table.rows), also=table.marked)
    )
    body = f'<thead style="border-bottom:{_LINE}"><tr>{head}</tr></thead><tbody>{rows}</tbody>'
    if table.total is not None:
        body += f'<tfoot style="border-top:{_LINE}">{_row(table.total, styles)}</tfoot>'
    return _table(table.caption, body)


def _shown_positions(count: int, *, also: int | None) -> Iterator[int | str]:
    """Yield the positions of the rows to show of many, and a remark for each gap.

    >>> list(_shown_positions(100, also=50))
    [0, 1, 2, 3, 4, 'and 45 more', 50, 'and 44 more', 95, 96, 97, 98, 99]
    """
    kept = {*range(count)[:_SHOWN_ROWS], *range(count)[-_SHOWN_ROWS:]}
    if also is not None:
        kept.add(also)
    start = 0
    for position in [*sorted(kept), count]:
        if position - start <= 2:  # a remark would take as much room
            yield from range(start, position)
        else:
            yield f"and {position - start:,} more"
        if position < count:
            yield position
        start = position + 1


def _row(cells: Sequence[object], styles: Sequence[str], *, is_marked: bool = False) -> str:
    name = f"★ {_shown(cells[0])}" if is_marked else cells[0]
    head = _cell("th", name, f"{styles[0]};font-weight:inherit", scope="row")
    figures = "".join(
        _cell("td", cell, style) for cell, style in zip(cells[1:], styles[1:], strict=True)
    )
    return f'<tr style="font-weight:{"bold" if is_marked else "normal"}">{head}{figures}</tr>'


def _table(caption: str, body: str) -> str:
    head = f'<caption style="{_CAPTION}">{_escaped(caption)}</caption>'
    return f'<table style="{_TABLE}">{head}{body}</table>'


def _cell(tag: str, value: object, style: str, *, scope: str | None = None) -> str:
    attribute = "" if scope is None else f' scope="{scope}"'
    return f'<{tag}{attribute} style="{style}">{_escaped(_shown(value))}</{tag}>'


def _shown(value: object) -> str:
    """Show a value as text: numbers with separators, a dash where there is none."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if math.isnan(value):
            return "–"
        return f"{value:.4f}" if abs(value) < _LARGEST_PLAIN else f"{value:.4g}"
    return str(value)


def _escaped(text: str) -> str:
    """Make text harmless in HTML, shortened in the middle if it is long."""
    if len(text) > _SHOWN_CHARS:
        half = _SHOWN_CHARS // 2
        text = f"{text[:half]}…{text[-half + 1 :]}"
    # Control characters, such that turn the direction of writing, and halves of characters, of
    # which file names may consist and which no notebook can save.
    printable = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return html.escape("".join(printable))
