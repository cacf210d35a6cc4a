"""Names of models."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from lancetnic_dask.errors import SettingError
from lancetnic_dask.models import ScalpelMC
from lancetnic_dask.models.registry import MODELS, resolve_model


def test_every_name_gives_a_class_of_that_name() -> None:
    """A model file can write the class's name and be read again."""
    assert {name: resolve_model(name).__name__ for name in MODELS} == {
        name: name for name in MODELS
    }


def test_a_class_is_taken_as_it_is() -> None:
    """Ours or the user's."""

    class Own(nn.Module):
        """A model of the user's."""

    assert resolve_model(Own) is Own
    assert resolve_model(ScalpelMC) is ScalpelMC


def test_an_unknown_name_is_an_error_with_the_known_ones() -> None:
    """The nearest one first."""
    with pytest.raises(SettingError) as caught:
        resolve_model("ScalpelMD")

    assert str(caught.value) == (
        "There is no model 'ScalpelMD'.\n  Did you mean 'ScalpelMC'? There are: 'ScalpelMC'."
    )


def test_an_instance_is_an_error_that_asks_for_the_class() -> None:
    """Training builds the model itself, for the columns of the corpus."""
    instance: Any = nn.ReLU()

    with pytest.raises(SettingError) as caught:
        resolve_model(instance)

    assert str(caught.value) == (
        "model_name is ReLU(), neither a name nor a subclass of nn.Module.\n"
        "  Pass the class itself, not an instance of it; or a name. There are: 'ScalpelMC'."
    )
