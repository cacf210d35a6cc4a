"""Scoring: one string after loading, and a Dask DataFrame against scikit-learn's pipeline.

    python scoring_speed.py '{"train_path": "a.csv", "model": "runs/train_0/best_model", …}'

Both score the same Dask DataFrame, which lies in the memory of the same workers, one process for
each core: that is scikit-learn's pipeline on all cores, without a copy of the texts.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

TURNS = 3


def time_one_string(model_path: str, text: str) -> dict[str, float]:
    """Return milliseconds of one prediction after loading, and of the first one."""
    from lancetnic_dask import load

    started = time.perf_counter()
    model = load(model_path)
    loaded = time.perf_counter()
    model.predict(text)
    times = [loaded, time.perf_counter()]
    for _ in range(200):
        model.predict(text)
        times.append(time.perf_counter())
    each = np.diff(times) * 1e3
    return {
        "load_ms": (loaded - started) * 1e3,
        "first_ms": float(each[0]),
        "median_ms": statistics.median(each[1:]),
        "slowest_of_100_ms": float(np.quantile(each[1:], 0.99)),
    }


def predict_with_sklearn(texts: pd.Series[str], pipeline: Any) -> pd.Series[str]:
    """Score one partition (a worker's task)."""
    import pandas as pd

    return pd.Series(pipeline.predict(texts.fillna("")), index=texts.index)


def time_table(options: dict[str, Any]) -> dict[str, float]:
    """Return rows a second of both on all cores."""
    import dask.dataframe as dd
    import pandas as pd
    from distributed import Client, LocalCluster
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import SGDClassifier
    from sklearn.pipeline import make_pipeline

    from lancetnic_dask import load

    rows = pd.read_csv(options["train_path"]).head(options["fit_rows"])
    pipeline = make_pipeline(TfidfVectorizer(), SGDClassifier(random_state=0))
    pipeline.fit(rows["text"], rows["label"])
    model = load(options["model"])
    scored = pd.read_csv(options["scored_path"])
    num_cpus = os.cpu_count() or 1
    speeds: dict[str, list[float]] = {"ours": [], "scikit-learn": []}
    with (
        LocalCluster(
            n_workers=num_cpus,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
    ):
        table = dd.from_pandas(scored, npartitions=4 * num_cpus).persist()
        table.map_partitions(len).compute()
        meta = pd.Series([], dtype=object)
        # On every worker before, as our model is on disk: it must not travel with each task.
        there = client.scatter(pipeline, broadcast=True)
        theirs = table["text"].map_partitions(predict_with_sklearn, there, meta=meta)
        ways = {"ours": model.predict(table), "scikit-learn": theirs}
        for turn in range(TURNS + 1):  # the first loads model and kernels on the workers
            for name, lazy in ways.items():
                started = time.perf_counter()
                if len(lazy.compute()) != len(scored):
                    raise SystemExit(f"{name} did not score every row.")
                if turn:
                    speeds[name].append(len(scored) / (time.perf_counter() - started))
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    return {**medians, "ratio": medians["ours"] / medians["scikit-learn"]}


def main() -> None:
    """Measure both."""
    options = json.loads(sys.argv[1])
    import pandas as pd

    text = str(pd.read_csv(options["scored_path"], nrows=1)["text"][0])
    figures = {
        "one_string": time_one_string(options["model"], text),
        "table": time_table(options),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
