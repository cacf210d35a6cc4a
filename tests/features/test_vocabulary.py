"""The choice of terms: scikit-learn's, whatever the cut and the ranges of the merge."""

from __future__ import annotations

import operator
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from reference_features import make_shard
from reference_text import texts
from sklearn.feature_extraction.text import CountVectorizer

from lancetnic_dask.corpus.frame import here
from lancetnic_dask.errors import CorpusError, SettingError
from lancetnic_dask.features import counts as counts_module
from lancetnic_dask.features import vocabulary as vocabulary_module
from lancetnic_dask.features.counts import count_terms, write_counts
from lancetnic_dask.features.stop_words import resolve_stop_words
from lancetnic_dask.features.terms import Vocabulary
from lancetnic_dask.features.vocabulary import build_vocabulary, iter_merged_counts, merge_counts
from lancetnic_dask.settings import FeatureSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

each_file_anew = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
few_words = st.lists(st.sampled_from(["ab", "abc", "яя", "the", "中文", "zz", "of"])).map(" ".join)
corpora = st.lists(few_words | texts, min_size=1, max_size=12)
cut_places = st.lists(st.integers(0, 12), max_size=5)
count_lists = st.lists(
    st.dictionaries(
        st.text(st.sampled_from("abя中𐐀"), min_size=1, max_size=3),
        st.tuples(st.integers(1, 9), st.integers(0, 3)).map(lambda n: (n[0] + n[1], n[0])),
        max_size=40,
    ),
    min_size=1,
    max_size=12,
)


def write_lists(folder: Path, lists: Iterable[dict[str, tuple[int, int]]]) -> list[Path]:
    """Write lists of term -> (occurrences, rows) as partitions would."""
    paths = []
    for i, counts in enumerate(lists):
        paths.append(folder / f"{i:06d}.0.arrow")
        terms = sorted(counts)
        write_counts(
            paths[-1],
            pa.array(terms, pa.string()),
            np.array([counts[term][0] for term in terms], np.int64),
            np.array([counts[term][1] for term in terms], np.int64),
        )
    return paths


def sum_lists(lists: Iterable[dict[str, tuple[int, int]]]) -> dict[str, tuple[int, int]]:
    """Slow twin of the merge: term -> (occurrences, rows), sorted."""
    occurrences: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    for counts in lists:
        for term, (term_frequency, document_frequency) in counts.items():
            occurrences[term] += term_frequency
            rows[term] += document_frequency
    return {term: (occurrences[term], rows[term]) for term in sorted(rows)}


def read_tables(tables: Iterator[pa.Table]) -> list[tuple[str, int, int]]:
    """Spell merged counts out."""
    return [
        (one["term"], one["term_frequency"], one["document_frequency"])
        for table in tables
        for one in table.to_pylist()
    ]


def fit(
    rows: Sequence[str],
    folder: Path,
    *,
    cuts: Sequence[int] = (),
    max_features: int = 10**6,
    **options: Any,
) -> Vocabulary:
    """Build the vocabulary of rows that are cut into partitions."""
    features = FeatureSettings(**options)
    paths = []
    places = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for i, (start, stop) in enumerate(pairwise(places)):
        text = make_shard(
            [rows[start:stop]],
            ngram_range=features.ngram_range,
            stop_words=resolve_stop_words(features.stop_words),
        ).texts[0]
        counts = count_terms(
            text.codes, text.row_offsets, np.ones(stop - start, np.bool_), len(text.terms)
        )
        paths.append(folder / f"{i:06d}.0.arrow")
        write_counts(paths[-1], text.terms, *counts)
    return build_vocabulary(
        paths,
        features,
        column="text",
        num_training=len(rows),
        max_features=max_features,
        map_tasks=here,
    )


@each_file_anew
@given(
    rows=corpora,
    cuts=cut_places,
    min_df=st.sampled_from([1, 2, 3, 0.0, 0.1, 0.5, 1 / 3]),
    max_df=st.sampled_from([1.0, 0.5, 2 / 3, 1, 3, 100]),
    ngram_range=st.sampled_from([(1, 1), (1, 2), (2, 3)]),
    stop_words=st.sampled_from([None, "english", ("яя", "zz")]),
)
def test_terms_are_those_of_scikit_learn(
    rows: list[str],
    cuts: list[int],
    min_df: float,
    max_df: float,
    ngram_range: tuple[int, int],
    stop_words: Any,
    tmp_path: Path,
) -> None:
    """The same terms in the same order with the same rows, or an error where it has one."""
    options: dict[str, Any] = {"min_df": min_df, "max_df": max_df, "ngram_range": ngram_range}
    vectorizer = CountVectorizer(
        **options, stop_words=list(stop_words) if isinstance(stop_words, tuple) else stop_words
    )
    try:
        counts = vectorizer.fit_transform(rows).toarray()
    except ValueError:
        with pytest.raises((CorpusError, SettingError)):
            fit(rows, tmp_path, cuts=cuts, stop_words=stop_words, **options)
        return

    found = fit(rows, tmp_path, cuts=cuts, stop_words=stop_words, **options)
    assert found.terms.to_pylist() == vectorizer.get_feature_names_out().tolist()
    assert found.document_frequency.tolist() == (counts > 0).sum(axis=0).tolist()
    assert found.num_training == len(rows)


@each_file_anew
@given(rows=corpora, cuts=cut_places, data=st.data())
def test_most_frequent_terms_are_those_of_scikit_learn_if_there_is_no_tie(
    rows: list[str], cuts: list[int], data: st.DataObject, tmp_path: Path
) -> None:
    """max_features counts occurrences, after min_df and max_df."""
    try:
        counts = CountVectorizer(min_df=2).fit_transform(rows).toarray().sum(axis=0)
    except ValueError:
        assume(condition=False)
    ordered = sorted(counts.tolist(), reverse=True)
    untied = [k for k in range(1, len(ordered)) if ordered[k - 1] > ordered[k]]
    max_features = data.draw(st.sampled_from([*untied, len(ordered), len(ordered) + 1]))
    vectorizer = CountVectorizer(min_df=2, max_features=max_features).fit(rows)

    found = fit(rows, tmp_path, cuts=cuts, min_df=2, max_features=max_features)
    assert found.terms.to_pylist() == vectorizer.get_feature_names_out().tolist()


@each_file_anew
@given(lists=count_lists, max_features=st.integers(1, 20), data=st.data())
def test_ties_at_the_cut_are_broken_by_the_term_however_it_is_merged(
    lists: list[dict[str, tuple[int, int]]],
    max_features: int,
    data: st.DataObject,
    tmp_path: Path,
) -> None:
    """The first terms win, in any order of partitions, with any ranges and levels of merging."""
    total = sum_lists(lists)
    assume(total)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts_module, "_BATCH_BYTES", data.draw(st.integers(1, 500)))
        patch.setattr(vocabulary_module, "_FAN_IN", data.draw(st.integers(2, 6)))
        patch.setattr(vocabulary_module, "_GATHERED_TERMS", data.draw(st.integers(1, 30)))
        paths = write_lists(tmp_path, data.draw(st.permutations(lists)))
        found = build_vocabulary(
            paths,
            FeatureSettings(),
            column="text",
            num_training=100,
            max_features=max_features,
            map_tasks=here,
        )

    winners = sorted(total, key=lambda term: (-total[term][0], term))[:max_features]
    assert found.terms.to_pylist() == sorted(winners)
    assert found.document_frequency.tolist() == [total[term][1] for term in sorted(winners)]
    assert found.num_distinct == len(total)
    assert found.terms.type == pa.string()
    assert isinstance(found.terms, pa.Array)


@each_file_anew
@given(lists=count_lists, batch_bytes=st.integers(1, 2000))
def test_merge_is_exact_and_holds_one_batch_of_each_list(
    lists: list[dict[str, tuple[int, int]]], batch_bytes: int, tmp_path: Path
) -> None:
    """No step sees more than a batch of each list, also where all lists are alike."""
    sizes = []

    def spy(counts: pa.Table) -> pa.Table:
        sizes.append(len(counts))
        return original(counts)

    original = vocabulary_module._sum_by_term
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts_module, "_BATCH_BYTES", batch_bytes)
        patch.setattr(vocabulary_module, "_sum_by_term", spy)
        paths = write_lists(tmp_path, lists)
        tables = list(iter_merged_counts(paths))

    found = read_tables(iter(tables))
    assert found == [(term, *counts) for term, counts in sum_lists(lists).items()]
    assert sum(sizes) == sum(map(len, lists))
    assert max(sizes, default=0) <= sum(map(largest_batch, paths))
    assert all(len(table) for table in tables)


def largest_batch(path: Path) -> int:
    """Return the entries of a list's largest batch."""
    with pa.OSFile(str(path)) as stream:
        reader = pa.ipc.open_file(stream)
        sizes = [len(reader.get_batch(index)) for index in range(reader.num_record_batches)]
    return max(sizes, default=0)


def test_lists_are_kept_in_batches_of_bounded_size(tmp_path: Path) -> None:
    """However long their terms are, and however small the tables that a merge makes."""
    lists = [{f"{'x' * 500}{i:05d}{start}": (1, 1) for i in range(5000)} for start in range(3)]
    paths = write_lists(tmp_path, lists)
    merged = merge_counts(paths, tmp_path / "merged")

    for path, entries in [(paths[0], 5000), (merged, 15_000)]:
        with pa.OSFile(str(path)) as stream:
            reader = pa.ipc.open_file(stream)
            batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
        assert sum(map(len, batches)) == entries
        assert max(batch.nbytes for batch in batches) < 1.1 * counts_module._BATCH_BYTES
        assert len(batches) < 3 * entries * 530 / counts_module._BATCH_BYTES


def test_many_lists_are_merged_by_tasks_in_levels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No merge opens more than so many files; runs of neighbours go to tasks, in order."""
    monkeypatch.setattr(vocabulary_module, "_FAN_IN", 3)
    calls = []

    def spy(function: Any, items: Iterable[tuple[Any, ...]], *, name: str) -> Iterator[Any]:
        tasks = list(items)
        calls.append((name, [[path.name for path in task[0]] for task in tasks]))
        return here(function, tasks, name=name)

    lists = [{f"w{(7 * i + j) % 23}": (j + 1, 1) for j in range(5)} for i in range(10)]
    found = build_vocabulary(
        write_lists(tmp_path, lists),
        FeatureSettings(),
        column="text",
        num_training=10,
        max_features=100,
        map_tasks=spy,
    )

    assert [(name, [len(paths) for paths in task]) for name, task in calls] == [
        ("merge-vocabulary", [3, 3, 3, 1]),
        ("merge-vocabulary", [3, 1]),
    ]
    assert calls[0][1][0] == ["000000.0.arrow", "000001.0.arrow", "000002.0.arrow"]
    assert found.terms.to_pylist() == list(sum_lists(lists))


def test_several_text_columns_do_not_share_files_of_the_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their counts lie in one folder, and so do those of each level."""
    monkeypatch.setattr(vocabulary_module, "_FAN_IN", 2)
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder, words in zip(folders, (["aa", "bb"], ["cc", "dd"]), strict=True):
        folder.mkdir()
        write_lists(folder, [{words[i % 2]: (1, 1)} for i in range(5)])
    paths = [
        [path.rename(tmp_path / f"{path.name[:6]}.{i}.arrow") for path in sorted(folder.iterdir())]
        for i, folder in enumerate(folders)
    ]

    found = [
        build_vocabulary(
            one, FeatureSettings(), column="t", num_training=5, max_features=9, map_tasks=here
        )
        for one in paths
    ]
    assert [one.terms.to_pylist() for one in found] == [["aa", "bb"], ["cc", "dd"]]


@pytest.mark.parametrize(
    ("options", "what", "fix"),
    [
        ({}, "no word", "A word has two letters or digits at least."),
        (
            {"stop_words": ("aa",)},
            "no word but stop words",
            "A word has two letters or digits at least.",
        ),
        ({"ngram_range": (2, 3)}, "no 2 words side by side", "Pass a lower ngram_range."),
    ],
    ids=["words", "stop words", "n-grams"],
)
def test_column_without_terms_is_an_error(
    options: dict[str, Any], what: str, fix: str, tmp_path: Path
) -> None:
    """The message names the column and what may be the cause."""
    rows = ["a b ! .", ""] if not options else ["aa", "! aa"]
    with pytest.raises(CorpusError) as caught:
        fit(rows, tmp_path, **options)

    assert str(caught.value) == (
        f"Column 'text' holds {what} in 2 training rows.\n"
        f"  {fix} Check the column's name, or leave it out of text_column."
    )


@pytest.mark.parametrize(
    ("min_df", "max_df", "message"),
    [
        (
            3,
            1.0,
            "No term of column 'text' is left by min_df=3 and max_df=1.0 in 4 training rows.",
        ),
        (
            0.3,
            2,
            "No term of column 'text' is left by min_df=0.3 and max_df=2 in 4 training rows.",
        ),
        (
            3,
            0.6,
            "max_df=0.6 is below min_df=3: at most 2 and at least 3 of 4 training rows.",
        ),
        (
            0.6,
            2,
            "max_df=2 is below min_df=0.6: at most 2 and at least 3 of 4 training rows.",
        ),
    ],
)
def test_min_df_and_max_df_that_leave_nothing_are_an_error(
    min_df: float, max_df: float, message: str, tmp_path: Path
) -> None:
    """The message tells both, in rows where they are shares."""
    rows = ["aa", "bb", "cc", "dd dd"] if "No term" in message else ["aa", "aa", "aa", "bb"]
    with pytest.raises(SettingError) as caught:
        fit(rows, tmp_path, min_df=min_df, max_df=max_df)

    assert str(caught.value) == f"{message}\n  Pass a lower min_df or a higher max_df."


def test_rows_without_words_count_for_shares(tmp_path: Path) -> None:
    """A share is of all training rows, as for scikit-learn, not of those with words."""
    found = fit(["aa bb", "aa", "", "!"], tmp_path, min_df=0.5)

    assert found.terms.to_pylist() == ["aa"]
    assert found.num_distinct == 2


def test_idf_is_the_smooth_one() -> None:
    """ln((1 + n) / (1 + df)) + 1, kept once it was asked for."""
    vocabulary = Vocabulary(pa.array(["aa", "bb"]), np.array([1, 3]), 3, 2)

    np.testing.assert_allclose(vocabulary.idf, [np.log(4 / 2) + 1, 1.0], rtol=1e-15)
    assert operator.is_(vocabulary.idf, vocabulary.idf)
