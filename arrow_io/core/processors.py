"""How many processors may this process keep busy?

A container with a quota of two processors may run on a host with 64. With 64 threads it would waste
memory on threads that wait for each other.
"""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT: Final = Path("/")


def processor_count() -> int:
    """Return how many processors this process's affinity and control groups allow."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = (os.cpu_count() or 1) if affinity is None else len(affinity(0))
    quota = processor_quota()
    return max(1, count if quota is None else min(count, math.ceil(quota)))


@cache
def processor_quota(root: Path = _ROOT) -> float | None:
    """Return how many processors (perhaps a fraction) the control groups allow; None if unlimited.

    The result is cached: the quota hardly changes while a process runs.
    """
    quotas: list[float] = []
    for group in _groups(root):
        # Each ancestor of the process's own group may have a quota too.
        for folder in (group, *group.parents):
            quotas += _quotas(folder)
            if folder.parent == root / "sys/fs":
                break
    return min(quotas, default=None)


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folders of control groups that may limit processors (cgroups(7))."""
    mounts = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        if line.count(":") < 2:  # noqa: PLR2004 - no number, controllers and path
            continue
        _, controllers, path = line.split(":", 2)
        # Dots show a group outside the container's namespace: its own group is then at the root.
        own = PurePosixPath(path)
        below = "" if ".." in own.parts else str(own).lstrip("/")
        if not controllers:
            yield mounts / below
        elif "cpu" in controllers.split(","):
            yield from (mounts / name / below for name in {controllers, "cpu"})


def _quotas(folder: Path) -> list[float]:
    """Return the quota of a control group of version 2 or 1, as a list of at most one."""
    pairs = [
        _text(folder / "cpu.max").split(),
        [_text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")],
    ]
    # "max" and -1 stand for no quota.
    return [
        int(pair[0]) / int(pair[1])
        for pair in pairs
        if len(pair) == 2 and all(each.isdecimal() and int(each) for each in pair)  # noqa: PLR2004
    ]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""
