"""Shards on disk: whole or not at all, read back equal, never trusted."""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference_features import assert_same_shard, busy_shard, make_shard, names_in
from reference_text import texts

from lancetnic_dask.corpus.schema import SetAside
from lancetnic_dask.corpus.whole_file import replace_file
from lancetnic_dask.errors import Location
from lancetnic_dask.features import shard as shard_module
from lancetnic_dask.features.shard import (
    TokenShard,
    read_arrow,
    read_shard,
    write_arrow,
    write_shard,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

each_file_anew = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def shards(draw: st.DrawFn) -> TokenShard:
    """Draw shards of few rows and columns, or of none."""
    num_rows = draw(st.integers(0, 5))
    columns = draw(
        st.lists(st.lists(texts, min_size=num_rows, max_size=num_rows), min_size=1, max_size=3)
    )
    num_columns = draw(st.integers(0, 3))
    cells = st.floats(allow_infinity=False)
    numbers = draw(
        st.lists(cells, min_size=num_rows * num_columns, max_size=num_rows * num_columns)
    )
    label = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
    labels = draw(st.none() | st.lists(label, min_size=num_rows, max_size=num_rows))
    place = st.builds(
        Location,
        st.text(st.characters(exclude_categories=["Cs"])),
        st.none() | st.integers(1),
        st.none() | st.text(),
        st.none() | st.integers(0),
    )
    return make_shard(
        columns,
        np.array(numbers, np.float64).reshape(num_rows, num_columns),
        labels,
        set_aside=tuple(draw(st.lists(st.builds(SetAside, st.text(), st.integers(1), place)))),
    )


@each_file_anew
@given(shard=shards())
def test_shard_comes_back_as_it_was_written(shard: TokenShard, tmp_path: Path) -> None:
    """Bits, types, missing numbers, labels and places, with no rows or no tokens as well."""
    path = tmp_path / "shard.arrow"
    write_shard(shard, path)

    assert_same_shard(read_shard(path), shard)


def test_shard_of_everything_comes_back(tmp_path: Path) -> None:
    """Several texts, an empty one, missing numbers, an empty label, rows set aside."""
    write_shard(busy_shard(), tmp_path / "shard.arrow")

    found = read_shard(tmp_path / "shard.arrow")
    assert_same_shard(found, busy_shard())
    assert found.num_rows == 4
    assert str(found.set_aside[0].first) == "file.csv, row 7, column 'label', byte 99"


@pytest.mark.parametrize(
    "shard",
    [
        make_shard([[]]),
        make_shard([[], []], np.empty((0, 2)), []),
        make_shard([["", "!"]]),
        make_shard([], np.array([[1.0], [np.nan]]), ["a", "b"]),
    ],
    ids=["no rows", "no rows of several columns", "no tokens", "no text column"],
)
def test_empty_shards_come_back(shard: TokenShard, tmp_path: Path) -> None:
    """A partition may consist of rows that were all set aside."""
    write_shard(shard, tmp_path / "shard.arrow")

    assert_same_shard(read_shard(tmp_path / "shard.arrow"), shard)


def test_numbers_are_kept_by_rows_however_they_lie_in_memory(tmp_path: Path) -> None:
    """A transposed or strided block is no reason to mix up columns."""
    numeric = np.asfortranarray(np.arange(12.0).reshape(4, 3))
    shard = make_shard([["", "", "", ""]], numeric)
    write_shard(replace(shard, numeric=numeric), tmp_path / "shard.arrow")

    assert read_shard(tmp_path / "shard.arrow").numeric.tolist() == numeric.tolist()


def test_slices_of_terms_are_written_as_they_look(tmp_path: Path) -> None:
    """A slice shares the buffers of the whole: only its own terms are kept."""
    write_arrow({"terms": pa.array(["aa", "bb", "cc"])[1:]}, {}, tmp_path / "terms.arrow")

    columns, header = read_arrow(tmp_path / "terms.arrow")
    assert columns["terms"].to_pylist() == ["bb", "cc"]
    assert header == {}


def test_arrays_are_views_of_the_mapped_file(tmp_path: Path) -> None:
    """Reading a shard takes no memory of ours, and nobody can change the kept file."""
    num_rows = 50_000
    shard = make_shard([["one two three four"] * num_rows], np.zeros((num_rows, 2)))
    write_shard(shard, tmp_path / "shard.arrow")
    del shard
    before = pa.total_allocated_bytes()

    found = read_shard(tmp_path / "shard.arrow")
    text = found.texts[0]
    arrays: list[np.ndarray] = [text.codes, text.row_offsets, found.numeric, found.row_hash]
    assert pa.total_allocated_bytes() - before < 10_000
    for array in arrays:
        assert not array.flags.owndata
        assert not array.flags.writeable
        assert len(array) >= num_rows


def test_made_and_mapped_arrays_are_of_one_type_for_kernels(tmp_path: Path) -> None:
    """Else each kernel is compiled twice, the second time at the first prediction."""
    numeric = np.array([[1.0]])
    shard = make_shard([["red dog"]], numeric, ["a"])
    write_shard(shard, tmp_path / "shard.arrow")

    for one in (shard, read_shard(tmp_path / "shard.arrow")):
        text = one.texts[0]
        for array in (text.codes, text.row_offsets, one.numeric, one.label_codes, one.row_hash):
            assert not array.flags.writeable
    assert numeric.flags.writeable


def test_arrays_outlive_the_file_that_is_replaced_or_deleted(tmp_path: Path) -> None:
    """Another run may evict or renew a shard while its rows are in use."""
    path = tmp_path / "shard.arrow"
    write_shard(busy_shard(), path)
    found = read_shard(path)
    write_shard(make_shard([["other"]]), path)
    path.unlink()

    assert_same_shard(found, busy_shard())


def test_file_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    """At every tenth byte and around both ends: an error, never a crash or half a shard."""
    path = tmp_path / "shard.arrow"
    write_shard(busy_shard(), path)
    data = path.read_bytes()
    lengths = {*range(0, len(data), 10), *range(16), *range(len(data) - 16, len(data))}

    for length in lengths:
        path.write_bytes(data[:length])
        with pytest.raises(ValueError, match=r"shard\.arrow is "):
            read_shard(path)


@each_file_anew
@given(changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255))))
def test_changed_bytes_never_lead_outside_the_arrays(
    changes: list[tuple[float, int]], tmp_path: Path
) -> None:
    """A damaged shard is refused, or one whose indices all point to something."""
    path = tmp_path / "shard.arrow"
    write_shard(busy_shard(), path)
    data = bytearray(path.read_bytes())
    for where, byte in changes:
        data[int(where * len(data))] = byte
    path.write_bytes(data)

    try:
        shard = read_shard(path)
    except ValueError:
        return
    for text in shard.texts:
        assert text.row_offsets[-1] == len(text.codes)
        assert len(text.row_offsets) == shard.num_rows + 1
        assert all(isinstance(term, str) for term in text.terms.take(text.codes).to_pylist())
    assert all(isinstance(shard.label_values[code], str) for code in shard.label_codes)


def _with_text(shard: TokenShard, **arrays: np.ndarray) -> TokenShard:
    return replace(shard, texts=(replace(shard.texts[0], **arrays), *shard.texts[1:]))


SPOILT: dict[str, tuple[Callable[[TokenShard], TokenShard], str]] = {
    "code too high": (
        lambda s: _with_text(s, codes=s.texts[0].codes + 1),
        "its tokens don't fit its terms",
    ),
    "code below zero": (
        lambda s: _with_text(s, codes=s.texts[0].codes - 1),
        "its tokens don't fit its terms",
    ),
    "token lost": (
        lambda s: _with_text(s, codes=s.texts[0].codes[:-1]),
        "its rows don't fit its tokens",
    ),
    "offsets go back": (
        lambda s: _with_text(s, row_offsets=s.texts[0].row_offsets[[0, 3, 2, 1, 4]]),
        "its rows don't fit its tokens",
    ),
    "offsets start late": (
        lambda s: _with_text(s, row_offsets=np.maximum(s.texts[0].row_offsets, 1)),
        "its rows don't fit its tokens",
    ),
    "hash lost": (lambda s: replace(s, row_hash=s.row_hash[:3]), "cannot reshape array"),
    "hash and numbers lost": (
        lambda s: replace(s, row_hash=s.row_hash[:3], numeric=s.numeric[:3]),
        "its rows don't fit its tokens",
    ),
    "labels lost": (
        lambda s: replace(s, label_codes=s.label_codes[:2]),
        "its labels don't fit its rows",
    ),
    "label too high": (
        lambda s: replace(s, label_codes=s.label_codes + 1),
        "its labels are not in their list",
    ),
    "codes of another type": (
        lambda s: _with_text(s, codes=s.texts[0].codes.astype(np.int64)),
        "column 'codes_0' is int64",
    ),
}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_arrays_that_do_not_fit_together_are_refused(spoilt: str, tmp_path: Path) -> None:
    """Kernels look at no bounds, so the file is looked at before them."""
    path = tmp_path / "shard.arrow"
    spoil, reason = SPOILT[spoilt]
    write_shard(spoil(busy_shard()), path)
    with pytest.raises(ValueError, match="is damaged") as caught:
        read_shard(path)

    assert str(caught.value).startswith(f"{path} is damaged: {reason}")


def test_shard_of_another_format_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both versions are named."""
    path = tmp_path / "shard.arrow"
    monkeypatch.setattr(shard_module, "FORMAT_VERSION", 7)
    write_shard(busy_shard(), path)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="format version") as caught:
        read_shard(path)

    assert str(caught.value) == f"{path} is a shard of format version 7, not 2"


def test_foreign_arrow_file_is_refused(tmp_path: Path) -> None:
    """An Arrow file of another program has no header of ours."""
    path = tmp_path / "shard.arrow"
    table = pa.table({"codes_0": [1, 2]})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)

    with pytest.raises(ValueError, match=r"shard\.arrow is no whole file of ours"):
        read_shard(path)


def test_missing_file_is_told_apart_from_a_broken_one(tmp_path: Path) -> None:
    """It is no reason for a warning."""
    with pytest.raises(FileNotFoundError):
        read_shard(tmp_path / "none.arrow")


def test_failed_write_leaves_nothing_and_keeps_the_older_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full in the middle of writing."""
    path = tmp_path / "shard.arrow"
    write_shard(busy_shard(), path)

    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    for target in (path, tmp_path / "new.arrow"):
        with pytest.raises(OSError, match="No space left"):
            write_shard(make_shard([["other"]]), target)

    assert names_in(tmp_path) == ["shard.arrow"]
    assert_same_shard(read_shard(path), busy_shard())


def test_file_gets_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    """Who looks meanwhile finds the older file or none."""
    path = tmp_path / "deep" / "down" / "file"
    with replace_file(path) as stream:
        stream.write(b"whole")
        assert not path.exists()

    assert path.read_bytes() == b"whole"
    with pytest.raises(KeyError), replace_file(path) as stream:  # noqa: PT012 - both halves fail
        stream.write(b"half")
        raise KeyError
    assert path.read_bytes() == b"whole"
    assert names_in(path.parent) == ["file"]


def test_threads_of_one_process_may_write_the_same_shard_at_once(tmp_path: Path) -> None:
    """A file that stands in a corpus twice makes two tasks with one fingerprint."""
    path = tmp_path / "shard.arrow"
    others = threading.Barrier(4)
    failures = []

    def write() -> None:
        try:
            with replace_file(path) as stream:
                others.wait(timeout=30)  # all are in the middle of writing
                stream.write(b"one whole file")
                others.wait(timeout=30)
        except BaseException as error:  # noqa: BLE001 - shown by the assert
            failures.append(error)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert failures == []
    assert path.read_bytes() == b"one whole file"
    assert names_in(tmp_path) == ["shard.arrow"]
