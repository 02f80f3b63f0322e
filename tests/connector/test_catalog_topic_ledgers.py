"""`connector.catalog.topic_ledgers`: what metadata says, against what lies in the bucket."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from arrow_io.errors import CorruptIndexError, MissingObjectError, StorageError
from arrow_io.storage.location import Location
from connector.catalog.bucket import read_bucket
from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext, TopicMetadata
from connector.catalog.topic_ledgers import from_bucket, from_metadata
from connector.inputs.topic_names import TopicName
from tests.support.golden import GOLDEN
from tests.support.offloads import offloaded_copies

if TYPE_CHECKING:
    from collections.abc import Callable

    from arrow_io.errors import PulsarOffloadError
    from connector.catalog.kinds.offloaded_copy import OffloadedCopy
    from connector.catalog.topic_ledgers import TopicLedgers

TOPIC = TopicName.parse("small-chunked")
CLOSED_MS = 1_795_265_336_334
OTHER_UUID = UUID(int=7)


@cache
def copies() -> tuple[OffloadedCopy, ...]:
    """The golden topic's eight ledgers, 14 … 21, as the bucket has them."""
    contents = read_bucket(Location(str(GOLDEN / "pulsar-4.0.7-small" / "objects")))
    return offloaded_copies(contents, TOPIC)


def told(copy: OffloadedCopy) -> LedgerInfo:
    """What its cluster would say of a copy."""
    assert copy.ledger is not None
    ledger = copy.ledger
    return LedgerInfo(
        ledger_id=copy.name.ledger_id,
        entries=ledger.entry_count,
        size_bytes=ledger.length_bytes,
        timestamp_ms=CLOSED_MS,
        offload=OffloadContext(
            uuid=copy.name.uuid, complete=True, bookkeeper_deleted=True, timestamp_ms=CLOSED_MS
        ),
    )


def changed(**of_ledger: Callable[[LedgerInfo], LedgerInfo | None]) -> list[LedgerInfo]:
    """All ledgers as the cluster would say, some changed or left out, by `ledger_<id>`."""
    infos = []
    for copy in copies():
        change = of_ledger.get(f"ledger_{copy.name.ledger_id}")
        info = told(copy) if change is None else change(told(copy))
        if info is not None:
            infos.append(info)
    return infos


def reconciled(
    infos: list[LedgerInfo],
    there: tuple[OffloadedCopy, ...] | None = None,
    elsewhere: Callable[[LedgerInfo], OffloadedCopy | PulsarOffloadError | None] = lambda _: None,
) -> TopicLedgers:
    """The topic, by what the metadata says and what lies in the bucket."""
    metadata = TopicMetadata(topic=TOPIC, ledgers=tuple(infos))
    return from_metadata(metadata, copies() if there is None else there, elsewhere)


def states(topic: TopicLedgers) -> dict[int, str]:
    """The state of each ledger."""
    return {each.ledger_id: each.state.value for each in topic.states}


def with_offload(info: LedgerInfo, **changes: Any) -> LedgerInfo:  # noqa: ANN401
    """The ledger with another offload."""
    assert info.offload is not None
    return replace(info, offload=replace(info.offload, **changes))


def not_offloaded(info: LedgerInfo) -> LedgerInfo:
    """The ledger as it was before any offload."""
    return replace(info, offload=None)


def begun(info: LedgerInfo) -> LedgerInfo:
    """The ledger while it is offloaded under another uuid."""
    return replace(info, offload=OffloadContext(uuid=OTHER_UUID, complete=False))


def gone(_: LedgerInfo) -> None:
    """No ledger."""


def empty(info: LedgerInfo) -> LedgerInfo:
    """The ledger, closed without an entry."""
    return replace(info, entries=0, size_bytes=0, offload=None)


def moved(info: LedgerInfo) -> LedgerInfo:
    """The ledger, offloaded under another uuid."""
    return with_offload(info, uuid=OTHER_UUID)


def longer(info: LedgerInfo) -> LedgerInfo:
    """The ledger with other entries, before any offload."""
    return replace(info, entries=12, offload=None)


def test_all_is_well() -> None:
    """Metadata that agrees with the bucket gives each ledger once, and nothing else."""
    topic = reconciled(changed())
    assert [ledger.ledger_id for ledger in topic.ledgers] == list(range(14, 22))
    assert set(states(topic).values()) == {"offloaded"}
    assert (topic.problems, topic.cut, topic.pending, topic.unknown) == ((), (), (), ())
    assert from_bucket(TOPIC, copies()).ledgers == topic.ledgers


@pytest.mark.parametrize(
    ("ledger_id", "change", "is_there", "state", "problem", "pending"),
    [
        (15, lambda info: with_offload(info, bookkeeper_deleted=False), True, "both", None, []),
        (16, empty, False, "empty", None, []),
        (14, not_offloaded, False, "bookkeeper", "only in BookKeeper", []),
        (17, not_offloaded, False, "bookkeeper", "only in BookKeeper", []),
        (14, begun, False, "offloading", "only in BookKeeper", []),
        (17, begun, False, "offloading", "only in BookKeeper", []),
        (18, moved, False, "missing", "is missing", []),
        (18, lambda info: with_offload(info, uuid=None), False, "missing", "is missing", []),
        # A copy of another number of entries is another's.
        (21, longer, True, "bookkeeper", None, [(21, 12)]),
    ],
    ids=[
        "in both places", "empty", "gap-first", "gap", "gap-offloading-first", "gap-offloading",
        "missing", "missing-without-uuid", "contradicted",
    ],
)  # fmt: skip
def test_states_of_a_ledger(
    *,
    ledger_id: int,
    change: Callable[[LedgerInfo], LedgerInfo],
    is_there: bool,
    state: str,
    problem: str | None,
    pending: list[tuple[int, int]],
) -> None:
    """What is missing where offloaded ledgers follow is a problem; the tail is pending."""
    there = tuple(copy for copy in copies() if is_there or copy.name.ledger_id != ledger_id)
    topic = reconciled(changed(**{f"ledger_{ledger_id}": change}), there)

    assert states(topic)[ledger_id] == state
    assert (ledger_id in [each.ledger_id for each in topic.ledgers]) == (state == "both")
    assert [(each.ledger_id, each.entries) for each in topic.pending] == pending
    assert len(topic.problems) == (problem is not None)
    for each in topic.problems:
        assert isinstance(each, MissingObjectError)
        assert each.ledger_id == ledger_id
        assert str(problem) in each.message


def test_copy_without_its_data_object_is_missing() -> None:
    """An index object is no ledger: where its data object is gone, the ledger is."""
    error = MissingObjectError("the data object is gone", ledger_id=18)
    broken = replace(copies()[4], ledger=None, error=error)
    topic = reconciled(changed(), (*copies()[:4], broken, *copies()[5:]))
    assert states(topic)[18] == "missing"
    assert topic.problems == (error,)


def test_tail_in_bookkeeper() -> None:
    """What is not offloaded behind all that is, is no problem, and is told with its entries."""
    infos = changed(ledger_20=not_offloaded, ledger_21=begun)
    infos.append(LedgerInfo(ledger_id=63))
    topic = reconciled(infos, copies()[:6])
    assert list(states(topic).values())[6:] == ["bookkeeper", "offloading", "open"]
    assert topic.problems == ()
    pending = [(each.ledger_id, each.entries) for each in topic.pending]
    assert pending == [(20, 7), (21, 3)]


def opened(info: LedgerInfo) -> LedgerInfo:
    """The ledger while it was still written."""
    return LedgerInfo(ledger_id=info.ledger_id)


def under_way(info: LedgerInfo) -> LedgerInfo:
    """The ledger before its offload was complete."""
    return with_offload(info, complete=False)


@pytest.mark.parametrize("change", [opened, not_offloaded, begun, under_way, empty, gone])
def test_what_the_bucket_has_and_the_metadata_not_yet_is_told(
    change: Callable[[LedgerInfo], LedgerInfo | None],
) -> None:
    """Whatever older metadata says of a ledger that was offloaded since: one semantics for all."""
    topic = reconciled(changed(ledger_21=change))
    assert topic.ledgers[-1].ledger_id == 20
    assert topic.states[-1].copy == copies()[-1]
    assert topic.states[-1].others == ()
    assert [each.ledger_id for each in topic.unknown] == [21]
    assert (topic.pending, topic.problems) == ((), ())


@pytest.mark.parametrize("ledger_id", [14, 17])
@pytest.mark.parametrize("change", [not_offloaded, begun, under_way])
def test_gap_that_the_bucket_fills_is_an_error_that_says_so(
    ledger_id: int, change: Callable[[LedgerInfo], LedgerInfo]
) -> None:
    """Rows in the middle are never left out; salvage gives none either, and counts them."""
    topic = reconciled(changed(**{f"ledger_{ledger_id}": change}))
    (problem,) = topic.problems
    copy = copies()[ledger_id - 14]
    assert f"the bucket has it with the uuid {copy.name.uuid}" in problem.message
    assert topic.states[ledger_id - 14].others == (copy,)
    assert topic.salvaged().problems == (problem,)
    assert ledger_id not in [ledger.ledger_id for ledger in topic.salvaged().ledgers]


def _stats(info: LedgerInfo) -> LedgerInfo:
    """The ledger as internalStats alone tells of it, which has no time."""
    return replace(info, timestamp_ms=None, offload=OffloadContext(uuid=None, complete=True))


@pytest.mark.parametrize("ledger_id", [14, 17])
def test_gap_without_times_is_not_open(ledger_id: int) -> None:
    """Only the last ledger of a topic can be open, whatever is not told of the others."""
    infos = [
        replace(each, offload=None) if each.ledger_id == ledger_id else each
        for each in map(_stats, changed())
    ]
    topic = reconciled(infos, tuple(e for e in copies() if e.name.ledger_id != ledger_id))
    assert states(topic)[ledger_id] == "bookkeeper"
    (problem,) = topic.problems
    assert problem.ledger_id == ledger_id


def test_last_ledger_is_open_only_without_a_time_and_an_end() -> None:
    """One that was closed is not open, nor is that of a topic that was terminated."""
    infos = changed(ledger_21=not_offloaded)
    assert states(reconciled(infos, copies()[:7]))[21] == "bookkeeper"
    infos[-1] = replace(infos[-1], timestamp_ms=None)
    assert states(reconciled(infos, copies()[:7]))[21] == "open"
    metadata = TopicMetadata(topic=TOPIC, ledgers=tuple(infos), terminated_position=(21, 2))
    topic = from_metadata(metadata, copies()[:7], lambda _: None)
    assert states(topic)[21] == "bookkeeper"
    assert [(each.ledger_id, each.entries) for each in topic.pending] == [(21, 3)]


def test_without_uuids() -> None:
    """Where the metadata tells no uuids, the newest sound copy counts."""
    infos = [with_offload(info, uuid=None) for info in changed()]
    assert reconciled(infos).ledgers == from_bucket(TOPIC, copies()).ledgers


def test_trimmed_and_unknown() -> None:
    """What the metadata does not list is not read: the oldest were trimmed, others are told."""
    topic = reconciled(changed(ledger_14=gone, ledger_15=gone, ledger_21=gone))
    found = states(topic)
    assert [found[14], found[15], found[21]] == ["trimmed", "trimmed", "unknown"]
    assert [ledger.ledger_id for ledger in topic.ledgers] == list(range(16, 21))
    assert [each.ledger_id for each in topic.unknown] == [21]
    assert topic.problems == ()


def test_elsewhere() -> None:
    """A ledger that lies in another bucket is taken from there; that it cannot be is a problem."""
    there = tuple(copy for copy in copies() if copy.name.ledger_id != 17)
    topic = reconciled(changed(), there, lambda info: copies()[info.ledger_id - 14])
    assert [ledger.ledger_id for ledger in topic.ledgers] == list(range(14, 22))
    (problem,) = reconciled(changed(), there, lambda _: StorageError("refused")).problems
    assert "refused" in problem.message


def untold(info: LedgerInfo) -> LedgerInfo:
    """The ledger as internal-info alone tells of it: an offload was begun."""
    assert info.offload is not None
    return replace(info, offload=OffloadContext(uuid=info.offload.uuid, complete=None))


def test_offload_of_which_nothing_tells_whether_it_is_complete() -> None:
    """It is, if its objects are sound and agree; else the ledger counts as not offloaded."""
    infos = [untold(info) for info in changed()]
    assert reconciled(infos).ledgers == from_bucket(TOPIC, copies()).ledgers
    topic = reconciled(infos, copies()[:7])
    assert states(topic)[21] == "offloading"
    assert [each.ledger_id for each in topic.pending] == [21]
    assert topic.problems == ()
    (problem,) = reconciled(infos, copies()[1:]).problems
    assert "only in BookKeeper" in problem.message
    infos[-1] = replace(infos[-1], entries=12)
    assert states(reconciled(infos))[21] == "offloading"


def test_salvaging_takes_another_sound_copy() -> None:
    """Where the copy that counts is missing, what salvages reads one under another uuid."""
    topic = reconciled(changed(ledger_18=moved))
    assert [ledger.ledger_id for ledger in topic.substitutes] == [18]
    saved = topic.salvaged()
    assert [ledger.ledger_id for ledger in saved.ledgers] == list(range(14, 22))
    assert saved.problems == ()


def test_salvaging_takes_the_newest_sound_copy() -> None:
    """Not one that is unsound, nor one that is older than another."""
    found = copies()[4]
    broken = replace(found, ledger=None, error=CorruptIndexError("broken"))
    first, second = (
        replace(found, name=replace(found.name, uuid=UUID(int=number))) for number in (8, 9)
    )
    infos = changed(ledger_18=lambda info: with_offload(info, uuid=OTHER_UUID))
    there = (*copies()[:4], broken, first, second, *copies()[5:])
    topic = reconciled(infos, there)
    assert topic.substitutes == (first.ledger,)
    assert topic.states[4].others == (broken, first, second)


@pytest.mark.parametrize("complete", [False, None])
def test_salvaging_takes_no_copy_of_what_is_not_offloaded(complete: bool | None) -> None:
    """Objects of an attempt that nothing calls complete may be taken away again."""
    infos = changed(ledger_18=lambda info: with_offload(info, uuid=OTHER_UUID, complete=complete))
    topic = reconciled(infos)
    assert len(topic.problems) == 1
    assert topic.substitutes == ()
    assert topic.salvaged().problems == topic.problems


def test_salvaging_takes_no_copy_that_contradicts_the_metadata() -> None:
    """A copy of another number of entries is none of the ledger."""

    def moved(info: LedgerInfo) -> LedgerInfo:
        assert info.offload is not None
        return replace(info, entries=8, offload=replace(info.offload, uuid=OTHER_UUID))

    topic = reconciled(changed(ledger_18=moved))
    assert topic.substitutes == ()
    assert len(topic.salvaged().problems) == 1


def test_doubted() -> None:
    """A topic whose metadata cannot be read is what the bucket shows, with that problem first."""
    error = StorageError("malformed")
    topic = from_bucket(TOPIC, copies()).with_metadata_error(error)
    assert topic.problems == (error,)
    assert topic.metadata_error is error
    assert len(topic.salvaged().ledgers) == 8
