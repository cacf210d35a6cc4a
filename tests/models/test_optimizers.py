"""Optimizers by name, clipping, and the bytes that training takes."""

from __future__ import annotations

import copy
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from reference_models import random_rows
from torch import nn

from lancetnic_dask.errors import SettingError
from lancetnic_dask.models import RowWiseAdagrad, ScalpelMC
from lancetnic_dask.models.optimizers import (
    OPTIMIZERS,
    JoinedOptimizer,
    clip_gradients,
    make_optimizer,
    needs_dense_grad,
    optimizer_bytes,
)

TEXTBOOK = [name for name in OPTIMIZERS if name != "auto"]


def make_model(*, dense_grad: bool = False, seed: int = 0) -> ScalpelMC:
    """Make a small model, always with the same weights."""
    torch.manual_seed(seed)
    return ScalpelMC(22, 5, 2, 3, 0.0, num_numeric=2, dense_grad=dense_grad)


def take_steps(model: nn.Module, optimizer: torch.optim.Optimizer, seeds: range) -> None:
    """Train on one random batch for each seed."""
    for seed in seeds:
        optimizer.zero_grad()
        model(random_rows(8, 20, num_numeric=2, seed=seed)).square().sum().backward()
        optimizer.step()


def weights_of(model: nn.Module) -> torch.Tensor:
    """Return all weights as one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize(
    ("learning_rate", "wanted"),
    [(None, (0.035, 0.001)), (0.001, (0.035, 0.001)), (0.004, (0.14, 0.004))],
)
def test_auto_keeps_the_two_rates_in_proportion(
    learning_rate: float | None, wanted: tuple[float, float]
) -> None:
    """Lancetnic's 0.001 means the defaults; another value scales both."""
    optimizer = make_optimizer(make_model(), "auto", learning_rate)

    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx(wanted, rel=1e-12)


def test_auto_trains_every_parameter_once() -> None:
    """The sparse layer's weight by RowWiseAdagrad, everything else by Adam: as the two alone."""
    joined, apart = make_model(), make_model()
    take_steps(joined, make_optimizer(joined), range(3))
    sparse = apart.get_parameter("model.0.weight")
    rest = [parameter for parameter in apart.parameters() if parameter is not sparse]
    optimizers = [RowWiseAdagrad([sparse]), torch.optim.Adam(rest)]

    for seed in range(3):
        apart.zero_grad()
        apart(random_rows(8, 20, num_numeric=2, seed=seed)).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()

    assert torch.equal(weights_of(joined), weights_of(apart))


def test_auto_is_adam_where_nothing_is_sparse() -> None:
    """A user's dense model needs no RowWiseAdagrad."""
    assert type(make_optimizer(nn.Linear(2, 2))) is torch.optim.Adam


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_goes_on_from_its_state_bit_for_bit(name: str) -> None:
    """Two steps, a new optimizer with the saved state, two steps: the same as four."""
    straight = make_model(dense_grad=needs_dense_grad(name))
    resumed = copy.deepcopy(straight)
    take_steps(straight, make_optimizer(straight, name, 0.01), range(4))

    first = make_optimizer(resumed, name, 0.01)
    take_steps(resumed, first, range(2))
    second = make_optimizer(resumed, name)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    take_steps(resumed, second, range(2, 4))

    assert torch.equal(weights_of(resumed), weights_of(straight))


@pytest.mark.parametrize("name", TEXTBOOK)
def test_a_named_optimizer_keeps_its_textbook_meaning(name: str) -> None:
    """The weights are those of torch's optimizer on the same model with dense layers."""
    model = make_model(dense_grad=needs_dense_grad(name))
    twin = copy.deepcopy(model)
    take_steps(model, make_optimizer(model, name.upper()), range(3))
    optimizer = getattr(torch.optim, name)(twin.parameters())

    for seed in range(3):
        optimizer.zero_grad()
        twin(random_rows(8, 20, num_numeric=2, seed=seed).to_dense(20)).square().sum().backward()
        optimizer.step()

    torch.testing.assert_close(weights_of(model), weights_of(twin), rtol=1e-4, atol=1e-5)


def test_a_schedule_reaches_the_parts() -> None:
    """A scheduler of torch on the joined optimizer changes the steps, after loading too."""
    model = make_model()
    optimizer = make_optimizer(model)
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _step: 0.0)
    before = weights_of(model)

    take_steps(model, optimizer, range(1))
    schedule.step()

    assert torch.equal(weights_of(model), before)


def test_joined_optimizers_call_the_closure_once() -> None:
    """Its loss comes back."""
    weight = nn.Parameter(torch.ones(2, 2))
    bias = nn.Parameter(torch.ones(2))
    optimizer = JoinedOptimizer([RowWiseAdagrad([weight]), torch.optim.SGD([bias])])
    calls = []

    def closure() -> float:
        calls.append(1)
        return 0.25

    assert optimizer.step(closure) == 0.25
    assert len(calls) == 1


def test_joined_optimizers_take_no_later_parameters() -> None:
    """They would never be trained."""
    with pytest.raises(SettingError) as caught:
        make_optimizer(make_model()).add_param_group({"params": [nn.Parameter(torch.zeros(2))]})

    assert str(caught.value) == (
        "Parameters cannot be added to joined optimizers.\n"
        "  Add them to the model before the optimizer is made."
    )


def test_an_unknown_name_is_an_error_with_the_known_ones() -> None:
    """Lancetnic takes any such name for Adam without a word."""
    with pytest.raises(SettingError) as caught:
        make_optimizer(make_model(), "Adma")

    assert str(caught.value) == (
        "There is no optimizer 'Adma'.\n  Did you mean 'Adam'? There are: 'auto', 'Adam', 'AdamW', "
        "'RAdam', 'SGD', 'RMSprop', 'Adadelta', 'Adagrad'."
    )


def test_a_dense_optimizer_refuses_a_row_sparse_model() -> None:
    """The error comes before training, with both ways out."""
    with pytest.raises(SettingError) as caught:
        make_optimizer(make_model(), "adam")

    assert str(caught.value) == (
        "Adam changes every weight in every step; this model gives row-sparse gradients.\n"
        "  Build the model with dense_grad=True, or use optim_name='auto'."
    )


@pytest.mark.parametrize("learning_rate", [0.0, -1.0, math.inf, math.nan])
def test_a_learning_rate_out_of_range_is_an_error(learning_rate: float) -> None:
    """The error names value and range."""
    with pytest.raises(SettingError) as caught:
        make_optimizer(make_model(), "auto", learning_rate)

    assert str(caught.value) == (
        f"learning_rate is {learning_rate}; it must be above 0 and finite."
    )


# Copies of the largest parameter that torch makes while it steps.
STEP_COPIES = {"Adam": 2, "AdamW": 2, "RAdam": 2, "Adadelta": 2, "RMSprop": 1, "Adagrad": 1}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_bytes_are_those_of_a_real_optimizer(name: str) -> None:
    """Gradients, state and the copies of a step add up to what was said, step counters apart."""
    model = make_model(dense_grad=needs_dense_grad(name))
    optimizer = make_optimizer(model, name)
    take_steps(model, optimizer, range(1))
    weight = model.get_parameter("model.0.weight")
    touched = len(set(random_rows(8, 20, num_numeric=2, seed=0).indices.tolist()))
    num_rows, width = weight.shape
    others = len(weights_of(model)) - weight.numel()

    said = optimizer_bytes(name, num_rows, width, others, touched_rows=touched)

    found = 0
    for parameter in model.parameters():
        gradient = parameter.grad
        assert gradient is not None
        parts = [gradient._indices(), gradient._values()] if gradient.is_sparse else [gradient]
        state = optimizer.state[parameter]
        parts += [
            value
            for key, value in state.items()
            if isinstance(value, torch.Tensor) and key != "step"
        ]
        found += sum(part.numel() * part.element_size() for part in parts)
    largest = max(weight.numel(), others)
    stepping = 2 * others if name == "auto" else STEP_COPIES.get(name, 0) * largest
    assert said == found + 4 * stepping
    assert said <= optimizer_bytes(name, num_rows, width, others)


# Two training steps of each optimizer; the second one has gradients, state and temporaries at once.
MEASURE = """\
from pathlib import Path
import numpy as np
import torch
from lancetnic_dask.models import ScalpelMC, SparseRows
from lancetnic_dask.models.optimizers import (
    OPTIMIZERS, make_optimizer, needs_dense_grad, optimizer_bytes,
)

def kib(*names):
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.split(":")[0] in names)

def measure(name, num_rows, width, touched):
    batch = SparseRows(
        np.arange(0, touched + 1, 100, dtype=np.int64),
        np.random.default_rng(0).permutation(num_rows)[:touched].astype(np.int32),
        np.ones(touched, np.float32),
        np.zeros((touched // 100, 0), np.float32),
    )
    before = kib("RssAnon")
    model = ScalpelMC(num_rows, width, 1, 3, 0.0, dense_grad=needs_dense_grad(name))
    optimizer = make_optimizer(model, name)
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    for _ in range(2):
        optimizer.zero_grad(set_to_none=True)
        model(batch).sum().backward()
        optimizer.step()
    peak = kib("VmHWM") - kib("RssFile", "RssShmem") - before
    weights = sum(parameter.numel() for parameter in model.parameters())
    said = optimizer_bytes(
        name, num_rows, width, weights - num_rows * width, touched_rows=touched
    )
    return 1024 * peak, said + 4 * weights

torch.set_num_threads(1)
for name in OPTIMIZERS:
    measure(name, 1000, 8, 100)
    print(name, *measure(name, 100_000, 64, 20_000), *measure(name, 100_000, 64, 100_000))
"""


@pytest.mark.system
@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak of a while"
)
def test_bytes_are_what_a_real_step_takes() -> None:
    """With few and with all rows touched, a process grows by weights and the bytes said.

    tracemalloc does not see torch's memory. Small blocks are mapped too, so that what is freed
    counts no more.
    """
    done = subprocess.run(
        [sys.executable, "-c", MEASURE],
        env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == list(OPTIMIZERS)
    for name, *sizes in lines:
        for measured, said in (sizes[:2], sizes[2:]):
            assert 0.85 < int(measured) / int(said) < 1.15, name


@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clipping_equals_that_of_torch(max_norm: float) -> None:
    """Row-sparse gradients, one of them accumulated, are scaled as dense ones are."""
    sparse, dense = make_model(), make_model(dense_grad=True)
    for model in (sparse, dense):
        for seed in range(2):
            model(random_rows(8, 20, num_numeric=2, seed=seed)).square().sum().backward()

    norm = clip_gradients(sparse.parameters(), max_norm)

    wanted = nn.utils.clip_grad_norm_(dense.parameters(), max_norm)
    torch.testing.assert_close(norm, wanted)
    for ours, theirs in zip(sparse.parameters(), dense.parameters(), strict=True):
        assert ours.grad is not None
        torch.testing.assert_close(ours.grad.to_dense(), theirs.grad)


def test_a_gradient_in_any_order_is_clipped_too() -> None:
    """A row that stands twice counts by its sum."""
    weight = nn.Parameter(torch.zeros(5, 1))
    weight.grad = torch.sparse_coo_tensor(
        torch.tensor([[3, 1, 3]]),
        torch.tensor([[1.0], [4.0], [2.0]]),
        (5, 1),
        check_invariants=True,
    )

    norm = clip_gradients([weight], 1.0)

    assert norm == 5.0
    torch.testing.assert_close(
        weight.grad.to_dense().flatten(), torch.tensor([0, 0.8, 0, 0.6, 0]), rtol=1e-5, atol=0
    )


def test_the_norm_tells_of_a_nan() -> None:
    """One number shows that any gradient is not finite; nothing is scaled then."""
    model = make_model()
    model(random_rows(8, 20, num_numeric=2)).sum().backward()
    weight = model.get_parameter("model.0.weight")
    assert weight.grad is not None
    weight.grad._values()[0, 0] = math.nan
    bias = model.get_parameter("model.0.bias").grad
    assert bias is not None
    before = bias.clone()

    assert torch.isnan(clip_gradients(model.parameters(), 1e-3))
    assert torch.equal(bias, before)


def test_nothing_to_clip_has_norm_zero() -> None:
    """Before the first backward."""
    assert clip_gradients(make_model().parameters(), 1.0) == 0


def test_a_max_norm_of_zero_is_an_error() -> None:
    """It would stop training without a word."""
    with pytest.raises(SettingError) as caught:
        clip_gradients([], 0.0)

    assert str(caught.value) == "max_norm is 0.0; it must be above 0."


@pytest.mark.parametrize("kind", ["strided", "complex"])
def test_auto_trains_what_fused_kernels_do_not_take(kind: str) -> None:
    """A user's parameter may be a slice, or complex: Adam trains it as it always does."""

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            values = torch.linspace(1, 2, 12).reshape(3, 4)
            self.odd = nn.Parameter(values[:, ::2] if kind == "strided" else values + 1j * values)

    ours, plain = Odd(), Odd()
    optimizers = [make_optimizer(ours), torch.optim.Adam(plain.parameters(), lr=0.001)]
    for model, optimizer in zip((ours, plain), optimizers, strict=True):
        for _ in range(3):
            optimizer.zero_grad()
            torch.autograd.backward(model.odd.abs().square().sum())
            optimizer.step()

    torch.testing.assert_close(ours.odd, plain.odd)
    assert not torch.equal(ours.odd, Odd().odd)
