"""ScalpelMC against the network that it re-does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from reference_models import random_rows
from torch import nn

from lancetnic_dask.errors import SettingError
from lancetnic_dask.models import ScalpelMC, SparseLinear


def test_it_has_the_layers_of_lancetnic() -> None:
    """Hidden layers of linear, ReLU and dropout, then a linear layer to the classes."""
    model = ScalpelMC(10, 4, 3, 5, 0.25, num_numeric=2)

    kinds = [type(layer) for layer in model.model]

    hidden = [nn.ReLU, nn.Dropout]
    assert kinds == [SparseLinear, *hidden, nn.Linear, *hidden, nn.Linear, *hidden, nn.Linear]
    assert [layer.p for layer in model.model if isinstance(layer, nn.Dropout)] == [0.25] * 3


def test_it_scores_sparse_rows_and_dense_columns_alike() -> None:
    """Both forms of the same rows give the scores that nn.Linear layers give."""
    model = ScalpelMC(12, 4, 2, 3, 0.5, num_numeric=2).eval()
    rows = random_rows(6, 10, num_numeric=2)
    first = model.model[0]
    assert isinstance(first, SparseLinear)
    assert first.numeric_weight is not None
    assert first.bias is not None
    dense = nn.Linear(12, 4)
    with torch.no_grad():
        dense.weight.copy_(torch.cat([first.weight, first.numeric_weight]).t())
        dense.bias.copy_(first.bias)
    wanted = nn.Sequential(dense, *list(model.model)[1:])(rows.to_dense(10))

    assert wanted.shape == (6, 3)
    torch.testing.assert_close(model(rows), wanted)
    torch.testing.assert_close(model(rows.to_dense(10)), wanted)


@pytest.mark.parametrize("num_rows", [0, 1])
def test_tiny_batches_are_trained_on(num_rows: int) -> None:
    """An empty batch and a single row go forward and backward."""
    model = ScalpelMC(10, 4, 1, 3, 0.0)

    model(random_rows(num_rows, 10)).sum().backward()

    assert all(parameter.grad is not None for parameter in model.parameters())


def test_dense_grad_reaches_the_first_layer() -> None:
    """Its weight then has a gradient that any optimizer reads."""
    model = ScalpelMC(10, 4, 1, 3, 0.0, dense_grad=True)

    model(random_rows(4, 10)).sum().backward()

    assert all(p.grad is not None and p.grad.layout == torch.strided for p in model.parameters())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"input_size": 0}, "input_size is 0; it must be 1 or more."),
        ({"hidden_size": 0}, "hidden_size is 0; it must be 1 or more."),
        ({"num_layers": 0}, "num_layers is 0; it must be 1 or more."),
        ({"num_classes": 1}, "num_classes is 1; it must be 2 or more."),
        ({"dropout": 1.0}, "dropout is 1.0; it must be from 0 to below 1."),
        ({"dropout": float("nan")}, "dropout is nan; it must be from 0 to below 1."),
        ({"num_numeric": 11}, "num_numeric is 11; it must be between 0 and in_features, 10."),
    ],
)
def test_bad_options_are_errors(changed: dict[str, Any], message: str) -> None:
    """The error names the option, its value and its range."""
    options = {"input_size": 10, "hidden_size": 4, "num_layers": 1, "num_classes": 3, "dropout": 0}

    with pytest.raises(SettingError) as caught:
        ScalpelMC(**(options | changed))

    assert str(caught.value) == message
