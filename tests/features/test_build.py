"""Shards of a corpus: the same rows at any cut, the same shard from anywhere, named exactly."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference_features import assert_same_shard, make_shard, write_corpus
from reference_text import rows_of, texts

from lancetnic_dask.corpus.frame import Corpus
from lancetnic_dask.errors import CorpusError, RecordError
from lancetnic_dask.features import build as build_module
from lancetnic_dask.features import shard as shard_module
from lancetnic_dask.features.build import ShardRecipe, build_shard, obtain_shard
from lancetnic_dask.features.cache import ShardCache
from lancetnic_dask.settings import ColumnRoles, NumberFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lancetnic_dask.corpus.plan import PartitionPlan
    from lancetnic_dask.features.shard import TokenShard

each_file_anew = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
HEADER = ["t", "x", "y", "u"]
ROLES = ColumnRoles(text_columns=("t", "u"), data_columns=("x",), label_column="y")
RECIPE = ShardRecipe(roles=ROLES, policy="skip")
NGRAMS = replace(RECIPE, ngram_range=(1, 2), stop_words=("the",))
ROWS = [
    ("red dog, the dog", "1.5", "yes", "aa"),
    ("", "", "no", "\n"),
    ('two\nlines "quoted"', "no number", "no", "bb"),
    ("Яблоко ΟΔΟΣ", "-2", "", "cc"),
    ("the end", "", "no", ""),
]
cells = texts.filter(lambda text: "\x00" not in text)
tables = st.lists(
    st.tuples(
        cells,
        st.sampled_from(["", "1", "-2.5", "+3e2", "x"]),
        st.sampled_from(["", "a", "b", "Я"]),
        cells,
    ),
    min_size=1,
    max_size=8,
)


@pytest.fixture
def parts(tmp_path: Path) -> list[PartitionPlan]:
    """Write all rows to a file and cut it into two partitions or more."""
    _, parts = write_corpus(tmp_path / "c.csv", ROWS, HEADER, partition_bytes=60)
    assert len(parts) > 1
    return parts


@pytest.fixture
def part(tmp_path: Path) -> PartitionPlan:
    """Write all rows to a file and cut it into one partition."""
    _, parts = write_corpus(tmp_path / "whole.csv", ROWS, HEADER, partition_bytes=1 << 20)
    return parts[0]


def joined(shards: Sequence[TokenShard]) -> dict[str, Any]:
    """Spell the rows of all shards out, one after the other."""
    return {
        "texts": [
            [row for shard in shards for row in rows_of(shard.texts[index])]
            for index in range(len(shards[0].texts))
        ],
        "numeric": [repr(row) for shard in shards for row in shard.numeric.tolist()],
        "labels": [shard.label_values[code] for shard in shards for code in shard.label_codes],
        "hashes": [row for shard in shards for row in shard.row_hash.tolist()],
        "set aside": sum(one.count for shard in shards for one in shard.set_aside),
    }


@each_file_anew
@given(rows=tables, partition_bytes=st.integers(1, 200), ngrams=st.booleans())
def test_rows_do_not_depend_on_the_cut(
    rows: list[tuple[str, str, str, str]], partition_bytes: int, *, ngrams: bool, tmp_path: Path
) -> None:
    """Tokens, numbers, labels and hashes one after the other are those of one partition."""
    path = tmp_path / "c.csv"
    recipe = NGRAMS if ngrams else RECIPE
    _, parts = write_corpus(path, rows, HEADER, partition_bytes=partition_bytes)
    plan = Corpus.read_csv(path, partition_bytes=1 << 20).plan
    whole = [plan.only(partition) for partition in plan.partitions]
    found = [obtain_shard(part, recipe) for part in parts]

    assert len(whole) == 1
    assert joined(found) == joined([obtain_shard(whole[0], recipe)])
    for shard in found:
        for text in shard.texts:
            terms = text.terms.to_pylist()
            assert terms == sorted({term for row in rows_of(text) for term in row})
        assert list(shard.label_values) == sorted(set(joined([shard])["labels"]))


def test_shard_holds_what_stands_in_the_file(part: PartitionPlan) -> None:
    """Columns by name in the order of roles; bad rows set aside with their places."""
    shard = build_shard(part, RECIPE)

    kept = [ROWS[0], ROWS[4]]
    expected = make_shard(
        [[row[0] for row in kept], [row[3] for row in kept]],
        np.array([[1.5], [np.nan]]),
        [row[2] for row in kept],
        set_aside=shard.set_aside,
    )
    assert_same_shard(shard, expected)
    assert {(one.reason, one.count, one.first.row) for one in shard.set_aside} == {
        ("no number in column 'x'", 1, 3),
        ("no label", 1, 4),
        ("neither a word nor a number", 1, 2),
    }


def test_pieces_of_a_partition_are_put_together(
    part: PartitionPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition is read some MiB at a time: no row knows of it."""
    whole = build_shard(part, RECIPE)
    monkeypatch.setattr("lancetnic_dask.corpus.readers._PIECE_BYTES", 7)

    # Reasons come up in the order of the pieces.
    pieces = build_shard(part, RECIPE)
    assert_same_shard(replace(pieces, set_aside=()), replace(whole, set_aside=()))
    assert set(pieces.set_aside) == set(whole.set_aside)


def test_bad_row_is_an_error_under_that_policy(part: PartitionPlan) -> None:
    """The place is kept on the way through the worker's task, and nothing is published."""
    with pytest.raises(RecordError) as caught:
        obtain_shard(part, replace(RECIPE, policy="error"))

    url = part.files[0].file.url
    assert str(caught.value).splitlines()[:2] == [
        "'no number' is not a number.",
        f"  at {url}, row 3, column 'x', byte {caught.value.args[1].byte}",
    ]


def test_partition_of_nothing_but_bad_rows_gives_an_empty_shard(tmp_path: Path) -> None:
    """It has the columns of its neighbours, and no rows."""
    rows = [("red", "x", "a", ""), ("dog", "1", "", "")]
    _, parts = write_corpus(tmp_path / "c.csv", rows, HEADER, partition_bytes=1 << 20)

    shard = obtain_shard(parts[0], NGRAMS, cache=ShardCache(tmp_path / "cache"))
    assert_same_shard(replace(shard, set_aside=()), make_shard([[], []], np.empty((0, 1)), []))
    assert sum(one.count for one in shard.set_aside) == 2


def test_predicting_needs_no_label_column(part: PartitionPlan) -> None:
    """Without the role labels are not read: rows without one are rows as others."""
    roles = replace(ROLES, label_column=None)
    shard = build_shard(part, replace(RECIPE, roles=roles))

    assert shard.num_rows == 3
    assert shard.label_codes.tolist() == []
    assert shard.label_values == ()


@pytest.mark.parametrize("recipe", [RECIPE, NGRAMS], ids=["words", "n-grams"])
def test_shard_is_the_same_with_a_warm_cache_a_cold_one_and_none(
    recipe: ShardRecipe, parts: list[PartitionPlan], tmp_path: Path
) -> None:
    """Bit for bit."""
    cache = ShardCache(tmp_path / "cache")
    for part in parts:
        without = obtain_shard(part, recipe)
        cold = obtain_shard(part, recipe, cache=cache)
        warm = obtain_shard(part, recipe, cache=cache)

        assert_same_shard(cold, without)
        assert_same_shard(warm, without)


def test_warm_cache_reads_no_text(
    part: PartitionPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-grams and stop words are made from kept codes, even when the file is gone."""
    cache = ShardCache(tmp_path / "cache")
    plain = obtain_shard(part, RECIPE, cache=cache)
    (tmp_path / "whole.csv").unlink()
    monkeypatch.setattr(build_module, "iter_rows", None)

    pairs = obtain_shard(part, NGRAMS, cache=cache)
    words = replace(NGRAMS, ngram_range=(1, 1))
    assert rows_of(pairs.texts[0])[0] == ["red", "dog", "dog", "red dog", "dog dog"]
    assert rows_of(obtain_shard(part, words, cache=cache).texts[0])[1] == ["end"]
    assert_same_shard(obtain_shard(part, RECIPE, cache=cache), plain)
    monkeypatch.undo()
    with pytest.raises(CorpusError, match="The file is gone"):
        obtain_shard(part, RECIPE)


def test_file_that_was_rewritten_is_not_read_by_an_old_plan(part: PartitionPlan) -> None:
    """Byte ranges of one file mean nothing in another."""
    with open(part.files[0].file.url, "a", encoding="utf-8") as stream:  # noqa: PTH123 - a URL
        stream.write("more,1,a,\n")
    with pytest.raises(CorpusError, match="The file has changed"):
        build_shard(part, RECIPE)


def _with_file(part: PartitionPlan, **changes: Any) -> PartitionPlan:
    planned = part.files[0]
    return replace(part, files=(replace(planned, file=replace(planned.file, **changes)),))


def _with_range(part: PartitionPlan, **changes: Any) -> PartitionPlan:
    return replace(part, partitions=(replace(part.partitions[0], **changes),))


def _with_format(part: PartitionPlan, **changes: Any) -> PartitionPlan:
    return replace(part, file_format=replace(part.file_format, **changes))


def _with_dialect(part: PartitionPlan, **changes: Any) -> PartitionPlan:
    return _with_format(part, dialect=replace(part.file_format.dialect, **changes))


OTHER_PARTS: dict[str, Callable[[PartitionPlan], PartitionPlan]] = {
    "url": lambda part: _with_file(part, url="/elsewhere.csv"),
    "size": lambda part: _with_file(part, size=1),
    "change stamp": lambda part: _with_file(part, stamp="later"),
    "start": lambda part: _with_range(part, start=1),
    "stop": lambda part: _with_range(part, stop=1),
    "first row": lambda part: _with_range(part, first_row=1),
    "header": lambda part: replace(
        part, files=(replace(part.files[0], columns=("u", "x", "y", "t")),)
    ),
    "encoding": lambda part: _with_format(part, encoding="cp1251"),
    "longest row": lambda part: _with_format(part, max_row_bytes=100),
    "delimiter": lambda part: _with_dialect(part, delimiter=";"),
    "quote": lambda part: _with_dialect(part, quotechar=None),
    "escape": lambda part: _with_dialect(part, escapechar="\\"),
    "doubled quotes": lambda part: _with_dialect(part, doublequote=False),
}
OTHER_RECIPES: dict[str, ShardRecipe] = {
    "policy": replace(RECIPE, policy="error"),
    "n-grams": replace(RECIPE, ngram_range=(1, 2)),
    "longer n-grams": replace(RECIPE, ngram_range=(1, 3)),
    "stop words": replace(RECIPE, stop_words=("the",)),
    "more stop words": replace(RECIPE, stop_words=("of", "the")),
    "how numbers are written": replace(RECIPE, numbers=NumberFormat(decimal=",")),
    "no label": replace(RECIPE, roles=replace(ROLES, label_column=None)),
    "order of texts": replace(RECIPE, roles=replace(ROLES, text_columns=("u", "t"))),
    "fewer texts": replace(RECIPE, roles=replace(ROLES, text_columns=("t",))),
    "no numbers": replace(RECIPE, roles=replace(ROLES, data_columns=())),
    "another role": replace(
        RECIPE, roles=replace(ROLES, text_columns=("t",), data_columns=("x", "u"))
    ),
}


def test_fingerprint_changes_with_all_that_changes_the_shard(part: PartitionPlan) -> None:
    """Each change gives a name of its own, and no two of them the same."""
    names = {"as it is": RECIPE.fingerprint(part)}
    names |= {what: RECIPE.fingerprint(change(part)) for what, change in OTHER_PARTS.items()}
    names |= {what: recipe.fingerprint(part) for what, recipe in OTHER_RECIPES.items()}

    assert len(set(names.values())) == 1 + len(OTHER_PARTS) + len(OTHER_RECIPES)
    assert all(len(name) == 32 and set(name) <= {*"0123456789abcdef"} for name in names.values())


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (shard_module, "FORMAT_VERSION", 99),
        (build_module, "TOKENIZER_VERSION", 99),
        (build_module, "UNICODE_VERSION", "99.0.0"),
    ],
    ids=["format", "tokenizer", "Unicode"],
)
def test_fingerprint_changes_with_versions(
    module: Any, name: str, value: object, part: PartitionPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard of an older program is not taken for one of ours."""
    before = RECIPE.fingerprint(part)
    monkeypatch.setattr(module, name, value)

    assert RECIPE.fingerprint(part) != before


def test_fingerprint_stays_the_same_in_other_processes_and_plans(
    part: PartitionPlan, tmp_path: Path
) -> None:
    """It knows no seed, split or max_features: nothing but the recipe and the partition."""
    again = Corpus.read_csv(tmp_path / "whole.csv", partition_bytes=1 << 20)
    other_name = again.plan.only(again.plan.partitions[0])

    assert RECIPE.fingerprint(other_name) == RECIPE.fingerprint(part)
    assert set(ShardRecipe.__dataclass_fields__) == {
        "roles",
        "policy",
        "ngram_range",
        "stop_words",
        "numbers",
    }


def test_partition_of_a_second_file_has_its_own_name(tmp_path: Path) -> None:
    """Two files of equal content are two places: errors and rows set aside name theirs."""
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("t,x,y,u\nred,1,a,\n", encoding="utf-8")
    plan = Corpus.read_csv([tmp_path / "a.csv", tmp_path / "b.csv"]).plan

    names = {RECIPE.fingerprint(plan.only(partition)) for partition in plan.partitions}
    assert len(names) == 2


def test_the_same_bytes_give_the_same_shard_as_ever(tmp_path: Path) -> None:
    """Shards outlive releases: what changes this digest must raise a version.

    `CORPUS_VERSION` for rows and cells, `TOKENIZER_VERSION` for tokens, and
    `shard.FORMAT_VERSION` for the file and the row hash.
    """
    path = tmp_path / "golden.csv"
    path.write_bytes(
        b"text,size,label\r\n"
        + '"Ёлка ΑΣ\n""İ"" 😀 don\'t",1.5,да\r\nplain_text 42,,no\n\n,+3e2,no\r'.encode()
    )
    plan = Corpus.read_csv(path).plan
    roles = ColumnRoles(text_columns=("text",), data_columns=("size",), label_column="label")
    recipe = ShardRecipe(roles=roles, policy="error", ngram_range=(1, 2))

    shard = obtain_shard(plan.only(plan.partitions[0]), recipe)

    digest = hashlib.blake2b(digest_size=16)
    for array in (shard.texts[0].codes, shard.texts[0].row_offsets, shard.numeric,
                  shard.label_codes, shard.row_hash):  # fmt: skip
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(repr((shard.texts[0].terms.to_pylist(), shard.label_values)).encode())
    assert shard.num_rows == 3
    assert digest.hexdigest() == "edf2a85dd4c0a5bffb6f3b0f5d185568"
