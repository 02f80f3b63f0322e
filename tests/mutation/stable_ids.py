"""A plugin for pytest: leaves out tests whose ids have an escaped character.

mutmut collects more than once in one process. Pytest then escapes such ids twice and does not find
them again, and what is only a usage error would count as a killed mutant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that are found again by their ids."""
    items[:] = [item for item in items if "\\" not in item.nodeid]
