"""Gradients that are kept as two factors and applied without being written down."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_models import random_rows, rowwise_adagrad_by_loops

from lancetnic_dask.models import RowWiseAdagrad, ScalpelMC, SparseLinear
from lancetnic_dask.models.factored_gradient import has_factors, take_factors
from lancetnic_dask.models.optimizers import clip_gradients, factors_kept, make_optimizer
from lancetnic_dask.models.sparse_kernels import ColumnCounter, update_rows_by_factors


@settings(deadline=None)  # the first example compiles
@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 999))
def test_the_kernel_equals_plain_loops(width: int, num_rows: int, seed: int) -> None:
    """The rows that the batch holds change by the product of the factors, the others not at all."""
    rng = np.random.default_rng(seed)
    rows = random_rows(num_rows, 30, seed=seed)
    output_gradient = rng.normal(size=(num_rows, width)).astype(np.float32)
    weight = rng.normal(size=(30, width)).astype(np.float32)
    sums = rng.random(30).astype(np.float32)
    product = rows.to_dense(30).numpy().T @ output_gradient
    touched = np.unique(rows.indices)
    by_row = {int(row): product[row].tolist() for row in touched}
    wanted_weight, wanted_sums = rowwise_adagrad_by_loops(weight, sums, by_row, lr=0.05, eps=1e-10)
    untouched = np.setdiff1d(np.arange(30), touched)
    before = weight[untouched].copy()

    update_rows_by_factors(
        weight,
        sums,
        *ColumnCounter(30).group(rows.indptr, rows.indices, rows.values),
        output_gradient,
        np.float32(0.05),
        np.float32(1e-10),
    )

    np.testing.assert_allclose(weight, wanted_weight, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(sums, wanted_sums, rtol=1e-4)
    np.testing.assert_array_equal(weight[untouched], before)


def train(layer: SparseLinear, *, uses: int = 1, num_steps: int = 4) -> RowWiseAdagrad:
    """Take steps on random batches, some of them on the sum of several uses of the layer."""
    optimizer = RowWiseAdagrad([layer.weight], lr=0.1)
    for step in range(num_steps):
        optimizer.zero_grad()
        for use in range(uses):
            layer(random_rows(8, 30, seed=10 * step + use)).square().sum().backward()
        optimizer.step()
    return optimizer


@pytest.mark.parametrize("uses", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_factors_train_as_gradients_do(uses: int, dtype: torch.dtype) -> None:
    """Written down or not, added up over two uses or not, with the kernel or torch's own way."""
    written = SparseLinear(30, 6).to(dtype)
    factored = copy.deepcopy(written)
    factored.keeps_factors = True

    states = [train(layer, uses=uses).state[layer.weight] for layer in (written, factored)]

    assert factored.weight.grad is None
    torch.testing.assert_close(factored.weight, written.weight)
    torch.testing.assert_close(states[1]["sum"], states[0]["sum"])


def test_a_gradient_and_factors_of_one_weight_add_up() -> None:
    """A weight that a dense product uses too gets both."""
    written = SparseLinear(30, 6)
    factored = copy.deepcopy(written)
    factored.keeps_factors = True
    for layer in (written, factored):
        optimizer = RowWiseAdagrad([layer.weight], lr=0.1)
        rows = random_rows(8, 30, seed=1)
        (layer(rows).square().sum() + layer.weight.to_dense().square().sum()).backward()
        optimizer.step()

    torch.testing.assert_close(factored.weight, written.weight)


def test_factors_are_forgotten_with_the_gradients() -> None:
    """What a step took, and what zero_grad dropped, is not applied again."""
    layer = SparseLinear(30, 6)
    layer.keeps_factors = True
    optimizer = train(layer)
    before = layer.weight.detach().clone()

    optimizer.step()
    layer(random_rows(8, 30, seed=9)).sum().backward()
    optimizer.zero_grad()
    optimizer.step()

    assert torch.equal(layer.weight, before)
    assert take_factors(layer.weight) == ()


def test_joined_optimizers_forget_factors() -> None:
    """The one that `make_optimizer` gives does as its parts do."""
    model = ScalpelMC(30, 6, 1, 3, 0.0)
    optimizer = make_optimizer(model)
    weight = model.model[0].weight
    assert isinstance(weight, torch.Tensor)
    before = weight.detach().clone()

    with factors_kept(model, "auto"):
        model(random_rows(8, 30, seed=9)).sum().backward()
        assert has_factors(weight)
        optimizer.zero_grad()
        optimizer.step()

    assert torch.equal(weight, before)


@pytest.mark.parametrize(("optim_name", "wanted"), [("auto", True), ("AUTO", True), ("SGD", False)])
def test_only_auto_works_with_factors(optim_name: str, *, wanted: bool) -> None:
    """Other optimizers read ``weight.grad``."""
    model = ScalpelMC(30, 6, 1, 3, 0.0)

    weight = model.model[0].weight
    assert isinstance(weight, torch.Tensor)

    with factors_kept(model, optim_name):
        model(random_rows(8, 30, seed=9)).sum().backward()
        assert (weight.grad is None) is wanted
        assert has_factors(weight) is wanted

    assert not has_factors(weight)
    model(random_rows(8, 30, seed=9)).sum().backward()
    assert weight.grad is not None


def test_clipping_writes_factors_down() -> None:
    """The norm is that of all gradients, and what is clipped is what is applied."""
    written = ScalpelMC(30, 6, 1, 3, 0.0)
    factored = copy.deepcopy(written)
    norms = []
    for model, kind in ((written, "SGD"), (factored, "auto")):
        optimizer = make_optimizer(model)
        with factors_kept(model, kind):
            model(random_rows(8, 30, seed=9)).square().sum().backward()
            norms.append(float(clip_gradients(model.parameters(), 1e-3)))
            optimizer.step()

    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    assert norms[0] > 1e-3
    for one, other in zip(written.parameters(), factored.parameters(), strict=True):
        torch.testing.assert_close(one, other)
