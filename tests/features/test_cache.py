"""The cache folder: whole files or none, shared by processes, tidy after those that died."""

from __future__ import annotations

import errno
import logging
import os
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

import pytest
from reference_features import assert_same_shard, busy_shard, make_shard, write_corpus

from lancetnic_dask.corpus.whole_file import owner_tag
from lancetnic_dask.errors import CacheError
from lancetnic_dask.features.build import ShardRecipe, obtain_shard
from lancetnic_dask.features.cache import ShardCache
from lancetnic_dask.settings import ColumnRoles

if TYPE_CHECKING:
    from pathlib import Path

NAME = "ab" * 16


@pytest.fixture
def cache(tmp_path: Path) -> ShardCache:
    """Return a cache in a folder that is not there yet."""
    return ShardCache(tmp_path / "cache")


@pytest.fixture(scope="module")
def dead_pid() -> int:
    """Return the number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def files_in(folder: Path) -> list[str]:
    """List all files, as paths below the folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_published_shard_is_found_by_its_name(cache: ShardCache) -> None:
    """Under that name only."""
    assert cache.load(NAME) is None
    cache.publish(NAME, busy_shard())

    found = cache.load(NAME)
    assert found is not None
    assert_same_shard(found, busy_shard())
    assert cache.load("cd" * 16) is None
    assert files_in(cache.folder) == [f"shards/ab/{NAME}.arrow"]


@pytest.mark.parametrize("content", [b"", b"ARROW1\0\0", b"no shard at all" * 100])
def test_broken_shard_is_told_and_counts_as_none(
    content: bytes, cache: ShardCache, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning names the file."""
    cache.publish(NAME, busy_shard())
    path = cache.folder / "shards" / "ab" / f"{NAME}.arrow"
    path.write_bytes(content)

    assert cache.load(NAME) is None
    assert len(caplog.records) == 1
    assert caplog.records[0].levelno == logging.WARNING
    pattern = re.escape(str(path)) + r" cannot be read \(.+\) and is made again"
    assert re.fullmatch(pattern, caplog.records[0].getMessage(), re.DOTALL)


def test_broken_shard_is_made_again(cache: ShardCache, tmp_path: Path) -> None:
    """The next run finds a whole one."""
    rows = [("red dog", "a"), ("dog", "b")]
    _, parts = write_corpus(tmp_path / "c.csv", rows, ["t", "y"], partition_bytes=1 << 20)
    roles = ColumnRoles(text_columns=("t",), data_columns=(), label_column="y")
    recipe = ShardRecipe(roles=roles, policy="error")
    expected = obtain_shard(parts[0], recipe, cache=cache)
    (path,) = (cache.folder / "shards").rglob("*.arrow")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])

    assert_same_shard(obtain_shard(parts[0], recipe, cache=cache), expected)
    assert path.read_bytes() == whole


def _publish_often(folder: Path) -> int:
    """Publish under one name and read back, for another process."""
    cache, shard, misses = ShardCache(folder), busy_shard(), 0
    for _ in range(30):
        cache.publish(NAME, shard)
        found = cache.load(NAME)
        if found is None or found.set_aside != shard.set_aside:
            misses += 1
    return misses


def test_two_processes_may_publish_the_same_shard_at_once(cache: ShardCache) -> None:
    """Whoever reads meanwhile finds a whole one, and nothing else stays behind."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        misses = list(pool.map(_publish_often, [cache.folder] * 2, timeout=120))

    assert misses == [0, 0]
    found = cache.load(NAME)
    assert found is not None
    assert_same_shard(found, busy_shard())
    assert files_in(cache.folder) == [f"shards/ab/{NAME}.arrow"]


def test_plan_comes_back_as_it_was_published(cache: ShardCache, tmp_path: Path) -> None:
    """Names of columns in any script, and quotes."""
    corpus, _ = write_corpus(
        tmp_path / "c.csv", [("a", 'b "c"')], ["столбец", '"x"'], partition_bytes=3
    )
    assert cache.load_plan(NAME) is None
    cache.publish_plan(NAME, corpus.plan)

    assert cache.load_plan(NAME) == corpus.plan
    assert files_in(cache.folder) == [f"plans/{NAME}.json"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'"x"', b"{}", b"\xff", b'{"format_version": 99}',
     b'{"format_version": 1, "file_format": 3}'],
)  # fmt: skip
def test_broken_plan_is_told_and_counts_as_none(
    content: bytes, cache: ShardCache, caplog: pytest.LogCaptureFixture
) -> None:
    """It is made again like a shard."""
    path = cache.folder / "plans" / f"{NAME}.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)

    assert cache.load_plan(NAME) is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert caplog.records[0].getMessage().startswith(f"{path} cannot be read (")


def test_work_folder_is_removed_at_the_end_and_after_an_error(cache: ShardCache) -> None:
    """With all that is in it."""
    with cache.work_folder() as work:
        (work / "counts.arrow").write_bytes(b"x")
        assert work.parent == cache.folder / "work"
    assert not work.exists()

    with pytest.raises(KeyError), cache.work_folder() as work:  # noqa: PT012 - made, then fails
        (work / "counts.arrow").write_bytes(b"x")
        raise KeyError
    assert not work.exists()


def test_runs_do_not_share_a_work_folder(cache: ShardCache) -> None:
    """Two runs of one process at once, and the end of one leaves the other alone."""
    with cache.work_folder() as first:
        with cache.work_folder() as second:
            assert first != second
        assert first.is_dir()


def test_what_killed_runs_left_is_removed(cache: ShardCache, dead_pid: int) -> None:
    """Work folders and half-written files of dead processes of this machine, no others."""
    ours = owner_tag()
    host, pid, token = ours.rsplit("-", 2)
    dead = f"{host}-{dead_pid}-{token}"
    work, plans, shards = (cache.folder / name for name in ("work", "plans", "shards"))
    gone = [
        work / dead / "counts.arrow",
        plans / f"{NAME}.json.{dead}.partial",
        shards / "ab" / f"{NAME}.arrow.{dead}.partial",
    ]
    kept = [
        work / ours / "counts.arrow",
        # Other machines on a shared disk: their processes can't be seen from here.
        work / f"{host}-1-{dead_pid}-{token}" / "counts.arrow",
        work / f"{host}-{dead_pid}-{pid}-{token}" / "counts.arrow",
        work / f"elsewhere-{dead_pid}-{token}" / "counts.arrow",
        work / "something of the user's",
        work / f"{host}-{'9' * 40}-{token}",
        plans / f"{NAME}.json.{ours}.partial",
        plans / f"{NAME}.json",
        shards / "ab" / f"{NAME}.arrow.{ours}.partial",
        shards / "ab" / f"{NAME}.arrow.x{host}-{dead_pid}-{token}.partial",
        shards / "ab" / f"{NAME}.arrow",
    ]
    for path in [*gone, *kept]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")

    with cache.work_folder():
        assert files_in(cache.folder) == sorted(str(p.relative_to(cache.folder)) for p in kept)
    assert not (work / dead).exists()


def test_host_names_with_dots_are_told_apart(
    cache: ShardCache, dead_pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of an unfinished file is cut at dots."""
    monkeypatch.setattr("socket.gethostname", lambda: "node-1.lab.example")
    token = owner_tag().rsplit("-", 2)[2]
    folder = cache.folder / "plans"
    folder.mkdir(parents=True)
    mine = folder / f"{NAME}.json.node-1_lab_example-{dead_pid}-{token}.partial"
    other = folder / f"{NAME}.json.example-{dead_pid}-{token}.partial"
    mine.write_bytes(b"")
    other.write_bytes(b"")

    with cache.work_folder():
        assert list(folder.iterdir()) == [other]


def test_folder_that_cannot_be_made_is_an_error_of_the_cache(tmp_path: Path) -> None:
    """A file stands where the folder should be: the message names it and the way out."""
    (tmp_path / "cache").write_bytes(b"")
    cache = ShardCache(tmp_path / "cache")
    corpus, _ = write_corpus(tmp_path / "c.csv", [("a",)], ["t"], partition_bytes=100)
    expected = (
        f"The cache cannot be written: Not a directory.\n  at {tmp_path / 'cache'}\n"
        "  Free some space, pass another cache_dir=, or train with cache=False."
    )

    with pytest.raises(CacheError) as caught:
        cache.publish(NAME, make_shard([["aa"]]))
    assert str(caught.value) == expected
    with pytest.raises(CacheError) as caught:
        cache.publish_plan(NAME, corpus.plan)
    assert str(caught.value) == expected
    with pytest.raises(CacheError) as caught, cache.work_folder():
        pass
    assert str(caught.value) == expected
    assert cache.load_plan(NAME) is None


def test_full_disk_is_an_error_of_the_cache_and_leaves_nothing(
    cache: ShardCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is the system's, in words."""
    corpus, _ = write_corpus(tmp_path / "c.csv", [("a",)], ["t"], partition_bytes=100)

    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(CacheError, match="No space left on device"):
        cache.publish(NAME, busy_shard())
    with pytest.raises(CacheError, match="No space left on device"):
        cache.publish_plan(NAME, corpus.plan)

    assert files_in(cache.folder) == []


def test_errors_inside_the_work_folder_are_not_taken_for_the_cache(cache: ShardCache) -> None:
    """A missing corpus is an OSError too."""
    with pytest.raises(FileNotFoundError), cache.work_folder():
        raise FileNotFoundError
