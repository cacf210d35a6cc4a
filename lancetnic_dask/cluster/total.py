"""What was asked for and what there is -> the total of a run, and how much of it stays free."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lancetnic_dask.cluster.sizes import shown_bytes
from lancetnic_dask.errors import BudgetError, SettingError, quoted

if TYPE_CHECKING:
    from lancetnic_dask.cluster.limits import MemoryLimit

__all__ = ["decide_reserve", "decide_total"]

_MIB = 1 << 20
_GIB = 1 << 30

# More would train no faster: the order of rows and the size of groups do not depend on it.
DEFAULT_TOTAL_BYTES = 16 * _GIB

# Less is a number without its unit: no process lives in it.
_LEAST_MEANT_BYTES = 4096

# A desktop with a browser takes 2-4 GiB and does not grow with the machine. Of a small machine
# we leave a quarter.
DESKTOP_MIN_BYTES, DESKTOP_MAX_BYTES = 1 * _GIB, 4 * _GIB

# Where the total is a promise to us alone (a cgroup, or asked for): kernel buffers, page tables,
# the interpreter's slack.
MARGIN_MIN_BYTES, MARGIN_MAX_BYTES = 64 * _MIB, 512 * _MIB
MARGIN_SHARE = 1 / 16


def decide_total(
    total: int | str | None, limit: MemoryLimit
) -> tuple[int, Literal["asked", "default", "physical", "cgroup"]]:
    """Choose the total in bytes, and tell where it comes from; as ``budget.decide_budget``."""
    if total is None:
        if limit.bytes > DEFAULT_TOTAL_BYTES:
            return DEFAULT_TOTAL_BYTES, "default"
        return limit.bytes, limit.source
    asked_bytes = _parse_size(total)
    if asked_bytes > limit.bytes:
        raise BudgetError(
            f"memory={total!r} is {shown_bytes(asked_bytes)}, but {_HAS[limit.source]} "
            f"{shown_bytes(limit.bytes)}.",
            None,
            f"Pass memory={str(limit.bytes // _MIB) + 'MiB'!r} or less.",
        )
    return asked_bytes, "asked"


_HAS = {"physical": "the machine has", "cgroup": "its control group allows"}


def _parse_size(total: int | str) -> int:
    from dask.utils import parse_bytes

    try:
        size = int(parse_bytes(total))
    except (AttributeError, TypeError, ValueError) as error:  # neither number nor text
        raise SettingError(
            f"memory={quoted(total)} is not a size.", None, "Pass bytes, or text like '8GiB'."
        ) from error
    if size <= 0:
        raise SettingError(f"memory={quoted(total)} must be above zero.")
    if size < _LEAST_MEANT_BYTES:
        raise SettingError(
            f"memory={quoted(total)} is {size} bytes.",
            None,
            f"Pass a size with its unit, such as '{size}GiB'.",
        )
    return size


def decide_reserve(total_bytes: int, source: str, limit: MemoryLimit) -> int:
    """Choose what is left free, in bytes: memory beyond the total is room for the desktop too."""
    margin_bytes = min(max(int(total_bytes * MARGIN_SHARE), MARGIN_MIN_BYTES), MARGIN_MAX_BYTES)
    if source == "asked" or limit.source != "physical":
        return margin_bytes
    desktop_bytes = min(max(limit.bytes // 4, DESKTOP_MIN_BYTES), DESKTOP_MAX_BYTES)
    return max(margin_bytes, desktop_bytes - (limit.bytes - total_bytes))
