"""Corpora of the benchmarks, made once and kept in build/; files out of the page cache."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from corpora import make_corpus

__all__ = ["forget_pages", "kept_corpus", "read_pages"]


def kept_corpus(folder: Path, **options: Any) -> Path:
    """Return a corpus of `make_corpus`, made now unless it is there.

    Parameters
    ----------
    folder : Path
        Where corpora are kept.
    **options
        Those of `make_corpus`; they decide the name of the file.

    Returns
    -------
    Path
        The CSV file.
    """
    source = Path(__file__).with_name("corpora.py").read_bytes()
    key = json.dumps(options, sort_keys=True).encode() + source
    name = hashlib.blake2b(key, digest_size=6).hexdigest()
    path = folder / f"{options['num_rows']}-{name}.csv"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        make_corpus(partial, **options)
        partial.replace(path)
    return path


def forget_pages(path: Path) -> None:
    """Drop a file from the page cache, so that it is read from disk next time."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_pages(path: Path) -> None:
    """Read a file once, so that it is in the page cache."""
    with path.open("rb") as stream:
        while stream.read(1 << 24):
            pass
