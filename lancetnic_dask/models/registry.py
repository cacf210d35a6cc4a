"""The name of a model, or a class of the user's -> the class to build."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from torch import nn

from lancetnic_dask.errors import SettingError, quoted, suggestion
from lancetnic_dask.models.scalpel import ScalpelMC

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MODELS", "is_users_class", "resolve_model"]

MODELS: Mapping[str, type[nn.Module]] = MappingProxyType({"ScalpelMC": ScalpelMC})
"""The models that ship with the package, by the names that users and model files write."""


def resolve_model(model_name: str | type[nn.Module]) -> type[nn.Module]:
    """Find the class of a model.

    Parameters
    ----------
    model_name : str or subclass of nn.Module
        A name in ``MODELS``, or a class, which is returned as it is.

    Returns
    -------
    type[nn.Module]
        The class to build.

    Raises
    ------
    SettingError
        If there is no model of that name, or it is neither a name nor such a class.

    Examples
    --------
    >>> resolve_model("ScalpelMC").__name__
    'ScalpelMC'
    """
    if isinstance(model_name, str):
        if model_name not in MODELS:
            raise SettingError(
                f"There is no model {quoted(model_name)}.", None, suggestion(model_name, MODELS)
            )
        return MODELS[model_name]
    if isinstance(model_name, type) and issubclass(model_name, nn.Module):
        return model_name
    raise SettingError(
        f"model_name is {quoted(model_name)}, neither a name nor a subclass of nn.Module.",
        None,
        "Pass the class itself, not an instance of it; or a name. " + suggestion("", MODELS),
    )


def is_users_class(model_class: type[nn.Module]) -> bool:
    """Tell whether a class is the user's own, and not one that ships with the package."""
    return model_class not in MODELS.values()
