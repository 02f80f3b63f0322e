"""How many processors may this process keep busy?

A container with a quota of two processors may run on a host with 64: as many threads would wait for
each other, and take memory for nothing.
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
    """Return how many processors the affinity and the control groups of this process allow."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = (os.cpu_count() or 1) if affinity is None else len(affinity(0))
    quota = processor_quota()
    return max(1, count if quota is None else min(count, math.ceil(quota)))


@cache
def processor_quota(root: Path = _ROOT) -> float | None:
    """Return how many processors' time the control groups of this process allow; None for any.

    It is read once: it hardly changes while a process runs.

    Args:
        root: Folder that has `proc` and `sys`.
    """
    quotas: list[float] = []
    for group in _groups(root):
        # Each group around the process's own has a quota too.
        for folder in (group, *group.parents):
            quotas += _quotas(folder)
            if folder.parent == root / "sys/fs":
                break
    return min(quotas, default=None)


def _groups(root: Path) -> Iterator[Path]:
    """Find the folders of the process's control groups that may limit processors (cgroups(7))."""
    mounts = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        if line.count(":") < 2:  # noqa: PLR2004 - no number, controllers and path
            continue
        _, controllers, path = line.split(":", 2)
        # A group outside the container's view is shown with dots; its own is at the root then.
        own = PurePosixPath(path)
        below = "" if ".." in own.parts else str(own).lstrip("/")
        if not controllers:
            yield mounts / below
        elif "cpu" in controllers.split(","):
            yield from (mounts / name / below for name in {controllers, "cpu"})


def _quotas(folder: Path) -> list[float]:
    """Read the quota of a control group, of version 2 or 1; empty without one."""
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
