"""The entries of a golden topic, as the reference decoder takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.reference_ledger import read_entries

if TYPE_CHECKING:
    from tests.support.golden import GoldenTopic


def golden_entries(topic: GoldenTopic) -> list[tuple[int, list[bytes]]]:
    """Give `(ledger_id, entries)` of each offloaded ledger of a topic, in order."""
    return [
        (ledger_id, read_entries(data_object.read_bytes(), index_object.read_bytes()))
        for ledger_id, data_object, index_object in topic.offloaded_objects()
    ]
