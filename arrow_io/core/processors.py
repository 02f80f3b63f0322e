"""How many processors may this process keep busy?

A container with a quota of two processors may run on a host with 64. With 64 threads it would waste
memory on threads that wait for each other.
"""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT: Final = Path("/")
_QUOTA_AGE_S: Final = 10.0
"""How long a quota is believed to be unchanged: to read it takes tens of microseconds."""

_clock = time.monotonic


def processor_count() -> int:
    """Return how many processors this process may keep busy, at least one.

    The count is that of Python's option `-X cpu_count` or of the variable `PYTHON_CPU_COUNT`, which
    Python itself heeds from 3.13 on; else that of the process's affinity. The quotas of its control
    groups limit it.
    """
    quota = _quota.current()
    count = _requested_count() or _allowed_count()
    return max(1, count if quota is None else min(count, math.ceil(quota)))


def _requested_count() -> int | None:
    """Return the number of processors that Python was started with; None without such an option."""
    text = sys._xoptions.get("cpu_count") or os.environ.get("PYTHON_CPU_COUNT", "")  # noqa: SLF001
    is_number = isinstance(text, str) and text.isascii() and text.isdecimal()
    # Python refuses numbers that do not fit into a C integer.
    return int(text) or None if is_number and len(text) < 10 else None  # noqa: PLR2004


def _allowed_count() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return (os.cpu_count() or 1) if affinity is None else len(affinity(0))


class _Quota:
    """The quota of this process's control groups, which an administrator may change."""

    def __init__(self) -> None:
        self._known: tuple[float, float | None] | None = None  # when it was read, and the quota

    def current(self) -> float | None:
        """Return the quota, which is at most `_QUOTA_AGE_S` old."""
        known, now = self._known, _clock()
        if known is None or now - known[0] >= _QUOTA_AGE_S:
            # Threads that come at the same time each read it.
            self._known = known = now, processor_quota()
        return known[1]


_quota = _Quota()


def processor_quota(root: Path = _ROOT) -> float | None:
    """Return how many processors (perhaps a fraction) the control groups allow; None if unlimited.

    It is read from the files below `root` each time.
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
