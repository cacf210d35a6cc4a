"""Shard groups -> a trained model, epoch by epoch.

The loop knows neither the run folder nor the cluster: an epoch's result is returned, and up to the
caller. All randomness of a step follows from (seed, epoch, group, step), and nothing else is
carried from step to step but weights, optimizer state and the sums in `Trainer.progress`:
training can go on from any step.
"""

from __future__ import annotations

import math
import time
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from lancetnic_dask.errors import SettingError, TrainingError, quoted
from lancetnic_dask.models.optimizers import factors_kept, make_optimizer
from lancetnic_dask.models.plain_torch import kept_random_state, plain_torch
from lancetnic_dask.training.batches import iter_batches, num_batches
from lancetnic_dask.training.metrics import ClassCounts
from lancetnic_dask.training.scoring import one_torch_thread, score_rows
from lancetnic_dask.training.torch_state import running_norms, seed_torch, step_seeds

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from lancetnic_dask.features.groups import ShardGroup
    from lancetnic_dask.features.weighting import EncodedRows
    from lancetnic_dask.settings import TrainingSettings
    from lancetnic_dask.training.batches import Batch

__all__ = [
    "EpochResult",
    "Progress",
    "Trainer",
    "Validation",
    "make_criterion",
    "train_epoch",
    "validate",
]

CRITERIA: dict[str, type[nn.Module]] = {"celoss": nn.CrossEntropyLoss}
CRITERION_NAMES = ("CELoss",)


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


@dataclass(frozen=True)
class Progress:
    """How far training has come, and the sums of the epoch in hand.

    Parameters
    ----------
    epoch, group, step : int, default=0
        Where the next step is: epoch from 0, group of the epoch, step of the group.
    loss_sum : float, default=0.0
        Loss of the epoch's rows so far, added up.
    num_correct, num_rows, num_steps : int, default=0
        Rows whose class was found, rows, and steps of the epoch so far.
    """

    epoch: int = 0
    group: int = 0
    step: int = 0
    loss_sum: float = 0.0
    num_correct: int = 0
    num_rows: int = 0
    num_steps: int = 0


class Trainer:
    """A model, its optimizer, and how far they have come.

    Parameters
    ----------
    model : nn.Module
        Takes `SparseRows`, returns logits (num_rows, num_classes); trained in place.
    settings : TrainingSettings
        Batch size, optimizer, loss, seed.
    device : torch.device
        Where the model is.

    Attributes
    ----------
    progress : Progress
        The next step to take.
    """

    def __init__(self, model: nn.Module, settings: TrainingSettings, device: torch.device) -> None:
        self.model = model
        with plain_torch():
            self.optimizer = make_optimizer(model, settings.optim_name, settings.learning_rate)
        self.criterion = make_criterion(settings.crit_name)
        self.progress = Progress()
        self._settings = settings
        self._device = device

    def train_group(
        self, group: ShardGroup, advance: Callable[[int], object] | None = None
    ) -> None:
        """Train on the rows of a group, from `progress.step` on.

        Torch's random state and number of threads are put back afterwards.

        Parameters
        ----------
        group : ShardGroup
            Of the epoch in hand.
        advance : callable or None, default=None
            Told the rows of each step.

        Raises
        ------
        TrainingError
            If the loss is no finite number; the weights are as before that step then.
        """
        first_step = self.progress.step if group.index == self.progress.group else 0
        self.model.train()
        batches = iter_batches(group.rows, group.order, self._settings.batch_size)
        seeds = step_seeds(
            self._settings.random_state,
            epoch=self.progress.epoch,
            group=group.index,
            num_steps=num_batches(len(group.order), self._settings.batch_size),
        )
        with (
            one_torch_thread(),
            kept_random_state(self._device),
            plain_torch(),
            factors_kept(self.model, self._settings.optim_name),
        ):
            for step, batch in enumerate(batches):
                if step >= first_step:
                    seed_torch(int(seeds[step]), self._device)
                    self._train_step(group.index, step, batch)
                    if advance is not None:
                        advance(batch.num_rows)
        self.progress = replace(self.progress, group=group.index + 1, step=0)

    def end_epoch(self) -> Progress:
        """Return the sums of the epoch, and start the next one."""
        done = self.progress
        self.progress = Progress(epoch=done.epoch + 1)
        return done

    def _train_step(self, group: int, step: int, batch: Batch) -> None:
        settings, progress = self._settings, self.progress
        target = batch.target.to(self._device)
        self.optimizer.zero_grad(set_to_none=True)
        with running_norms(self.model) if batch.num_rows == 1 else nullcontext():
            logits = self.model(batch.rows)
        loss = self.criterion(logits, target)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise TrainingError(
                f"The loss is {value} in epoch {progress.epoch + 1}, "
                f"step {progress.num_steps + 1}.",
                None,
                f"Pass a lower learning_rate; it is {settings.learning_rate} under "
                f"{settings.optim_name!r}.",
            )
        loss.backward()
        self.optimizer.step()
        self.progress = replace(
            progress,
            group=group,
            step=step + 1,
            loss_sum=progress.loss_sum + value * batch.num_rows,
            num_correct=progress.num_correct + int((logits.argmax(dim=1) == target).sum()),
            num_rows=progress.num_rows + batch.num_rows,
            num_steps=progress.num_steps + 1,
        )


def train_epoch(
    trainer: Trainer,
    groups: Generator[ShardGroup, None, None],
    validation_rows: Generator[EncodedRows, None, None],
    *,
    num_classes: int,
    advance: Callable[[int], object] | None = None,
) -> EpochResult:
    """Train the epoch that a trainer has come to, to its end, and validate.

    With the same seed the weights are the same bit for bit, whatever made the groups.

    Parameters
    ----------
    trainer : Trainer
        The model; it goes on where its progress is.
    groups : generator of ShardGroup
        The shard groups of the epoch; closed at the end.
    validation_rows : generator of EncodedRows
        In a fixed order; closed at the end.
    num_classes : int
        Classes.
    advance : callable or None, default=None
        Told the rows that have been trained on, and those that have been scored.

    Returns
    -------
    EpochResult
        What the epoch brought; the model is as it was after it.

    Raises
    ------
    TrainingError
        If the loss is no finite number any more.
    """
    started = time.perf_counter()
    with closing(groups):
        for group in groups:
            trainer.train_group(group, advance)
            del group  # not held while the next one is awaited, nor in validation
    sums = trainer.end_epoch()
    trained = time.perf_counter()
    with closing(validation_rows):
        validation = validate(
            trainer.model,
            validation_rows,
            criterion=trainer.criterion,
            num_classes=num_classes,
            advance=advance,
        )
    return EpochResult(
        epoch=trainer.progress.epoch,
        train_loss=sums.loss_sum / sums.num_rows,
        train_accuracy=sums.num_correct / sums.num_rows,
        validation=validation,
        num_rows=sums.num_rows,
        num_steps=sums.num_steps,
        train_seconds=trained - started,
        validation_seconds=time.perf_counter() - trained,
    )


def validate(
    model: nn.Module,
    parts: Iterator[EncodedRows],
    *,
    criterion: nn.Module,
    num_classes: int,
    advance: Callable[[int], object] | None = None,
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
    advance : callable or None, default=None
        Told the rows that have been scored.

    Returns
    -------
    Validation or None
        None if there are no rows.

    Raises
    ------
    TrainingError
        If the loss is no finite number.
    """
    counts = ClassCounts(num_classes)
    loss_sum = 0.0
    model.eval()
    for rows in parts:
        for start, logits in score_rows(model, rows):
            target = rows.target[start : start + len(logits)]
            loss = criterion(logits, torch.from_numpy(target).to(logits.device))
            loss_sum += float(loss) * len(target)
            counts.add(target, logits.argmax(dim=1).cpu().numpy())
            if advance is not None:
                advance(len(target))
    if not counts.num_rows:
        return None
    if not math.isfinite(loss_sum):
        raise TrainingError(
            f"The validation loss is {loss_sum}.",
            None,
            "Pass a lower learning_rate, and look for extreme numbers in the validation rows.",
        )
    return Validation(loss_sum / counts.num_rows, counts)
