"""Threads are as many as the processors that the process may use, whatever the host has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from arrow_io.core import processors
from arrow_io.core.processors import processor_count, processor_quota

if TYPE_CHECKING:
    from pathlib import Path

_V1: Final = "11:memory:/docker/a\n4:cpu,cpuacct:{}\n3:cpuset:/docker/a\n1:name=systemd:/docker/a\n"


def _tree(root: Path, groups: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def _v1(folder: str, quota: int, period: int = 100_000) -> dict[str, str]:
    base = f"sys/fs/cgroup/{folder}".rstrip("/")
    return {f"{base}/cpu.cfs_quota_us": f"{quota}", f"{base}/cpu.cfs_period_us": f"{period}"}


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        # Version 2: in a namespace of its own, and seen from the host, with groups around it.
        ("0::/", {"sys/fs/cgroup/cpu.max": "200000 100000"}, 2),
        ("0::/", {"sys/fs/cgroup/cpu.max": "max 100000"}, None),
        ("0::/", {"sys/fs/cgroup/cpu.max": "150000 100000"}, 1.5),
        ("0::/a/b", {"sys/fs/cgroup/a/b/cpu.max": "50000 100000"}, 0.5),
        (
            "0::/a/b",
            {
                "sys/fs/cgroup/a/b/cpu.max": "max 100000",
                "sys/fs/cgroup/a/cpu.max": "300000 100000",
                "sys/fs/cgroup/cpu.max": "400000 100000",
            },
            3,
        ),
        ("0::/../../other", {"sys/fs/cgroup/cpu.max": "200000 100000"}, 2),
        ("0::/not/here", {"sys/fs/cgroup/cpu.max": "200000 100000"}, 2),
        # Version 1: under the name of both controllers, under that of one, seen from the container.
        (_V1.format("/"), _v1("cpu,cpuacct", 200_000), 2),
        (_V1.format("/docker/a"), _v1("cpu/docker/a", 250_000), 2.5),
        (_V1.format("/docker/a"), _v1("cpu,cpuacct", 200_000), 2),
        (_V1.format("/docker/a"), _v1("cpu/docker/a", -1) | _v1("cpu/docker", 800_000), 8),
        (_V1.format("/docker/a"), _v1("cpu/docker/a", -1), None),
        # The memory's group says nothing of processors; nor does what cannot be read.
        (_V1.format("/docker/a"), _v1("memory/docker/a", 100_000), None),
        ("0::/", {"sys/fs/cgroup/cpu.max": "much"}, None),
        ("0::/", {"sys/fs/cgroup/cpu.max": "200000 0"}, None),
        ("0::/", {}, None),
        ("", {"sys/fs/cgroup/cpu.max": "200000 100000"}, None),
    ],
)
def test_quota(groups: str, files: dict[str, str], quota: float | None, tmp_path: Path) -> None:
    """The least quota of the groups that the process is in counts."""
    assert processor_quota(_tree(tmp_path, groups, files)) == quota


def test_a_system_without_control_groups(tmp_path: Path) -> None:
    """Nothing limits the processors then."""
    assert processor_quota(tmp_path) is None


@pytest.mark.parametrize(
    ("affinity", "quota", "count"),
    [(64, None, 64), (64, 2.0, 2), (64, 1.5, 2), (64, 0.1, 1), (3, 8.0, 3), (1, None, 1)],
)
def test_count(
    affinity: int, quota: float | None, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of a processor is worth a thread, and the affinity bounds what a quota allows."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)), raising=False)
    monkeypatch.setattr(processors, "processor_quota", lambda: quota)

    assert processor_count() == count


def test_count_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems that know no affinity tell how many processors there are."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(processors, "processor_quota", lambda: None)
    monkeypatch.setattr("os.cpu_count", lambda: 6)

    assert processor_count() == 6
