"""lancetnic.yaml, environment, user's Dask configuration -> one value per key.

The defaults stand in ``lancetnic.yaml`` beside this module, each with unit and reason. Unlike
most Dask libraries we copy no commented file to ``~/.config/dask``: importing a package has no
effect on disk. Dask is imported at the first access (0.14 s), so that a prediction for one string
never pays for it.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lancetnic_dask.errors import SettingError, quoted, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["cache_folder", "local_folder", "setting"]

_BYTES_KEYS = frozenset({"memory.total", "corpus.partition-bytes", "corpus.max-row-bytes"})
_SECONDS_KEYS = frozenset({"cluster.start-timeout", "cluster.stall-timeout"})


def setting(key: str) -> Any:
    """Read one value of Dask's configuration, under the top key ``lancetnic``.

    It is read anew each time, so ``dask.config.set`` works at any moment.

    Parameters
    ----------
    key : str
        Dotted key without the leading ``lancetnic.``, as in ``lancetnic.yaml``.

    Returns
    -------
    Any
        The value. Sizes ("16MiB") come as int bytes, times ("60s") as float seconds.

    Raises
    ------
    SettingError
        If there is no such key, or a size or time cannot be understood.

    Examples
    --------
    >>> setting("training.group-size")
    16
    >>> setting("corpus.partition-bytes")
    16777216
    """
    defaults = _registered_defaults()
    if key not in defaults:
        raise SettingError(
            f"There is no configuration key {f'lancetnic.{key}'!r}.",
            None,
            suggestion(key, defaults),
        )

    import dask.config

    # A `dask.config.set` block entered before the defaults were registered takes them away with
    # it when it ends.
    value = dask.config.get(f"lancetnic.{key}", default=defaults[key])
    if value is None:
        return None
    if key in _BYTES_KEYS:
        return _parsed(key, value, "a size in bytes, such as '8GiB'")
    if key in _SECONDS_KEYS:
        return _parsed(key, value, "a time, such as '60s'")
    return value


def cache_folder(cache_dir: str | os.PathLike[str] | None) -> Path:
    """Return where shards, plans and copies of files are kept.

    Parameters
    ----------
    cache_dir : str, os.PathLike or None
        None for ``lancetnic.cache.dir``, and where that is null the user's cache folder.

    Returns
    -------
    Path
        Absolute: workers have working folders of their own.
    """
    given = setting("cache.dir") if cache_dir is None else cache_dir
    if given is None:
        import platformdirs

        given = platformdirs.user_cache_dir("lancetnic_dask", appauthor=False)
    return local_folder("cache_dir", given).absolute()


def local_folder(option: str, value: str | os.PathLike[str]) -> Path:
    """Return a folder of this machine; raise SettingError for a URL."""
    if "://" in os.fspath(value):
        raise SettingError(
            f"{option} is {quoted(os.fspath(value))}.", None, "Pass a folder of this machine."
        )
    return Path(value).expanduser()


def _parsed(key: str, value: Any, expected: str) -> int | float:
    """Turn "16MiB" into int bytes and "60s" into float seconds."""
    from dask.utils import parse_bytes, parse_timedelta

    try:
        number = int(parse_bytes(value)) if key in _BYTES_KEYS else float(parse_timedelta(value))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SettingError(
            f"lancetnic.{key} is {quoted(value)}, which is not {expected}.",
            "Dask's configuration",
            f"Set lancetnic.{key} in dask.config.set, the environment or ~/.config/dask.",
        ) from error
    if number <= 0:
        raise SettingError(
            f"lancetnic.{key} is {quoted(value)}, but must be above zero.",
            "Dask's configuration",
            f"Set lancetnic.{key} in dask.config.set, the environment or ~/.config/dask.",
        )
    return number


@cache
def _registered_defaults() -> dict[str, Any]:
    """Give our defaults to Dask, once a process; return them by dotted key."""
    import dask.config
    import yaml

    text = files("lancetnic_dask").joinpath("lancetnic.yaml").read_text(encoding="utf-8")
    defaults = yaml.safe_load(text)
    dask.config.update_defaults(defaults)
    return dict(_leaves(defaults["lancetnic"]))


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
