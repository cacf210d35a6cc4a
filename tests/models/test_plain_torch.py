"""What the caller has made torch's defaults doesn't reach us, and is given back."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import torch

from lancetnic_dask.models.plain_torch import plain_torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def doubles() -> Iterator[None]:
    """Let float64 be the caller's default."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_defaults_are_plain_inside_and_the_callers_outside() -> None:
    """Also inside one another, and after an error."""

    def leave() -> None:
        with torch.no_grad(), plain_torch(), plain_torch():
            assert torch.ones(1).dtype == torch.float32
            assert torch.is_grad_enabled()
            raise OSError("left")

    with pytest.raises(OSError, match="left"):
        leave()

    assert torch.ones(1).dtype == torch.float64


def test_the_last_of_several_threads_gives_the_default_back() -> None:
    """One that enters while another is inside is not left with the caller's default."""
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))
    seen = []

    def first() -> None:
        with plain_torch():
            first_is_in.set()
            second_is_in.wait(10)
        first_is_out.set()

    thread = threading.Thread(target=first)
    thread.start()
    first_is_in.wait(10)
    with plain_torch():
        second_is_in.set()
        first_is_out.wait(10)
        seen.append(torch.ones(1).dtype)
    thread.join()

    assert seen == [torch.float32]
    assert torch.ones(1).dtype == torch.float64
