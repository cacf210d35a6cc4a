"""The code of README and docs runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from corpora import make_corpus

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if "```python" in page.read_text(encoding="utf-8")
]


def test_pages_have_code() -> None:
    """Those that a user starts with."""
    assert {"README.md", "lancetnic.md"} <= {page.name for page in PAGES}


@pytest.mark.system
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(tmp_path: Path, page: Path) -> None:
    """Block by block in one plain script, without a main guard, beside a file of that name."""
    make_corpus(tmp_path / "tickets.csv", num_rows=2000, signal=0.3)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "script.py").write_text("\n".join(blocks), encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={"PATH": "", "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )

    assert done.returncode == 0, done.stderr
    assert "Dask dashboard: http://127.0.0.1:" in done.stdout
    assert "Epoch 5/5" in done.stdout
    assert "Traceback" not in done.stderr
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"tickets.csv", "script.py", "runs", "cache"}
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {"lancetnic_dask"}
