"""JSON from a stranger -> fields of checked types and ranges."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from lancetnic_dask.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Field", "UnfitError", "parse_json"]


class UnfitError(ValueError):
    """A field is not as it must be."""


class Field:
    """A value of model.json and the path that leads there; each method checks and returns it."""

    def __init__(self, value: Any, path: str) -> None:
        self.value = value
        self.path = path

    def unfit(self, rule: str) -> UnfitError:
        """Return the error that tells value and rule; a list is not shown, it may be deep."""
        if isinstance(self.value, (list, dict)):
            shown = "a list" if isinstance(self.value, list) else "an object"
        else:
            shown = quoted(self.value)
        return UnfitError(f"{self.path} is {shown}; it must be {rule}.")

    def child(self, name: str) -> Field:
        """Return a field of an object."""
        path = f"{self.path}.{name}" if self.path else name
        if name not in self.mapping():
            raise UnfitError(f"{path} is missing.")
        return Field(self.value[name], path)

    def mapping(self) -> dict[str, Any]:
        """Return the object."""
        if type(self.value) is not dict:
            raise UnfitError(f"{self.path or 'it'} is no object.")
        return self.value

    def items(self, num_items: int | None = None) -> Iterator[Field]:
        """Iterate over a list; of so many items, if that is given."""
        if type(self.value) is not list:
            raise self.unfit("a list")
        if num_items is not None and len(self.value) != num_items:
            raise UnfitError(f"{self.path} has {len(self.value)} items; it must have {num_items}.")
        return (Field(item, f"{self.path}[{i}]") for i, item in enumerate(self.value))

    def whole(self, low: int, high: int) -> int:
        """Return a whole number; true is none."""
        if type(self.value) is not int or not low <= self.value <= high:
            raise self.unfit(f"a whole number from {low} to {high}")
        return self.value

    def number(self, low: float = -math.inf) -> float:
        """Return a finite number."""
        is_number = type(self.value) is float or (
            type(self.value) is int and abs(self.value) < 2**63
        )
        if not is_number or not math.isfinite(self.value) or self.value < low:
            raise self.unfit("a finite number" + ("" if low == -math.inf else f" from {low:g}"))
        return float(self.value)

    def text(self) -> str:
        """Return a text; half a surrogate pair is none."""
        if type(self.value) is not str or not _is_encodable(self.value):
            raise self.unfit("a text")
        return self.value

    def flag(self) -> bool:
        """Return true or false."""
        if type(self.value) is not bool:
            raise self.unfit("true or false")
        return self.value

    def texts(self) -> tuple[str, ...]:
        """Return a list of texts."""
        return tuple(item.text() for item in self.items())


def parse_json(data: bytes) -> Any:
    """Parse strict JSON: UTF-8, no NaN, no name twice in an object.

    Raises
    ------
    ValueError, RecursionError
        If it is none, or deeper than Python goes.
    """
    return json.loads(
        data.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unique_pairs
    )


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse_constant(name: str) -> Any:
    message = f"{name} is no JSON"
    raise ValueError(message)


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        message = "a name stands twice in an object"
        raise ValueError(message)
    return mapping
