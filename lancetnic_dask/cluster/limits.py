"""The machine -> how many bytes and CPUs this process and its children may use.

Dask's own detection reads only the cgroup at the root of the mount; a container or a systemd
slice limits a nested one. Here every cgroup from the process's own up to the root counts, in
version 1, version 2 and hybrid hierarchies. What of it we take for ourselves is decided in
``budget.py``; what is in use at the moment is watched in ``memory_watch.py``.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MemoryLimit", "available_cpus", "available_memory"]

# Version 1 writes "no limit" as the largest multiple of the page size below 2**63.
_NO_LIMIT_BYTES = 1 << 60

# A cgroup limit in these files, in the cgroup of a process or any above it, holds for the process.
# memory.high does not kill, but slows a process down to a crawl: to us it is a limit too.
_MEMORY_FILES = {1: ("memory.limit_in_bytes",), 2: ("memory.max", "memory.high")}


@dataclass(frozen=True, kw_only=True)
class MemoryLimit:
    """The most memory that this process and its children can get.

    Parameters
    ----------
    bytes : int
        The limit in bytes.
    source : {"physical", "cgroup"}
        What sets it: the RAM of the machine, or a control group (container, systemd slice,
        batch job) that allows less.
    """

    bytes: int
    source: Literal["physical", "cgroup"]


@dataclass(frozen=True, kw_only=True)
class _CgroupMount:
    """One mounted hierarchy: which cgroup is visible where."""

    version: int
    controllers: frozenset[str]
    root: PurePosixPath
    folder: Path


def available_memory(
    *, root: str | os.PathLike[str] = "/", physical_bytes: int | None = None
) -> MemoryLimit:
    """Find the smallest limit on memory: the machine's RAM or any cgroup above this process.

    A file that is missing, unreadable or odd counts as no limit; it never fails.

    Parameters
    ----------
    root : str or os.PathLike, default="/"
        Folder that holds ``proc`` and the mount points; another one serves tests.
    physical_bytes : int or None, default=None
        RAM in bytes. None asks the operating system.

    Returns
    -------
    MemoryLimit
        The limit and what sets it.
    """
    ram_bytes = psutil.virtual_memory().total if physical_bytes is None else physical_bytes
    limits = [
        limit
        for version, folder in _cgroup_folders(Path(root), "memory")
        for name in _MEMORY_FILES[version]
        if (limit := _read_limit(folder / name)) is not None
    ]
    smallest = min(limits, default=ram_bytes)
    if smallest < ram_bytes:
        return MemoryLimit(bytes=smallest, source="cgroup")
    return MemoryLimit(bytes=ram_bytes, source="physical")


def available_cpus(*, root: str | os.PathLike[str] = "/", affinity: int | None = None) -> int:
    """Count the CPUs that this process may use: its affinity, and any cgroup's CPU quota.

    A quota is rounded up: one and a half CPUs are used by two workers.

    Parameters
    ----------
    root : str or os.PathLike, default="/"
        Folder that holds ``proc`` and the mount points; another one serves tests.
    affinity : int or None, default=None
        CPUs that the scheduler of the operating system allows. None asks it.

    Returns
    -------
    int
        At least 1.
    """
    quotas = [
        math.ceil(quota)
        for version, folder in _cgroup_folders(Path(root), "cpu")
        if (quota := _read_cpu_quota(version, folder)) is not None
    ]
    return max(1, min([_affinity() if affinity is None else affinity, *quotas]))


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):  # Linux; a cpuset cgroup shows in it too
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cgroup_folders(root: Path, controller: str) -> Iterator[tuple[int, Path]]:
    """Yield (version, folder) of each cgroup that this process is in, the innermost first."""
    own_paths = _own_cgroups(root)
    for mount in _cgroup_mounts(root):
        name = controller if mount.version == 1 else ""
        if name not in own_paths or (mount.version == 1 and controller not in mount.controllers):
            continue
        for relative in _upwards(own_paths[name], mount.root):
            yield mount.version, mount.folder / relative


def _upwards(own: PurePosixPath, mount_root: PurePosixPath) -> Iterator[PurePosixPath]:
    """Yield the own cgroup and all above it, relative to the mount point, down to "."."""
    try:
        relative = own.relative_to(mount_root)
    except ValueError:
        # A container that sees the host's name of its cgroup, but only its own below the mount.
        relative = PurePosixPath()
    if ".." in relative.parts:  # a cgroup namespace entered from outside: only the mount is sure
        relative = PurePosixPath()
    yield relative
    yield from relative.parents


def _own_cgroups(root: Path) -> dict[str, PurePosixPath]:
    """Read the cgroup of this process by controller of version 1; version 2 has the name ""."""
    paths: dict[str, PurePosixPath] = {}
    for line in _lines(root / "proc/self/cgroup"):
        parts = line.split(":", 2)  # hierarchy:controllers:path
        if len(parts) == 3:
            for controller in parts[1].split(","):
                paths[controller] = PurePosixPath(parts[2])
    return paths


def _cgroup_mounts(root: Path) -> Iterator[_CgroupMount]:
    """Read where cgroup hierarchies are mounted.

    Fields of a line: id, parent, device, root, mount point, options, then optional ones up to
    "-", then type, source and super options. Those of version 1 name its controllers.
    """
    for line in _lines(root / "proc/self/mountinfo"):
        before, separator, after = line.partition(" - ")
        fields, filesystem = before.split(), after.split()
        if not separator or len(fields) < 6 or len(filesystem) < 3:
            continue
        if filesystem[0] not in {"cgroup", "cgroup2"}:
            continue
        yield _CgroupMount(
            version=1 if filesystem[0] == "cgroup" else 2,
            controllers=frozenset(filesystem[2].split(",")),
            root=PurePosixPath(_unescaped(fields[3])),
            folder=root / _unescaped(fields[4]).lstrip("/"),
        )


def _read_limit(file: Path) -> int | None:
    """Read a limit in bytes; None where there is none, it is "max", huge or no number."""
    for line in _lines(file)[:1]:
        if line.strip().isdecimal():
            limit = int(line)
            return limit if limit < _NO_LIMIT_BYTES else None
    return None


def _read_cpu_quota(version: int, folder: Path) -> float | None:
    """Read a CPU quota in CPUs; None where there is none."""
    if version == 1:
        words = [
            word
            for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            for word in _lines(folder / name)[:1]
        ]
    else:
        words = " ".join(_lines(folder / "cpu.max")[:1]).split()
    if len(words) != 2 or not all(word.strip().isdecimal() for word in words):  # "max", "-1"
        return None
    quota, period = (int(word) for word in words)
    return quota / period if quota and period else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:  # not Linux, not mounted, not ours to read
        return []


def _unescaped(field: str) -> str:
    r"""Turn ``\040`` in a line of mountinfo into the blank that it stands for."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
