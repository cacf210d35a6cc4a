"""Get ready, while the workers start and tokenize, for what comes after.

The workers' kernels are compiled here, once, before a worker gets its first task. Machine code is
kept on disk: workers that all compiled for themselves at once would take four times as long and
some 90 MiB more each. What this process needs later is loaded in a thread: torch imports 800
modules, over a second, for the first optimizer that it makes.
"""

from __future__ import annotations

import logging
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import torch

from lancetnic_dask.corpus.frame import Corpus
from lancetnic_dask.features.counts import count_partition
from lancetnic_dask.features.groups import ShardGroup
from lancetnic_dask.features.weighting import EncodedRows
from lancetnic_dask.models.optimizers import needs_dense_grad
from lancetnic_dask.models.scalpel import ScalpelMC
from lancetnic_dask.settings import SplitSettings
from lancetnic_dask.training.loop import Trainer
from lancetnic_dask.training.torch_state import seeded_weights

if TYPE_CHECKING:
    from lancetnic_dask.features.build import ShardRecipe
    from lancetnic_dask.settings import TrainingSettings

__all__ = ["LoadAhead", "warm_kernels"]

logger = logging.getLogger(__name__)

# So many that the tables of the tokenizer have to grow, as they will for any corpus.
_NUM_WORDS = 5000


def warm_kernels(recipe: ShardRecipe) -> None:
    """Run the workers' task on a table of two rows with the columns of a recipe.

    Takes a tenth of a second where the machine code is there already.

    Parameters
    ----------
    recipe : ShardRecipe
        Its columns and n-grams decide which kernels are needed.
    """
    roles = recipe.roles
    words = " ".join(["Ёж", *recipe.stop_words[:1], *(f"w{n}" for n in range(_NUM_WORDS))])
    cells = [f'"{words}"'] * len(roles.text_columns) + ["1"] * len(roles.data_columns)
    if roles.label_column is not None:
        cells.append("x")
    header = ",".join('"' + name.replace('"', '""') + '"' for name in roles.names)
    with tempfile.TemporaryDirectory(prefix="lancetnic-") as folder:
        path = Path(folder) / "warm.csv"
        path.write_text("\n".join([header, *[",".join(cells)] * 2, ""]), encoding="utf-8")
        plan = Corpus.read_csv(path).plan
        part = plan.only(plan.partitions[0])
        count_partition(part, recipe, SplitSettings(), None, None, Path(folder) / "counts")


class LoadAhead:
    """Loads what training needs, in a thread, within a ``with`` block.

    Parameters
    ----------
    settings : TrainingSettings
        Their optimizer and loss decide what is needed.
    """

    def __init__(self, settings: TrainingSettings) -> None:
        self._settings = settings
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="lancetnic-load")

    def __enter__(self) -> Self:
        self._trained = self._executor.submit(self._train)
        return self

    def __exit__(self, *error: object) -> None:
        self._executor.shutdown()

    def wait_for_training(self) -> None:
        """Wait until all is loaded."""
        self._trained.result()

    def _train(self) -> None:
        try:
            warm_training(self._settings)
        except Exception:  # the same will come to light in training, where it can be told
            logger.debug("training could not be tried ahead of time", exc_info=True)


def warm_training(settings: TrainingSettings) -> None:
    """Train a tiny network on two rows: everything that a step needs is in memory then.

    Parameters
    ----------
    settings : TrainingSettings
        Their optimizer and loss decide what is needed.
    """
    rows = EncodedRows(
        indptr=np.array([0, 1, 2]),
        indices=np.zeros(2, np.int32),
        values=np.ones(2, np.float32),
        numeric=np.zeros((2, 0), np.float32),
        target=np.array([0, 1]),
    )
    with seeded_weights(settings.random_state):
        network = ScalpelMC(1, 1, 1, 2, 0.0, dense_grad=needs_dense_grad(settings.optim_name))
    trainer = Trainer(network, settings, torch.device("cpu"))
    trainer.train_group(ShardGroup(0, rows, np.arange(2)))
