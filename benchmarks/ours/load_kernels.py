"""Seconds in which a run loads its workers' kernels, in a fresh process like the run's.

    python load_kernels.py '{}'

Machine code must be on disk already; otherwise this is the time of compiling it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ours.machine_speed import RECIPE

from lancetnic_dask.pipeline.warm import warm_kernels


def main() -> None:
    """Load them once: a second time nothing would be loaded."""
    started = time.perf_counter()
    warm_kernels(RECIPE)
    print(json.dumps({"seconds": time.perf_counter() - started}))


if __name__ == "__main__":
    main()
