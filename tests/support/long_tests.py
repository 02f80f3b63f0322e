"""Which tests are left to `make test-long`: most cases of tests with many, and whole files.

Golden sets are run whole every day, on the compiled core. pytest alone runs all: a
developer who changes a module and runs its files gets every case.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.builds import is_on_plain_python
from tests.support.grids import Grid

if TYPE_CHECKING:
    from collections.abc import Iterable

TESTS: Final = Path(__file__).parents[1]
CASES: Final = 8
"""Cases of one test that are run every day: the first two, the last two, and some between."""
LONG_FILES: Final = frozenset(
    {
        "arrow_io/test_storage_cut_listings.py",
        "benchmarks/test_benchmarks.py",
        "connector/test_cli_interrupts.py",
        "connector/test_cluster_model.py",
        "connector/test_lake_copy_killed.py",
        "connector/test_lake_iceberg_faults.py",
        "connector/test_lake_latest_faults.py",
        "connector/test_lake_maintenance.py",
        "connector/test_lake_races.py",
        "connector/test_moving_cluster.py",
        "connector/test_scalable_model.py",
        "connector/test_scan_handles.py",
        "connector/test_writing_offloader_faults.py",
        "spark_ds/test_benchmark.py",
        "spark_ds/test_cluster.py",
        "spark_ds/test_connect.py",
        "spark_ds/test_lake.py",
        "spark_ds/test_listings.py",
        "spark_ds/test_otel.py",
        "spark_ds/test_pipeline.py",
        "spark_ds/test_scalable_topics.py",
        "spark_ds/test_sql_examples.py",
        "spark_ds/test_statistics.py",
        "spark_ds/test_stream_killed.py",
        "spark_ds/test_write_repeated.py",
        "test_site.py",
    }
)
"""Files of which every test is left to `make test-long`, relative to `TESTS`."""
LONG_FIXTURES: Final = frozenset({"grid", "sdist", "unpacked_wheel"})
"""Fixtures that stop or damage something at many places, or compile the core: every test that asks
for one is left to `make test-long`."""


def mark_long_tests(items: Iterable[pytest.Item]) -> None:
    """Add the marker `long` to what `make test` leaves out.

    Args:
        items: Tests, with the cases of each in their order.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if _is_long(item):
            item.add_marker(pytest.mark.long)
        elif not item.get_closest_marker("exhaustive") and "golden" not in item.path.name:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for of_test in cases.values():
        daily = {id(item) for item in Grid(is_whole=False).of(of_test, count=CASES)}
        for item in of_test:
            if id(item) not in daily:
                item.add_marker(pytest.mark.long)


def _is_long(item: pytest.Item) -> bool:
    """Return whether no case of the test, or none on plain Python, is run every day."""
    path = item.path
    return (
        (path.is_relative_to(TESTS) and path.relative_to(TESTS).as_posix() in LONG_FILES)
        or not LONG_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
        or (is_on_plain_python(item) and item.get_closest_marker("both_builds") is not None)
    )
