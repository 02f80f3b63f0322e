"""Fixtures of the tests of `connector`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from arrow_io.payloads.value_columns import SelectedValues
from tests.support.buckets import MemoryBucket
from tests.support.builds import build
from tests.support.grids import grid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.messages.gathered_message import GatheredMessage
    from arrow_io.payloads.shredding import Shredding
    from arrow_io.read_metrics import Tally

__all__ = ["build", "grid"]


@pytest.fixture
def bucket() -> Iterator[MemoryBucket]:
    """An empty bucket."""
    empty = MemoryBucket()
    yield empty
    empty.drop()


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[str, ...], int]]:
    """The columns that are decoded, each time, and of how many rows."""
    calls: list[tuple[tuple[str, ...], int]] = []
    decode = SelectedValues.decode

    def spy(values: SelectedValues, message: GatheredMessage, tally: Tally) -> list[Shredding]:
        calls.append((tuple(each.name for each in values.fields), message.rows.count))
        return decode(values, message, tally)

    monkeypatch.setattr(SelectedValues, "decode", spy)
    return calls
