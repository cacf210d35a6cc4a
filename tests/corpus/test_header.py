"""Names of columns, and the errors about them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancetnic_dask.corpus.header import (
    check_names,
    clean_columns,
    column_positions,
    looks_like_no_header,
    missing_column_error,
    resolve_column,
)
from lancetnic_dask.errors import ColumnError, CorpusError, SettingError, quoted

NEWS = ["3", "Fire on the hill", "Crews were sent"]
MORE_NEWS = [["1", "Markets rise", "Shares went up"], ["2", "Cup final", "Home side won"]]


def test_a_column_without_a_name_is_called_as_by_pandas() -> None:
    """By its position from 0; a name of blanks is a name."""
    assert clean_columns(["", "text", " ", ""]) == ("Unnamed: 0", "text", " ", "Unnamed: 3")


def test_an_invented_name_is_not_one_of_the_file() -> None:
    """A table that pandas wrote twice has such a name already."""
    cells = ["", "Unnamed: 0", "Unnamed: 0.1", ""]

    assert clean_columns(cells) == ("Unnamed: 0.2", "Unnamed: 0", "Unnamed: 0.1", "Unnamed: 3")


@given(cells=st.lists(st.sampled_from(["", "a", "b", "Unnamed: 1", "Unnamed: 2", "Unnamed: 1.1"])))
def test_names_that_are_there_stay_and_invented_ones_are_unique(cells: list[str]) -> None:
    """Names of the file that stand twice stay so."""
    names = clean_columns(cells)

    assert [name for name, cell in zip(names, cells, strict=True) if cell] == [*filter(None, cells)]
    invented = [name for name, cell in zip(names, cells, strict=True) if not cell]
    assert all(names.count(name) == 1 for name in invented)


@pytest.mark.parametrize("names", [[], "text", [""], ["text", 1], None, {"a", "b"}, ["text", None]])
def test_names_are_a_list_of_names(names: Any) -> None:
    """A set has no order, and a string is one name at best."""
    with pytest.raises(SettingError) as caught:
        check_names(names)

    assert str(caught.value) == (f"names is {names!r}.\n  Pass a list with a name for each column.")


def test_a_name_is_given_to_one_column() -> None:
    """Else it would not tell which."""
    with pytest.raises(SettingError) as caught:
        check_names(["text", "label", "text"])

    assert str(caught.value) == "names holds 'text' twice.\n  Name each column once."


def test_names_fit_the_first_line() -> None:
    """One for each cell; until a file is looked at nothing is known of cells."""
    assert check_names(["class", "title", "text"]) == ("class", "title", "text")
    assert check_names(("class", "title", "text"), first=NEWS) == ("class", "title", "text")

    with pytest.raises(CorpusError) as caught:
        check_names(["class", "text"], first=NEWS, url="a.csv")

    assert str(caught.value) == (
        "names holds 2 names, and the first line has 3 cells: "
        "'3,Fire on the hill,Crews were sent'.\n"
        "  at a.csv\n"
        "  Pass a name for each column, in the order of the file."
    )


def test_names_that_do_not_fit_may_mean_a_wrong_separator() -> None:
    """One cell for several names, and another separator in it."""
    with pytest.raises(CorpusError) as caught:
        check_names(["class", "text"], first=["3\tFire, smoke"], url="a.tsv")

    assert str(caught.value) == (
        "names holds 2 names, and the first line has 1 cell: '3\\tFire, smoke'.\n"
        "  at a.tsv\n"
        "  Is the separator '\\t'? Pass delimiter='\\t'."
    )


def test_columns_are_found_by_name_and_by_position() -> None:
    """A str is a name, whatever stands in it; an int is a position from 0."""
    header = ["text", "1", " text", "label"]

    assert column_positions(header, ["label", "1", 1, 0, " text"], "a.csv") == [3, 1, 1, 0, 2]


def test_a_position_tells_columns_of_one_name_apart() -> None:
    """By name it is an error, where that name is asked for."""
    header = ["text", "label", "label"]

    assert column_positions(header, ["text", 2], "a.csv") == [0, 2]
    with pytest.raises(ColumnError) as caught:
        column_positions(header, ["text", "label"], "a.csv")

    assert str(caught.value) == (
        "The file has 2 columns named 'label'.\n  at a.csv\n  Rename one of them."
    )


def test_a_position_past_the_last_column_is_an_error() -> None:
    """People who count from 1 meet it."""
    with pytest.raises(ColumnError) as caught:
        resolve_column(2, ["text", "label"], "a.csv")

    assert str(caught.value) == (
        "There is no column at position 2.\n"
        "  at a.csv\n"
        "  Positions count from 0, and the file has 2 columns: 'text,label'."
    )


@pytest.mark.parametrize("column", [-1, True, 1.0, None])
def test_a_column_is_a_name_or_a_position(column: Any) -> None:
    """The last column of one file may be another one in the next."""
    with pytest.raises(SettingError) as caught:
        resolve_column(column, ["text", "label"], "a.csv")

    assert str(caught.value) == (
        f"A column is given as {column!r}.\n  Pass a name, or a position from 0."
    )


def test_a_missing_column_names_the_nearest() -> None:
    """A padded one too; all that there are; and the file."""
    assert str(missing_column_error("label", ["text", " label"], "a.csv")) == (
        "There is no column 'label'.\n"
        "  at a.csv\n"
        "  Did you mean ' label'? There are: 'text', ' label'."
    )


@pytest.mark.parametrize("separator", [";", "\t", "|", ","])
def test_a_wrong_separator_is_recognized(separator: str) -> None:
    """One column whose name holds another separator, with a comma beside it or not."""
    header = [f"текст{separator}метка, если есть"]

    assert str(missing_column_error("текст", header, "a.csv")) == (
        f"There is no column 'текст'. The file has one column, named {header[0]!r}.\n"
        "  at a.csv\n"
        f"  Is the separator {separator!r}? Pass delimiter={separator!r}."
    )


def test_a_missing_header_is_recognized() -> None:
    """None of the names is there, and the first line is like those below."""
    with pytest.raises(ColumnError) as caught:
        column_positions(NEWS, ["text", "label"], "a.csv", rows=MORE_NEWS)

    assert str(caught.value) == (
        "There is no column 'text'. The first line is '3,Fire on the hill,Crews were sent'.\n"
        "  at a.csv\n"
        "  Has the file no header? Pass names=[...] with a name for each of its 3 columns."
    )


def test_a_long_first_line_is_shown_in_part() -> None:
    """A document is never shown in full; and a long cell is no name, even of a file of one line."""
    text = "so it goes " * 1000

    assert str(missing_column_error("message", ["ham", text], "a.csv")) == (
        f"There is no column 'message'. The first line is {quoted('ham,' + text)}.\n"
        "  at a.csv\n"
        "  Has the file no header? Pass names=[...] with a name for each of its 2 columns."
    )


def test_a_near_name_is_likelier_than_no_header() -> None:
    """Questions of a survey are as long as sentences, and are names."""
    question = "How would you describe the service that you received in our shop today?"

    error = missing_column_error(question.replace("shop", "store"), [question, "score"], "a.csv")

    assert error.fix == f"Did you mean {quoted(question)}? There are: {quoted(question)}, 'score'."


@pytest.mark.parametrize(
    ("first", "rows", "columns", "expected"),
    [
        (NEWS, MORE_NEWS, ["text"], True),
        (["ham", "see you"], [["spam", "win"], ["ham", "ok"]], ["text"], True),
        (["text", "label"], [["good", "1"], ["bad", "0"]], ["body"], False),
        # One of the names is there.
        (["1", "text"], [["2", "so"]], ["text", "label"], False),
        (["1", " Text"], [["2", "so"]], ["TEXT ", "label"], False),
        # A year above texts is a name.
        (["2019", "2020"], [["good", "bad"]], ["text"], False),
        # A header that stands once more in a joined file.
        (["a", "b"], [["x", "y"], ["a", "b"]], ["text"], False),
        (["", ""], [["", "x"], ["", "y"]], ["text"], False),
        # A number above nothing tells nothing.
        (["2019"], [], ["text"], False),
        ([], [], ["text"], False),
    ],
)
def test_a_first_line_of_data_is_told_from_a_header(
    first: list[str], rows: list[list[str]], columns: list[str], *, expected: bool
) -> None:
    """A number above numbers, a value that comes again, or a sentence."""
    assert looks_like_no_header(first, rows, columns) is expected
