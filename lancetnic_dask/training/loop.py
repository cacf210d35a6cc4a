"""Shard groups -> a trained model, epoch by epoch.

The loop yields; it knows neither the run folder nor the cluster. What is done with an epoch's
result is up to the caller.
"""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from lancetnic_dask.errors import SettingError, TrainingError, quoted
from lancetnic_dask.models.optimizers import make_optimizer
from lancetnic_dask.training.batches import Batch, iter_batches
from lancetnic_dask.training.metrics import ClassCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from contextlib import AbstractContextManager

    from lancetnic_dask.features.groups import ShardGroup
    from lancetnic_dask.features.weighting import EncodedRows
    from lancetnic_dask.settings import TrainingSettings

__all__ = [
    "EpochResult",
    "Validation",
    "choose_device",
    "make_criterion",
    "seeded_weights",
    "train",
    "validate",
]

CRITERIA: dict[str, type[nn.Module]] = {"celoss": nn.CrossEntropyLoss}
CRITERION_NAMES = ("CELoss",)

# Rows that are scored at once: fixed, because a product's last bits may depend on its shape.
SCORING_ROWS = 512

_WEIGHT_STREAM = 3
_DROPOUT_STREAM = 4


@dataclass(frozen=True)
class Validation:
    """How well a model does on rows it was not trained on.

    Parameters
    ----------
    loss : float
        Mean over rows.
    counts : ClassCounts
        True and predicted classes.
    """

    loss: float
    counts: ClassCounts


@dataclass(frozen=True)
class EpochResult:
    """What an epoch brought.

    Parameters
    ----------
    epoch : int
        From 1.
    train_loss, train_accuracy : float
        Means over the training rows, taken as they were trained on.
    validation : Validation or None
        None if there are no validation rows.
    num_rows, num_steps : int
        Training rows and optimizer steps of this epoch.
    train_seconds, validation_seconds : float
        Wall time.
    """

    epoch: int
    train_loss: float
    train_accuracy: float
    validation: Validation | None
    num_rows: int
    num_steps: int
    train_seconds: float
    validation_seconds: float


def make_criterion(crit_name: str) -> nn.Module:
    """Return a loss by lancetnic's name.

    Raises
    ------
    SettingError
        If there is none of that name; the known ones are listed.
    """
    kind = CRITERIA.get(crit_name.lower()) if isinstance(crit_name, str) else None
    if kind is None:
        raise SettingError(
            f"crit_name is {quoted(crit_name)}.",
            None,
            f"Classification knows {', '.join(map(repr, CRITERION_NAMES))}.",
        )
    return kind()


def choose_device(device_name: str) -> torch.device:
    """Return the device that a name means: "cuda" or "auto" is CUDA if there is one.

    Raises
    ------
    SettingError
        If there is no device of that name.
    """
    if device_name in ("cuda", "auto"):
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device_name == "cpu":
        return torch.device("cpu")
    raise SettingError(
        f"device_name is {quoted(device_name)}.", None, "Pass 'cuda', 'cpu' or 'auto'."
    )


def train(
    model: nn.Module,
    *,
    groups_of_epoch: Callable[[int], Iterator[ShardGroup]],
    validation_rows: Callable[[], Iterator[EncodedRows]],
    num_classes: int,
    settings: TrainingSettings,
    device: torch.device,
) -> Generator[EpochResult, None, None]:
    """Train a model and yield after each epoch.

    With the same seed the weights are the same bit for bit, whatever made the groups.

    Parameters
    ----------
    model : nn.Module
        Takes `SparseRows`, returns logits (num_rows, num_classes); trained in place.
    groups_of_epoch : callable
        ``groups_of_epoch(epoch)`` yields the shard groups of an epoch, from 0.
    validation_rows : callable
        ``validation_rows()`` yields the validation rows, in a fixed order.
    num_classes : int
        Classes.
    settings : TrainingSettings
        Epochs, batch size, optimizer, loss, seed.
    device : torch.device
        Where the model is.

    Yields
    ------
    EpochResult
        While the caller holds it, the model is as it was after that epoch.

    Raises
    ------
    TrainingError
        If the loss is no number any more.
    """
    optimizer = make_optimizer(model, settings.optim_name, settings.learning_rate)
    criterion = make_criterion(settings.crit_name)
    for epoch in range(settings.num_epochs):
        started = time.perf_counter()
        loss_sum, correct, num_rows, num_steps = 0.0, 0, 0, 0
        model.train()
        with _one_thread():
            for group in groups_of_epoch(epoch):
                with seeded(settings.random_state, _DROPOUT_STREAM, epoch, group.index):
                    for batch in iter_batches(group.rows, group.order, settings.batch_size):
                        loss, hits = _step(model, optimizer, criterion, batch, device)
                        if not math.isfinite(loss):
                            raise TrainingError(
                                f"The loss is {loss} in epoch {epoch + 1}, step {num_steps + 1}.",
                                None,
                                "Pass a lower learning_rate; "
                                f"it is {settings.learning_rate} under {settings.optim_name!r}.",
                            )
                        loss_sum += loss * batch.num_rows
                        correct += hits
                        num_rows += batch.num_rows
                        num_steps += 1
        trained = time.perf_counter()
        validation = validate(
            model, validation_rows(), criterion=criterion, num_classes=num_classes, device=device
        )
        yield EpochResult(
            epoch=epoch + 1,
            train_loss=loss_sum / num_rows,
            train_accuracy=correct / num_rows,
            validation=validation,
            num_rows=num_rows,
            num_steps=num_steps,
            train_seconds=trained - started,
            validation_seconds=time.perf_counter() - trained,
        )


def validate(
    model: nn.Module,
    parts: Iterator[EncodedRows],
    *,
    criterion: nn.Module,
    num_classes: int,
    device: torch.device,
) -> Validation | None:
    """Score rows and keep counts, never the predictions themselves.

    Parameters
    ----------
    model : nn.Module
        Takes `SparseRows`, returns logits.
    parts : iterator of EncodedRows
        Rows with their targets.
    criterion : nn.Module
        Loss, a mean over rows.
    num_classes : int
        Classes.
    device : torch.device
        Where the model is.

    Returns
    -------
    Validation or None
        None if there are no rows.
    """
    counts = ClassCounts(num_classes)
    loss_sum = 0.0
    model.eval()
    with torch.no_grad(), _one_thread():
        for rows in parts:
            if not rows.num_rows:
                continue
            for batch in iter_batches(rows, np.arange(rows.num_rows), SCORING_ROWS):
                target = batch.target.to(device)
                logits = model(batch.rows)
                loss_sum += float(criterion(logits, target)) * batch.num_rows
                counts.add(batch.target.numpy(), logits.argmax(dim=1).cpu().numpy())
    return Validation(loss_sum / counts.num_rows, counts) if counts.num_rows else None


@contextmanager
def seeded(random_state: int, stream: int, epoch: int, group: int) -> Iterator[None]:
    """Let torch's own randomness start from (seed, stream, epoch, group), and put it back after.

    Dropout and the layers' first weights draw from torch's global generator and take no other;
    the caller's own state of it is not touched.
    """
    seeds = np.random.SeedSequence((random_state, stream, epoch, group)).generate_state(
        1, np.uint64
    )
    with torch.random.fork_rng():
        torch.manual_seed(int(seeds[0] >> np.uint64(1)))
        yield


def seeded_weights(random_state: int) -> AbstractContextManager[None]:
    """Seed the weights that a model is made with."""
    return seeded(random_state, _WEIGHT_STREAM, 0, 0)


def _step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    criterion: nn.Module,
    batch: Batch,
    device: torch.device,
) -> tuple[float, int]:
    """Train on one batch; return its mean loss and the rows whose class was found."""
    target = batch.target.to(device)
    optimizer.zero_grad(set_to_none=True)
    logits = model(batch.rows)
    loss = criterion(logits, target)
    loss.backward()
    optimizer.step()
    hits = int((logits.detach().argmax(dim=1) == target).sum())
    return float(loss.detach()), hits


@contextmanager
def _one_thread() -> Iterator[None]:
    """Give torch one thread: its pool and that of the sparse kernels fight over the cores.

    Measured with a busy neighbour on two cores: 38,000 rows/s with two threads each, 47,000 so.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
