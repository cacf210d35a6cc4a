"""Slices of fixed size, without gradient, with one thread of torch."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from reference_models import random_rows

from lancetnic_dask.features.weighting import EncodedRows
from lancetnic_dask.models import ScalpelMC
from lancetnic_dask.training.scoring import SCORING_ROWS, one_torch_thread, score_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lancetnic_dask.models import SparseRows


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """Torch has two threads before each test, whatever the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def some_rows(num_rows: int) -> EncodedRows:
    """Return rows of 30 terms and 2 numbers, without targets."""
    rows = random_rows(num_rows, 30, num_numeric=2)
    return EncodedRows(rows.indptr, rows.indices, rows.values, rows.numeric, np.empty(0, np.int64))


def small_network() -> ScalpelMC:
    """Return a network for these rows."""
    return ScalpelMC(32, 8, 2, 3, 0.0, num_numeric=2).eval()


@pytest.mark.parametrize("num_rows", [0, 1, 511, 512, 513, 1024, 1300])
def test_rows_are_scored_in_order_in_slices_of_512(num_rows: int) -> None:
    """Each row once; only the last slice is shorter, and no rows give no slice."""
    rows, network = some_rows(num_rows), small_network()

    slices = list(score_rows(network, rows))

    assert SCORING_ROWS == 512
    assert [start for start, _ in slices] == list(range(0, num_rows, 512))
    assert [len(logits) for _, logits in slices[:-1]] == [512] * (len(slices) - 1)
    dense = random_rows(num_rows, 30, num_numeric=2).to_dense(30)
    found = torch.cat([logits for _, logits in slices] or [torch.empty(0, 3)])
    torch.testing.assert_close(found, network(dense).detach())


def test_a_slice_has_the_same_scores_whatever_follows_it() -> None:
    """The last bits of a product depend on its shape, and the shape on nothing but the place."""
    network, rows = small_network(), some_rows(600)
    last = rows.indptr[512]
    head = EncodedRows(
        rows.indptr[:513], rows.indices[:last], rows.values[:last], rows.numeric[:512], rows.target
    )
    (_, first), _ = list(score_rows(network, rows))
    ((_, alone),) = score_rows(network, head)

    assert torch.equal(first, alone)


def test_scoring_keeps_no_gradient_and_uses_one_thread_but_the_caller_has_both_back() -> None:
    """What holds inside a generator would also hold for its caller between two slices."""
    seen: list[tuple[bool, int]] = []

    class Spy(torch.nn.Module):
        def forward(self, rows: SparseRows) -> torch.Tensor:
            seen.append((torch.is_grad_enabled(), torch.get_num_threads()))
            return torch.zeros(rows.num_rows, 2)

    for _ in score_rows(Spy(), some_rows(600)):
        assert torch.is_grad_enabled()
        assert torch.get_num_threads() == 2

    assert seen == [(False, 1)] * 2


def test_one_thread_may_be_asked_for_again_inside() -> None:
    """The inner end doesn't end the outer one; an error ends both."""
    with pytest.raises(KeyError), one_torch_thread():  # noqa: PT012 - what it leaves is the point
        with one_torch_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
        raise KeyError

    assert torch.get_num_threads() == 2


def test_threads_that_overlap_leave_the_number_as_it_was() -> None:
    """A thread that comes in second sees the 1 of the first, and must not keep it."""
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))
    found: dict[str, int] = {}

    def first() -> None:
        with one_torch_thread():
            first_is_in.set()
            second_is_in.wait(30)
        found["first"] = torch.get_num_threads()
        first_is_out.set()

    def second() -> None:
        first_is_in.wait(30)
        with one_torch_thread():
            second_is_in.set()
            first_is_out.wait(30)
            found["second, inside"] = torch.get_num_threads()
        found["second"] = torch.get_num_threads()

    threads = [threading.Thread(target=target) for target in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    newcomer = threading.Thread(target=lambda: found.update(new=torch.get_num_threads()))
    newcomer.start()
    newcomer.join(60)
    assert found == {"first": 2, "second, inside": 1, "second": 2, "new": 2}
    assert torch.get_num_threads() == 2
