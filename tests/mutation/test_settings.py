"""What mutation testing goes by is still true of the tree."""

from __future__ import annotations

import pytest

from tests.mutation.__main__ import EQUIVALENT, ROOT, SETTINGS

MODULES: dict[str, list[str]] = SETTINGS["modules"]


@pytest.mark.parametrize("module", sorted(MODULES))
def test_modules_and_their_tests_exist(module: str) -> None:
    """A module that moves takes its line along, and so does a file of tests."""
    assert (ROOT / module).is_file()
    assert [name for name in MODULES[module] if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("number", range(len(EQUIVALENT)))
def test_equivalent_mutations_are_of_code_that_is_there(number: int) -> None:
    """Each is of a module that is mutated, names code that stands in it, and has its reason."""
    listed = EQUIVALENT[number]

    source = " ".join((ROOT / listed["module"]).read_text("utf-8").split())
    assert listed["module"] in MODULES
    assert f"def {listed['function'].rpartition('.')[2]}(" in source
    assert listed["from"] in source
    assert listed["from"] != listed["to"]
    assert len(listed["reason"].split()) > 3
