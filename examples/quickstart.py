"""Train a classifier on a CSV and use it: `python quickstart.py tickets.csv`.

The file needs the columns ``text``, ``size`` and ``label``. There is no main guard, and none is
needed.
"""

import sys

import pandas as pd

from lancetnic_dask import Classification, load
from lancetnic_dask.models import ScalpelMC

path = sys.argv[1]

clf = Classification(text_column="text", data_column=["size"], label_column="label")
run = clf.train(ScalpelMC, train_path=path, val_path=None, num_epochs=3)

first = pd.read_csv(path, nrows=5)
print("\nOne row:", clf.predict(run.best_model, first["text"][0], int(first["size"][0])))

model = load(run.best_model)
print("Five rows:")
print(first.assign(predicted=model.predict(first))[["label", "predicted"]])

print("\nMetrics by epoch:", run.folder / "result.csv")
print("Best model:      ", run.best_model)
print("What was run:    ", run.folder / "summary.json")
