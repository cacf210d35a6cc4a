"""RowWiseAdagrad as an ordinary optimizer of torch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from reference_models import random_rows, rowwise_adagrad_by_loops
from torch import nn

from lancetnic_dask.errors import SettingError
from lancetnic_dask.models import RowWiseAdagrad, SparseLinear


def take_steps(layer: SparseLinear, optimizer: RowWiseAdagrad, seeds: range) -> None:
    """Train on one random batch for each seed."""
    for seed in seeds:
        optimizer.zero_grad()
        layer(random_rows(8, layer.in_features, seed=seed)).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("dense_grad", [False, True])
def test_steps_equal_plain_loops(*, dense_grad: bool) -> None:
    """Three steps give the weights and sums that the formula gives."""
    layer = SparseLinear(30, 6, dense_grad=dense_grad)
    optimizer = RowWiseAdagrad([layer.weight], lr=0.1, eps=1e-8)
    weight, sums = layer.weight.detach().numpy().copy(), torch.zeros(30).numpy()
    for seed in range(3):
        optimizer.zero_grad()
        layer(random_rows(8, 30, seed=seed)).square().sum().backward()
        assert layer.weight.grad is not None
        gradient = dict(enumerate(layer.weight.grad.to_dense().tolist()))
        new_weight, new_sums = rowwise_adagrad_by_loops(weight, sums, gradient, lr=0.1, eps=1e-8)

        optimizer.step()

        found = optimizer.state[layer.weight]["sum"]
        torch.testing.assert_close(layer.weight.detach(), torch.tensor(new_weight))
        torch.testing.assert_close(found, torch.tensor(new_sums))
        weight, sums = layer.weight.detach().numpy().copy(), found.numpy().copy()


def test_sparse_and_dense_gradients_give_the_same_bits() -> None:
    """Writing the gradient out changes nothing: untouched rows stay as they are."""
    sparse, dense = SparseLinear(30, 6), SparseLinear(30, 6, dense_grad=True)
    dense.load_state_dict(sparse.state_dict())

    for layer in (sparse, dense):
        take_steps(layer, RowWiseAdagrad([layer.weight]), range(5))

    assert torch.equal(sparse.weight, dense.weight)


def test_other_dtypes_and_devices_follow_the_same_formula() -> None:
    """The way of torch's own, taken by float64 and by GPUs, agrees with the kernel."""
    single = SparseLinear(30, 6)
    double = copy.deepcopy(single).double()

    for layer in (single, double):
        take_steps(layer, RowWiseAdagrad([layer.weight]), range(5))

    torch.testing.assert_close(single.weight.double(), double.weight, rtol=1e-5, atol=1e-6)


def test_it_goes_on_from_its_state_bit_for_bit() -> None:
    """Two steps, a new optimizer with the saved state, two steps: the same as four."""
    straight = SparseLinear(30, 6)
    resumed = copy.deepcopy(straight)
    take_steps(straight, RowWiseAdagrad([straight.weight], lr=0.2), range(4))

    first = RowWiseAdagrad([resumed.weight], lr=0.2)
    take_steps(resumed, first, range(2))
    second = RowWiseAdagrad([resumed.weight])
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    take_steps(resumed, second, range(2, 4))

    assert second.param_groups[0]["lr"] == 0.2
    assert torch.equal(resumed.weight, straight.weight)


def test_accumulated_gradients_are_one_step() -> None:
    """Two backwards before a step count as the sum of both."""
    layer = SparseLinear(30, 6)
    twice, dense = copy.deepcopy(layer), copy.deepcopy(layer)
    dense.dense_grad = True
    for model in (twice, dense):
        optimizer = RowWiseAdagrad([model.weight])
        for seed in range(2):
            model(random_rows(8, 30, seed=seed)).square().sum().backward()
        optimizer.step()

    torch.testing.assert_close(twice.weight, dense.weight)


def test_groups_have_options_of_their_own() -> None:
    """A group added later trains with its own learning rate; the others keep theirs."""
    slow, fast = (nn.Parameter(torch.zeros(2, 3)) for _ in range(2))
    optimizer = RowWiseAdagrad([slow], lr=0.1)
    optimizer.add_param_group({"params": [fast], "lr": 0.5})
    (slow.sum() + fast.sum()).backward()  # type: ignore[no-untyped-call]

    optimizer.step()

    torch.testing.assert_close(slow, torch.full((2, 3), -0.1))
    torch.testing.assert_close(fast, torch.full((2, 3), -0.5))


def test_a_closure_gives_the_loss() -> None:
    """It is called once, with gradients on, and its loss comes back."""
    weight = nn.Parameter(torch.ones(2, 2))
    optimizer = RowWiseAdagrad([weight], lr=0.5)

    def closure() -> float:
        optimizer.zero_grad()
        loss = weight.sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    with torch.no_grad():
        loss = optimizer.step(closure)

    assert loss == 4.0
    torch.testing.assert_close(weight, torch.full((2, 2), 0.5))


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_are_cleared(*, set_to_none: bool) -> None:
    """After zero_grad a step changes nothing, whatever way the gradient was cleared."""
    layer = SparseLinear(10, 2)
    optimizer = RowWiseAdagrad([layer.weight])
    take_steps(layer, optimizer, range(1))
    before = layer.weight.detach().clone()

    optimizer.zero_grad(set_to_none=set_to_none)
    optimizer.step()

    assert torch.equal(layer.weight, before)


def test_a_weight_without_rows_is_passed_over() -> None:
    """A model of numeric columns only trains its other parameters."""
    layer = SparseLinear(2, 3, num_numeric=2)
    optimizer = RowWiseAdagrad([layer.weight])

    layer(random_rows(4, 0, num_numeric=2)).sum().backward()
    optimizer.step()

    assert layer.numeric_weight is not None
    assert layer.numeric_weight.grad is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -0.1}, "lr is -0.1; it must be a number, 0 or more."),
        ({"lr": float("nan")}, "lr is nan; it must be a number, 0 or more."),
        ({"lr": "fast"}, "lr is 'fast'; it must be a number, 0 or more."),
        ({"eps": 0}, "eps is 0; it must be a number, 1e-30 or more."),
        ({"eps": float("inf")}, "eps is inf; it must be a number, 1e-30 or more."),
    ],
)
def test_bad_options_are_errors(options: dict[str, Any], message: str) -> None:
    """The error names the option, its value and its range."""
    with pytest.raises(SettingError) as caught:
        RowWiseAdagrad([nn.Parameter(torch.zeros(2, 2))], **options)

    assert str(caught.value) == message


def test_a_parameter_without_rows_is_an_error() -> None:
    """A bias belongs to another optimizer, and the error says so."""
    with pytest.raises(SettingError) as caught:
        RowWiseAdagrad([nn.Parameter(torch.zeros(3))])

    assert str(caught.value) == (
        "A parameter of shape (3,) has no rows.\n  Give it to another optimizer, such as Adam."
    )
