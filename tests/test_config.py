"""lancetnic.yaml and Dask's configuration -> one value per key."""

from __future__ import annotations

import subprocess
import sys

import dask.config
import pytest

from lancetnic_dask.config import _registered_defaults, setting
from lancetnic_dask.errors import SettingError


def test_every_default_can_be_read() -> None:
    """Sizes come as bytes, times as seconds, null as None."""
    assert setting("memory.total") is None
    assert setting("cache.dir") is None
    assert setting("cluster.workers") is None
    assert setting("cluster.dashboard-address") == "127.0.0.1:8787"
    assert setting("cluster.start-timeout") == 60.0
    assert setting("corpus.partition-bytes") == setting("corpus.max-row-bytes") == 16 * 2**20
    assert setting("training.group-size") == 16
    assert setting("features.max-features-cap") == 250_000
    assert setting("run.dir") == "runs"


def test_a_value_set_later_wins() -> None:
    """Nothing is frozen at import: dask.config.set works for its block."""
    with dask.config.set({"lancetnic.memory.total": "8GiB"}):
        assert setting("memory.total") == 8 * 2**30

    assert setting("memory.total") is None


def test_the_environment_wins_over_the_defaults() -> None:
    """DASK_LANCETNIC__… is read as for any Dask library, and import alone loads no Dask."""
    code = (
        "import sys; from lancetnic_dask.config import setting; assert 'dask' not in sys.modules;"
        "print(setting('memory.total'), 'distributed' in sys.modules)"
    )

    printed = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        timeout=60,
        env={"DASK_LANCETNIC__MEMORY__TOTAL": "2GiB"},
    ).stdout

    assert printed.decode().split() == [str(2 * 2**30), "False"]


def test_an_unknown_key_names_the_nearest() -> None:
    """A typing error is not taken for a value that is not set."""
    with pytest.raises(SettingError, match=r"Did you mean 'training\.group-size'\?"):
        setting("training.group_size")


@pytest.mark.parametrize(
    ("key", "value"),
    [("memory.total", "lots"), ("cluster.start-timeout", "soon"), ("corpus.partition-bytes", 0)],
)
def test_a_value_of_the_wrong_kind_names_its_key(key: str, value: object) -> None:
    """The error shows key and value."""
    with (
        dask.config.set({f"lancetnic.{key}": value}),
        pytest.raises(SettingError, match=f"lancetnic.{key} is {value!r}"),
    ):
        setting(key)


def test_no_default_stops_a_run() -> None:
    """A size or time that Dask cannot parse would stop every run, and blame the user."""
    for key in _registered_defaults():
        setting(key)


def test_defaults_outlive_a_block_that_was_entered_before_them() -> None:
    """Dask takes away the whole tree that such a block was the first to make."""
    code = (
        "import dask.config\n"
        "from lancetnic_dask.config import setting\n"
        "with dask.config.set({'lancetnic.memory.total': '8GiB'}):\n"
        "    print(setting('memory.total'), setting('training.group-size'))\n"
        "print(setting('memory.total'), setting('training.group-size'))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.split() == ["8589934592", "16", "None", "16"]
