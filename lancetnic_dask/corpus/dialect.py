"""How a CSV file is written -> the byte-level state machine that reads it.

The machine is the one of Python's csv module (``Modules/_csv.c`` of Python 3.11, not strict)
for a file opened with ``newline=""``, with two departures: a blank line, for which csv gives
``[]``, is no row (as for csv.DictReader and pandas), and neither is a comment line, which csv
does not know. CR, LF and CRLF all end a line. All bytes with a meaning are ASCII, so the machine
is exact for UTF-8 and for every encoding in which an ASCII byte is always that character.

``csv_scan`` finds rows with the table, ``csv_parse`` cells: both always agree on the rows.
Encodings, the byte order mark and the choice of a dialect for a file are not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lancetnic_dask.errors import SettingError, quoted

__all__ = ["LINES", "CsvDialect", "Machine", "build_machine", "closing_bytes", "transition_table"]

# States, named as in _csv.c. Its EAT_CRNL acts as START_RECORD, where line ends only skip; its
# AFTER_ESCAPED_CRNL as IN_FIELD. There is no room for a ninth: see NEXT_STATE and `csv_scan`.
START_RECORD: Final = 0
COMMENT: Final = 1
START_FIELD: Final = 2
IN_FIELD: Final = 3
ESCAPED: Final = 4
IN_QUOTED: Final = 5
QUOTE_IN_QUOTED: Final = 6
ESCAPE_IN_QUOTED: Final = 7
NUM_STATES: Final = 8

# An entry of the table: the next state in three bits, the action in two, and a flag.
NEXT_STATE: Final = 0x07
ACTION: Final = 0x18
SKIP: Final = 0x00
APPEND: Final = 0x08  # the byte belongs to the cell
END_FIELD: Final = 0x10
END_RECORD: Final = 0x18  # the last field ends too
STARTS_ROW: Final = 0x20  # the byte is the first of a row

CR: Final = 0x0D
LF: Final = 0x0A

# Delimiter, quote, escape, CR, LF. A comment character may be the sixth.
NUM_SPECIAL: Final = 5


@dataclass(frozen=True, kw_only=True)
class CsvDialect:
    r"""The characters that have a meaning in a CSV file.

    Parameters
    ----------
    delimiter : str or None, default=","
        One ASCII character between two fields. None: each record is one field.
    quotechar : str or None, default='"'
        One ASCII character around fields that hold other special characters. None: quotes are
        ordinary text.
    escapechar : str or None, default=None
        One ASCII character that takes the meaning from the next one. None: there is none.
    doublequote : bool, default=True
        Whether two quotes inside a quoted field stand for one.
    comment : str or None, default=None
        One ASCII character: a line that begins with it, where a record would begin, is no record,
        whatever else stands in it. Anywhere else it is text. None: there are no comments.

    Raises
    ------
    SettingError
        If a character is not one ASCII character, is a line end, or has two meanings.

    Examples
    --------
    >>> CsvDialect(delimiter="\t", quotechar=None)
    CsvDialect(delimiter='\t', quotechar=None, escapechar=None, doublequote=True, comment=None)
    """

    delimiter: str | None = ","
    quotechar: str | None = '"'
    escapechar: str | None = None
    doublequote: bool = True
    comment: str | None = None

    def __post_init__(self) -> None:
        seen: dict[str, str] = {}
        for name in ("delimiter", "quotechar", "escapechar", "comment"):
            value = getattr(self, name)
            if value is None:
                continue
            _check_character(name, value)
            if value in seen:
                raise SettingError(
                    f"{seen[value]} and {name} are both {value!r}.",
                    fix=f"Pass two different characters, or {name}=None.",
                )
            seen[value] = name
        if not isinstance(self.doublequote, bool):
            raise SettingError(
                f"doublequote must be True or False, got {quoted(self.doublequote)}.",
                fix="Pass True if two quotes inside a quoted field stand for one.",
            )


# A line is a record of one field, whatever stands in it.
LINES: Final = CsvDialect(delimiter=None, quotechar=None)


def _check_character(name: str, value: object) -> None:
    """Raise unless the value is one ASCII character that ends no line."""
    is_character = isinstance(value, str) and len(value) == 1 and value.isascii()
    if not is_character or value in ("\r", "\n"):
        raise SettingError(
            f"{name} must be one ASCII character other than a line end, got {quoted(value)}.",
            fix=f"Pass one such character{'' if name == 'delimiter' else f', or {name}=None'}.",
        )


@cache
def transition_table(dialect: CsvDialect) -> npt.NDArray[np.uint8]:
    """Build the state machine of a dialect.

    Parameters
    ----------
    dialect : CsvDialect
        The characters with a meaning.

    Returns
    -------
    ndarray of shape (NUM_STATES, 256), dtype=uint8
        Entry of (state, byte): next state in ``NEXT_STATE``, what to do with the byte in
        ``ACTION``, and ``STARTS_ROW``. Read-only. In states that a dialect cannot reach the
        machine goes on as in ``IN_FIELD``, so that a scan from there soon joins another.
    """
    delimiter = None if dialect.delimiter is None else ord(dialect.delimiter)
    quote = None if dialect.quotechar is None else ord(dialect.quotechar)
    escape = None if dialect.escapechar is None else ord(dialect.escapechar)

    table = np.full((NUM_STATES, 256), IN_FIELD | APPEND, np.uint8)
    for state in (START_FIELD, IN_FIELD, QUOTE_IN_QUOTED):
        if delimiter is not None:
            table[state, delimiter] = START_FIELD | END_FIELD
        table[state, [CR, LF]] = START_RECORD | END_RECORD
    if escape is not None:
        table[[START_FIELD, IN_FIELD], escape] = ESCAPED | SKIP
    if quote is not None:
        table[START_FIELD, quote] = IN_QUOTED | SKIP
        table[[IN_QUOTED, ESCAPE_IN_QUOTED]] = IN_QUOTED | APPEND
        table[IN_QUOTED, quote] = (QUOTE_IN_QUOTED if dialect.doublequote else IN_FIELD) | SKIP
        if escape is not None:
            table[IN_QUOTED, escape] = ESCAPE_IN_QUOTED | SKIP
        # An escape after a closing quote is text, as any other byte there.
        table[QUOTE_IN_QUOTED, quote] = IN_QUOTED | APPEND
    else:
        table[[IN_QUOTED, QUOTE_IN_QUOTED, ESCAPE_IN_QUOTED]] = table[IN_FIELD]
    table[START_RECORD] = table[START_FIELD] | STARTS_ROW
    # The departures from csv: at the start of a record a line end only skips, and so does a line
    # that is a comment.
    table[START_RECORD, [CR, LF]] = START_RECORD | SKIP
    if dialect.comment is None:
        table[COMMENT] = table[IN_FIELD]
    else:
        table[START_RECORD, ord(dialect.comment)] = COMMENT | SKIP
        table[COMMENT] = COMMENT | SKIP
        table[COMMENT, [CR, LF]] = START_RECORD | SKIP

    table.flags.writeable = False
    return table


def closing_bytes(state: int, dialect: CsvDialect) -> bytes:
    r"""Return the bytes that end a row as csv ends it where the data stops in a state.

    An open quote is closed, and an escape character that is the last byte of the data escapes
    a line end: csv reads ``a\`` as ``"a\n"``.

    Parameters
    ----------
    state : int
        State after the last byte.
    dialect : CsvDialect
        The characters with a meaning.

    Returns
    -------
    bytes
        Empty between two rows; else it ends in the LF that ends the row.

    Examples
    --------
    >>> closing_bytes(IN_QUOTED, CsvDialect())
    b'"\n'
    """
    if state in (START_RECORD, COMMENT):
        return b""
    quote = (dialect.quotechar or "").encode()
    before_line_end = {ESCAPED: b"\n", IN_QUOTED: quote, ESCAPE_IN_QUOTED: b"\n" + quote}
    return before_line_end.get(state, b"") + b"\n"


class Machine(NamedTuple):
    """The state machine as kernels take it.

    Parameters
    ----------
    table : ndarray of shape (NUM_STATES, 256), dtype=uint8
        From `transition_table`.
    ordinary_entries : ndarray of shape (NUM_STATES,), dtype=uint8
        Entries for a byte without any meaning. In a run of such bytes only the first one can
        change the state.
    special : ndarray of shape (NUM_SPECIAL,) or (NUM_SPECIAL + 1,), dtype=uint8
        All other bytes; one is repeated where there are fewer than ``NUM_SPECIAL``.
    """

    table: npt.NDArray[np.uint8]
    ordinary_entries: npt.NDArray[np.uint8]
    special: npt.NDArray[np.uint8]


def build_machine(table: npt.NDArray[np.uint8]) -> Machine:
    """Find the bytes that the table treats differently from most, in some state."""
    columns, counts = np.unique(table, axis=1, return_counts=True)
    ordinary_entries = columns[:, np.argmax(counts)].copy()
    is_special = np.any(table != ordinary_entries[:, np.newaxis], axis=0)
    special = np.flatnonzero(is_special).astype(np.uint8)
    return Machine(
        table=table,
        ordinary_entries=ordinary_entries,
        special=np.pad(special, (0, max(0, NUM_SPECIAL - special.size)), mode="edge"),
    )
