"""Finding the dialect of a file from its first bytes."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancetnic_dask.corpus.dialect import CsvDialect
from lancetnic_dask.corpus.sniff import Sniffed, quote_trouble, sniff_dialect
from lancetnic_dask.errors import SettingError

SEPARATORS = [",", "\t", ";", "|"]


def sniff(text: str, *columns: str, is_whole: bool = True, **given: Any) -> Sniffed:
    """Sniff a file of this text."""
    return sniff_dialect(
        text.encode(),
        encoding="utf-8",
        is_whole=is_whole,
        columns=columns,
        given=given,
        url="a.csv",
    )


def write(rows: list[list[str]], separator: str) -> str:
    """Write rows as csv.writer does."""
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=separator).writerows(rows)
    return file.getvalue()


# Like text: words, and all the characters that separate cells in other files.
texts = st.lists(
    st.sampled_from(["so", "I", "well,", "no;", "a|b", 'the "end"', "x\ny", "1,4"])
).map(" ".join)


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(texts, st.sampled_from(["1,4", "2", "good"]))),
    separator=st.sampled_from(SEPARATORS),
)
def test_a_file_that_csv_wrote_is_read_as_it_was_written(
    rows: list[tuple[str, str]], separator: str
) -> None:
    """The header of the wanted columns tells, whatever the cells hold."""
    text = write([["text", "label"], *map(list, rows)], separator)

    sniffed = sniff(text, "text", "label")

    assert sniffed.dialect == CsvDialect(delimiter=separator)
    assert sniffed.reason == f"{separator!r} separates 'text' in the header"
    assert sniffed.warnings == ()


@pytest.mark.parametrize("separator", SEPARATORS)
def test_without_names_rows_of_equal_length_tell(separator: str) -> None:
    """A file without a header, or one whose names are spelled in another way."""
    text = f"id{separator}text{separator}label\n" + "\n".join(
        f"{number}{separator}{'well; ok, a|b '.replace(separator, '') * number}{separator}good"
        for number in range(9)
    )

    sniffed = sniff(text, "Text", is_whole=False)

    assert sniffed.dialect == CsvDialect(delimiter=separator)
    assert sniffed.reason == f"{separator!r} gives 3 cells in 9 of the first 9 records"
    assert sniffed.warnings == ()


def test_commas_in_the_text_of_a_table_with_tabs_do_not_win() -> None:
    """Not even one in each text and each label, without a header."""
    text = "".join(f"yes, I see\t{label}\tid{label[0]}\n" for label in ("1,4", "2,3", "5,1"))

    sniffed = sniff(text)

    assert sniffed.dialect == CsvDialect(delimiter="\t")
    assert sniffed.reason == "'\\t' gives 3 cells in 3 of the first 3 records"
    assert sniffed.warnings == ()


def test_semicolons_beside_decimal_commas_are_found_by_the_header() -> None:
    """A comma that isn't in the first line separates nothing."""
    sniffed = sniff("цена;вес\n1,5;2,5\n3,5;4,5\n")

    assert sniffed.dialect == CsvDialect(delimiter=";")


def test_a_header_in_another_encoding_is_read_in_it() -> None:
    """The names that are asked for are text."""
    head = "отзыв, весь;метка, если есть\nда;1\n".encode("cp1251")

    sniffed = sniff_dialect(head, encoding="cp1251", is_whole=True, columns=["отзыв, весь"])

    assert sniffed.reason == "';' separates 'отзыв, весь' in the header"


def test_blanks_around_a_name_and_a_byte_order_mark_are_no_part_of_it() -> None:
    """They must not send the search elsewhere: that a name is padded is told later."""
    sniffed = sniff("\ufefftext; label\nyes, so;1;\n\nno\na;b;c;d\n", "label ", "text")

    assert sniffed.reason == "';' separates 'label ' in the header"
    assert sniff("\ufefftext;label\nno\n", "text").dialect.delimiter == ";"


def test_the_separator_with_the_most_wanted_names_wins() -> None:
    """One of them may stand by chance between others."""
    sniffed = sniff("id;text|label|id\n1;so|2|3\n", "text", "label", "id")

    assert sniffed.dialect.delimiter == "|"


@pytest.mark.parametrize(
    "text",
    [
        "text\nwell; I see\nno\nyes; no; no\n",
        "text\n",
        "",
        "\n\n",
        "Hello; world\nyes\n",
        "text\na;b\nc;d\n",
    ],
)
def test_one_column_stays_with_the_comma(text: str) -> None:
    """As do files that tell nothing; the first line of text is like any other."""
    sniffed = sniff(text, "text")

    assert sniffed.dialect == CsvDialect()
    assert sniffed.reason == "',' by default: no separator gives rows of equal length"
    assert sniffed.warnings == ()


def test_a_few_bad_rows_do_not_hide_the_separator() -> None:
    """One in ten, and up to half where only one separator comes into question."""
    for num_bad in (1, 9):
        sniffed = sniff("a;b\n" + "1;2\n" * 9 + "3;4;5\n" * num_bad)

        assert sniffed.dialect.delimiter == ";"
    assert sniff("a;b\n" + "1;2\n" * 4 + "3;4;5\n6\n7;8;9;0\n" * 2).dialect.delimiter == ","


def test_of_two_separators_the_more_regular_one_wins() -> None:
    """Clearly more, or the only one that fits nearly all records."""
    assert sniff("1;a,b\n" * 28 + "2;c\n" * 2).dialect.delimiter == ";"
    assert sniff("1;a,b\n" * 7 + "2;c\n" * 3 + "3\n").dialect.delimiter == ";"
    assert sniff("1;a,b\n" * 99 + "2;c\n").dialect.delimiter == ","


def test_two_separators_that_fit_few_records_are_none() -> None:
    """Rows will be bad with either."""
    sniffed = sniff("1;a,b\n" * 6 + "x\n" * 4)

    assert sniffed.dialect == CsvDialect()
    assert sniffed.reason == "',' by default: no separator gives rows of equal length"
    assert sniffed.warnings == ()


def test_two_separators_that_fit_equally_are_a_doubt() -> None:
    """The comma is taken, and the warning says what else it may be."""
    sniffed = sniff("1,a;b\n2,c;d\n3,e;f\n")

    assert sniffed.dialect == CsvDialect()
    (warning,) = sniffed.warnings
    assert warning == (
        "a.csv: ',' and ';' both give rows of equal length, and ',' is taken for the separator; "
        "if that is wrong, pass delimiter=';'"
    )


def test_the_number_of_names_tells_where_there_is_no_header() -> None:
    """Whoever names the columns says how many there are."""
    head = b"1,a;b;x\n2,c;d;x\n3,e;f;x\n"

    sniffed = sniff_dialect(head, encoding="utf-8", is_whole=True, num_columns=3)

    assert sniffed.dialect == CsvDialect(delimiter=";")
    assert sniffed.reason == "';' gives 3 cells, as many as names"
    assert sniffed.warnings == ()


def test_rows_of_a_file_without_a_header_are_counted_from_its_first_line() -> None:
    """In warnings; and a number of cells that few rows have is not that of the names."""
    head = b"1,a\n" + b'2,"b\n' + b"3,c\n" * 5 + b'4,d"\n'

    sniffed = sniff_dialect(head, encoding="utf-8", is_whole=True, num_columns=2, url="a.csv")

    (warning,) = sniffed.warnings
    assert warning == (
        "a.csv, row 2: it spans 7 lines; if quotes mean nothing in this file, pass quotechar=None"
    )
    ragged = b"1;2\n3\n4;5;6\n7;8\n9;0;1;2\n"
    sniffed = sniff_dialect(ragged, encoding="utf-8", is_whole=True, num_columns=2)
    assert sniffed.dialect == CsvDialect()


def test_what_the_user_gave_is_kept() -> None:
    """Against all evidence, and it is no candidate for anything else."""
    sniffed = sniff("text;label\na;1\nb;2\n", "text", delimiter=",", quotechar="'", comment="#")

    assert sniffed.dialect == CsvDialect(delimiter=",", quotechar="'", comment="#")
    assert sniffed.reason == "delimiter=',' was passed"
    assert sniff("a;b\n1;2\n", quotechar=";", delimiter=None).dialect == CsvDialect(quotechar=";")
    assert sniff("a,b\n1,2\n", comment=",").dialect == CsvDialect(delimiter="\t", comment=",")
    with pytest.raises(SettingError, match="delimiter and quotechar are both"):
        sniff("a,b\n", delimiter=",", quotechar=",")


def test_comments_are_not_looked_at() -> None:
    """A line about a table is none of it."""
    sniffed = sniff("# a|b\ntext|label\n# a,b\na|1\nb|2\n", comment="#")

    assert sniffed.dialect == CsvDialect(delimiter="|", comment="#")
    assert sniffed.reason == "'|' gives 2 cells in 3 of the first 3 records"


STRAY = 'label\ttext\nham\t"unfinished remark\nspam\twin, now\nham\the wrote "done" there\n'


def test_quotes_that_swallow_lines_of_a_table_with_tabs_are_text() -> None:
    """Only so has every line as many cells, and the user is told."""
    sniffed = sniff(STRAY, "text")

    assert sniffed.dialect == CsvDialect(delimiter="\t", quotechar=None)
    (warning,) = sniffed.warnings
    assert warning == (
        "a.csv: every line has 2 cells only if quotes are text, so that they are taken for text; "
        "if they are not, pass quotechar='\"'"
    )


def test_quotes_stay_quotes_where_the_user_says_so() -> None:
    """Of those that swallow lines there is a warning."""
    sniffed = sniff(STRAY, "text", quotechar='"')

    assert sniffed.dialect == CsvDialect(delimiter="\t")
    (warning,) = sniffed.warnings
    assert warning == (
        "a.csv, row 1: it spans 3 lines; if quotes mean nothing in this file, pass quotechar=None"
    )


@pytest.mark.parametrize(
    "text",
    [
        # Lines of one cell: text of several lines.
        'label\ttext\nham\t"two\nlines"\nspam\twin\nham\tyes\n',
        # Two lines prove nothing.
        'label\ttext\n"ham\tyes\n',
        # A tab in quotes.
        'label\ttext\nham\t"a\tb"\nspam\twin\nham\tyes\n',
        # By csv.writer; the text is a table itself.
        write([["label", "text"], *[["ham", 'a\t"b"\nc\td\ne']] * 9], "\t"),
        # One separator in each line, as it happens: in text that may be.
        'text,label\n"a, b\nc",1\nd,2\ne,3\n',
    ],
)
def test_quotes_that_may_be_meant_stay_quotes(text: str) -> None:
    """A wrong choice is worse than none."""
    sniffed = sniff(text, "text")

    assert sniffed.dialect.quotechar == '"'
    assert sniffed.warnings == ()


def test_a_table_that_was_written_with_quotes_keeps_them() -> None:
    """Where half the lines have a cell in quotes, one that is not closed is a mistake."""
    text = 'label\ttext\n"ham"\t"a"\n"ham"\t"b\n"ham"\tc"\n"ham"\t"d"\n'

    sniffed = sniff(text, "text")

    assert sniffed.dialect == CsvDialect(delimiter="\t")
    (warning,) = sniffed.warnings
    assert warning == (
        "a.csv, row 2: it spans 2 lines; if quotes mean nothing in this file, pass quotechar=None"
    )


ESCAPED = 'text,label\n"say \\"yes\\", she",1\n"or \\"no\\", he",2\nwell,3\n'


def test_backslashes_before_quotes_escape_if_only_so_rows_are_equal() -> None:
    """In two rows or more, and the user is told."""
    sniffed = sniff(ESCAPED, "text")

    assert sniffed.dialect == CsvDialect(escapechar="\\")
    (warning,) = sniffed.warnings
    assert warning == (
        'a.csv: rows have equal numbers of cells only if \\" is a quote inside quotes, so that a '
        "backslash is taken for an escape; if it is not, pass escapechar=None"
    )
    assert sniff(ESCAPED, "text", escapechar=None).dialect == CsvDialect()


def test_escaped_quotes_are_seen_through_when_the_separator_is_sought() -> None:
    """And when they swallow rows, though the rows that remain are equal."""
    text = "".join(f'"say \\"yes\\"{"; so" * number}";1\n' for number in range(6))
    swallowing = "text,label\n" + '"oh \\"",1\n' * 4

    assert sniff(text).dialect == CsvDialect(delimiter=";", escapechar="\\")
    assert sniff(swallowing).dialect == CsvDialect(escapechar="\\")
    assert sniff(text, comment="\\").dialect.escapechar is None


@pytest.mark.parametrize(
    "text",
    [
        # A path that ends with a backslash.
        'path,label\n"C:\\a b\\",1\n"C:\\c,d\\",2\nx,3\n',
        # One row alone may be a bad one.
        'text,label\n"say \\"yes\\", she",1\nno,2\nwell,3\n',
        # Rows that remain unequal.
        ESCAPED + "a,b,c\n",
    ],
)
def test_backslashes_that_may_be_text_stay_text(text: str) -> None:
    """As an escape each of them would vanish from the text."""
    assert sniff(text).dialect == CsvDialect()


def test_a_row_that_swallowed_rows_is_reported() -> None:
    """With a comma it can't be known, so that it is a warning only."""
    text = "text,label\n" + "a,1\n" * 10 + '"oh,2\n' + "b,3\n" * 6 + 'so "it" is,4\n' + "c,5\n" * 3

    sniffed = sniff(text, "text")

    assert sniffed.dialect == CsvDialect()
    (warning,) = sniffed.warnings
    assert warning == (
        "a.csv, row 11: it spans 8 lines; if quotes mean nothing in this file, pass quotechar=None"
    )


def trouble(text: str, *, is_whole: bool = True, has_header: bool = True) -> str | None:
    """Look for a quote that swallowed rows."""
    return quote_trouble(
        text.encode(), CsvDialect(), is_whole=is_whole, has_header=has_header, url="a.csv"
    )


def test_a_long_text_in_quotes_is_no_trouble() -> None:
    """Its lines don't look like records; hundreds are suspicious all the same."""
    text = 'text,label\n"{}",1\nb,2\n'

    assert trouble(text.format("one line\n" * 100)) is None
    assert trouble(text.format("line, line and, line\n" * 100)) is None
    assert trouble('text\n"' + "one line\n" * 100 + '"\n') is None
    assert trouble(text.format("one line\n" * 300)) == (
        "a.csv, row 1: it spans 301 lines; if quotes mean nothing in this file, pass quotechar=None"
    )


def test_a_quote_that_is_open_at_the_end_of_a_sample_is_looked_at() -> None:
    """It may be closed after it, so that its lines must look like records."""
    assert trouble('text,label\na,1\n"b,2\n' + "c,3\n" * 9, is_whole=False) == (
        "a.csv, row 2: it spans 10 lines; if quotes mean nothing in this file, pass quotechar=None"
    )
    assert trouble('text,label\na,1\n"b 2\n' + "c 3\n" * 9, is_whole=False) is None


def test_rows_are_counted_from_the_first_that_is_one() -> None:
    """Below the header if there is one; the header may be the one that has swallowed the rest."""
    assert trouble('a,1\n"b,2\nc,3\n', has_header=False) == (
        "a.csv, row 2: a quote opens that is never closed, so that it spans 2 lines; if quotes "
        "mean nothing in this file, pass quotechar=None"
    )
    assert trouble('text,"label\na,1\nb,2\n') == (
        "a.csv, the header: a quote opens that is never closed, so that it spans 3 lines; if "
        "quotes mean nothing in this file, pass quotechar=None"
    )


def test_an_unclosed_quote_in_the_last_line_is_no_trouble() -> None:
    """Nothing was swallowed."""
    assert trouble('text,label\na,"1\n') is None
    assert quote_trouble(b'"a\n"b', CsvDialect(quotechar=None), is_whole=True, url="a") is None
