"""A model class and sizes become a network that reads sparse rows, or an error that tells why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from own_models import OwnDense, OwnSparse
from torch import nn

from lancetnic_dask.errors import SettingError
from lancetnic_dask.models import ScalpelMC, SparseRows
from lancetnic_dask.models.dense_input import DENSE_SCORING_ROWS, DenseInput
from lancetnic_dask.models.networks import (
    NetworkPlan,
    build_network,
    count_parameters,
    state_template,
    try_class,
)


def plan_of(model_class: type[nn.Module], **sizes: Any) -> NetworkPlan:
    """Return a plan of 40 words and 2 numbers."""
    defaults = {
        "input_size": 42,
        "num_numeric": 2,
        "hidden_size": 8,
        "num_layers": 2,
        "num_classes": 5,
        "dropout": 0.1,
    }
    return NetworkPlan(model_class=model_class, **(defaults | sizes))


def make_rows(num_rows: int) -> SparseRows:
    """Return rows of two words each."""
    rng = np.random.default_rng(3)
    indices = np.stack([rng.choice(40, 2, replace=False) for _ in range(num_rows)])
    return SparseRows(
        np.arange(0, 2 * num_rows + 1, 2),
        indices.ravel().astype(np.int32),
        rng.random(2 * num_rows, np.float32),
        numeric=rng.random((num_rows, 2), np.float32),
    )


def test_a_dense_class_gets_all_columns_written_out() -> None:
    """Text columns first, then the numbers."""
    network = build_network(plan_of(OwnDense)).eval()
    rows = make_rows(DENSE_SCORING_ROWS * 2 + 3)

    assert isinstance(network, DenseInput)
    with torch.no_grad():
        expected = network.network(rows.to_dense(40))
        torch.testing.assert_close(network(rows), expected, rtol=1e-5, atol=1e-6)


def test_scoring_writes_out_few_rows_at_once_and_training_the_whole_batch() -> None:
    """Memory of a step is that of a batch; of scoring that of a slice."""
    seen: list[int] = []

    class Counting(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(len(x))
            return x

    network = DenseInput(Counting(), num_text_features=40)
    rows = make_rows(DENSE_SCORING_ROWS + 1)
    assert torch.equal(network.eval()(rows), rows.to_dense(40))
    assert seen == [DENSE_SCORING_ROWS, 1]
    network.train()(rows)
    assert seen[2:] == [DENSE_SCORING_ROWS + 1]


def test_a_class_with_a_sparse_layer_gets_sparse_rows_and_its_options() -> None:
    """And counts as sparse for the budget."""
    network = build_network(plan_of(OwnSparse), dense_grad=True)

    assert isinstance(network, OwnSparse)
    assert network.first.dense_grad
    assert network(make_rows(3)).shape == (3, 5)


@pytest.mark.parametrize("model_class", [ScalpelMC, OwnSparse, OwnDense])
@pytest.mark.parametrize("input_size", [3, 42, 5000])
def test_parameters_are_counted_without_building_the_network(
    model_class: type[nn.Module], input_size: int
) -> None:
    """From few columns, exactly: a layer's weights grow evenly with its columns."""
    plan = plan_of(model_class, input_size=input_size)

    sparse, other = count_parameters(plan)

    network = build_network(plan)
    assert sparse + other == sum(one.numel() for one in network.parameters())
    assert sparse == (0 if model_class is OwnDense else 8 * (input_size - 2))


@pytest.mark.parametrize("model_class", [ScalpelMC, OwnSparse, OwnDense])
def test_the_template_of_the_state_takes_no_memory(model_class: type[nn.Module]) -> None:
    """Names, shapes and dtypes of the real one; torch's random state stays."""
    before = torch.get_rng_state()

    template = state_template(plan_of(model_class))

    assert torch.equal(torch.get_rng_state(), before)
    state = build_network(plan_of(model_class)).state_dict()
    assert [(n, t.shape, t.dtype) for n, t in template.items()] == [
        (n, t.shape, t.dtype) for n, t in state.items()
    ]
    assert all(tensor.is_meta for tensor in template.values())


class NoArguments(nn.Module):
    """Has another constructor."""


class Raises(OwnDense):
    """Fails on rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply what can't be multiplied."""
        return x @ torch.ones(3, 3)


class Returns(OwnDense):
    """Returns what a test wants."""

    answer: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return anything."""
        del x
        answer: torch.Tensor = self.answer
        return answer


ADVICE = (
    "  Let {}.forward take rows of input_size columns and return num_classes scores, before "
    "softmax, for each."
)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (torch.ones(2), "torch.float32 of shape (2,); it must be float of shape (2, 3)."),
        (torch.ones(3, 2), "torch.float32 of shape (3, 2); it must be float of shape (2, 3)."),
        (torch.ones(2, 3).long(), "torch.int64 of shape (2, 3); it must be float of shape (2, 3)."),
    ],
)
def test_a_wrong_output_is_told_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, answer: torch.Tensor, said: str
) -> None:
    """With what it returned and what it should."""
    monkeypatch.setattr(Returns, "answer", answer)

    with pytest.raises(SettingError) as caught:
        try_class(plan_of(Returns))

    assert str(caught.value) == (
        f"For 2 rows and 3 classes Returns returns {said}\n" + ADVICE.format("Returns")
    )


def test_an_output_that_is_no_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the pair that an LSTM returns."""
    monkeypatch.setattr(Returns, "answer", (1, 2))

    with pytest.raises(SettingError) as caught:
        try_class(plan_of(Returns))

    assert str(caught.value) == "Returns returns (1, 2), not a tensor.\n" + ADVICE.format("Returns")


def test_a_class_that_raises_is_named_with_what_it_said() -> None:
    """And its own traceback stays in reach."""
    with pytest.raises(SettingError) as caught:
        try_class(plan_of(Raises))
    assert str(caught.value) == (
        "Raises cannot score rows: RuntimeError: mat1 and mat2 shapes cannot be multiplied "
        "(2x18 and 3x3).\n" + ADVICE.format("Raises")
    )
    assert isinstance(caught.value.__cause__, RuntimeError)

    with pytest.raises(SettingError) as caught:
        try_class(plan_of(NoArguments))
    assert str(caught.value) == (
        "NoArguments cannot be made with (input_size, hidden_size, num_layers, num_classes, "
        "dropout): TypeError: NoArguments.__init__() takes 1 positional argument but 6 were "
        "given.\n"
        "  Give NoArguments.__init__ these parameters, in this order."
    )


@pytest.mark.parametrize("model_class", [ScalpelMC, OwnSparse, OwnDense])
def test_a_sound_class_passes(model_class: type[nn.Module]) -> None:
    """With and without numbers, and whatever the real sizes are."""
    try_class(plan_of(model_class))
    try_class(plan_of(model_class, input_size=0, num_numeric=0, num_classes=0))
