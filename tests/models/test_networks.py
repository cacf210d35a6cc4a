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
    NetworkSize,
    build_network,
    measure_network,
    state_template,
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


class OwnSquare(nn.Module):
    """Weights that grow with the square of the columns, and a buffer."""

    def __init__(self, input_size: int, *_: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(input_size, input_size))
        self.register_buffer("mask", torch.zeros(input_size, 7))


@pytest.mark.parametrize("input_size", [3, 42, 5000])
def test_a_network_is_measured_as_it_would_be_built(input_size: int) -> None:
    """Weights of sparse layers, all others, and buffers."""
    for model_class in (ScalpelMC, OwnSparse):
        plan = plan_of(model_class, input_size=input_size)
        size = measure_network(plan)
        assert size is not None
        parameters = sum(one.numel() for one in build_network(plan).parameters())
        assert (size.sparse_rows, size.sparse_cols) == (input_size - 2, 8)
        assert size.sparse_rows * size.sparse_cols + size.other_weights == parameters
        assert not size.reads_dense_rows
    square = measure_network(plan_of(OwnSquare, input_size=input_size))
    assert square == NetworkSize(0, 0, input_size**2, 4 * 7 * input_size, reads_dense_rows=True)


def test_measuring_takes_no_memory_and_a_class_that_would_is_not_measured() -> None:
    """Some terabytes of weights; and a constructor that looks at real numbers."""
    size = measure_network(plan_of(OwnSquare, input_size=1_000_000))

    assert size is not None
    assert size.other_weights == 10**12
    assert measure_network(plan_of(OwnDense)) is None


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


@pytest.mark.parametrize("model_class", [ScalpelMC, OwnSparse, OwnDense])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_callers_defaults_do_not_reach_a_network(
    model_class: type[nn.Module], device: str
) -> None:
    """Weights are float32 and on the processor; the defaults stay what they were."""
    torch.set_default_dtype(torch.float64)
    torch.set_default_device(device)
    try:
        network = build_network(plan_of(model_class))
        template = state_template(plan_of(model_class))
        assert torch.get_default_dtype() == torch.float64
        assert torch.get_default_device().type == device
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)

    assert {one.dtype for one in network.parameters()} == {torch.float32}
    assert {one.device.type for one in network.parameters()} == {"cpu"}
    kinds = {name: one.dtype for name, one in network.state_dict().items()}
    assert {name: one.dtype for name, one in template.items()} == kinds


class NoArguments(nn.Module):
    """Has another constructor."""


class Lazy(nn.Module):
    """Leaves its sizes to the first rows."""

    def __init__(self, *sizes: float) -> None:
        super().__init__()
        self.layer = nn.LazyLinear(int(sizes[3]))


def test_a_class_that_cannot_be_made_is_named() -> None:
    """With what it said, and its own traceback in reach."""
    with pytest.raises(SettingError) as caught:
        build_network(plan_of(NoArguments))
    assert str(caught.value) == (
        "NoArguments cannot be made with (input_size, hidden_size, num_layers, num_classes, "
        "dropout): TypeError: NoArguments.__init__() takes 1 positional argument but 6 were "
        "given.\n  Give NoArguments.__init__ these parameters, in this order; a model too large "
        "for the memory needs a smaller hidden_size=."
    )
    assert isinstance(caught.value.__cause__, TypeError)

    with pytest.raises(SettingError) as caught:
        build_network(plan_of(Lazy))
    assert str(caught.value) == (
        "Lazy has layers without sizes, such as nn.LazyLinear.\n"
        "  Give each layer its sizes: the constructor gets input_size."
    )
