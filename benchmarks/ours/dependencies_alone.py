"""Seconds of what a run needs of other packages, without ours.

    python dependencies_alone.py '{"num_workers": 2, "num_pictures": 8}'

They are the bounds of stages that hardly compute: the start of Python with the imports, Dask's
own cluster of as many workers, and empty pictures of matplotlib. Beside them, what a run loads in
a thread while its workers tokenize: what torch imports when the first optimizer is made, and
matplotlib.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time


def import_all() -> None:
    """Import what the package imports."""
    import distributed
    import fsspec
    import numba
    import psutil
    import pyarrow.compute
    import torch

    del distributed, fsspec, numba, psutil, pyarrow, torch


def time_cluster(num_workers: int) -> dict[str, float]:
    """Start a cluster as plain Dask does, and close it."""
    from distributed import Client, LocalCluster

    started = time.perf_counter()
    cluster = LocalCluster(
        n_workers=num_workers, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    )
    client = Client(cluster)
    client.wait_for_workers(num_workers)
    opened = time.perf_counter()
    client.close()
    cluster.close()
    return {"start cluster": opened - started, "close cluster": time.perf_counter() - opened}


def make_optimizer() -> None:
    """Make an optimizer of a few weights."""
    import torch

    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])


def import_matplotlib() -> None:
    """Import all that pictures need: they are timed without it."""
    import matplotlib.backends.backend_agg
    import matplotlib.font_manager
    from matplotlib import collections, figure, image, ticker
    from PIL import Image

    Image.preinit()  # else the first picture that is saved imports the formats
    del matplotlib, collections, figure, image, ticker


def draw_empty(num_pictures: int) -> None:
    """Draw pictures of the usual size with nothing but axes, as PNG in memory."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    for _ in range(num_pictures):
        figure = Figure()
        FigureCanvasAgg(figure)
        figure.add_subplot()
        figure.savefig(io.BytesIO(), format="png")


def main() -> None:
    """Measure everything once: a second time nothing would be imported."""
    options = json.loads(sys.argv[1])
    import_all()
    created = float(os.environ["BENCHMARK_STARTED"])
    figures = {"import": time.time() - created, **time_cluster(options["num_workers"])}
    for name, function in (
        ("first optimizer", make_optimizer),
        ("import matplotlib", import_matplotlib),
        ("plots", lambda: draw_empty(options["num_pictures"])),
    ):
        started = time.perf_counter()
        function()
        figures[name] = time.perf_counter() - started
    print(json.dumps({**figures, "since_start": time.time() - created}))


if __name__ == "__main__":
    main()
