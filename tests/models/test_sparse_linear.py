"""SparseLinear against nn.Linear on the same columns written out."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_models import dense_by_loops, random_rows
from torch import nn

from lancetnic_dask.errors import SettingError
from lancetnic_dask.models import SparseLinear, SparseRows
from lancetnic_dask.models.sparse_linear import bag_with_torch_gradient, row_gradient

batch_sizes = st.integers(0, 9)
text_sizes = st.integers(0, 40)
widths = st.integers(1, 20)


def linear_like(layer: SparseLinear) -> nn.Linear:
    """Make the nn.Linear with the same weights."""
    linear = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None)
    parts: list[torch.Tensor] = [layer.weight]
    if layer.numeric_weight is not None:
        parts.append(layer.numeric_weight)
    with torch.no_grad():
        linear.weight.copy_(torch.cat(parts).t())
        if layer.bias is not None:
            linear.bias.copy_(layer.bias)
    return linear


def all_gradients(layer: SparseLinear) -> dict[str, torch.Tensor]:
    """Return name -> gradient, written out; zeros where there is none."""
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad.to_dense()
        for name, p in layer.named_parameters()
    }


def check_equals_linear(layer: SparseLinear, rows: SparseRows) -> None:
    """Compare output and gradients with nn.Linear, to 1e-6 of their size."""
    linear = linear_like(layer)
    num_text = layer.in_features - layer.num_numeric
    columns = torch.tensor(dense_by_loops(rows, num_text)).reshape(-1, layer.in_features)
    weights = torch.randn(rows.num_rows, layer.out_features)

    out, wanted = layer(rows), linear(columns)
    (out * weights).sum().backward()
    (wanted * weights).sum().backward()

    torch.testing.assert_close(out, wanted, rtol=1e-6, atol=4e-6)
    gradients = all_gradients(layer)
    assert linear.weight.grad is not None
    wanted_grad = linear.weight.grad.t()
    torch.testing.assert_close(gradients["weight"], wanted_grad[:num_text], rtol=1e-6, atol=4e-6)
    if layer.numeric_weight is not None:
        found = gradients["numeric_weight"]
        torch.testing.assert_close(found, wanted_grad[num_text:], rtol=1e-6, atol=4e-6)
    if layer.bias is not None:
        torch.testing.assert_close(gradients["bias"], linear.bias.grad, rtol=1e-6, atol=4e-6)


@settings(deadline=None)
@given(
    sizes=st.tuples(batch_sizes, text_sizes, st.integers(0, 3), widths), bias=..., dense_grad=...
)
def test_it_equals_a_linear_layer(
    *, sizes: tuple[int, int, int, int], bias: bool, dense_grad: bool
) -> None:
    """Forward and backward, for any shape: no row, no term, no text column, one row."""
    num_rows, num_text, num_numeric, width = sizes
    if num_text + num_numeric == 0:
        num_numeric = 1
    layer = SparseLinear(
        num_text + num_numeric, width, num_numeric=num_numeric, bias=bias, dense_grad=dense_grad
    )

    check_equals_linear(layer, random_rows(num_rows, num_text, num_numeric=num_numeric))


def test_a_large_batch_equals_a_linear_layer() -> None:
    """The sums of hundreds of entries stay as close as those of nn.Linear."""
    layer = SparseLinear(2_002, 256, num_numeric=2)

    check_equals_linear(layer, random_rows(128, 2_000, num_numeric=2, mean_terms=60))


def test_all_rows_may_be_empty() -> None:
    """The output is the bias, and no row of the weight has a gradient."""
    layer = SparseLinear(7, 3)

    out = layer(random_rows(4, 7, mean_terms=0))
    out.sum().backward()

    assert layer.bias is not None
    assert torch.equal(out, layer.bias.expand(4, 3))
    assert layer.weight.grad is not None
    assert layer.weight.grad._nnz() == 0


def test_the_gradient_holds_each_touched_row_once() -> None:
    """It is sparse over rows, ascending; its values are the dense gradient's, bit for bit."""
    rows = random_rows(30, 50)
    sparse, dense = SparseLinear(50, 8), SparseLinear(50, 8, dense_grad=True)
    dense.load_state_dict(sparse.state_dict())

    for layer in (sparse, dense):
        layer(rows).square().sum().backward()

    assert sparse.weight.grad is not None
    assert sparse.weight.grad.sparse_dim() == 1
    touched, sums = row_gradient(sparse.weight.grad)
    assert touched.tolist() == sorted(set(rows.indices.tolist()))
    assert dense.weight.grad is not None
    assert dense.weight.grad.layout == torch.strided
    assert torch.equal(sums, dense.weight.grad[touched])


def test_gradients_add_up_over_backwards() -> None:
    """Two backwards before a step give the sum, and rows are still unique when read."""
    layer = SparseLinear(20, 4)
    batches = [random_rows(6, 20, seed=seed) for seed in range(2)]
    alone = []
    for rows in batches:
        layer.zero_grad()
        layer(rows).square().sum().backward()
        alone.append(all_gradients(layer)["weight"])

    layer.zero_grad()
    for rows in batches:
        layer(rows).square().sum().backward()

    assert layer.weight.grad is not None
    touched, sums = row_gradient(layer.weight.grad)
    assert touched.tolist() == sorted(set(touched.tolist()))
    torch.testing.assert_close(sums, (alone[0] + alone[1])[touched])
    torch.testing.assert_close(layer.weight.grad.to_dense(), alone[0] + alone[1])


def test_unordered_entries_of_a_gradient_are_merged() -> None:
    """A gradient from elsewhere, with a row twice, is read as the sum."""
    gradient = torch.sparse_coo_tensor(
        torch.tensor([[3, 1, 3]]),
        torch.tensor([[1.0], [2.0], [4.0]]),
        (5, 1),
        check_invariants=True,
    )

    touched, sums = row_gradient(gradient)

    assert touched.tolist() == [1, 3]
    assert sums.tolist() == [[2.0], [5.0]]


def test_rows_and_dense_columns_give_the_same() -> None:
    """One layer takes both; a dense input is differentiated and gives a dense gradient."""
    layer = SparseLinear(12, 5, num_numeric=2)
    rows = random_rows(8, 10, num_numeric=2)
    columns = rows.to_dense(10).requires_grad_()
    layer(rows).square().sum().backward()
    wanted = all_gradients(layer)
    layer.zero_grad()

    out = layer(columns)
    out.square().sum().backward()

    torch.testing.assert_close(out, layer(rows))
    torch.testing.assert_close(all_gradients(layer), wanted)
    assert columns.grad is not None
    assert layer(columns.unsqueeze(1)).shape == (8, 1, 5)


def test_what_a_gpu_runs_gives_the_same() -> None:
    """The path of torch's own, run on the CPU, equals ours."""
    layer = SparseLinear(20, 6, bias=False)
    rows = random_rows(9, 20)
    for dense_grad in (False, True):
        layer.zero_grad()
        layer(rows).square().sum().backward()
        wanted = all_gradients(layer)
        layer.zero_grad()

        out = bag_with_torch_gradient(layer.weight, rows, dense_grad=dense_grad)
        out.square().sum().backward()  # type: ignore[no-untyped-call]

        torch.testing.assert_close(out, layer(rows))
        torch.testing.assert_close(all_gradients(layer), wanted)


def test_the_result_does_not_depend_on_threads() -> None:
    """One and two threads of torch give the same bits, forward and backward."""
    layer = SparseLinear(5_000, 256)
    rows = random_rows(256, 5_000, mean_terms=60)
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            layer.zero_grad()
            out = layer(rows)
            out.square().sum().backward()
            found.append((out.detach(), all_gradients(layer)["weight"]))
    finally:
        torch.set_num_threads(before)

    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


def test_double_precision_agrees_with_finite_differences() -> None:
    """The backward is the derivative of the forward."""
    layer = SparseLinear(6, 3, dense_grad=True).double()
    rows = random_rows(4, 6)

    def multiply(weight: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.func.functional_call(layer, {"weight": weight}, (rows,))
        return out

    assert torch.autograd.gradcheck(multiply, (layer.weight.detach().requires_grad_(),))


def test_it_starts_like_a_linear_layer() -> None:
    """Weights and bias are uniform within 1 / sqrt(in_features), drawn from torch's generator."""
    torch.manual_seed(3)
    layer = SparseLinear(400, 300, num_numeric=100)
    bound = 1 / math.sqrt(400)

    for parameter in layer.parameters():
        assert parameter.abs().max() <= bound
        assert parameter.abs().max() > 0.9 * bound
        assert abs(float(parameter.detach().mean())) < 0.1 * bound
    assert abs(float(layer.weight.detach().std()) - bound / math.sqrt(3)) < 0.01 * bound
    torch.manual_seed(3)
    again = SparseLinear(400, 300, num_numeric=100)
    assert torch.equal(again.weight, layer.weight)


def test_a_frozen_weight_gets_no_gradient() -> None:
    """The bias is trained all the same."""
    layer = SparseLinear(5, 2)
    layer.weight.requires_grad = False

    layer(random_rows(3, 5)).sum().backward()

    assert layer.weight.grad is None
    assert layer.bias is not None
    assert layer.bias.grad is not None


def test_a_copied_layer_is_on_its_own() -> None:
    """A deep copy gives the same output and has its own weights."""
    layer, rows = SparseLinear(5, 2), random_rows(3, 5)
    layer(rows).sum().backward()

    copied = copy.deepcopy(layer)

    assert torch.equal(copied(rows), layer(rows))
    assert copied.weight is not layer.weight


def test_read_only_rows_are_taken() -> None:
    """Memory-mapped arrays need no copy by the caller."""
    rows = random_rows(3, 5, num_numeric=1)
    for array in (rows.indptr, rows.indices, rows.values, rows.numeric):
        array.flags.writeable = False

    SparseLinear(6, 2, num_numeric=1)(rows).sum().backward()

    assert rows.to_dense(5).tolist() == dense_by_loops(rows, 5)


@pytest.mark.parametrize("column", [5, -1])
def test_a_column_outside_the_layer_is_an_error(column: int) -> None:
    """Rows made for another vocabulary never read foreign memory."""
    rows = SparseRows(
        np.array([0, 1]),
        np.array([column], np.int32),
        np.ones(1, np.float32),
        np.zeros((1, 0), "f4"),
    )

    with pytest.raises(IndexError) as caught:
        SparseLinear(5, 2)(rows)

    assert str(caught.value) == "A column of the rows is not among the 5 of the layer."


def test_other_numeric_columns_are_an_error() -> None:
    """They would be left out silently otherwise."""
    with pytest.raises(SettingError) as caught:
        SparseLinear(5, 2)(random_rows(2, 5, num_numeric=3))

    assert str(caught.value) == (
        "The rows have 3 numeric columns, the layer has 0.\n"
        "  Build the model for the columns of this corpus."
    )


@pytest.mark.parametrize(
    ("sizes", "num_numeric", "message"),
    [
        ((0, 2), 0, "in_features is 0; it must be 1 or more."),
        ((2, 0), 0, "out_features is 0; it must be 1 or more."),
        ((2, 2), 3, "num_numeric is 3; it must be between 0 and in_features, 2."),
        ((2, 2), -1, "num_numeric is -1; it must be between 0 and in_features, 2."),
    ],
)
def test_impossible_sizes_are_errors(
    sizes: tuple[int, int], num_numeric: int, message: str
) -> None:
    """The error names the size and its range."""
    with pytest.raises(SettingError) as caught:
        SparseLinear(*sizes, num_numeric=num_numeric)

    assert str(caught.value) == message
