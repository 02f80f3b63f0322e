"""What holds for every test: how many examples are tried, how Spark is run, when a test hangs.

Payloads are decoded in an arena whose regions are guarded, and files are written to memory.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, Phase, settings

from arrow_io.core import threads
from arrow_io.payloads import decoder
from tests.support.arenas import GuardedShredding
from tests.support.browser import find_browser, running_browser
from tests.support.builds import is_for_another_run
from tests.support.long_tests import mark_long_tests

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tests.support.browser import Browser
    from tests.support.s3_server import S3Server

SLOW_SECONDS = 600
"""What starts a Java runtime, or compiles the core, may take this long; the rest, `timeout`."""
SLOW_FOLDERS = {"spark_ds", "notebooks", "schedulers"}
EXHAUSTIVE_SECONDS = 7_200

settings.register_profile("default", max_examples=50, derandomize=True, deadline=None)
settings.register_profile("daily", settings.get_profile("default"), max_examples=10)
settings.register_profile(
    "exhaustive",
    max_examples=5_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# To know that a test fails is enough, if nobody reads with what.
settings.register_profile("mutation", settings.get_profile("default"), phases=[Phase.generate])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

_MEMORY: Final = "/dev/shm"  # noqa: S108 - it is asked for a folder of its own
_LEAST_FREE_BYTES: Final = 4 << 30


def _can_hold_tests(folder: str) -> bool:
    """Whether a folder has room for what tests write, and programs in it can be run."""
    if sys.platform == "win32" or not os.access(folder, os.W_OK):
        return False
    volume = os.statvfs(folder)
    is_large = volume.f_bavail * volume.f_frsize >= _LEAST_FREE_BYTES
    return is_large and not volume.f_flag & os.ST_NOEXEC


# What must outlive a crash waits for the disk, in thousands of tests, none of which cuts the power.
if "TMPDIR" not in os.environ and _can_hold_tests(_MEMORY):
    tempfile.tempdir = os.environ["TMPDIR"] = _MEMORY

# Tests that look for threads that were left behind wait for those that only may be used again.
threads._MAX_IDLE_S = 0.1

# Tests of the index cache name a folder for it; the user's own is nobody's business.
os.environ["PULSAR_OFFLOAD_INDEX_CACHE"] = "0"

# Spark would take the first `python3` on the PATH, which knows nothing of this project.
os.environ["PYSPARK_PYTHON"] = sys.executable

# Once Polars has read from S3, the clock of its rate limit ticks as long as the process lives:
# 3 % of a core, in all tests that follow.
os.environ["POLARS_DISABLE_HTTP_RATE_LIMIT"] = "1"


@pytest.fixture(autouse=True)
def _guarded_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no value be written beside its place unnoticed."""
    monkeypatch.setattr(decoder, "Shredding", GuardedShredding)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server."""
    from tests.support.s3_server import running_s3_server  # noqa: PLC0415 - moto is slow to import

    with running_s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for all tests of a file."""
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium on the PATH, and CHROMIUM names none")
    with running_browser(program, tmp_path_factory.mktemp("profile")) as running:
        yield running


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what another build is enough for; give slow tests the time that they need."""
    left_out = [each for each in items if is_for_another_run(each)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [each for each in items if not is_for_another_run(each)]
    mark_long_tests(items)
    is_exhaustive = settings.get_current_profile_name() == "exhaustive"
    for item in items:
        if sys.platform == "win32" and item.get_closest_marker("posix"):
            item.add_marker(pytest.mark.skip(reason="needs what only POSIX has"))
        fixtures = getattr(item, "fixturenames", ())
        if is_exhaustive or item.get_closest_marker("exhaustive"):
            item.add_marker(pytest.mark.timeout(EXHAUSTIVE_SECONDS))
        elif not SLOW_FOLDERS.isdisjoint(item.path.parts) or "unpacked_wheel" in fixtures:
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are collected: of a million objects hardly any is."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _older_objects_are_passed_over() -> None:
    """Look through what earlier modules left once, and not in each garbage collection to come.

    In a process with all tests one would take most of a second, and many tests ask for it.
    """
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Let the interpreter take all down as it does without tests."""
    gc.unfreeze()
