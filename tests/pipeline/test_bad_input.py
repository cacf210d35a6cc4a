"""The user's mistakes: each ends in one error that names file, row, column and what to do."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

import pytest

from lancetnic_dask import Classification, LancetnicError
from lancetnic_dask.errors import (
    BudgetError,
    ColumnError,
    CorpusError,
    EncodingError,
    LabelError,
    RecordError,
    SettingError,
)

if TYPE_CHECKING:
    from pathlib import Path

    from distributed import Client

GOOD = "text,size,label\n" + "".join(
    f"word{n % 3} and{n % 4} more,{n},{'ab'[n % 2]}\n" for n in range(40)
)


def train(path: Path, client: Client, **options: Any) -> None:
    """Train on a file with whatever options the case is about."""
    training: dict[str, Any] = {"model_name": "ScalpelMC", "num_epochs": 1, "hidden_size": 4}
    columns: dict[str, Any] = {
        "text_column": "text",
        "data_column": "size",
        "label_column": "label",
    }
    arguments = signature(Classification.train).parameters
    for name, value in options.items():
        (training if name in arguments else columns)[name] = value
    Classification(**columns).train(
        **training,
        train_path=path,
        client=client,
        cache_dir=path.parent / "cache",
        run_dir=path.parent / "runs",
        progress=False,
    )


CASES: list[tuple[str, str | bytes, dict[str, Any], type[LancetnicError], str]] = [
    (
        "a missing column",
        GOOD,
        {"label_column": "lable"},
        ColumnError,
        (
            "There is no column 'lable'.\n  at {path}\n"
            "  Did you mean 'label'? There are: 'text', 'size', 'label'."
        ),
    ),
    (
        "the wrong separator",
        GOOD.replace(",", ";"),
        {"delimiter": ","},
        ColumnError,
        (
            "There is no column 'text'. The file has one column, named 'text;size;label'.\n"
            "  at {path}\n  Is the separator ';'? Pass delimiter=';'."
        ),
    ),
    (
        "an empty file",
        "",
        {},
        CorpusError,
        (
            "The corpus has no rows: every file is empty.\n  at {path}\n"
            "  Check that this is the right file."
        ),
    ),
    (
        "a header and nothing else",
        "text,size,label\n",
        {},
        CorpusError,
        (
            "The corpus has no rows: there is nothing below the header.\n  at {path}\n"
            "  Check that this is the right file."
        ),
    ),
    (
        "a single class",
        "text,size,label\nsome words,1,same\nother words,2,same\n",
        {},
        LabelError,
        (
            "Column 'label' has one value, 'same', in all 2 rows.\n  at {path}\n"
            "  There is nothing to tell apart: pass a corpus with two classes at least."
        ),
    ),
    (
        "a missing label",
        GOOD + "a text,7,\n",
        {},
        RecordError,
        (
            "The label is missing.\n  at {path}, row 41, column 'label', byte {size}\n"
            "  Fill it in, or leave such rows out with on_bad_rows='skip'."
        ),
    ),
    (
        "a text column that is all empty",
        "text,size,label\n" + ",1,a\n,2,b\n" * 20,
        {},
        CorpusError,
        (
            "Column 'text' holds no word in {training} training rows.\n"
            "  A word has two letters or digits at least. Check the column's name, or leave it "
            "out of text_column."
        ),
    ),
    (
        "a number that is none",
        GOOD + 'a text,"12,50 EUR",a\n',
        {},
        RecordError,
        (
            "'12,50 EUR' is not a number.\n  at {path}, row 41, column 'size', byte {size}\n"
            "  Correct it, empty the cell, or leave such rows out with on_bad_rows='skip'."
        ),
    ),
    (
        "a ragged row",
        GOOD + "a text,1,a,what\n",
        {},
        RecordError,
        (
            "The row has 4 cells and the header 3.\n  at {path}, row 41, byte {size}\n"
            "  Check quotes and separators there, or leave such rows out with on_bad_rows='skip'."
        ),
    ),
    (
        "a wrong encoding",
        GOOD.encode() + "цена,1,a\n".encode("cp1251"),
        {},
        EncodingError,
        (
            "Byte 0xf6 is not utf-8: b'\\xf6\\xe5\\xed\\xe0'.\n"
            "  at {path}, row 41, column 'text', byte {size}\n"
            "  It looks like cp1251 or cp1255 or mac-cyrillic: pass encoding='cp1251', or "
            "encoding_errors='replace', or "
            "leave such rows out with on_bad_rows='skip'."
        ),
    ),
    (
        "no epoch",
        GOOD,
        {"num_epochs": 0},
        SettingError,
        "num_epochs is 0.\n  Pass a whole number from 1.",
    ),
    (
        "an unknown model",
        GOOD,
        {"model_name": "ScalpelMD"},
        SettingError,
        "There is no model 'ScalpelMD'.\n  Did you mean 'ScalpelMC'? There are: 'ScalpelMC'.",
    ),
    (
        "an unknown loss",
        GOOD,
        {"crit_name": "CELos"},
        SettingError,
        "crit_name is 'CELos'.\n  Classification knows 'CELoss'.",
    ),
    (
        "an unknown device",
        GOOD,
        {"device_name": "gpu"},
        SettingError,
        "device_name is 'gpu'.\n  Pass 'auto', 'cpu', 'cuda', or one of several as in 'cuda:1'.",
    ),
    (
        "a column with two roles",
        GOOD,
        {"data_column": "text"},
        SettingError,
        (
            "Column 'text' has two roles.\n"
            "  Name it once among text_column, data_column and label_column."
        ),
    ),
    (
        "no term left",
        GOOD,
        {"min_df": 30, "stop_words": ["more"]},
        SettingError,
        (
            "No term of column 'text' is left by min_df=30 and max_df=1.0 in {training} training "
            "rows.\n  Pass a lower min_df or a higher max_df."
        ),
    ),
]


@pytest.mark.parametrize(
    ("content", "options", "kind", "text"),
    [pytest.param(*case[1:], id=case[0]) for case in CASES],
)
def test_one_clear_error(
    tmp_path: Path,
    client: Client,
    content: str | bytes,
    options: dict[str, Any],
    kind: type[LancetnicError],
    text: str,
) -> None:
    """What was found, where, and what to do; never a traceback of Dask or torch alone."""
    path = tmp_path / "corpus.csv"
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(data)
    last_row = data.rstrip(b"\n").rfind(b"\n") + 1

    with pytest.raises(kind) as caught:
        train(path, client, **options)

    expected = text.format(path=path, size=last_row, training="{training}")
    shown = str(caught.value)
    if "{training}" in expected:
        before, after = expected.split("{training}")
        assert shown.startswith(before)
        assert shown.endswith(after)
    else:
        assert shown == expected
    assert type(caught.value) is kind


def test_an_unknown_optimizer_lists_the_known(tmp_path: Path, client: Client) -> None:
    """It is no fallback on Adam without a word, as in lancetnic."""
    path = tmp_path / "corpus.csv"
    path.write_text(GOOD, encoding="utf-8")

    with pytest.raises(SettingError, match=r"Did you mean 'Adam'\?.*'SGD'"):
        train(path, client, optim_name="Adma")


def test_a_validation_class_that_training_never_saw(tmp_path: Path, client: Client) -> None:
    """Found before training, with the labels and their counts."""
    path, val_path = tmp_path / "train.csv", tmp_path / "val.csv"
    path.write_text(GOOD, encoding="utf-8")
    val_path.write_text("text,size,label\nword1,1,a\nword2,2,bird\nword2,2,bird\n", "utf-8")

    with pytest.raises(LabelError) as caught:
        train(path, client, val_path=val_path)

    assert str(caught.value) == (
        "Column 'label' of the validation corpus has labels that the training corpus has not: "
        f"'bird' (2 rows).\n  at {val_path}\n"
        "  Correct the labels, or leave these rows out of val_path."
    )
    assert not (tmp_path / "runs").exists()


def test_a_file_that_is_not_there(tmp_path: Path, client: Client) -> None:
    """Said before any cluster is asked for anything."""
    with pytest.raises(CorpusError) as caught:
        train(tmp_path / "nothing.csv", client)

    assert str(caught.value).startswith("There is no file '")


def test_a_model_that_cannot_fit_is_refused_with_the_arithmetic(
    tmp_path: Path, client: Client
) -> None:
    """As soon as its size is known; the shards are kept, no run folder is made."""
    path = tmp_path / "corpus.csv"
    lines = (f"word{n} other{n * 7},{n},{'ab'[n % 2]}\n" for n in range(3000))
    path.write_text("text,size,label\n" + "".join(lines), encoding="utf-8")

    with pytest.raises(BudgetError, match=r"max_features=\d+ would fit") as caught:
        train(path, client, hidden_size=100_000, memory="3GiB")

    assert "memory budget (asked for)" in str(caught.value)
    assert list((tmp_path / "cache" / "shards").rglob("*.arrow"))
    assert not (tmp_path / "runs").exists()


def test_a_wrong_column_is_told_before_a_cluster_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And before a large file is planned."""

    def start(*_: Any, **__: Any) -> None:
        raise AssertionError("started")

    monkeypatch.setattr("lancetnic_dask.pipeline.fit.use_client", start)
    monkeypatch.setattr("lancetnic_dask.pipeline.fit.warm_kernels", start)
    path = tmp_path / "tickets.csv"
    path.write_text("text,label\na,b\n", encoding="utf-8")
    (tmp_path / "empty.csv").touch()

    with pytest.raises(ColumnError) as caught:
        Classification("txt", None, "label").train("ScalpelMC", [tmp_path / "empty.csv", path])

    assert str(caught.value) == (
        f"There is no column 'txt'.\n  at {path}\n  Did you mean 'text'? There are: 'text', "
        "'label'."
    )
