"""The name of a device -> where to train."""

from __future__ import annotations

import logging
import re

import torch

from lancetnic_dask.errors import SettingError, quoted

__all__ = ["choose_device"]

logger = logging.getLogger(__name__)


def choose_device(device_name: str) -> torch.device:
    """Return the device that a name means.

    "auto" is the first CUDA device if there is one, else the processor. "cuda" and "cuda:1" are a
    wish: where it can't be met a warning says so, and the processor is used, as in lancetnic.

    Parameters
    ----------
    device_name : str
        'auto', 'cpu', 'cuda' or 'cuda:N'.

    Returns
    -------
    torch.device
        There is such a device.

    Raises
    ------
    SettingError
        If it is none of these names.

    Examples
    --------
    >>> choose_device("cpu")
    device(type='cpu')
    """
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,3})?", device_name):
        raise SettingError(
            f"device_name is {quoted(device_name)}.",
            None,
            "Pass 'auto', 'cpu', 'cuda', or one of several as in 'cuda:1'.",
        )
    if device_name == "cpu":
        return torch.device("cpu")
    num_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    wanted = int(device_name.partition(":")[2] or 0)
    if wanted < num_devices:
        return torch.device("cuda", wanted)
    if device_name != "auto":
        logger.warning(
            "device_name=%r: torch sees %s here, so that training runs on the processor",
            device_name,
            f"only {num_devices} CUDA device(s)" if num_devices else "no CUDA device",
        )
    return torch.device("cpu")
