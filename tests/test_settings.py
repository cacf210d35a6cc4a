"""Options are checked once, and kept as plain numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import yaml

from lancetnic_dask.errors import SettingError
from lancetnic_dask.settings import (
    ColumnRoles,
    FeatureSettings,
    NumberFormat,
    SplitSettings,
    TrainingSettings,
    check_split,
    column_names,
)

INPUTS: dict[str, Any] = {
    "text_columns": ("a",), "data_columns": ("b",), "category_columns": ("c",),
    "label_column": "y",
}  # fmt: skip


def test_numbers_of_numpy_become_plain_ones() -> None:
    """What a user computed with numpy can be written as YAML."""
    training: dict[str, Any] = {
        "num_epochs": np.int64(3),
        "hidden_size": np.int32(8),
        "learning_rate": np.float64(0.01),
        "dropout": np.float32(0.5),
    }
    counts: dict[str, Any] = {
        "min_df": np.int64(2),
        "max_df": np.float64(0.5),
        "max_features": np.int8(9),
    }
    settings, features = TrainingSettings(**training), FeatureSettings(**counts)

    assert yaml.safe_load(yaml.safe_dump(settings.as_dict()))["num_epochs"] == 3
    assert (features.min_df, features.max_df, features.max_features) == (2, 0.5, 9)
    assert type(features.min_df) is int
    assert type(features.max_df) is float


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("num_epochs", 0, "num_epochs is 0.\n  Pass a whole number from 1."),
        ("num_epochs", 1.5, "num_epochs is 1.5.\n  Pass a whole number."),
        ("num_epochs", True, "num_epochs is True.\n  Pass a whole number."),
        ("hidden_size", "wide", "hidden_size is 'wide'.\n  Pass a whole number."),
        (
            "num_layers",
            1001,
            "num_layers is 1001.\n  Pass a whole number from 1 to 1000.",
        ),
        ("batch_size", -1, "batch_size is -1.\n  Pass a whole number from 1."),
        ("dropout", 1, "dropout is 1.\n  Pass a share from 0 to below 1."),
        ("dropout", float("nan"), "dropout is nan.\n  Pass a share from 0 to below 1."),
        (
            "learning_rate",
            0,
            (
                "learning_rate is 0.\n"
                "  Pass a positive number, or None for the optimizer's own default."
            ),
        ),
        ("optim_name", 5, "optim_name is 5.\n  Pass a name, as text."),
        (
            "random_state",
            -1,
            "random_state is -1.\n  Pass a whole number from 0 to 9223372036854775807.",
        ),
    ],
)
def test_training_options_out_of_range(option: str, value: Any, text: str) -> None:
    """The value that was found, and what may be passed."""
    options: dict[str, Any] = {"num_epochs": 1, option: value}

    with pytest.raises(SettingError) as caught:
        TrainingSettings(**options)

    assert str(caught.value) == text


@pytest.mark.parametrize("value", [0, 1, -0.1, 1.5, "half", None, True])
def test_a_split_ratio_leaves_rows_on_both_sides(value: Any) -> None:
    """0 and 1 would leave nothing to validate or to train on."""
    with pytest.raises(SettingError, match="split_ratio is"):
        SplitSettings(split_ratio=value)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("min_df", 0),
        ("min_df", 1.5),
        ("max_df", -0.5),
        ("max_df", "many"),
        ("max_features", 0),
        ("ngram_range", 2),
        ("ngram_range", (1, 2, 3)),
        ("ngram_range", (2, 1)),
        ("ngram_range", (0, 1)),
        ("ngram_range", (1, 99)),
        ("stop_words", "russian"),
    ],
)
def test_feature_options_out_of_range(option: str, value: Any) -> None:
    """Each names itself."""
    options: dict[str, Any] = {option: value}

    with pytest.raises(SettingError, match=option):
        FeatureSettings(**options)


def test_a_column_has_one_role() -> None:
    """A text column that is the label as well would leak it."""
    with pytest.raises(SettingError, match="Column 'a' has two roles"):
        ColumnRoles(text_columns=("a",), data_columns=(), label_column="a")
    with pytest.raises(SettingError, match="There is no column to learn from"):
        ColumnRoles(text_columns=(), data_columns=(), label_column="a")


def test_the_cells_of_a_role_are_found_by_position() -> None:
    """The inputs first, each column of the file once; as ever where there are no new roles."""
    roles = ColumnRoles(**INPUTS, group_column="g")
    shared = ColumnRoles(**INPUTS, time_column="b")
    plain = ColumnRoles(text_columns=("a", "d"), data_columns=("b",), label_column="y")

    assert roles.names == ("a", "b", "c", "y", "g")
    assert roles.inputs == ("a", "b", "c")
    assert [roles.positions(role) for role in ("text", "data", "category", "label", "group")] == [
        (0,), (1,), (2,), (3,), (4,),
    ]  # fmt: skip
    assert roles.positions("time") == ()
    assert shared.names == ("a", "b", "c", "y")
    assert (shared.positions("data"), shared.positions("time")) == ((1,), (1,))
    assert plain.names == ("a", "d", "b", "y")
    assert plain.positions("text") == (0, 1)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"category_columns": ("a",)},
            (
                "Column 'a' has two roles.\n"
                "  Name it once among text_column, data_column, category_column and label_column."
            ),
        ),
        (
            {"label_column": "b", "category_columns": ()},
            (
                "Column 'b' has two roles.\n"
                "  Name it once among text_column, data_column and label_column."
            ),
        ),
        (
            {"text_columns": (), "data_columns": (), "category_columns": ()},
            (
                "There is no column to learn from.\n"
                "  Pass text_column=, data_column= or category_column=."
            ),
        ),
        (
            {"group_column": "y"},
            (
                "Column 'y' is the label and the group.\n"
                "  Pass another group_column=; a class would stand on one side only."
            ),
        ),
        (
            {"time_column": "y"},
            (
                "Column 'y' is the label and the time.\n"
                "  Pass another time_column=; a class would stand on one side only."
            ),
        ),
        (
            {"group_column": "g", "time_column": "t"},
            (
                "There are a group_column and a time_column.\n"
                "  Pass one of them: a point in time cuts through groups."
            ),
        ),
        (
            {"time_format": "%Y"},
            (
                "time_format is '%Y' and there is no time_column.\n"
                "  Pass time_column=, or leave time_format out."
            ),
        ),
    ],
)
def test_roles_that_contradict_each_other(options: dict[str, Any], text: str) -> None:
    """What they are, and what to do."""
    with pytest.raises(SettingError) as caught:
        ColumnRoles(**{**INPUTS, **options})

    assert str(caught.value) == text


def test_categories_alone_can_be_learned() -> None:
    """As can words alone, and numbers alone."""
    roles = ColumnRoles(text_columns=(), data_columns=(), category_columns=("c",), label_column="y")

    assert roles.names == ("c", "y")


@pytest.mark.parametrize("time_format", ["%Q", "%", "%Y %Y", "today", "", 5, b"%Y"])
def test_a_time_format_is_one_of_strptime(time_format: Any) -> None:
    """Found when it is passed, and not at the first row."""
    with pytest.raises(SettingError) as caught:
        ColumnRoles(**INPUTS, time_column="t", time_format=time_format)

    assert str(caught.value) == (
        f"time_format is {time_format!r}.\n"
        "  Pass a format of datetime.strptime, for example '%d.%m.%Y %H:%M'."
    )


@pytest.mark.parametrize("time_format", ["%d.%m.%y", "%Y-%m-%dT%H:%M:%S.%f%z", "%b %d, %Y %Z"])
def test_a_time_format_of_strptime_is_taken(time_format: str) -> None:
    """With a zone or without."""
    roles = ColumnRoles(**INPUTS, time_column="t", time_format=time_format)

    assert roles.time_format == time_format


@pytest.mark.parametrize("option", ["decimal", "thousands"])
@pytest.mark.parametrize("value", ["", "..", "1", "e", "é", "+", "-", "\n", "\0", 3, b","])
def test_a_mark_in_a_number_is_one_character(option: str, value: Any) -> None:
    """None that a number has, and none that is cut off around it."""
    options: dict[str, Any] = {option: value}

    with pytest.raises(SettingError) as caught:
        NumberFormat(**options)

    assert str(caught.value) == (
        f"{option} is {value!r}.\n"
        "  Pass one character that is no digit, letter or sign, for example '.'."
    )


def test_a_number_has_a_decimal_mark_of_its_own() -> None:
    """It is neither None, nor a space, nor that of the thousands."""
    for decimal in (None, " ", "\xa0"):
        with pytest.raises(SettingError, match="decimal is"):
            NumberFormat(decimal=decimal)  # type: ignore[arg-type]
    with pytest.raises(SettingError) as caught:
        NumberFormat(decimal=",", thousands=",")

    assert str(caught.value) == (
        "decimal and thousands are both ','.\n  Pass two different characters."
    )


def test_a_space_stands_for_all_that_look_like_it() -> None:
    """What is between the digits is seldom the one that was typed."""
    assert NumberFormat().separators == ""
    assert NumberFormat(thousands="'").separators == "'"
    for space in " \xa0\u202f\u2009":
        assert NumberFormat(thousands=space).separators == " \xa0\u202f\u2009"


def test_a_split_by_classes_or_by_time() -> None:
    """Not both: the latest rows are the ones they are."""
    timed = ColumnRoles(**INPUTS, time_column="t")

    with pytest.raises(SettingError) as caught:
        check_split(timed, SplitSettings(stratify=True))

    assert str(caught.value) == (
        "There are stratify=True and a time_column.\n"
        "  Pass one of them: the latest rows have the classes that they have."
    )
    check_split(timed, SplitSettings())
    check_split(ColumnRoles(**INPUTS, group_column="g"), SplitSettings(stratify=True))


def test_stratify_is_a_yes_or_no() -> None:
    """A column's name isn't."""
    with pytest.raises(SettingError) as caught:
        SplitSettings(stratify="label")  # type: ignore[arg-type]

    assert str(caught.value) == "stratify is 'label'.\n  Pass True or False."


@pytest.mark.parametrize(
    ("value", "names"), [(None, ()), ("a", ("a",)), (["a", "b"], ("a", "b")), (("a",), ("a",))]
)
def test_columns_are_named_one_by_one_or_in_a_list(value: Any, names: tuple[str, ...]) -> None:
    """As in lancetnic."""
    assert column_names("text_column", value) == names


def test_a_column_is_named_by_text() -> None:
    """A position is no name."""
    with pytest.raises(SettingError, match="text_column holds 3"):
        column_names("text_column", [3])  # type: ignore[list-item]
