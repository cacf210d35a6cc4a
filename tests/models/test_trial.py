"""Mistakes in a class of the user's are found on two rows, before a file is read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from own_models import OwnDense, OwnSparse
from torch import nn

from lancetnic_dask.errors import SettingError
from lancetnic_dask.models import ScalpelMC, SparseLinear
from lancetnic_dask.models.networks import NetworkPlan, build_network
from lancetnic_dask.models.trial import check_scores, try_class


def plan_of(model_class: type[nn.Module], **sizes: Any) -> NetworkPlan:
    """Return a plan as it is before anything is known of the corpus."""
    defaults = {
        "input_size": 2,
        "num_numeric": 2,
        "hidden_size": 8,
        "num_layers": 1,
        "num_classes": 0,
        "dropout": 0.0,
    }
    return NetworkPlan(model_class=model_class, **(defaults | sizes))


def refused(plan: NetworkPlan) -> str:
    """Return what is said of a class."""
    with pytest.raises(SettingError) as caught:
        try_class(plan, "auto")
    return str(caught.value)


class Linear(nn.Module):
    """One layer; tests change what it does."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int, num_classes: int, dropout: float
    ) -> None:
        super().__init__()
        del hidden_size, num_layers, dropout
        self.layer = nn.Linear(input_size, num_classes)

    def forward(self, x: torch.Tensor) -> Any:
        """Score rows."""
        return self.layer(x)


ADVICE = (
    "\n  Let {}.forward take rows of input_size columns and return num_classes scores, before "
    "softmax, for each."
)


class Wide(Linear):
    """Multiplies what can't be multiplied."""

    def forward(self, x: torch.Tensor) -> Any:
        """Fail on all rows."""
        return x @ torch.ones(3, 3)


class Squeezed(Linear):
    """Loses the dimension of rows where there is one row."""

    def forward(self, x: torch.Tensor) -> Any:
        """Right for two rows."""
        return self.layer(x).squeeze()


class Pair(Linear):
    """Returns what an LSTM returns."""

    def forward(self, x: torch.Tensor) -> Any:
        """Return two things."""
        del x
        return 1, 2


class Whole(Linear):
    """Returns classes, not scores."""

    def forward(self, x: torch.Tensor) -> Any:
        """Return whole numbers."""
        return self.layer(x).long()


class FailsInTraining(Linear):
    """Is right when nothing is trained."""

    def forward(self, x: torch.Tensor) -> Any:
        """Fail in training."""
        if self.training:
            raise KeyError("step")
        return self.layer(x)


@pytest.mark.parametrize(
    ("model_class", "what"),
    [
        (Wide, ("Wide cannot be trained: RuntimeError: mat1 and mat2 shapes cannot be multiplied "
                "(2x18 and 3x3).")),
        (Squeezed, ("For 1 row(s) Squeezed returns torch.float32 of shape (3,); it must be float "
                    "of shape (1, num_classes).")),
        (Pair, "Pair returns (1, 2), not a tensor."),
        (Whole, ("For 2 row(s) Whole returns torch.int64 of shape (2, 3); it must be float of "
                 "shape (2, num_classes).")),
        (FailsInTraining, "FailsInTraining cannot be trained: KeyError: 'step'."),
    ],
)  # fmt: skip
def test_what_forward_does_wrong_is_told(model_class: type[nn.Module], what: str) -> None:
    """With what it did or returned, and what it should."""
    assert refused(plan_of(model_class)) == what + ADVICE.format(model_class.__name__)


class Frozen(Linear):
    """Nothing to train."""

    def __init__(self, *sizes: Any) -> None:
        super().__init__(*sizes)
        self.requires_grad_(requires_grad=False)


class ComplexBuffer(Linear):
    """A buffer that no file can hold."""

    def __init__(self, *sizes: Any) -> None:
        super().__init__(*sizes)
        self.register_buffer("waves", torch.zeros(2, dtype=torch.complex64))


class ExtraState(Linear):
    """State that is no tensor."""

    def get_extra_state(self) -> Any:
        """Return a dict."""
        return {"a": 1}

    def set_extra_state(self, state: Any) -> None:
        """Take it back."""


class LateLayer(Linear):
    """A layer that is made when the first rows come."""

    def __init__(self, *sizes: Any) -> None:
        super().__init__(*sizes)
        self.late: nn.Linear | None = None

    def forward(self, x: torch.Tensor) -> Any:
        """Make a layer, once."""
        if self.late is None:
            self.late = nn.Linear(3, 3)
        return self.late(self.layer(x))


@pytest.mark.parametrize(
    ("model_class", "what"),
    [
        (Frozen, "Frozen has no weight that can be trained."),
        (ComplexBuffer, ("ComplexBuffer keeps 'waves' as torch.complex64, which a model's file "
                         "cannot hold.\n  Register it with persistent=False, or make it a tensor "
                         "of numbers.")),
        (ExtraState, ("ExtraState keeps '_extra_state' as dict, which a model's file cannot hold.\n"
                      "  Register it with persistent=False, or make it a tensor of numbers.")),
        (LateLayer, "LateLayer makes layers or buffers in forward.\n  Make them in __init__."),
    ],
)  # fmt: skip
def test_what_could_not_be_kept_is_told(model_class: type[nn.Module], what: str) -> None:
    """Not after the first epoch of many hours."""
    assert refused(plan_of(model_class)) == what


@pytest.mark.parametrize("model_class", [ScalpelMC, OwnSparse, OwnDense, Linear])
@pytest.mark.parametrize("num_numeric", [0, 3])
def test_a_sound_class_passes(model_class: type[nn.Module], num_numeric: int) -> None:
    """With and without numbers."""
    for optim_name in ("auto", "Adam"):
        try_class(plan_of(model_class, input_size=num_numeric, num_numeric=num_numeric), optim_name)


def test_numbers_alone_are_tried_without_words() -> None:
    """A sparse layer has no text column then."""
    plan = plan_of(OwnSparse, num_classes=3)

    try_class(plan, "auto", has_texts=False)
    check_scores(plan, build_network(plan))


class SparseGradients(nn.Module):
    """Holds a sparse layer, and can't be asked for dense gradients."""

    def __init__(self, input_size: int, hidden_size: int, *sizes: Any) -> None:
        del sizes
        super().__init__()
        self.layer = SparseLinear(input_size, hidden_size)


class TakesAllOptions(ScalpelMC):
    """Passes on what it does not know."""

    def __init__(self, *sizes: Any, **options: Any) -> None:
        super().__init__(*sizes, **options)


def test_the_optimizer_is_tried_too() -> None:
    """Not after the corpus has been read."""
    with pytest.raises(SettingError, match="Adam changes every weight in every step"):
        try_class(plan_of(SparseGradients), "Adam")
    for optim_name in ("auto", "Adam"):
        try_class(plan_of(TakesAllOptions), optim_name)


class Enormous(Linear):
    """Four terabytes, whatever the input."""

    def __init__(self, *sizes: Any) -> None:
        super().__init__(*sizes)
        self.square = nn.Parameter(torch.empty(1_000_000, 1_000_000))


def test_a_class_too_large_for_a_trial_is_left_to_the_budget() -> None:
    """Nothing of it is built."""
    try_class(plan_of(Enormous), "auto")


class FiveClasses(Linear):
    """Knows how many classes its author's table has."""

    def __init__(self, input_size: int, *sizes: Any) -> None:
        del sizes
        super().__init__(input_size, 1, 1, 5, 0.0)


def test_the_number_of_scores_is_compared_with_the_real_classes() -> None:
    """A class may be made for a certain number of them."""
    try_class(plan_of(FiveClasses), "auto")
    right = plan_of(FiveClasses, input_size=42, num_classes=5)
    network = build_network(right)

    check_scores(right, network)

    assert network.training
    wrong = plan_of(FiveClasses, input_size=42, num_classes=4)
    with pytest.raises(SettingError) as caught:
        check_scores(wrong, build_network(wrong))
    assert str(caught.value) == (
        "For 4 classes FiveClasses returns 5 scores a row." + ADVICE.format("FiveClasses")
    )
