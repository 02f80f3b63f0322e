"""`connector.upkeep.audit.deletability`: one doubt keeps an object."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from arrow_io.format.object_names import LedgerObjectName
from connector.catalog.metadata.topic_metadata import LedgerInfo, TopicMetadata
from connector.catalog.topic_ledgers import from_metadata
from connector.inputs.times import milliseconds_of
from connector.inputs.topic_names import TopicName
from connector.upkeep.audit.deletability import CLOCK_DIFFERENCE
from tests.support.deletion_scenes import (
    LAST,
    NEWEST,
    OLD,
    OTHER_UUID,
    SCENES,
    TAKEN,
    TOPIC,
    Scene,
    change_offload,
    changed,
    double,
    golden,
    ledger_metadata,
    of_deleted_topic,
    orphan,
    told,
    under,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("scene", SCENES)
def test_nothing_is_kept_without_a_doubt(scene: Callable[[], Scene]) -> None:
    """Each scene is one of an attempt that is deletable in all its forms."""
    assert scene().doubt() is None
    assert scene().doubt_of_data() is None
    if scene is not of_deleted_topic:
        assert scene().doubt_of_upload() is None


def _write_time_unknown(scene: Scene) -> None:
    scene.modified = None


def _written_with_the_metadata(scene: Scene) -> None:
    scene.modified = TAKEN if scene.is_live else NEWEST


def _written_after_the_metadata(scene: Scene) -> None:
    scene.modified = (TAKEN if scene.is_live else NEWEST) + timedelta(microseconds=1)


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        (_write_time_unknown, "the store does not say when it was written"),
        (_written_with_the_metadata, "it may have been written after the metadata"),
        (_written_after_the_metadata, "it may have been written after the metadata"),
    ],
)
def test_what_is_not_surely_older_is_kept(
    scene: Callable[[], Scene], change: Callable[[Scene], None], doubt: str
) -> None:
    """An unknown write time, one that is equal, one that is later."""
    changed_scene = scene()
    change(changed_scene)

    assert changed_scene.doubts() == [doubt] * 3


@pytest.mark.parametrize("scene", [double, orphan])
def test_metadata_without_a_time_is_of_no_age(scene: Callable[[], Scene]) -> None:
    """Nothing is older than it, unless a live cluster tells it now."""
    timeless_scene = scene()
    timeless_scene.last = None

    assert timeless_scene.doubt() == "it may have been written after the metadata"
    timeless_scene.is_live = True
    assert timeless_scene.doubt() is None


@pytest.mark.parametrize("scene", [double, orphan])
def test_times_of_the_future_tell_nothing(scene: Callable[[], Scene]) -> None:
    """A clock that was ahead would let everything look old; the time of the listing is none."""
    ahead = scene()
    ahead.last, ahead.modified = TAKEN, TAKEN - CLOCK_DIFFERENCE - timedelta(microseconds=1)
    assert ahead.doubt() is None
    ahead.last = TAKEN + timedelta(milliseconds=1)
    assert ahead.doubt() == "it may have been written after the metadata"


@pytest.mark.parametrize(
    ("uuid", "complete", "state"),
    [
        (OTHER_UUID, True, "complete"),
        (OTHER_UUID, False, "under way, or failed"),
        (OTHER_UUID, None, "started"),
    ],
)
def test_attempt_that_the_metadata_names_is_kept(
    uuid: UUID, complete: bool | None, state: str
) -> None:
    """Whatever it says of it."""
    scene = double()
    change_offload(scene, 17, uuid=uuid, complete=complete)

    assert scene.doubts() == [f"the metadata names it: {state}"] * 3


def test_attempt_that_another_answer_names_is_kept() -> None:
    """Two answers that name two attempts disagree, so neither is superfluous."""
    scene = double()
    change_offload(scene, 17, other_uuids=(UUID(int=8), OTHER_UUID))

    assert (
        scene.doubt() == "the metadata names it: another answer of the same cluster names this uuid"
    )


def test_owners_of_an_id_are_all_topics_that_have_it() -> None:
    """Topics of two clusters may have ledgers of one id; then an upload tells of neither."""
    scene = double()
    other = TopicName.parse("another")
    metadata = TopicMetadata(topic=other, ledgers=(told(golden()[0]), LedgerInfo(ledger_id=99)))
    scene.others.append(from_metadata(metadata, (), lambda _: None))

    owners = scene.deletability()[0].owners

    assert [each.topic for each in owners[14]] == [TOPIC, other]
    assert [each.topic for each in owners[15]] == [TOPIC]
    assert [each.topic for each in owners[99]] == [other]


@pytest.mark.parametrize("scene", [orphan, of_deleted_topic])
def test_attempt_that_another_topic_names_is_kept(scene: Callable[[], Scene]) -> None:
    """Whatever an index object says of its topic."""
    named_scene = scene()
    other = TopicName.parse("another")
    metadata = TopicMetadata(topic=other, ledgers=(told(named_scene.subject),))
    named_scene.others.append(from_metadata(metadata, (), lambda _: None))

    assert named_scene.doubt() == "the metadata names it: complete"


def test_ledger_behind_the_last_is_kept() -> None:
    """The metadata may be older than the ledger."""
    for ledger_id, doubt in (
        (13, None),
        (31, "the ledger is newer than the topic's last in the metadata"),
    ):
        scene = orphan()
        name = replace(scene.subject.name, ledger_id=ledger_id)
        scene.subject = changed(replace(scene.subject, name=name), ctime_ms=None)
        assert scene.doubt() == doubt


def test_double_of_the_last_ledger_is_deletable() -> None:
    """It is not newer than the metadata, which has the ledger."""
    scene = Scene(under(golden()[-1], OTHER_UUID), is_live=True, last=None)

    assert scene.doubts() == [None] * 3


def test_attempt_of_a_ledger_that_nothing_else_tells_of_is_deletable() -> None:
    """Not the metadata, nor a copy in the bucket: it is what a trimmed ledger left behind."""
    name = LedgerObjectName(OTHER_UUID, 13)
    deletability, topic = replace(orphan(), attempts=(name,)).deletability()

    assert deletability.doubt_of_data(topic, name, OLD) is None
    assert deletability.doubt_of_upload(topic, name, OLD) is None


def test_topic_without_ledgers_deletes_none() -> None:
    """Metadata of no ledgers is older than any."""
    scene = orphan()
    scene.infos, scene.is_live, scene.last = [], True, None

    assert scene.doubt() == "the ledger is newer than the topic's last in the metadata"


@pytest.mark.parametrize("scene", [double, orphan])
@pytest.mark.parametrize("proven_to", [-1, 13])
def test_metadata_that_is_not_proven_whole_deletes_nothing(
    scene: Callable[[], Scene], proven_to: int
) -> None:
    """Not behind the ledger up to which it is proven."""
    unproven = scene()
    unproven.proven_to = proven_to

    for doubt in unproven.doubts():
        assert doubt is not None
        assert doubt.startswith("the metadata is not proven complete")
    unproven.proven_to = 17
    assert unproven.doubt() is None


def test_copy_is_kept_where_none_that_is_named_can_be_read() -> None:
    """It may be the only one left."""
    kept = "no copy that the metadata names can be read instead"
    scene = double()
    scene.own.remove(golden()[3])
    assert scene.doubts() == [kept] * 3


def test_copy_is_kept_where_no_uuid_is_told() -> None:
    """Which of two copies counts is not known."""
    scene = double()
    change_offload(scene, 17, uuid=None)

    assert scene.doubt() == "the metadata does not say which copy counts"


def test_publish_times_of_what_no_bookie_had_are_no_times_of_the_metadata() -> None:
    """Who writes messages chooses them, and one may be later than the metadata."""
    scene = double()
    scene.last = None
    scene.infos = [replace(told(copy), timestamp_ms=milliseconds_of(LAST)) for copy in golden()]
    (segment,) = ledger_metadata(golden()[0]).segments
    offline = replace(segment, ensemble_members=("127.0.0.1:3181",))
    scene.own = [changed(copy, segments=(offline,)) for copy in golden()]
    scene.subject = under(scene.own[3], OTHER_UUID)
    scene.last = TAKEN + timedelta(days=1)

    assert scene.doubt() == "it may have been written after the metadata"
