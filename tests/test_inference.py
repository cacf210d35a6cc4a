"""New rows to labels: every way to pass them gives what the arrays in the folder say."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from model_files import CORPUS, edit_manifest, make_model, predict_by_hand

from lancetnic_dask import inference, load
from lancetnic_dask.errors import ColumnError, ModelFileError, RecordError, SettingError
from lancetnic_dask.features.ngrams import expand_terms
from lancetnic_dask.features.tokenize import Tokenizer
from lancetnic_dask.inference import Model, load_once
from lancetnic_dask.run import model_file
from lancetnic_dask.run.model_file import write_model

if TYPE_CHECKING:
    from distributed import Client

TEXTS = ["the quick brown fox", "", "LAZY Straße dogs", "unknown words only", CORPUS[3]]
SIZES = [1.0, 4.0, float("nan"), 0.0, 100.0]
KINDS = (
    "Pass a string, a list, tuple or 1-D array of strings, a pandas or Dask Series of strings, "
    "or a pandas or Dask DataFrame."
)


def make(folder: Path, **options: Any) -> Model:
    """Return a model that was written and opened."""
    write_model(make_model(**options), folder)
    return load(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """One text column, one number column, three classes of text."""
    return make(tmp_path_factory.mktemp("mixed"))


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """One text column; the classes are whole numbers."""
    return make(tmp_path_factory.mktemp("text"), data_columns=(), classes=("-1", "2", "10"), seed=3)


@pytest.fixture(scope="module")
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Two text columns and two number columns, word pairs without stop words."""
    return make(
        tmp_path_factory.mktemp("wide"),
        text_columns=("title", "text"),
        data_columns=("x", "y"),
        ngram_range=(1, 2),
        stop_words=("the", "my"),
        sublinear_tf=True,
    )


@pytest.fixture(scope="module")
def number_model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Two number columns and no text."""
    return make(
        tmp_path_factory.mktemp("numbers"), text_columns=(), data_columns=("x", "y"), seed=3
    )


@pytest.fixture
def frame() -> pd.DataFrame:
    """Rows of one text and one number, and a column that nobody asked for."""
    return pd.DataFrame({"other": range(5), "size": SIZES, "text": TEXTS}, index=list("abcde"))


def error_of(kind: type[Exception], call: Any, *args: Any, **options: Any) -> str:
    """Return the whole text of the error that a call gives."""
    with pytest.raises(kind) as caught:
        call(*args, **options)
    return str(caught.value)


def test_probabilities_are_those_of_the_arrays_in_the_folder(
    model: Model, text_model: Model, wide_model: Model, number_model: Model
) -> None:
    """By scikit-learn's TF-IDF and numpy: words, pairs, several columns, missing numbers."""
    numbers = np.array([SIZES, SIZES[::-1]]).T
    wide = pd.DataFrame({"title": TEXTS, "text": TEXTS[::-1], "x": SIZES, "y": SIZES[::-1]})

    cases = [
        (model, model.predict_proba(TEXTS, SIZES), [TEXTS], numbers[:, :1]),
        (text_model, text_model.predict_proba(TEXTS), [TEXTS], numbers[:, :0]),
        (wide_model, wide_model.predict_proba(wide), [TEXTS, TEXTS[::-1]], numbers),
        (number_model, number_model.predict_proba(None, numbers), [], numbers),
    ]
    for one, found, texts, numeric in cases:
        expected = predict_by_hand(one.folder, texts, numeric)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
        assert np.asarray(found).dtype == np.float32
        assert len(set(np.asarray(expected).argmax(axis=1))) > 1


def test_every_kind_of_texts_gives_the_same(model: Model, frame: pd.DataFrame) -> None:
    """String by string, list, tuple, arrays, Series, DataFrame: the same labels, the same bits."""
    scores = model.predict_proba(TEXTS, SIZES)
    labels = model.predict(TEXTS, SIZES)
    assert labels.tolist() == model.classes[scores.argmax(axis=1)].tolist()

    for texts in (
        tuple(TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, dtype=object),
        pd.array(TEXTS, dtype="string"),
        pd.Index(TEXTS),
    ):
        assert np.array_equal(model.predict_proba(texts, np.array(SIZES)), scores)
        assert np.array_equal(model.predict(texts, SIZES), labels)
    for table, numbers in (
        (frame, None),
        (frame["text"], SIZES),
        (frame["text"].astype("category"), frame["size"]),
        (frame.convert_dtypes(), None),
        (frame.astype(object), None),
        (frame.assign(size=frame["size"].astype(str).replace("nan", " ")), None),
    ):
        found = model.predict_proba(table, numbers)
        assert np.array_equal(found.to_numpy(), scores)
        assert model.predict(table, numbers).tolist() == labels.tolist()
        assert found.index.tolist() == list("abcde")
    for at, text in enumerate(TEXTS):
        alone = model.predict_proba(text, SIZES[at])
        np.testing.assert_allclose(alone, scores[at], rtol=1e-5)
        assert model.predict(text, SIZES[at]) == labels[at]
        assert model.predict_row([text], [SIZES[at]]) == labels[at]


def test_labels_have_the_type_that_they_had(model: Model, text_model: Model) -> None:
    """Text stays text; whole numbers are Python's int for one row, int64 for many."""
    assert type(model.predict("quick", 1)) is str
    assert type(text_model.predict("quick")) is int
    assert type(text_model.predict_row(["quick"])) is int
    assert text_model.predict(["quick", "x"]).dtype == np.int64
    assert text_model.classes.tolist() == [-1, 2, 10]
    assert text_model.predict_proba(pd.Series(["x"])).columns.tolist() == [-1, 2, 10]
    assert text_model.predict(pd.Series(["x"])).dtype == np.int64
    assert model.predict(pd.Series(["x"]), [1]).dtype == pd.Series(["x"], dtype="str").dtype


def test_no_rows_give_no_labels(
    model: Model, text_model: Model, wide_model: Model, number_model: Model, frame: pd.DataFrame
) -> None:
    """Of the same types as rows would have."""
    assert model.predict([], []).shape == (0,)
    assert model.predict([], []).dtype == model.predict(["x"], [1]).dtype
    assert text_model.predict(()).dtype == np.int64
    assert model.predict_proba(np.array([], dtype=str), []).shape == (0, 3)
    assert number_model.predict(scalar_data=np.empty((0, 2))).shape == (0,)
    wide = pd.DataFrame({"title": [], "text": [], "x": [], "y": []})
    assert wide_model.predict(wide).shape == (0,)
    no_rows = frame.iloc[:0]
    for empty, numbers in ((no_rows, None), (no_rows["text"], no_rows["size"])):
        assert model.predict(empty, numbers).dtype == model.predict(frame).dtype
        assert model.predict_proba(empty, numbers).dtypes.tolist() == [np.float32] * 3
        assert model.predict(empty, numbers).name == "label"


def test_missing_texts_are_empty_in_every_path(model: Model) -> None:
    """None, NaN, pandas.NA and pandas.NaT are alike, and not the words "None" and "nan"."""
    expected = model.predict_proba("", 1.0)
    missing: list[Any] = [None, float("nan"), pd.NA, pd.NaT, ""]

    for scores in (
        model.predict_proba(missing, [1.0] * 5),
        model.predict_proba(pd.Series(missing, dtype=object), [1.0] * 5).to_numpy(),
        model.predict_proba(pd.DataFrame({"text": pd.Series(missing, dtype=object), "size": 1}))
        .to_numpy(),
        model.predict_proba(pd.DataFrame({"text": pd.array(missing, "string"), "size": 1.0}))
        .to_numpy(),
    ):  # fmt: skip
        np.testing.assert_allclose(scores, np.tile(expected, (5, 1)), rtol=1e-6)
    for value in missing:
        assert model.predict_row([value], [1.0]) == model.predict("", 1.0)
    assert model.predict_row() == model.predict("", [None]) == model.predict("", float("nan"))


def test_numbers_in_a_text_column_of_a_table_are_text(model: Model) -> None:
    """As they were when the model was trained from a file."""
    found = model.predict_proba(pd.DataFrame({"text": [10, 2.5], "size": [1, True]}))

    np.testing.assert_array_equal(found, model.predict_proba(["10", "2.5"], [1.0, 1.0]))


def test_an_index_is_kept_as_it_is(model: Model) -> None:
    """Duplicates, several levels, names."""
    data = {"text": TEXTS[:3], "size": SIZES[:3]}
    for index in (
        pd.Index(["a", "a", "b"], name="id"),
        pd.MultiIndex.from_tuples([(1, "x"), (1, "x"), (2, "y")], names=["n", "m"]),
        pd.date_range("2024-01-01", periods=3),
    ):
        frame = pd.DataFrame(data, index=index)
        for result in (model.predict(frame), model.predict_proba(frame)):
            pd.testing.assert_index_equal(result.index, index)
        pd.testing.assert_index_equal(model.predict(frame["text"], frame["size"]).index, index)


@pytest.mark.parametrize("shape", ["frame", "series"])
@pytest.mark.parametrize("classes", ["text", "whole numbers"])
def test_a_dask_table_is_scored_lazily_with_the_types_it_promised(
    tmp_path: Path, frame: pd.DataFrame, shape: str, classes: str
) -> None:
    """One partition at a time, an empty one among them; the promise costs no scoring."""
    labels = ("cat", "dog", "emu") if classes == "text" else ("1", "2", "3")
    model = make(tmp_path, data_columns=("size",) if shape == "frame" else (), classes=labels)
    whole: Any = frame if shape == "frame" else frame["text"]
    parts = [whole.iloc[:2], whole.iloc[2:2], whole.iloc[2:]]
    table = dd.from_map(lambda number: parts[number], range(3), meta=whole.iloc[:0])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Model, "_score", None)
        lazy = model.predict(table), model.predict_proba(table)
    with dask.config.set(scheduler="threads"):
        found, scores = (one.compute() for one in lazy)
    # Dask has its own type for the texts of an index.
    pd.testing.assert_series_equal(found, model.predict(whole), check_index_type=False)
    expected = model.predict_proba(whole)
    pd.testing.assert_frame_equal(scores, expected, rtol=1e-5, check_index_type=False)
    assert lazy[0].dtype == found.dtype
    assert lazy[0].name == found.name == "label"
    assert lazy[1].dtypes.tolist() == scores.dtypes.tolist()
    with dask.config.set(scheduler="sync"):
        for number, part in enumerate(parts):
            alone = lazy[0].partitions[number].compute()
            pd.testing.assert_series_equal(alone, model.predict(part), check_index_type=False)


def test_a_dask_table_needs_only_the_columns_of_the_model(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are not even read from a Parquet file."""
    pd.DataFrame({"text": TEXTS, "size": SIZES, "other": 1}).to_parquet(tmp_path / "a.parquet")
    table = dd.read_parquet(tmp_path / "a.parquet")

    seen: list[list[str]] = []
    real = inference._score_partition

    def spy(part: Any, **options: Any) -> Any:
        seen.append(list(part.columns))
        return real(part, **options)

    monkeypatch.setattr(inference, "_score_partition", spy)
    found = model.predict(table).compute(scheduler="sync")
    assert found.tolist() == model.predict(TEXTS, SIZES).tolist()
    assert seen == [["text", "size"]]


def test_workers_open_the_model_themselves(
    client: Client, model: Model, frame: pd.DataFrame
) -> None:
    """On processes of a cluster: the same labels, and the model is opened once by each."""
    table = dd.from_pandas(frame, npartitions=3, sort=False)

    found = client.compute(model.predict(table)).result(timeout=120)
    # Dask has its own type for the texts of an index.
    pd.testing.assert_series_equal(found, model.predict(frame), check_index_type=False)


def test_a_worker_with_another_model_says_so(tmp_path: Path, frame: pd.DataFrame) -> None:
    """Half the labels from one model and half from another would be nobody's."""
    model = make(tmp_path / "model")
    lazy = model.predict(dd.from_pandas(frame, npartitions=2, sort=False))
    write_model(make_model(seed=9), tmp_path / "model")

    text = error_of(ModelFileError, lazy.compute, scheduler="sync")
    assert text == (
        f"The model was replaced while it was used.\n  at {tmp_path / 'model'}\n"
        "  Load it again, and predict anew."
    )
    (tmp_path / "model").rename(tmp_path / "other")
    write_model(make_model(), tmp_path / "model")  # an equal one, as a copy on a worker would be
    assert lazy.compute(scheduler="sync").tolist() == model.predict(frame).tolist()


def test_a_model_is_in_memory_once_however_many_threads_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers' threads share it, with who has loaded it too; a new one replaces it."""
    write_model(make_model(), tmp_path)
    opened: list[Path] = []
    real = model_file.read_stamped

    all_ask = threading.Event()

    def count(folder: Path, model_class: Any) -> Any:
        opened.append(folder)
        if len(opened) > 1:
            all_ask.wait(30)
        return real(folder, model_class)

    monkeypatch.setattr("lancetnic_dask.inference.read_stamped", count)
    mine = load(tmp_path)
    assert load_once(tmp_path) is mine
    del mine

    write_model(make_model(seed=1), tmp_path)
    found: list[Model] = []
    threads = [threading.Thread(target=lambda: found.append(load_once(tmp_path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    all_ask.set()
    for thread in threads:
        thread.join(60)
    assert len({id(one) for one in found}) == 1
    assert len(opened) == 2


REFUSED_KINDS: list[tuple[Any, str]] = [
    (b"text", "of type bytes"),
    ({"text": "a"}, "of type dict"),
    ({"a", "b"}, "of type set"),
    (5, "of type int"),
    (None, "of type NoneType"),
    (iter(["a"]), "of type list_iterator"),
    (pa.array(["a"]), "of type StringArray"),
    (torch.zeros(2), "of type Tensor"),
    (np.array([["a", "b"]]), "an array of shape (1, 2)"),
    (np.array("a"), "an array of shape ()"),
]


@pytest.mark.parametrize(("data", "shown"), REFUSED_KINDS, ids=[kind for _, kind in REFUSED_KINDS])
def test_data_of_another_kind_is_refused(model: Model, data: Any, shown: str) -> None:
    """The kinds that do are listed."""
    text = error_of(SettingError, model.predict, data)
    assert text == f"The data is {shown}, which cannot be predicted for.\n  {KINDS}"
    assert error_of(SettingError, model.predict_proba, data) == text


@pytest.mark.parametrize("value", [b"x", 5, 2.5, True, {"a": 1}, ["a"]], ids=repr)
def test_a_list_of_anything_but_texts_is_refused(model: Model, value: Any) -> None:
    """With the place of the first."""
    advice = "Pass strings; None stands for a missing text."
    what = f"{value!r} is not a string but of type {type(value).__name__}."

    array = np.empty(3, dtype=object)
    array[:] = ["a", None, value]
    for data in (["a", None, value], pd.Series(["a", None, value]), array):
        assert error_of(RecordError, model.predict, data) == f"{what}\n  at text 3\n  {advice}"
    text = error_of(RecordError, model.predict_row, [value], [1])
    assert text == f"{what}\n  at column 'text'\n  {advice}"


def test_scalar_data_has_one_number_for_each_row_and_column(
    tmp_path: Path, model: Model, text_model: Model
) -> None:
    """(n,) or (n, k); (k,) or a number for one string; anything else is refused with its shape."""
    two = make(tmp_path, data_columns=("x", "y"))
    fix = "Pass one number for each row and each data column, in the order of the columns."
    expected = two.predict_proba(["a", "b"], [[1, 2], [3, 4]])
    assert np.array_equal(two.predict_proba(["a", "b"], pd.DataFrame({"x": [1, 3], "y": [2, 4]})),
                          expected)  # fmt: skip
    np.testing.assert_allclose(two.predict_proba("a", (1, 2)), expected[0], rtol=1e-5)
    assert np.array_equal(model.predict_proba("a", [2]), model.predict_proba("a", 2))
    assert np.array_equal(model.predict_proba(["a"], [[2]]), model.predict_proba(["a"], [2]))

    rows_2 = "for 2 rows of 'x', 'y' it must be of shape (2, 2)"
    row_2 = "for 1 rows of 'x', 'y' it must be of shape (2,)"
    rows_1 = "for 2 rows of 'size' it must be of shape (2, 1) or of shape (2,)"
    row_1 = "for 1 rows of 'size' it must be of shape (1,) or a number"
    cases: list[tuple[Model, Any, Any, str]] = [
        (two, ["a", "b"], [1, 2], f"of shape (2,); {rows_2}"),
        (two, ["a", "b"], [[1, 2, 3]] * 2, f"of shape (2, 3); {rows_2}"),
        (two, "a", 1, f"a number; {row_2}"),
        (two, "a", [[1, 2]], f"of shape (1, 2); {row_2}"),
        (model, ["a", "b"], 1, f"a number; {rows_1}"),
        (model, ["a", "b"], [[1, 2]], f"of shape (1, 2); {rows_1}"),
        (model, "a", [1, 2], f"of shape (2,); {row_1}"),
        (text_model, "a", 1, "a number; for 1 rows of no data column it must be None"),
    ]
    for call, data, numbers, what in cases:
        text = error_of(SettingError, call.predict, data, numbers)
        assert text == f"scalar_data is {what}.\n  {fix}"


def test_numbers_that_are_left_out_are_refused(model: Model, tmp_path: Path) -> None:
    """As a table without the column is; a number that is missing is told by None or NaN."""
    two = make(tmp_path, data_columns=("x", "y"))
    fix = "Pass scalar_data=, with None for a missing one."
    for data in ("quick", ["quick", "x"], [], np.array(["quick"]), pd.Series(["quick"])):
        for one, names in ((model, "'size'"), (two, "'x', 'y'")):
            for call in (one.predict, one.predict_proba):
                text = error_of(SettingError, call, data)
                assert text == f"The model also reads {names}.\n  {fix}"
    missing = model.predict_proba(["quick", "x"], [None, float("nan")])
    expected = predict_by_hand(model.folder, [["quick", "x"]], np.full((2, 1), np.nan))
    np.testing.assert_allclose(missing, expected, rtol=1e-4)


def test_scalar_data_that_holds_no_numbers_is_refused(model: Model) -> None:
    """With row and column; dates are none, booleans are."""
    assert model.predict("a", True) == model.predict("a", 1)  # noqa: FBT003 - that is the point
    assert model.predict(["a"], ["1"]) == model.predict(["a"], [1])
    for numbers, shown in (
        ([1, "12 EUR"], "'12 EUR'"),
        ([1, pd.Timestamp("2024-01-02")], "Timestamp('2024-01-02 00:00:00')"),
        (np.array(["2024-01-02"] * 2, "datetime64[D]")[:2], "np.datetime64('2024-01-02')"),
        ([1, [2]], "[2]"),
    ):
        row = 1 if isinstance(numbers, np.ndarray) else 2
        assert error_of(RecordError, model.predict, ["a", "b"], numbers) == (
            f"{shown} is not a number.\n  at row {row}, column 'size'\n"
            "  Correct it, or leave it empty."
        )
    assert error_of(RecordError, model.predict, ["a", "b"], np.array([1, np.inf])) == (
        "The number is infinite.\n  at row 2, column 'size'\n"
        "  Correct it, or leave it out as None or NaN."
    )
    for wrong in ({"size": 1}, {1.0}):
        assert error_of(SettingError, model.predict, "a", wrong).startswith(
            f"scalar_data is of type {type(wrong).__name__}."
        )


def test_a_table_brings_its_numbers_along(model: Model, frame: pd.DataFrame) -> None:
    """Numbers beside a table could be meant for other rows; so could those of another index."""
    fix = "Put the numbers into columns of one DataFrame."
    for table in (frame, dd.from_pandas(frame, npartitions=1), dd.from_pandas(frame.text)):
        for call in (model.predict, model.predict_proba):
            text = error_of(SettingError, call, table, SIZES)
            assert text == f"scalar_data goes with texts, and here is a table.\n  {fix}"
    text = error_of(SettingError, model.predict, frame["text"], pd.Series(SIZES))
    assert text == (
        "The Series of texts and of numbers have different indexes.\n"
        "  Put both into one DataFrame and pass that."
    )
    text = error_of(SettingError, model.predict, TEXTS, pd.DataFrame({"weight": SIZES}))
    assert text == (
        "scalar_data has the columns 'weight', the model reads 'size'.\n"
        "  Pass them in this order, or one DataFrame with all columns as data."
    )


def test_columns_that_are_missing_or_stand_twice_are_refused(
    model: Model, frame: pd.DataFrame
) -> None:
    """Before anything is scored, in Dask as well."""
    twice = frame.set_axis(["size", "size", "text"], axis=1)
    fixes = "Did you mean 'Text'? There are: 'other', 'size', 'Text'."
    for table in (frame, dd.from_pandas(frame, npartitions=1)):
        text = error_of(ColumnError, model.predict, table.rename(columns={"text": "Text"}))
        assert text == f"There is no column 'text'.\n  at the DataFrame\n  {fixes}"
    assert error_of(ColumnError, model.predict, twice) == (
        "Column 'size' stands twice.\n  at the DataFrame\n  Drop or rename one of them."
    )
    unnamed = frame.assign(x=1).set_axis([pd.NA, "size", "text", 7], axis=1)
    assert len(model.predict(unnamed)) == 5


def test_cells_that_are_no_numbers_are_refused_with_row_and_column(model: Model) -> None:
    """Rows are counted from 1; a date column is no number column, a boolean one is."""
    where = "row 2 of the DataFrame, column 'size'"
    for sizes, shown in (
        ([1, "12 EUR"], "'12 EUR'"),
        (["1", "nan"], "'nan'"),
        ([1, 2j], "2j"),
        ([None, pd.Timestamp("2024-01-02")], "Timestamp('2024-01-02 00:00:00')"),
    ):
        frame = pd.DataFrame({"text": ["a", "b"], "size": pd.Series(sizes, dtype=object)})
        assert error_of(RecordError, model.predict, frame) == (
            f"{shown} is not a number.\n  at {where}\n  Correct it, or leave it empty."
        )
    frame = pd.DataFrame({"text": ["a", "b"], "size": [True, False]})
    assert model.predict(frame).tolist() == model.predict(["a", "b"], [1, 0]).tolist()
    frame = pd.DataFrame({"text": ["a", b"b"], "size": 1})
    assert error_of(RecordError, model.predict, frame).startswith(
        "b'b' is neither a string nor a number but of type bytes.\n  at row 2 of the DataFrame, "
        "column 'text'"
    )


def test_a_model_of_numbers_takes_numbers_alone(number_model: Model) -> None:
    """As scalar_data or a DataFrame; (k,) is one row; other ways are told the right one."""
    rows: list[list[Any]] = [[1.0, 2.0], [3.0, None], [0, 0]]
    frame = pd.DataFrame(rows, columns=["x", "y"])
    labels = number_model.predict(scalar_data=rows)

    assert number_model.predict(None, np.array(rows, float)).tolist() == labels.tolist()
    assert number_model.predict(frame).tolist() == labels.tolist()
    assert number_model.predict(scalar_data=rows[0]) == labels[0]
    assert number_model.predict_proba(scalar_data=rows[0]).shape == (3,)
    assert number_model.predict_row(None, rows[1]) == labels[1]
    fix = "Pass scalar_data=, in the order of 'x', 'y'; or a DataFrame."
    assert error_of(SettingError, number_model.predict, np.array(rows, float)) == (
        f"The model reads numbers only, and was given texts or an array.\n  {fix}"
    )
    assert error_of(SettingError, number_model.predict) == (
        f"The model reads numbers only, and was given nothing.\n  {fix}"
    )
    series = dd.from_pandas(pd.Series(["a"]), npartitions=1)
    assert error_of(SettingError, number_model.predict, series).startswith("The model reads num")


def test_a_model_of_several_texts_asks_for_a_table(wide_model: Model) -> None:
    """Which text is which is told by the columns."""
    series = dd.from_pandas(pd.Series(["a"]), npartitions=1)
    for data in ("a", ["a"], pd.Series(["a"]), series):
        assert error_of(SettingError, wide_model.predict, data) == (
            "The model reads 2 text columns: 'title', 'text'.\n"
            "  Pass a pandas or Dask DataFrame with these columns."
        )
    label = wide_model.predict_row(["the fox", "jugs"], [1, 2])
    frame = pd.DataFrame({"title": ["the fox"], "text": ["jugs"], "x": 1, "y": 2})
    assert label == wide_model.predict(frame)[0]
    refused: list[tuple[Any, Any, str]] = [
        (["a"], None, "There are 1 texts, and the model reads 2: 'title', 'text'."),
        (None, [1, 2, 3], "There are 3 numbers, and the model reads 2: 'x', 'y'."),
    ]
    for texts, numbers, text in refused:
        assert error_of(SettingError, wide_model.predict_row, texts, numbers) == (
            f"{text}\n  Pass one for each column, in their order; "
            "for many rows use load(path).predict."
        )


def test_many_rows_are_scored_as_few_are(model: Model) -> None:
    """Over more than one slice; each row gets its own scores."""
    texts = [CORPUS[at % 4] + " fox" * (at % 7) for at in range(1300)]
    sizes = np.arange(1300.0) % 11

    scores = model.predict_proba(texts, sizes)
    for at in (0, 511, 512, 1023, 1024, 1299):
        np.testing.assert_allclose(scores[at], model.predict_proba(texts[at], sizes[at]), rtol=1e-4)
    np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-5)


def test_scores_that_are_no_numbers_are_an_error_and_no_class(tmp_path: Path) -> None:
    """The greatest of NaN is class 0. These weights are finite, and their products are not."""
    spoilt = make_model(data_columns=())
    state = {name: torch.full_like(tensor, 1e30) for name, tensor in spoilt.state.items()}
    write_model(replace(spoilt, state=state), tmp_path)

    assert error_of(ModelFileError, load(tmp_path).predict, ["zzz", "quick"]) == (
        f"The model's scores of row 1 are no finite numbers.\n  at {tmp_path}\n"
        "  Its weights are too large: train it anew with a lower learning_rate."
    )


@pytest.mark.parametrize("number", [1e300, -1.7e308, 1e38])
def test_huge_numbers_give_probabilities(model: Model, number: float) -> None:
    """A number far from all of the training set is no reason for NaN."""
    scores = model.predict_proba(["quick", "fox"], [number, 1.0])

    assert np.isfinite(scores).all()
    assert np.array_equal(scores[1:], model.predict_proba(["x", "fox"], [1.0, 1.0])[1:])


def test_a_model_tells_what_it_is(model: Model, wide_model: Model) -> None:
    """In a notebook."""
    assert repr(model) == (
        "Model(ScalpelMC, 3 classes, columns 'text', 'size', 24 features, "
        f"from {str(model.folder)!r})"
    )
    assert "columns 'title', 'text', 'x', 'y'" in repr(wide_model)


def test_n_grams_longer_than_every_text_take_no_time(tmp_path: Path) -> None:
    """A model of sixteen words side by side, and a folder that says a billion."""
    long = [" ".join(f"w{number}" for number in range(20))]
    model = make(tmp_path, ngram_range=(16, 16), texts=long, data_columns=())
    np.testing.assert_allclose(
        model.predict_proba(["quick fox", *long]),
        predict_by_hand(tmp_path, [["quick fox", *long]], np.empty((2, 0))),
        rtol=1e-4,
    )

    tokenizer = Tokenizer()
    tokenizer.add(pa.array(["quick fox", ""]))
    text, started = tokenizer.finish(), time.perf_counter()
    found = expand_terms(text, ngram_range=(10**9, 10**9), stop_words=frozenset())
    assert time.perf_counter() - started < 1
    assert (len(found.codes), len(found.terms), found.row_offsets.tolist()) == (0, 0, [0, 0, 0])


def test_a_foreign_unicode_version_still_predicts(tmp_path: Path) -> None:
    """It is logged when the model is opened."""
    model = make(tmp_path)
    edit_manifest(tmp_path, lambda manifest: manifest["features"].update(unicode_version="1"))

    assert load(tmp_path).predict("quick", 1) == model.predict("quick", 1)


@pytest.mark.system
def test_one_string_needs_neither_dask_nor_pandas(model: Model, wide_model: Model) -> None:
    """In a process of its own: what is imported is paid for by everyone who loads a model."""
    script = (
        "import json, sys\n"
        "from lancetnic_dask import load\n"
        "model = load(sys.argv[1])\n"
        "opened = sorted(sys.modules)\n"
        "labels = [model.predict('a quick fox', 3)]\n"
        "labels += [load(sys.argv[2]).predict_row(['the fox', 'my jugs'], [1, 2])]\n"
        "print(json.dumps([labels, opened, sorted(sys.modules)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(model.folder), str(wide_model.folder)],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[1],
    )

    labels, opened, modules = json.loads(done.stdout)
    assert labels[0] == model.predict("a quick fox", 3)
    assert labels[1] == wide_model.predict_row(["the fox", "my jugs"], [1, 2])
    unneeded = {"dask", "distributed", "fsspec", "pandas", "psutil", "sklearn"}
    assert imported(opened) & unneeded == set()
    assert imported(modules) & unneeded == set()


def imported(modules: list[str]) -> set[str]:
    """Return the packages of some modules."""
    return {name.partition(".")[0] for name in modules}


def test_opening_a_model_draws_nothing(tmp_path: Path) -> None:
    """Torch's random state is the caller's; the weights are in memory once."""
    write_model(make_model(), tmp_path)
    before = torch.get_rng_state()
    is_meta = []

    def reset(layer: torch.nn.Linear) -> None:
        is_meta.append(layer.weight.is_meta)

    with patch.object(torch.nn.Linear, "reset_parameters", reset):
        load(tmp_path)

    assert torch.equal(torch.get_rng_state(), before)
    assert is_meta
    assert all(is_meta)


def test_a_dask_series_has_no_numbers_beside_it(tmp_path: Path) -> None:
    """A table has."""
    write_model(make_model(), tmp_path)
    series = dd.from_pandas(pd.Series(["a text"]), npartitions=1)

    with pytest.raises(SettingError) as caught:
        load(tmp_path).predict(series)

    assert str(caught.value) == (
        "The model also reads 'size'.\n  Pass a Dask DataFrame with all its columns."
    )
