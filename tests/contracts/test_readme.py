"""README's code runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from corpora import make_corpus

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.system
def test_the_example_of_the_readme_runs(tmp_path: Path) -> None:
    """Block by block in one plain script, without a main guard, beside a file of that name."""
    make_corpus(tmp_path / "tickets.csv", num_rows=2000, signal=0.3)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
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
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"tickets.csv", "script.py", "runs", "cache"}
