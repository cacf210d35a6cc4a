"""The name of a device: a wish that can't be met is told, the default says nothing."""

from __future__ import annotations

import pytest
import torch

from lancetnic_dask.errors import SettingError
from lancetnic_dask.training.devices import choose_device


@pytest.fixture(params=[0, 1])
def num_devices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Let torch see so many CUDA devices."""
    number: int = request.param
    monkeypatch.setattr(torch.cuda, "is_available", lambda: number > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: number)
    return number


def test_the_default_takes_cuda_if_there_is_one(
    num_devices: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a word."""
    expected = torch.device("cuda", 0) if num_devices else torch.device("cpu")

    assert choose_device("auto") == expected
    assert choose_device("cpu") == torch.device("cpu")
    assert caplog.messages == []


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:1"])
def test_a_wish_that_cannot_be_met_is_a_warning(
    num_devices: int, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With what there is."""
    if num_devices and name != "cuda:1":
        assert choose_device(name) == torch.device("cuda", 0)
        assert caplog.messages == []
        return

    assert choose_device(name) == torch.device("cpu")

    seen = "only 1 CUDA device(s)" if num_devices else "no CUDA device"
    assert caplog.messages == [
        f"device_name='{name}': torch sees {seen} here, so that training runs on the processor"
    ]


@pytest.mark.parametrize("name", ["tpu", "cuda:", "cuda:-1", "CPU", ""])
def test_other_names_are_refused(name: str) -> None:
    """With those that there are."""
    with pytest.raises(SettingError) as caught:
        choose_device(name)

    assert str(caught.value) == (
        f"device_name is {name!r}.\n  Pass 'auto', 'cpu', 'cuda', or one of several as in 'cuda:1'."
    )
