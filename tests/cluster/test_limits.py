"""The machine -> what may be used: every cgroup counts, in every hierarchy."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lancetnic_dask.cluster.limits import MemoryLimit, available_cpus, available_memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

GIB = 1 << 30
NO_LIMIT_V1 = 9223372036854771712  # what the kernel writes on pages of 4 KiB

V1_MOUNTS = (
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
)
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def make_tree(root: Path, *, cgroup: str, mountinfo: str, files: Mapping[str, object]) -> Path:
    """Write the files of /proc and /sys that a process would see."""
    written = {"proc/self/cgroup": cgroup, "proc/self/mountinfo": mountinfo}
    written |= {f"sys/fs/cgroup/{name}": f"{value}\n" for name, value in files.items()}
    for name, text in written.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return root


def memory_of(root: Path) -> MemoryLimit:
    """Look at a fake tree on a machine of 16 GiB."""
    return available_memory(root=root, physical_bytes=16 * GIB)


def test_without_any_cgroup_the_ram_counts(tmp_path: Path) -> None:
    """Where /proc says nothing of cgroups (or is not there), the limit is physical."""
    assert memory_of(tmp_path) == MemoryLimit(bytes=16 * GIB, source="physical")


def test_version_1_nested_limit_counts(tmp_path: Path) -> None:
    """The limit of the process's own cgroup is found below the mount point."""
    root = make_tree(
        tmp_path,
        cgroup="4:memory:/jobs/run7\n1:cpu,cpuacct:/\n0::/\n",
        mountinfo=V1_MOUNTS,
        files={
            "memory/memory.limit_in_bytes": NO_LIMIT_V1,
            "memory/jobs/memory.limit_in_bytes": 6 * GIB,
            "memory/jobs/run7/memory.limit_in_bytes": 4 * GIB,
        },
    )

    assert memory_of(root) == MemoryLimit(bytes=4 * GIB, source="cgroup")


def test_a_smaller_limit_further_up_wins(tmp_path: Path) -> None:
    """A parent that allows less holds for its children, in version 2 as in version 1."""
    root = make_tree(
        tmp_path,
        cgroup="0::/user.slice/session.scope\n",
        mountinfo=V2_MOUNT,
        files={
            "user.slice/memory.max": 3 * GIB,
            "user.slice/session.scope/memory.max": 5 * GIB,
        },
    )

    assert memory_of(root) == MemoryLimit(bytes=3 * GIB, source="cgroup")


def test_version_2_without_limit_is_physical(tmp_path: Path) -> None:
    """The word "max" is no limit."""
    root = make_tree(
        tmp_path,
        cgroup="0::/user.slice\n",
        mountinfo=V2_MOUNT,
        files={"user.slice/memory.max": "max", "user.slice/memory.high": "max"},
    )

    assert memory_of(root) == MemoryLimit(bytes=16 * GIB, source="physical")


def test_version_2_high_is_a_limit(tmp_path: Path) -> None:
    """Above memory.high a process hardly moves, so it is a limit to us."""
    root = make_tree(
        tmp_path,
        cgroup="0::/app\n",
        mountinfo=V2_MOUNT,
        files={"app/memory.max": 8 * GIB, "app/memory.high": 2 * GIB},
    )

    assert memory_of(root) == MemoryLimit(bytes=2 * GIB, source="cgroup")


def test_hybrid_hierarchy_reads_memory_from_version_1(tmp_path: Path) -> None:
    """With version 2 mounted beside for other things, version 1's controller still counts."""
    root = make_tree(
        tmp_path,
        cgroup="4:memory:/box\n0::/\n",
        mountinfo=V1_MOUNTS + V2_MOUNT.replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified "),
        files={"memory/box/memory.limit_in_bytes": GIB, "unified/cgroup.procs": ""},
    )

    assert memory_of(root) == MemoryLimit(bytes=GIB, source="cgroup")


@pytest.mark.parametrize("mount_root", ["/docker/abc", "/", "/elsewhere"])
def test_a_container_sees_its_own_cgroup_at_the_mount(tmp_path: Path, mount_root: str) -> None:
    """Only the container's cgroup is mounted; its name on the host is there or is not."""
    root = make_tree(
        tmp_path,
        cgroup="4:memory:/docker/abc\n" if mount_root != "/" else "4:memory:/\n",
        mountinfo=f"35 31 0:32 {mount_root} /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
        files={"memory/memory.limit_in_bytes": 2 * GIB},
    )

    assert memory_of(root) == MemoryLimit(bytes=2 * GIB, source="cgroup")


def test_a_cgroup_outside_of_the_namespace_uses_the_mount(tmp_path: Path) -> None:
    """A path that begins with ".." is not followed out of the mount."""
    root = make_tree(
        tmp_path,
        cgroup="0::/../../other\n",
        mountinfo=V2_MOUNT,
        files={"memory.max": 2 * GIB},
    )

    assert memory_of(root) == MemoryLimit(bytes=2 * GIB, source="cgroup")


def test_a_mount_point_with_blanks_is_found(tmp_path: Path) -> None:
    """Mountinfo writes a blank as its octal number."""
    root = make_tree(
        tmp_path,
        cgroup="0::/\n",
        mountinfo=V2_MOUNT.replace("/sys/fs/cgroup", r"/sys/fs/cgroup/my\040groups"),
        files={"my groups/memory.max": GIB},
    )

    assert memory_of(root) == MemoryLimit(bytes=GIB, source="cgroup")


def test_odd_files_count_as_no_limit(tmp_path: Path) -> None:
    """Empty, short or strange lines never fail."""
    root = make_tree(
        tmp_path,
        cgroup="\nnonsense\n4:memory:/a\n",
        mountinfo=f"\nshort\n1 2 3 - cgroup\n{V1_MOUNTS}",
        files={"memory/a/memory.limit_in_bytes": "-1", "memory/memory.limit_in_bytes": "lots"},
    )

    assert memory_of(root) == MemoryLimit(bytes=16 * GIB, source="physical")


@pytest.mark.parametrize(
    ("quota", "period", "cpus"),
    [(-1, 100000, 8), (250000, 100000, 3), (50000, 100000, 1), (9900000, 100000, 8)],
)
def test_version_1_cpu_quota_counts(tmp_path: Path, quota: int, period: int, cpus: int) -> None:
    """A quota is rounded up, and never exceeds the affinity."""
    root = make_tree(
        tmp_path,
        cgroup="1:cpu,cpuacct:/job\n",
        mountinfo=V1_MOUNTS,
        files={
            "cpu,cpuacct/job/cpu.cfs_quota_us": quota,
            "cpu,cpuacct/job/cpu.cfs_period_us": period,
        },
    )

    assert available_cpus(root=root, affinity=8) == cpus


@pytest.mark.parametrize(("line", "cpus"), [("max 100000", 8), ("150000 100000", 2)])
def test_version_2_cpu_quota_of_a_parent_counts(tmp_path: Path, line: str, cpus: int) -> None:
    """The quota of any cgroup above holds."""
    root = make_tree(tmp_path, cgroup="0::/a/b\n", mountinfo=V2_MOUNT, files={"a/cpu.max": line})

    assert available_cpus(root=root, affinity=8) == cpus


def test_affinity_counts_on_this_machine() -> None:
    """A process that is bound to one CPU has one."""
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this operating system has no CPU affinity")
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from lancetnic_dask.cluster.limits import available_cpus; print(available_cpus())"
    )

    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, timeout=60
    ).stdout

    assert int(printed) == 1


@pytest.fixture
def memory_cgroup() -> Iterator[Path]:
    """Make a real cgroup of version 1, two below this process's own, that allows 1 GiB."""
    parent = Path("/sys/fs/cgroup/memory")
    try:
        own = Path("/proc/self/cgroup").read_text(encoding="utf-8")
        name = next(line.split(":", 2)[2] for line in own.splitlines() if ":memory:" in line)
        outer = parent / name.lstrip("/") / f"lancetnic-{uuid.uuid4().hex[:8]}"
        outer.mkdir()
    except (OSError, StopIteration) as error:
        pytest.skip(f"needs root and a memory controller of version 1: {error!r}")
    inner = outer / "inner"
    try:
        inner.mkdir()
        (outer / "memory.limit_in_bytes").write_text(str(GIB), encoding="utf-8")
        yield inner
    finally:
        if inner.exists():
            inner.rmdir()
        outer.rmdir()


def test_a_real_nested_cgroup_counts(memory_cgroup: Path) -> None:
    """A process in a cgroup whose parent allows 1 GiB sees 1 GiB, whatever the RAM."""
    code = (
        "import os, sys, pathlib;"
        "pathlib.Path(sys.argv[1], 'cgroup.procs').write_text(str(os.getpid()));"
        "from lancetnic_dask.cluster.limits import available_memory; print(available_memory())"
    )

    printed = subprocess.run(
        [sys.executable, "-c", code, str(memory_cgroup)],
        check=True,
        capture_output=True,
        timeout=60,
    ).stdout

    assert printed.decode().strip() == f"MemoryLimit(bytes={GIB}, source='cgroup')"
