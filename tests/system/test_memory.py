"""Memory is set by the budget: a corpus of ten times the limit, under a hard limit, no swap."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from corpora import make_corpus

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]

MIB = 1 << 20
LIMIT_BYTES = 1024 * MIB
TIMES = float(os.environ.get("LANCETNIC_TEST_CORPUS_TIMES", "10"))

SCRIPT = """\
import json, sys
from lancetnic_dask import Classification
clf = Classification("text", ["size"], "label", max_features=20_000)
run = clf.train(
    "ScalpelMC", sys.argv[1], num_epochs=1, hidden_size=8, batch_size=512, cache_dir="cache",
    partition_bytes=2 << 20, group_size=16,
)
print(json.dumps({
    "accuracy": run.history[-1]["val_accuracy"],
    "peak": run.peak_memory_bytes,
    "total": run.budget["total_bytes"],
    "source": run.budget["source"],
    "rows": run.num_rows,
    "seconds": run.seconds,
}))
"""


@contextmanager
def memory_cgroup(limit_bytes: int) -> Iterator[Path]:
    """Make a memory cgroup below our own (version 1); skip where that is not allowed."""
    lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    own = next((line.split(":")[2] for line in lines if ":memory:" in line), None)
    if own is None:
        pytest.skip("there is no memory controller of cgroup v1")
    group = Path(f"/sys/fs/cgroup/memory{own}/lancetnic-test-{os.getpid()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(limit_bytes), encoding="ascii")
    except OSError as error:
        pytest.skip(f"a memory cgroup cannot be made: {error}")
    try:
        yield group
    finally:
        group.rmdir()


def free_bytes(path: Path) -> int:
    """Return what the disk has left."""
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


def test_a_corpus_of_ten_times_the_limit_trains(tmp_path: Path) -> None:
    """From plan to model under a hard limit, with a vocabulary that keeps growing.

    The limit is what the run finds by itself: no budget is passed.
    """
    corpus_bytes = int(TIMES * LIMIT_BYTES)
    if free_bytes(tmp_path) < 3 * corpus_bytes:
        pytest.skip(f"the disk has not {3 * corpus_bytes:,} bytes left")
    path = tmp_path / "big.csv"
    make_corpus(path, num_rows=corpus_bytes // 1280, words_per_row=240, signal=0.1)
    assert path.stat().st_size >= corpus_bytes
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")

    with memory_cgroup(LIMIT_BYTES) as group:
        done = subprocess.run(
            ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh",
             sys.executable, "script.py", str(path)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=1700,
            check=False,
        )  # fmt: skip
        killed = (group / "memory.oom_control").read_text(encoding="ascii")
    path.unlink()

    assert done.returncode == 0, done.stdout + done.stderr
    assert "oom_kill 0" in killed
    result = json.loads(done.stdout.splitlines()[-1])
    print(result)  # noqa: T201 - figures for the docs, shown with pytest -s
    assert result["source"] == "cgroup"
    assert result["peak"] < result["total"] == LIMIT_BYTES
    assert result["accuracy"] > 0.9
    assert result["rows"]["training"] + result["rows"]["validation"] == result["rows"]["read"]
