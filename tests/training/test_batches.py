"""Rows are cut into batches: each once, of nearly equal size."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lancetnic_dask.features.weighting import EncodedRows
from lancetnic_dask.training.batches import iter_batches, num_batches


def make_rows(num_rows: int, seed: int = 0) -> EncodedRows:
    """Return rows whose numbers and targets tell their position."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 5, num_rows)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return EncodedRows(
        indptr=indptr,
        indices=rng.integers(0, 100, indptr[-1]).astype(np.int32),
        values=rng.random(indptr[-1], dtype=np.float32),
        numeric=np.arange(num_rows, dtype=np.float32).reshape(-1, 1),
        target=np.arange(num_rows, dtype=np.int64),
    )


@given(num_rows=st.integers(0, 200), batch_size=st.integers(1, 64), seed=st.integers(0, 5))
def test_every_row_is_in_one_batch_with_its_entries(
    num_rows: int, batch_size: int, seed: int
) -> None:
    """In the order asked for; sizes differ by at most one and never pass the limit."""
    rows = make_rows(num_rows, seed)
    order = np.random.default_rng(seed).permutation(num_rows)

    batches = list(iter_batches(rows, order, batch_size))

    sizes = [batch.num_rows for batch in batches]
    assert len(batches) == num_batches(num_rows, batch_size)
    assert max(sizes, default=0) <= batch_size
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    seen = [int(target) for batch in batches for target in batch.target]
    assert seen == order.tolist()
    for batch in batches:
        for position, row in enumerate(batch.target.tolist()):
            entries = slice(batch.rows.indptr[position], batch.rows.indptr[position + 1])
            expected = slice(rows.indptr[row], rows.indptr[row + 1])
            np.testing.assert_array_equal(batch.rows.indices[entries], rows.indices[expected])
            np.testing.assert_array_equal(batch.rows.values[entries], rows.values[expected])
            assert batch.rows.numeric[position, 0] == row


def test_no_batch_of_one_row_is_left_over() -> None:
    """129 rows in batches of 128 would leave one, and break batch normalization."""
    rows = make_rows(129)

    sizes = [batch.num_rows for batch in iter_batches(rows, np.arange(129), 128)]

    assert sizes == [65, 64]
