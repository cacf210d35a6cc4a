"""What a notebook shows: well-formed, harmless, in no colour of its own, and the right figures."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_files import make_model
from nbclient import NotebookClient

from lancetnic_dask import Classification, Corpus, Run, load
from lancetnic_dask.corpus.dialect import CsvDialect
from lancetnic_dask.corpus.formats import FileFormat
from lancetnic_dask.corpus.plan import Partition, PartitionPlan, PlannedFile
from lancetnic_dask.corpus.sources import SourceFile
from lancetnic_dask.html_repr import HtmlTable, html_box, listed
from lancetnic_dask.run.model_file import write_model

if TYPE_CHECKING:
    from pathlib import Path

ATTRIBUTES: dict[str, set[str]] = {
    "div": {"class", "style"}, "table": {"style"}, "caption": {"style"}, "thead": {"style"},
    "tbody": set(), "tfoot": {"style"}, "tr": {"style"}, "th": {"scope", "style"},
    "td": {"colspan", "style"},
}  # fmt: skip
COLOURS = re.compile(r"#|rgb|hsl|url|background|\b(white|black|gr[ae]y)\b(?!-)", re.IGNORECASE)
# Pieces of HTML between any characters, halves of characters among them.
PIECES = ["<script>", "</td>", "<b style='", "<!--", "<?", "&amp;", "&lt", "&#60;", '"', "<"]
MARKUP = st.lists(st.sampled_from(PIECES) | st.characters(codec=None), max_size=20).map("".join)
HOSTILE = "<script>alert('&amp;')</script>"


class Page(HTMLParser):
    """The tables of some HTML, which has only what a box may have.

    Attributes
    ----------
    tables : dict of str to list of list of str
        Text of the cells by caption.
    styles : dict of str to str
        Style of a cell by its text.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: dict[str, list[Any]] = {}
        self.styles: dict[str, str] = {}
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self._text = ""
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Check the tag."""
        given = dict(attrs)
        assert set(given) <= ATTRIBUTES[tag]
        assert not COLOURS.search(given.get("style") or "")
        assert tag != "th" or given["scope"] in ("row", "col")
        if tag == "tr":
            list(self.tables.values())[-1].append([])
        self._open.append((tag, given))
        self._text = ""

    def handle_data(self, data: str) -> None:
        """Collect text."""
        assert self._open[-1][0] in ("caption", "th", "td")
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        """Check that the last open tag is closed, and keep what it held."""
        opened, given = self._open.pop()
        assert opened == tag
        if tag == "caption":
            assert self._text not in self.tables
            self.tables[self._text] = []
        if tag in ("th", "td"):
            list(self.tables.values())[-1][-1].append(self._text)
            self.styles[self._text] = given["style"] or ""

    def handle_comment(self, data: str) -> None:
        """Refuse a comment."""
        pytest.fail(f"comment {data!r}")

    def handle_decl(self, decl: str) -> None:
        """Refuse a declaration."""
        pytest.fail(f"declaration {decl!r}")


def shown(value: Any) -> Page:
    """Return what a notebook shows of an object."""
    return Page(value._repr_html_())


def fields_of(page: Page, title: str) -> dict[str, str]:
    """Return the named values of a box."""
    return dict(page.tables[title])


def epoch(number: int, val_loss: float) -> dict[str, float]:
    """Return an epoch of a history."""
    return {
        "epoch": number,
        "train_loss": 1.5,
        "train_accuracy": 0.5,
        "val_loss": val_loss,
        "val_accuracy": 0.75 + 0 * val_loss,  # NaN if that is NaN
        "val_precision": 0.75 + 0 * val_loss,
        "val_recall": 0.75 + 0 * val_loss,
        "val_f1": 0.625 + 0 * val_loss,
        "train_seconds": 2.0,
    }


def make_run(folder: Path, **changes: Any) -> Run:
    """Return a run of three epochs, the second one the best."""
    values: dict[str, Any] = {
        "folder": folder,
        "best_model": folder / "best_model",
        "last_model": folder / "last_model",
        "history": [epoch(1, 0.5), epoch(2, 0.25), epoch(3, 0.75)],
        "classes": ("good", "poor"),
        "rows_by_class": (5, 3),
        "num_rows": {
            "read": 100_100,
            "training": 80_000,
            "validation": 20_000,
            "set_aside": {"the label is empty": 99, "the row is cut": 1},
        },
        "peak_memory_bytes": 3 << 29,
        "budget": {"total_bytes": 8 << 30},
        "seconds": {"plan": 0.25, "train": 1234.5},
    }
    return Run(**values | changes)


def make_plan(*files: SourceFile, columns: tuple[str, ...] = ("text", "label")) -> PartitionPlan:
    """Return a plan with two partitions of 1,000 rows for each file."""
    return PartitionPlan(
        FileFormat(kind="csv", dialect=CsvDialect(delimiter="<"), encoding="cp1251"),
        tuple(PlannedFile(file, columns, 2000) for file in files),
        tuple(
            Partition(index, 0, file.size, first_row, 1000)
            for index, file in enumerate(files)
            for first_row in (0, 1000)
        ),
    )


@given(text=MARKUP)
def test_any_text_stays_text(text: str) -> None:
    """Markup is shown as it is written; what can't be shown or saved, by its escape."""
    html = html_box(
        text,
        {text: text},
        HtmlTable(caption=f"c{text}", columns=(text, text), rows=[(text, text)], marked=0),
    )

    page = Page(html)

    seen = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    assert page.tables == {
        seen: [[seen, seen]] if text else [],
        f"c{seen}": [[seen, seen], [f"★ {seen}", seen]],
    }
    assert html.encode("utf-8")


def test_a_long_text_is_shortened_in_the_middle() -> None:
    """A label may be a novel."""
    page = Page(html_box("Title", {"name": "a" * 5000 + "b" * 5000}))

    assert fields_of(page, "Title") == {"name": "a" * 500 + "…" + "b" * 499}


def test_an_empty_field_is_left_out() -> None:
    """But not a zero, and not False."""
    page = Page(html_box("Title", {"a": "", "b": None, "c": 0, "d": False}))

    assert fields_of(page, "Title") == {"c": "0", "d": "False"}


def test_figures_are_on_the_right_and_easy_to_read() -> None:
    """Thousands are separated, a missing figure is a dash, and none is endless."""
    cells = ("name", 1234567, 0.5, float("nan"), float("inf"), 1.5e30)
    table = HtmlTable(caption="Figures", columns=tuple("abcdef"), rows=[cells], total=cells)

    page = Page(html_box("Title", {}, table))

    row = ["name", "1,234,567", "0.5000", "–", "inf", "1.5e+30"]
    assert page.tables["Figures"] == [list("abcdef"), row, row]
    for head, cell in zip("abcdef", row, strict=True):
        side = "text-align:left" if head == "a" else "text-align:right"
        assert side in page.styles[head]
        assert side in page.styles[cell]


@pytest.mark.parametrize(
    ("count", "marked", "names"),
    [
        (1, None, ["0"]),
        (12, None, [str(number) for number in range(12)]),
        (13, None, [*"01234", "and 3 more", *"89", "10", "11", "12"]),
        (1012, 4, [*"0123", "★ 4", "and 1,002 more", *(f"1,0{n:02}" for n in range(7, 12))]),
        (40, 20, [*"01234", "and 15 more", "★ 20", "and 14 more", *map(str, range(35, 40))]),
        (13, 6, [*"012345", "★ 6", "7", "8", "9", "10", "11", "12"]),
    ],
)
def test_of_many_rows_the_ends_are_shown(count: int, marked: int | None, names: list[str]) -> None:
    """And the marked one wherever it stands; a remark never hides fewer than three."""
    rows = [(number, number) for number in range(count)]
    table = HtmlTable(caption="Many", columns=("a", "b"), rows=rows, marked=marked)

    page = Page(html_box("Title", {}, table))

    assert [row[0] for row in page.tables["Many"][1:]] == names


def test_a_table_without_rows_is_left_out() -> None:
    """No heading stands alone."""
    page = Page(html_box("Title", {}, HtmlTable(caption="None", columns=("a",), rows=[])))

    assert list(page.tables) == ["Title"]


def test_listed_shows_no_more_than_it_must() -> None:
    """A hundred thousand columns cost no more than ten."""
    asked: list[object] = []

    def show(item: object) -> str:
        asked.append(item)
        return f"<{item}>"

    assert listed(range(100_000), show=show, most=2) == "<0>, <1> and 99,998 more"
    assert asked == [0, 1]
    assert listed((), show=show) == ""
    assert listed(range(10)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"


def test_a_corpus_shows_its_files(tmp_path: Path) -> None:
    """Partitions, rows and bytes of each and of all; columns; how it is read."""
    (tmp_path / "a.csv").write_text("text;label\n" + "x;y\n" * 1500)
    (tmp_path / "b.csv").write_text("text;label\n")

    page = shown(Corpus.read_csv(tmp_path, delimiter=";", encoding="CP1251", partition_bytes=2000))

    assert page.tables == {
        "Corpus": [
            ["columns", "2: 'text', 'label'"],
            ["kind", "csv"],
            [
                "dialect",
                "delimiter=';', quotechar='\"', escapechar=None, doublequote=True, comment=None",
            ],
            ["encoding", "cp1251"],
        ],
        "Files": [
            ["file", "partitions", "rows", "size"],
            [str(tmp_path / "a.csv"), "3", "1,500", "5.87 kiB"],
            [str(tmp_path / "b.csv"), "0", "0", "11 B"],
            ["2 files", "3", "1,500", "5.88 kiB"],
        ],
    }


def test_a_corpus_of_many_files_and_columns_stays_small() -> None:
    """The totals count what isn't shown."""
    files = [SourceFile(f"/data/{number}.csv", 1 << 20, "") for number in range(150)]

    page = shown(Corpus(make_plan(*files, columns=tuple(f"c{i}" for i in range(150)))))

    names = ", ".join(f"'c{number}'" for number in range(10))
    assert fields_of(page, "Corpus")["columns"] == f"150: {names} and 140 more"
    assert len(page.tables["Files"]) == 1 + 5 + 1 + 5 + 1
    assert page.tables["Files"][6] == ["and 140 more"]
    assert page.tables["Files"][-1] == ["150 files", "300", "300,000", "150.00 MiB"]


def test_a_corpus_shows_hostile_names_as_names_and_no_secret() -> None:
    """Files, columns and the separator are a stranger's; a signed URL is a key."""
    urls = [f"/data/{HOSTILE}.csv", "/data/what?.csv", "https://host/a.csv?sig=hunter2"]
    corpus = Corpus(
        make_plan(*(SourceFile(url, 7, "") for url in urls), columns=(HOSTILE, "$x$")),
        {"secret": "hunter2"},
    )

    page = shown(corpus)

    assert "hunter2" not in corpus._repr_html_()
    assert fields_of(page, "Corpus")["columns"] == f"2: {HOSTILE!r}, '$x$'"
    assert fields_of(page, "Corpus")["dialect"].startswith("delimiter='<'")
    shown_names = [row[0] for row in page.tables["Files"][1:4]]
    assert shown_names == [*urls[:2], "https://host/a.csv?…"]


def test_names_in_dollars_are_no_mathematics() -> None:
    """Jupyter's typesetters, MathJax 2 and 3, leave out what has these classes."""
    assert html_box("Title", {}).startswith('<div class="tex2jax_ignore mathjax_ignore" ')


def test_a_run_shows_its_metrics_and_where_they_come_from(tmp_path: Path) -> None:
    """Best epoch, classes, memory beside the budget; epochs, rows and time in tables."""
    page = shown(make_run(tmp_path / "train_0"))

    best = "val_loss 0.2500, val_accuracy 0.7500, val_precision 0.7500, val_recall 0.7500"
    assert page.tables == {
        "Run": [
            ["folder", str(tmp_path / "train_0")],
            ["best epoch", f"2: {best}, val_f1 0.6250"],
            ["classes", "2: 'good', 'poor'"],
            ["peak memory", "1.50 GiB of 8.00 GiB"],
        ],
        "Epochs (★ the best)": [
            ["epoch", "train_loss", "train_accuracy", "val_loss", "val_accuracy", "val_f1"],
            ["1", "1.5000", "0.5000", "0.5000", "0.7500", "0.6250"],
            ["★ 2", "1.5000", "0.5000", "0.2500", "0.7500", "0.6250"],
            ["3", "1.5000", "0.5000", "0.7500", "0.7500", "0.6250"],
        ],
        "Rows": [
            ["use", "rows"],
            ["training", "80,000"],
            ["validation", "20,000"],
            ["set aside: the label is empty", "99"],
            ["set aside: the row is cut", "1"],
            ["read", "100,100"],
        ],
        "Time": [
            ["stage", "seconds"],
            ["plan", "0.2"],
            ["train", "1,234.5"],
            ["all stages", "1,234.8"],
        ],
    }
    assert "text-align:right" in page.styles["★ 2"]


def test_a_run_without_validation_shows_those_of_training(tmp_path: Path) -> None:
    """What is no number isn't shown as one."""
    page = shown(make_run(tmp_path, history=[epoch(1, float("nan"))]))

    best = fields_of(page, "Run")["best epoch"]
    assert best == "1: train_loss 1.5000, train_accuracy 0.5000"
    assert page.tables["Epochs (★ the best)"][1] == ["★ 1", "1.5000", "0.5000", "–", "–", "–"]


def test_a_long_run_shows_its_ends_and_the_best_epoch(tmp_path: Path) -> None:
    """A hundred epochs, a thousand classes."""
    history = [epoch(number, abs(number - 50) + 0.5) for number in range(1, 101)]
    classes = tuple(f"{HOSTILE}{number}" for number in range(1000))

    page = shown(make_run(tmp_path, history=history, classes=classes))

    names = [row[0] for row in page.tables["Epochs (★ the best)"][1:]]
    ends = ["96", "97", "98", "99", "100"]
    assert names == [*"12345", "and 44 more", "★ 50", "and 45 more", *ends]
    shown_classes = fields_of(page, "Run")["classes"]
    assert shown_classes.startswith(f"1,000: {classes[0]!r}, ")
    assert shown_classes.endswith(f"{classes[9]!r} and 990 more")


def test_a_model_shows_what_it_reads_and_tells_apart(tmp_path: Path) -> None:
    """Its class, folder, labels, columns and size; also when the folder is gone."""
    model = make_model(
        text_columns=("title", HOSTILE), classes=("-1", "2", "10"), ngram_range=(1, 2)
    )
    write_model(model, tmp_path / "best_model")
    loaded = load(tmp_path / "best_model")
    shutil.rmtree(tmp_path / "best_model")

    page = shown(loaded)

    assert page.tables == {
        "Model": [
            ["model", "ScalpelMC"],
            ["folder", str(tmp_path / "best_model")],
            ["classes", "3: -1, 2, 10"],
            ["text_columns", f"'title', {HOSTILE!r}"],
            ["data_columns", "'size'"],
            ["label_column", "'label'"],
            ["features", f"{model.features.input_size:,}"],
            ["ngram_range", "(1, 2)"],
        ]
    }


def test_a_classifier_shows_what_was_changed(tmp_path: Path) -> None:
    """Columns, options that are not the defaults without any secret, and its run."""
    plain = Classification(text_column=HOSTILE, label_column="label", max_df=1.0)
    changed = Classification(
        ["title", "text"], "size", "label", 0.25, 7, 5000, min_df=2, ngram_range=(1, 2),
        stop_words=["the", "my"], sublinear_tf=True, delimiter=";", encoding="cp1251",
        on_bad_rows="skip", storage_options={"secret": "hunter2"},
    )  # fmt: skip
    changed.run_ = make_run(tmp_path / "train_3")

    page = shown(changed)

    assert shown(plain).tables == {
        "Classification": [
            ["text_column", repr(HOSTILE)],
            ["label_column", "'label'"],
            ["run_", "not trained yet"],
        ]
    }
    assert page.tables["Classification"] == [
        ["text_column", "'title', 'text'"],
        ["data_column", "'size'"],
        ["label_column", "'label'"],
        ["split_ratio", "0.25"],
        ["random_state", "7"],
        ["max_features", "5000"],
        ["min_df", "2"],
        ["ngram_range", "(1, 2)"],
        ["stop_words", "('my', 'the')"],
        ["sublinear_tf", "True"],
        ["delimiter", "';'"],
        ["encoding", "'cp1251'"],
        ["on_bad_rows", "'skip'"],
        ["storage_options", "given, not shown"],
        ["run_", str(tmp_path / "train_3")],
    ]
    assert list(page.tables) == ["Classification", *shown(changed.run_).tables]
    assert "hunter2" not in repr(page.tables)


def test_without_a_notebook_nothing_of_it_is_loaded(tmp_path: Path) -> None:
    """The HTML is made by Python's library alone."""
    code = (
        "import sys; from pathlib import Path; from lancetnic_dask import Corpus\n"
        "assert '<table' in Corpus.read_csv(sys.argv[1])._repr_html_()\n"
        "print([name for name in ('IPython', 'ipywidgets') if name in sys.modules])"
    )
    (tmp_path / "a.csv").write_text("text,label\nx,y\n")

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(tmp_path / "a.csv")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.system
def test_a_notebook_shows_the_box_and_keeps_the_line_of_text(tmp_path: Path) -> None:
    """In a real kernel; the text is for terminals and for saved pages without styles."""
    (tmp_path / "a.csv").write_text("<b>text,label\nx,y\n")
    cell = nbformat.v4.new_code_cell(
        "from lancetnic_dask import Corpus\nCorpus.read_csv('a.csv', encoding='latin-1')"
    )
    notebook = nbformat.v4.new_notebook(cells=[cell])

    NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(tmp_path)}}).execute()

    (output,) = notebook.cells[0].outputs
    line = "Corpus(1 file, 1 row, 1 partition, columns '<b>text', 'label')"
    assert output["data"]["text/plain"] == line
    page = Page(output["data"]["text/html"])
    assert fields_of(page, "Corpus")["columns"] == "2: '<b>text', 'label'"
    assert fields_of(page, "Corpus")["encoding"] == "iso8859-1"
