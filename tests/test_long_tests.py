"""What `make test` leaves to `make test-long`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from arrow_io.core import builds
from tests.support.builds import BUILDS
from tests.support.long_tests import CASES, LONG_FILES, LONG_FIXTURES, TESTS, mark_long_tests

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class _Item:
    """What is looked at of a collected test."""

    def __init__(self, path: Path, name: str, *markers: str) -> None:
        self.path = path
        self.nodeid = f"{path}::{name}"
        self.fixturenames: list[str] = []
        self.callspec = SimpleNamespace(params={})
        self.markers = [*markers]

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.markers else None

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        self.markers.append(marker.name)


def _cases(count: int, file: str = "test_a.py", *markers: str) -> list[_Item]:
    return [_Item(TESTS / file, f"test_b[{n}]", *markers) for n in range(count)]


def _daily(items: Sequence[_Item]) -> list[int]:
    mark_long_tests(cast("list[pytest.Item]", items))
    return [number for number, item in enumerate(items) if "long" not in item.markers]


@pytest.mark.parametrize("count", [1, CASES, CASES + 1, 100])
def test_some_cases_are_run_every_day(count: int) -> None:
    """The first two, the last two and some between, or all if there are few."""
    daily = _daily(_cases(count))

    assert len(daily) == min(count, CASES)
    assert {0, min(1, count - 1), max(0, count - 2), count - 1} <= {*daily}


def test_each_test_has_its_own_cases() -> None:
    """Tests with few cases are run whole, beside one that has many."""
    items = [*_cases(20), *_cases(3, "test_c.py"), _Item(TESTS / "test_a.py", "test_d")]

    assert [n for n in _daily(items) if n >= 20] == [20, 21, 22, 23]


def test_golden_sets_are_whole() -> None:
    """Every object of a real broker is read every day."""
    assert _daily(_cases(50, "test_golden.py")) == [*range(50)]


def test_cases_of_other_runs_do_not_count() -> None:
    """Exhaustive cases are in neither run, so that none is in the place of a case of every day."""
    items = [*_cases(20, "test_a.py", "exhaustive"), *_cases(CASES)]

    assert _daily(items) == [*range(20 + CASES)]


@pytest.mark.parametrize("file", sorted(LONG_FILES))
def test_files_of_long_tests_exist(file: str) -> None:
    """A file that is renamed keeps its place in the list, and all of its tests are long."""
    assert (TESTS / file).is_file()
    assert _daily(_cases(2, file)) == []


@pytest.mark.parametrize("fixture", sorted(LONG_FIXTURES))
def test_tests_that_ask_for_a_costly_fixture_are_long(fixture: str) -> None:
    """The fixture exists, and every test that asks for it is long."""
    costly, another = _cases(2)
    costly.fixturenames = ["tmp_path", fixture]

    assert _daily([costly, another]) == [1]
    files = (TESTS / "test_project.py", TESTS / "support" / "grids.py")
    assert any(f"def {fixture}(" in file.read_text("utf-8") for file in files)


@pytest.mark.parametrize("is_compiled", [True, False])
def test_golden_sets_on_plain_python_are_long(
    monkeypatch: pytest.MonkeyPatch, is_compiled: bool
) -> None:
    """Unless all tests run on plain Python; property tests try both builds every day."""
    monkeypatch.setattr(builds, "in_use", BUILDS["compiled" if is_compiled else "pure"])
    golden = _cases(2, "test_golden.py", "both_builds")
    property_tests = _cases(2)
    for pure, compiled in (golden, property_tests):
        pure.callspec.params["build"] = "pure"
        compiled.callspec.params["build"] = "compiled"

    assert _daily([*golden, *property_tests]) == ([1, 2, 3] if is_compiled else [0, 1, 2, 3])
