"""What ``train_ours.py`` does, with one stage more: the making of the model and its optimizer.

python timed_stages.py '{"train_path": "a.csv", "val_path": null, "num_epochs": 3}'
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ours import train_ours  # first of all: it starts the clock

time_stages = train_ours.time_stages


def time_more(clock: train_ours.StageClock) -> None:
    """Time what `train_ours` leaves to the rest of train(), too."""
    from lancetnic_dask.pipeline import epochs

    time_stages(clock)
    module: Any = epochs
    module._make_trainer = clock.around("build model", module._make_trainer)  # noqa: SLF001


if __name__ == "__main__":
    script: Any = train_ours
    script.time_stages = time_more
    script.main()
