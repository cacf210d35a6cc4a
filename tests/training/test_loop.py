"""The loop: the same weights from the same seed, from any step on, and nothing left changed."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from lancetnic_dask.errors import SettingError, TrainingError
from lancetnic_dask.features.groups import ShardGroup, row_order
from lancetnic_dask.features.weighting import EncodedRows
from lancetnic_dask.models import ScalpelMC, SparseLinear, rowwise_adagrad
from lancetnic_dask.models.dense_input import DenseInput
from lancetnic_dask.settings import TrainingSettings
from lancetnic_dask.training.loop import EpochResult, Trainer, make_criterion, train_epoch, validate
from lancetnic_dask.training.torch_state import running_norms, seeded_weights, step_seeds

if TYPE_CHECKING:
    from collections.abc import Generator

CPU = torch.device("cpu")
NUM_TERMS = 30


def make_rows(num_rows: int, seed: int) -> EncodedRows:
    """Return rows of three classes, each with a term of its own among others."""
    rng = np.random.default_rng(seed)
    target = rng.integers(0, 3, num_rows)
    terms = [np.unique([label, *rng.integers(3, NUM_TERMS, 4)]) for label in target]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in terms])]).astype(np.int64)
    return EncodedRows(
        indptr=indptr,
        indices=np.concatenate([np.empty(0), *terms]).astype(np.int32),
        values=np.full(indptr[-1], 0.5, np.float32),
        numeric=rng.normal(size=(num_rows, 1)).astype(np.float32),
        target=target.astype(np.int64),
    )


def groups_of_epoch(epoch: int) -> Generator[ShardGroup, None, None]:
    """Yield three groups of 50 rows."""
    for index in range(3):
        rows = make_rows(50, seed=index)
        yield ShardGroup(index, rows, row_order(50, random_state=1, epoch=epoch, group=index))


def validation_rows() -> Generator[EncodedRows, None, None]:
    """Yield 600 rows: more than are scored at once."""
    yield make_rows(600, seed=9)


def make_trainer(**options: Any) -> Trainer:
    """Return a trainer of a small network with dropout."""
    settings = TrainingSettings(
        **{"num_epochs": 2, "batch_size": 16, "dropout": 0.3, "random_state": 1} | options
    )
    with seeded_weights(settings.random_state):
        model = ScalpelMC(NUM_TERMS + 1, 8, 2, 3, settings.dropout, num_numeric=1)
    return Trainer(model, settings, CPU)


def weights_of(trainer: Trainer) -> list[bytes]:
    """Return all weights as bytes."""
    return [value.numpy().tobytes() for value in trainer.model.state_dict().values()]


def run(trainer: Trainer, num_epochs: int = 2) -> list[EpochResult]:
    """Train to the end; return the results of the epochs."""
    return [
        train_epoch(trainer, groups_of_epoch(epoch), validation_rows(), num_classes=3)
        for epoch in range(trainer.progress.epoch, num_epochs)
    ]


def test_the_same_seed_gives_the_same_weights_whatever_else_draws() -> None:
    """Torch's global generator and its number of threads don't matter, and are put back."""
    first = make_trainer()
    run(first)
    torch.rand(17)
    before = torch.get_rng_state(), torch.get_num_threads()

    second = make_trainer()
    results = run(second)

    assert weights_of(first) == weights_of(second)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.get_num_threads() == before[1]
    assert results[-1].train_loss < results[0].train_loss
    assert results[-1].num_rows == 150
    assert results[-1].num_steps == 12


def test_training_goes_on_from_any_step() -> None:
    """Weights, optimizer state and progress are all that is carried from step to step."""
    whole = make_trainer()
    results = run(whole)
    broken = make_trainer()
    groups = list(groups_of_epoch(0))
    broken.train_group(groups[0])
    _stop_after(broken, groups[1], num_steps=2)

    resumed = make_trainer(random_state=1)
    resumed.model.load_state_dict(broken.model.state_dict())
    resumed.optimizer.load_state_dict(broken.optimizer.state_dict())
    resumed.progress = broken.progress
    assert (resumed.progress.group, resumed.progress.step) == (1, 2)
    resumed.train_group(groups[1])
    resumed.train_group(groups[2])
    sums = resumed.end_epoch()
    run(resumed)

    assert weights_of(resumed) == weights_of(whole)
    assert sums.num_rows == results[0].num_rows
    assert sums.loss_sum / sums.num_rows == results[0].train_loss


def _stop_after(trainer: Trainer, group: ShardGroup, num_steps: int) -> None:
    """Train on the first steps of a group, as a run that is killed there."""

    class KilledError(Exception):
        pass

    steps = iter(range(num_steps))
    step = trainer._train_step

    def counted(*arguments: Any) -> None:
        if next(steps, None) is None:
            raise KilledError
        step(*arguments)

    trainer._train_step = counted  # type: ignore[method-assign, assignment]
    with pytest.raises(KilledError):
        trainer.train_group(group)
    del trainer._train_step


def test_an_infinite_loss_stops_before_the_weights_are_spoilt() -> None:
    """The message names epoch and step, and torch's state is put back."""
    trainer = make_trainer(learning_rate=0.5)
    group = next(groups_of_epoch(0))
    spoilt = replace(group.rows, numeric=np.full((50, 1), np.inf, np.float32))
    before = torch.get_rng_state(), torch.get_num_threads(), weights_of(trainer)

    with pytest.raises(TrainingError) as caught:
        trainer.train_group(replace(group, rows=spoilt))

    assert str(caught.value) == (
        "The loss is nan in epoch 1, step 1.\n  Pass a lower learning_rate; it is 0.5 under 'auto'."
    )
    assert weights_of(trainer) == before[2]
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.get_num_threads() == before[1]


def test_an_infinite_validation_loss_is_an_error() -> None:
    """NaN is below no other loss, so no model would ever be the best."""
    trainer = make_trainer()
    rows = make_rows(20, seed=0)
    spoilt = replace(rows, numeric=np.full((20, 1), np.inf, np.float32))

    with pytest.raises(TrainingError, match="The validation loss is nan"):
        validate(trainer.model, iter([rows, spoilt]), criterion=trainer.criterion, num_classes=3)


def test_validation_doesnt_depend_on_how_the_rows_come() -> None:
    """The mean is over rows, not over parts; dropout is off."""
    trainer = make_trainer()
    parts = [make_rows(count, seed=count) for count in (1, 0, 30, 200)]
    criterion = torch.nn.CrossEntropyLoss()

    validation = validate(trainer.model, iter(parts), criterion=criterion, num_classes=3)

    assert validation is not None
    logits, target = [], []
    with torch.no_grad():
        for part in parts:
            for row in range(part.num_rows):
                dense = np.zeros(NUM_TERMS + 1, np.float32)
                entries = slice(part.indptr[row], part.indptr[row + 1])
                dense[part.indices[entries]] = part.values[entries]
                dense[-1] = part.numeric[row, 0]
                logits.append(trainer.model(torch.from_numpy(dense)[None]))
                target.append(int(part.target[row]))
    expected = float(criterion(torch.cat(logits), torch.tensor(target)))
    assert validation.loss == pytest.approx(expected, rel=1e-5)
    assert validation.counts.num_rows == 231


def test_without_validation_rows_there_is_no_validation() -> None:
    """None, not a loss of zero."""
    trainer = make_trainer()

    assert validate(trainer.model, iter([]), criterion=trainer.criterion, num_classes=3) is None


def test_an_epoch_tells_each_row_once() -> None:
    """Those that train, step by step, and then those that validate."""
    told: list[int] = []

    train_epoch(
        make_trainer(),
        groups_of_epoch(0),
        validation_rows(),
        num_classes=3,
        advance=told.append,
    )

    assert sum(told) == 3 * 50 + 600
    assert max(told[:-2]) <= 16


def test_what_validates_is_closed_when_scoring_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may hold a thread that reads ahead."""
    closed = []

    def rows() -> Generator[EncodedRows, None, None]:
        try:
            yield make_rows(600, seed=9)
        finally:
            closed.append(True)

    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("lancetnic_dask.training.loop.score_rows", stop)
    with pytest.raises(KeyboardInterrupt) as kept:  # its traceback holds the generator
        train_epoch(make_trainer(), groups_of_epoch(0), rows(), num_classes=3)

    assert closed == [True]
    del kept


def test_the_gradient_of_the_sparse_layer_is_not_written_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That is what makes a step fast; after the group the layer leaves gradients as any other."""
    calls: list[Any] = []
    kernel = vars(rowwise_adagrad)["update_rows_by_factors"]
    monkeypatch.setattr(
        rowwise_adagrad, "update_rows_by_factors", lambda *args: calls.append(kernel(*args))
    )
    trainer = make_trainer()
    group = next(groups_of_epoch(0))

    trainer.train_group(group)

    (layer,) = (one for one in trainer.model.modules() if isinstance(one, SparseLinear))
    assert len(calls) == 4  # 50 rows in batches of 16
    assert layer.weight.grad is None
    assert not layer.keeps_factors


def test_the_seed_of_a_step_does_not_depend_on_how_many_there_are() -> None:
    """A group that is cut short, or gone on with, has the same dropout."""
    few, many = (step_seeds(1, epoch=2, group=3, num_steps=count) for count in (3, 500))

    assert few.tolist() == many[:3].tolist()
    assert len(set(many.tolist())) == 500


def test_names_of_losses_are_checked() -> None:
    """An unknown one lists the known."""
    assert isinstance(make_criterion("CELoss"), torch.nn.CrossEntropyLoss)
    with pytest.raises(SettingError, match="Classification knows 'CELoss'"):
        make_criterion("hinge")


def test_a_batch_of_one_row_is_trained_under_batch_norm() -> None:
    """By the running mean and variance, which stay as they are: one row has no variance."""
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    network.train()
    before = {name: one.clone() for name, one in network.state_dict().items()}

    with running_norms(network):
        network(torch.ones(1, 3)).sum().backward()

    assert all(torch.equal(one, before[name]) for name, one in network.state_dict().items())
    assert all(layer.training for layer in network)


def test_an_epoch_may_hold_a_group_of_one_row() -> None:
    """A last shard may have but one row that trains."""
    settings = TrainingSettings(num_epochs=1, batch_size=16)
    trainer = Trainer(
        DenseInput(
            torch.nn.Sequential(
                torch.nn.Linear(NUM_TERMS + 1, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3)
            ),
            num_text_features=NUM_TERMS,
        ),
        settings,
        CPU,
    )

    trainer.train_group(ShardGroup(0, make_rows(1, seed=0), np.arange(1)))

    assert trainer.progress.num_rows == 1


def test_two_trainings_at_once_do_not_disturb_each_other() -> None:
    """All threads share torch's generators: the trainings take turns."""
    alone = make_trainer()
    run(alone)
    together = [make_trainer() for _ in range(3)]
    threads = [threading.Thread(target=run, args=[trainer]) for trainer in together]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [weights_of(trainer) == weights_of(alone) for trainer in together] == [True] * 3


def test_torch_defaults_of_the_caller_do_not_matter() -> None:
    """Other defaults of type and device, no gradients, inference: the same weights."""
    plain = make_trainer()
    run(plain)

    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode(), torch.device("meta"):
            other = make_trainer()
            run(other)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)

    assert weights_of(other) == weights_of(plain)
