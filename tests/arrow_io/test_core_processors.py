"""Threads are as many as the processors that the process may use, whatever the host has."""

from __future__ import annotations

import os
import sys
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


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    """A system of 64 processors without a quota, as this process sees it."""
    return System(monkeypatch)


class System:
    """What the system says of processors.

    Attributes:
        affinity: How many processors the process may use.
        quota: The quota of its control groups.
        now_s: The time.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.affinity = 64
        self.quota: float | None = None
        self.now_s = 0.0
        monkeypatch.delenv("PYTHON_CPU_COUNT", raising=False)
        monkeypatch.setattr(sys, "_xoptions", {})
        monkeypatch.setattr(
            os, "sched_getaffinity", lambda _: set(range(self.affinity)), raising=False
        )
        monkeypatch.setattr(processors, "processor_quota", lambda: self.quota)
        monkeypatch.setattr(processors, "_clock", lambda: self.now_s)
        monkeypatch.setattr(processors, "_quota", processors._Quota())


@pytest.mark.parametrize(
    ("affinity", "quota", "count"),
    [(64, None, 64), (64, 2.0, 2), (64, 1.5, 2), (64, 0.1, 1), (3, 8.0, 3), (1, None, 1)],
)
def test_count(affinity: int, quota: float | None, count: int, system: System) -> None:
    """A part of a processor is worth a thread, and the affinity bounds what a quota allows."""
    system.affinity, system.quota = affinity, quota

    assert processor_count() == count


def test_count_without_affinity(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems that know no affinity tell how many processors there are."""
    del system
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 6)

    assert processor_count() == 6


def test_a_changed_affinity_counts_at_once(system: System) -> None:
    """It is asked for each time."""
    assert processor_count() == 64
    system.affinity = 3

    assert processor_count() == 3


def test_a_changed_quota_counts_after_some_seconds(system: System) -> None:
    """Its files are not read for each record batch."""
    system.quota = 8.0
    assert processor_count() == 8
    system.quota, system.now_s = 2.0, 9.9
    assert processor_count() == 8
    system.now_s = 10.0

    assert processor_count() == 2


_REFUSED: Final = ("default", "", "0", "-2", "²", "9" * 5000)


@pytest.mark.parametrize(
    ("text", "count"), [("3", 3), ("100", 100), *((text, 64) for text in _REFUSED)]
)
@pytest.mark.parametrize("is_option", [False, True])
def test_number_that_python_was_started_with(
    text: str, count: int, system: System, monkeypatch: pytest.MonkeyPatch, *, is_option: bool
) -> None:
    """It counts instead of the affinity; what Python would refuse does not count."""
    del system
    if is_option:
        monkeypatch.setattr(sys, "_xoptions", {"cpu_count": text})
    else:
        monkeypatch.setenv("PYTHON_CPU_COUNT", text)

    assert processor_count() == count


@pytest.mark.parametrize(("quota", "count"), [(None, 16), (4.0, 4)])
def test_quota_limits_what_python_was_started_with(
    quota: float | None, count: int, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More threads than that would wait for each other. The option counts before the variable."""
    monkeypatch.setenv("PYTHON_CPU_COUNT", "2")
    monkeypatch.setattr(sys, "_xoptions", {"cpu_count": "16"})
    system.quota = quota

    assert processor_count() == count


def test_option_without_a_number(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python notes it as True."""
    del system
    monkeypatch.setattr(sys, "_xoptions", {"cpu_count": True})

    assert processor_count() == 64
