"""Broker indexes rise through a topic; where they go back, objects are not where they belong."""

from __future__ import annotations

import pytest

from arrow_io.errors import EntryOrderError
from arrow_io.read_metrics import ReadMetrics
from connector import open_topic
from connector.catalog.opening import open_catalog
from connector.upkeep.verify.verification import verify
from tests.support.buckets import TOPIC, memory_bucket, object_name, offload_ledger
from tests.support.entries import Framing, Message, encode_chunks, encode_entry
from tests.support.reading import read

pytestmark = pytest.mark.usefixtures("build")


def _objects(*ledgers: list[int | None]) -> dict[str, bytes]:
    """A ledger for each list of indexes; an entry whose index is None has none."""
    objects: dict[str, bytes] = {}
    for number, indexes in enumerate(ledgers):
        entries = [
            encode_entry(
                [Message(payload=b"value")],
                batched=False,
                framing=Framing(broker_metadata=None if index is None else (1, index)),
            )
            for index in indexes
        ]
        objects |= offload_ledger(object_name(number), entries)
    return objects


@pytest.mark.parametrize(
    "ledgers",
    [
        [[3, 4], [5]],
        [[3, 9], [100]],
        [[3, 4], [0, 1]],
        [[3, None], [2]],
        [[3], [None], [2]],
        [[None, None], [None]],
    ],
)
def test_what_rises_or_begins_anew_is_sound(ledgers: list[list[int | None]]) -> None:
    """Gaps, entries without an index, and a count that begins at 0 prove nothing."""
    with memory_bucket(_objects(*ledgers)) as bucket:
        assert open_topic(bucket.url, TOPIC).count_rows() == sum(map(len, ledgers))
        topics = open_catalog(bucket.url).every_ledger()
        assert not any(each.problems for each in verify(topics))


@pytest.mark.parametrize(
    ("ledgers", "place"),
    [([[5, 6], [4]], (1, 0)), ([[5], [5]], (1, 0)), ([[5, 4]], (0, 1)), ([[1], [9], [3]], (2, 0))],
)
def test_what_goes_back_is_an_error(
    ledgers: list[list[int | None]], place: tuple[int, int]
) -> None:
    """It names ledger and entry; salvaging gives the rows and tells it, and so does `verify`."""
    with memory_bucket(_objects(*ledgers)) as bucket:
        with pytest.raises(EntryOrderError, match=r"gave index \d+ after") as caught:
            open_topic(bucket.url, TOPIC).to_table()
        salvaging = open_topic(bucket.url, TOPIC, on_corruption="salvage")
        with pytest.warns(UserWarning, match="the broker gave index"):
            rows = salvaging.to_table().num_rows
        verified = list(verify(open_catalog(bucket.url).every_ledger()))

    message = str(caught.value)
    assert all(word in message for word in ("swapped", "deleted", "metadata", "start"))
    assert (caught.value.ledger_id, caught.value.entry_id) == place
    assert rows == sum(map(len, ledgers))
    assert [n for n, each in enumerate(verified) if each.problems] == [place[0]]
    [problem] = verified[place[0]].problems
    assert problem.partition(" (")[0] == message.partition(" (")[0]
    assert f"(object {verified[place[0]].object}, ledger {place[0]}" in problem


@pytest.mark.parametrize("zone_bytes", [1, 1 << 20])
def test_what_goes_back_in_a_ledger_has_its_entry(
    zone_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether one thread reads both entries, or each is in a zone of its own."""
    monkeypatch.setattr("connector.statistics.whole_ledgers.ZONE_BYTES", zone_bytes)
    with memory_bucket(_objects([5, 4, 6])) as bucket:
        (verified,) = verify(open_catalog(bucket.url).every_ledger())

    [problem] = verified.problems
    assert "gave index 4 after 5" in problem
    assert "ledger 0, entry 1, offset" in problem
    assert (verified.entries, verified.first_index, verified.last_index) == (3, 5, 6)


def test_what_goes_back_behind_a_task_is_told_once() -> None:
    """A task that reads on for the rest of a message leaves it to the next task to tell."""
    first, last = (
        encode_chunks(
            Message(payload=b"abcd"),
            chunk_count=2,
            uuid="a",
            framing=Framing(broker_metadata=(1, index)),
        )[number]
        for number, index in ((0, 7), (1, 8))
    )
    single = encode_entry(
        [Message(payload=b"single")], batched=False, framing=Framing(broker_metadata=(1, 9))
    )
    objects = offload_ledger(object_name(0), [first]) | offload_ledger(
        object_name(1), [single, last]
    )
    with memory_bucket(objects) as bucket:
        scan = open_topic(bucket.url, TOPIC, on_corruption="salvage").scan.select(["__value__"])
        reports = [ReadMetrics() for _ in range(2)]
        values = [
            read(scan, [task], metrics)["__value__"].to_pylist()
            for task, metrics in zip(scan.plan(1), reports, strict=True)
        ]

    assert values == [[b"abcd"], [b"single"]]
    assert [len(metrics.doubts) for metrics in reports] == [0, 1]
