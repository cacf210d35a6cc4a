"""Scripts in lancetnic's documented forms, for it and for lancetnic_dask.

``system/test_lancetnic.py`` runs them and compares.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["INFERENCE", "MISTAKES", "PICTURES", "SCRIPTS", "Mistake", "Script", "with_our_imports"]

PICTURES = {
    "confusion_matrix_best_model.png",
    "confusion_matrix_last_model.png",
    "dataset_counts.png",
    "train_val_loss.png",
    "train_val_acc.png",
    "f1_score.png",
    "val_precision.png",
    "val_recall.png",
}
"""What lancetnic draws into a run folder."""

# lancetnic draws weights and the order of rows from torch's global generator.
_HEAD = """\
import json
import numpy
import pandas
import torch
from lancetnic import Classification
from lancetnic.models import ScalpelMC
torch.manual_seed(0)
"""
_TAIL = """
def type_name(value):
    return f"{type(value).__module__}.{type(value).__name__}"
print("RESULT", json.dumps([[type_name(each), str(each)] for each in predictions]))
"""


@dataclass(frozen=True, kw_only=True)
class Script:
    """A script of a user of lancetnic.

    Parameters
    ----------
    name : str
        What it shows.
    lines : str
        The script; it leaves ``predictions``, a list, behind.
    num_runs : int, default=1
        Times that it trains.
    has_val_path : bool, default=False
        Whether both libraries validate on the rows of ``val.csv``, or each on its own choice.
    names_optimizer : bool, default=True
        Whether it names one; lancetnic's default is Adam and ours is "auto".
    """

    name: str
    lines: str
    num_runs: int = 1
    has_val_path: bool = False
    names_optimizer: bool = True

    @property
    def text(self) -> str:
        """The whole file, as it is for lancetnic."""
        return _HEAD + self.lines + _TAIL


@dataclass(frozen=True)
class Mistake:
    """A line with a mistake in it, and what an error about it should name.

    Parameters
    ----------
    name : str
        What is wrong.
    classification, train : str
        Arguments of the two calls.
    named : tuple of str
        What stands in the message: the wrong value, and the right ones.
    """

    name: str
    classification: str
    train: str
    named: tuple[str, ...]

    @property
    def text(self) -> str:
        """The whole file, as it is for lancetnic."""
        return (
            "from lancetnic import Classification\n"
            "from lancetnic.models import ScalpelMC\n"
            f"clf = Classification({self.classification})\n"
            f"clf.train(model_name=ScalpelMC, num_epochs=1, hidden_size=4, {self.train})\n"
        )


def with_our_imports(text: str) -> str:
    """Let the import lines of a script name lancetnic_dask."""
    return re.sub(r"^(from|import) lancetnic\b", r"\1 lancetnic_dask", text, flags=re.MULTILINE)


# Rows to predict: texts from the other file, which no model has seen, and numbers clear of doubt.
SCRIPTS = (
    Script(
        name="text",
        lines="""
model = Classification(
    text_column=["text"],
    data_column=None,
    label_column="label",
    split_ratio=0.2,
    random_state=42,
    max_features=None,
)
model.train(
    model_name=ScalpelMC,
    train_path="train.csv",
    val_path=None,
    num_epochs=10,
    hidden_size=32,
    num_layers=1,
    batch_size=64,
    learning_rate=0.005,
    dropout=0,
    optim_name="Adam",
    crit_name="CELoss",
    device_name="cpu",
)
first, second, third = pandas.read_csv("val.csv")["text"][:3]
predictions = [
    model.predict("runs/train_0/best_model.pt", first),
    model.predict(model_path="runs/train_0/best_model.pt", text_data=second),
    model.predict(model_path="runs/train_0/last_model.pt", text_data=[third]),
]
""",
    ),
    Script(
        name="numbers",
        lines="""
model = Classification(data_column=["size", "weight"], label_column="label", random_state=7)
model.train(
    model_name=ScalpelMC,
    train_path="train.csv",
    val_path=None,
    num_epochs=15,
    hidden_size=32,
    batch_size=64,
    learning_rate=0.01,
    optim_name="Adam",
)
predictions = [
    model.predict(model_path="runs/train_0/best_model.pt", scalar_data=[150, 0]),
    model.predict(model_path="runs/train_0/last_model.pt", scalar_data=(300.5, 5.0)),
]
""",
    ),
    Script(
        name="one number, whole numbers as labels",
        lines="""
model = Classification(data_column="weight", label_column="stars")
model.train(
    model_name=ScalpelMC,
    train_path="train.csv",
    val_path="val.csv",
    num_epochs=15,
    hidden_size=32,
    batch_size=64,
    learning_rate=0.01,
    optim_name="Adam",
)
predictions = [
    model.predict(model_path="runs/train_0/best_model.pt", scalar_data=0),
    model.predict(model_path="runs/train_0/best_model.pt", scalar_data=numpy.float64(3.1)),
    model.predict(model_path="runs/train_0/last_model.pt", scalar_data=[5.0]),
]
""",
        has_val_path=True,
    ),
    Script(
        name="text and numbers",
        lines="""
model = Classification(
    text_column="text",
    data_column=["size", "weight"],
    label_column="label",
    split_ratio=0.3,
    max_features=3000,
)
model.train(ScalpelMC, "train.csv", None, 10)
row = pandas.read_csv("val.csv").iloc[0]
predictions = [
    model.predict(
        model_path="runs/train_0/best_model.pt",
        text_data=[row["text"]],
        scalar_data=[row["size"], row["weight"]],
    ),
    model.predict("runs/train_0/last_model.pt", row["text"], [row["size"], row["weight"]]),
]
""",
        names_optimizer=False,
    ),
    Script(
        name="several columns of each, and a file that validates",
        lines="""
import lancetnic as library
model = library.Classification(["title", "body"], ["size", "weight"], "label")
model.train(ScalpelMC, train_path="train.csv", val_path="val.csv", num_epochs=12, hidden_size=32)
row = pandas.read_csv("val.csv").iloc[1]
predictions = [
    model.predict(
        "runs/train_0/best_model.pt",
        text_data=[row["title"], row["body"]],
        scalar_data=[row["size"], row["weight"]],
    )
]
""",
        has_val_path=True,
        names_optimizer=False,
    ),
    Script(
        name="all arguments by position",
        lines="""
model = Classification("text", None, "label", 0.25, 7, 2000)
model.train(ScalpelMC, "train.csv", "val.csv", 8, 32, 2, 64, 0.005, 0.1, "Adam", "CELoss", "cpu")
text = pandas.read_csv("val.csv")["text"][2]
predictions = [model.predict("runs/train_0/best_model.pt", text, None)]
""",
        has_val_path=True,
    ),
    Script(
        name="optimizers",
        lines="""
model = Classification(text_column="text", label_column="label", max_features=2000)
rates = {"RAdam": 0.01, "SGD": 1.0, "RMSprop": 0.01, "Adadelta": 1.0}
for name, rate in rates.items():
    model.train(
        ScalpelMC, "train.csv", "val.csv", num_epochs=6, hidden_size=16, batch_size=32,
        learning_rate=rate, optim_name=name,
    )
text = pandas.read_csv("val.csv")["text"][0]
predictions = [model.predict(f"runs/train_{number}/last_model.pt", text) for number in range(4)]
""",
        num_runs=4,
        has_val_path=True,
    ),
    Script(
        name="a network of the user's own",
        lines="""
class TwoLayers(torch.nn.Module):
    def __init__(self, input_size, hidden_size, num_layers, num_classes, dropout):
        super().__init__()
        self.first = torch.nn.Linear(input_size, hidden_size)
        self.second = torch.nn.LSTM(hidden_size, hidden_size, num_layers)
        self.dropout = torch.nn.Dropout(dropout)
        self.last = torch.nn.Linear(hidden_size, num_classes)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        x, _ = self.second(x.unsqueeze(0))
        return self.last(self.dropout(x.squeeze(0)))

model = Classification(["text"], ["weight"], "label", max_features=1000)
model.train(
    TwoLayers, "train.csv", "val.csv", 10, hidden_size=32, num_layers=1, learning_rate=0.01,
    dropout=0.1, optim_name="Adam",
)
row = pandas.read_csv("val.csv").iloc[3]
predictions = [
    model.predict("runs/train_0/best_model.pt", [row["text"]], [row["weight"]]),
    model.predict("runs/train_0/last_model.pt", row["text"], row["weight"]),
]
""",
        has_val_path=True,
    ),
)

# Runs in the folder of the script "text": another process, and no columns are named.
INFERENCE = Script(
    name="inference",
    lines="""
model = Classification()
predictions = [
    model.predict(model_path="runs/train_0/best_model.pt", text_data=[text])
    for text in pandas.read_csv("val.csv")["text"][:5]
]
""",
)

_RIGHT = 'data_column="weight", label_column="label"'
_PATHS = 'train_path="train.csv", val_path=None'

MISTAKES = (
    Mistake("optimizer", _RIGHT, f'{_PATHS}, optim_name="Addam"', ("Addam", "'Adam'", "'SGD'")),
    Mistake("loss", _RIGHT, f'{_PATHS}, crit_name="HingeLoss"', ("HingeLoss", "'CELoss'")),
    Mistake("device", _RIGHT, f'{_PATHS}, device_name="gpu"', ("gpu", "'cuda'", "'cpu'")),
    Mistake(
        "column of texts",
        'text_column="txt", label_column="label"',
        _PATHS,
        ("'txt'", "'text'", "train.csv"),
    ),
    Mistake(
        "column of numbers",
        'data_column=["size", "wieght"], label_column="label"',
        _PATHS,
        ("'wieght'", "'weight'", "train.csv"),
    ),
    Mistake(
        "column of labels",
        'text_column="text", label_column="lable"',
        _PATHS,
        ("'lable'", "'label'", "train.csv"),
    ),
    Mistake(
        "file that validates",
        _RIGHT,
        'train_path="train.csv", val_path="vall.csv"',
        ("vall.csv",),
    ),
)
