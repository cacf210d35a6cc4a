"""pandas and Dask collections as corpora."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import dask
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from lancetnic_dask.corpus.collections import collection_kind
from lancetnic_dask.corpus.frame import Corpus
from lancetnic_dask.errors import ColumnError, CorpusError, SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FRAME = pd.DataFrame(
    {
        "text": ["one", None, 'th"ree, 3', "four\nlines"] * 5,
        "label": [1, 0, 1, 1] * 5,
        "price": [1.0, 0.1, np.nan, 1e22] * 5,
        7: [True, False, True, False] * 5,
    }
)
TEXTS = ["one", "", 'th"ree, 3', "four\nlines"] * 5


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Compute in this thread: nothing is left running."""
    with dask.config.set(scheduler="synchronous"):
        yield


def values(corpus: Corpus, *names: str) -> list[list[str]]:
    """Read columns of a corpus."""
    frame = corpus.to_dask_dataframe(names).compute()
    return [frame[name].tolist() for name in names]


@pytest.mark.parametrize("partition_bytes", [1, 100, 1 << 20])
def test_a_frame_is_read_as_its_file_would_be(partition_bytes: int, tmp_path: Path) -> None:
    """Text in, text out; numbers as they are written; missing is empty."""
    corpus = Corpus.from_pandas(FRAME, partition_bytes=partition_bytes, cache_dir=tmp_path)

    assert corpus.nrows == 20
    assert corpus.columns == ("text", "label", "price", "7")
    assert values(corpus, "text", "label", "price", "7") == [
        TEXTS,
        ["1", "0", "1", "1"] * 5,
        ["1.0", "0.1", "", "1e+22"] * 5,
        ["true", "false", "true", "false"] * 5,
    ]


def test_equal_frames_make_equal_corpora(tmp_path: Path) -> None:
    """So their shards are found again; another value makes another."""
    first, same = (Corpus.from_pandas(FRAME.copy(), cache_dir=tmp_path) for _ in range(2))
    other = Corpus.from_pandas(FRAME.assign(label=2), cache_dir=tmp_path)

    assert first.plan.files[0].file == same.plan.files[0].file
    assert first.plan.files[0].file != other.plan.files[0].file
    assert len(list((tmp_path / "copies").iterdir())) == 2


@pytest.mark.parametrize("num_partitions", [1, 3])
def test_a_dask_frame_gives_the_rows_of_its_pandas_frame(
    num_partitions: int, tmp_path: Path
) -> None:
    """In its order, and as often as one likes while it computes the same."""
    frame = dd.from_pandas(FRAME[["text", "label"]], npartitions=num_partitions)

    for _ in range(2):
        corpus = Corpus.from_dask(frame, cache_dir=tmp_path)

        assert values(corpus, "text") == [TEXTS]
        assert corpus.nrows == 20


@pytest.mark.parametrize("kind", ["dicts", "tuples"])
def test_a_bag_is_of_dicts_or_of_tuples(kind: str, tmp_path: Path) -> None:
    """A key that is not there is missing."""
    rows: list[Any] = [{"text": "a", "label": 1}, {"label": 0, "more": 5}]
    if kind == "tuples":
        rows = [("a", 1), (None, 0)]

    corpus = Corpus.from_dask(
        db.from_sequence(rows, npartitions=2), ["text", "label"], cache_dir=tmp_path
    )

    assert values(corpus, "text", "label") == [["a", ""], ["1", "0"]]


def random_rows(_: int) -> pd.DataFrame:
    """Be different each time."""
    return pd.DataFrame({"text": [os.urandom(8).hex() for _ in range(10)]})


def test_a_collection_that_computes_differently_is_an_error(tmp_path: Path) -> None:
    """Nobody could say what the model was trained on."""
    frame = dd.from_map(random_rows, [0, 1], meta=random_rows(0))
    Corpus.from_dask(frame, cache_dir=tmp_path)

    with pytest.raises(CorpusError) as caught:
        Corpus.from_dask(frame, cache_dir=tmp_path)

    assert str(caught.value).startswith(
        "The Dask DataFrame computes differently each time: partition 0 gave other rows than in "
        "an earlier run.\n  Make what it does repeatable"
    )


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (FRAME.drop(columns="text"),
         ("There is no column 'text'.\n  at pandas DataFrame\n"
         "  There are: 'label', 'price', '7'.")),
        (pd.DataFrame({"text": [["a"]]}),
         ("Column 'text' holds 'list<item: string>', and single values are read.\n"
         "  at pandas DataFrame\n"
         "  Name a field within it, as in 'user.name', or write the values as text.")),
        (FRAME[:0], ("The corpus has no rows.\n  at pandas DataFrame\n"
                    "  Check what it is made of; it was computed.")),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_frame_is_said(frame: pd.DataFrame, text: str, tmp_path: Path) -> None:
    """With the column, and without a file that there isn't."""
    with pytest.raises((ColumnError, CorpusError)) as caught:
        Corpus.from_pandas(frame, "text", cache_dir=tmp_path)

    assert str(caught.value) == text
    assert not list(tmp_path.rglob("*.partial"))


def test_an_element_of_a_bag_that_is_no_row_is_named(tmp_path: Path) -> None:
    """A text alone has no label."""
    bag = db.from_sequence(["just a text"], npartitions=1)

    with pytest.raises(CorpusError) as caught:
        Corpus.from_dask(bag, ["text", "label"], cache_dir=tmp_path)

    assert str(caught.value) == (
        "An element is 'just a text', and neither a dict nor a tuple of text, label.\n"
        "  at Dask Bag\n  Map the Bag to dicts with these keys."
    )


def test_columns_of_a_bag_must_be_named(tmp_path: Path) -> None:
    """And only Dask's collections are computed."""
    with pytest.raises(SettingError, match="The columns of a Bag are not known"):
        Corpus.from_dask(db.from_sequence([{}], npartitions=1), cache_dir=tmp_path)
    with pytest.raises(SettingError, match="is no Dask collection"):
        Corpus.from_dask(FRAME, cache_dir=tmp_path)  # type: ignore[arg-type]


def test_kinds_are_told_apart() -> None:
    """Subclasses too; a Series is no table."""

    class Own(pd.DataFrame):
        """A frame of the user's."""

    assert collection_kind(Own()) == "pandas"
    assert collection_kind(dd.from_pandas(FRAME[["text"]], npartitions=1)) == "dask"
    assert collection_kind(db.from_sequence([1])) == "bag"
    assert collection_kind(FRAME["text"]) is None
    assert collection_kind("a.csv") is None
