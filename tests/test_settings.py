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
    SplitSettings,
    TrainingSettings,
    column_names,
)


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
