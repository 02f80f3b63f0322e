"""Versions that are tried, lower bounds and the page that tells of both are the same."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from spark_ds.stream_source import STREAMS_SINCE

ROOT: Final = Path(__file__).parents[1]
PYPROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETTINGS: Final[dict[str, Any]] = tomllib.loads((ROOT / "tests" / "versions.toml").read_text())
TOGETHER: Final[dict[str, Any]] = SETTINGS["together"]
ALONE: Final[dict[str, dict[str, Any]]] = SETTINGS["alone"]
EXTRAS: Final[dict[str, list[str]]] = PYPROJECT["project"]["optional-dependencies"]
PAGE: Final = (ROOT / "docs" / "versions.md").read_text("utf-8")


def groups() -> dict[str, list[str]]:
    """The groups of `noxfile.py`, which can be imported only where nox is installed."""
    for node in ast.parse((ROOT / "noxfile.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "GROUPS":
            found: dict[str, list[str]] = ast.literal_eval(node.value)
            return found
    pytest.fail("noxfile.py has no GROUPS")


def lower_bounds() -> dict[str, set[tuple[int, ...]]]:
    """The lower bounds of each library, in all places that name it."""
    bounds: dict[str, set[tuple[int, ...]]] = {}
    for each in (PYPROJECT["project"]["dependencies"], *EXTRAS.values()):
        for requirement in each:
            if found := re.match(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", requirement):
                bounds.setdefault(found[1], set()).add(_release(found[2]))
    return bounds


def _release(version: str) -> tuple[int, ...]:
    major, minor, patch = (*map(int, version.split(".")), 0, 0)[:3]
    return major, minor, patch


def test_the_page_has_each_version_that_is_tried() -> None:
    """Rows of the table, and what is installed together, are those of the settings."""
    rows = dict(re.findall(r"^\| `([\w-]+)` \| ([^|]+) \|", PAGE, re.MULTILINE))
    together = " ".join(
        PAGE.partition("## Many libraries at once")[2].partition("\n## ")[0].split()
    )

    assert rows == {
        name: ", ".join(version.removesuffix(".*") for version in each["versions"])
        for name, each in ALONE.items()
    }
    assert re.findall(r"`(\w+)`", together.partition(" are installed")[0]) == TOGETHER["extras"]
    assert f"compiled for it: {', '.join(TOGETHER['pythons'])}." in together


@pytest.mark.parametrize("name", ALONE)
def test_the_first_version_is_the_lower_bound(name: str) -> None:
    """The oldest version that is tried is the one that pip may install; streams need newer ones."""
    oldest = _release(ALONE[name]["versions"][0])

    if name == "pyspark-streams":
        assert oldest[:2] == STREAMS_SINCE
        assert ALONE[name]["library"] == "pyspark"
    else:
        assert lower_bounds()[ALONE[name].get("library", name)] == {oldest}


@pytest.mark.parametrize("settings", [TOGETHER, *ALONE.values()], ids=["together", *ALONE])
def test_extras_and_tests_exist(settings: dict[str, Any]) -> None:
    """Each extra is one of the project's, and each pattern names files."""
    assert set(settings["extras"]) <= EXTRAS.keys()
    assert [pattern for pattern in settings["tests"] if not list(ROOT.glob(pattern))] == []


def test_each_group_has_its_marker_and_its_target() -> None:
    """A group of libraries has a marker that `make test` leaves out, and targets, of its name."""
    pytest_settings = PYPROJECT["tool"]["pytest"]
    markers = {each.partition(":")[0] for each in pytest_settings["markers"]}
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert list(groups()) == ["engines", "notebooks", "schedulers"]
    for name, extras in groups().items():
        assert name in PYPROJECT["dependency-groups"]
        assert name in markers
        assert {name, f"test-{name}"} <= targets
        assert f"not {name}" in pytest_settings["addopts"][3]
        assert set(extras) <= EXTRAS.keys()
