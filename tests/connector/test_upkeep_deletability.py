"""`connector.upkeep.deletability`: one doubt keeps an object, whatever speaks for its deletion."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

import pytest

from arrow_io.format.index_block import CLUSTER_NAME_KEY
from arrow_io.format.object_names import LedgerObjectName
from arrow_io.storage.location import Location
from connector.catalog.bucket import BucketContents, LedgerCopy, read_bucket
from connector.catalog.topic_ledgers import TopicLedgers, from_bucket, from_metadata
from connector.catalog.topic_metadata import LedgerInfo, OffloadContext, TopicMetadata
from connector.pulsar_time import milliseconds_of
from connector.topic_name import TopicName
from connector.upkeep.deletability import CLOCK_DIFFERENCE, Deletability
from tests.support.golden import GOLDEN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from arrow_io.format.ledger_metadata import LedgerMetadata
    from connector.catalog.catalog import Catalog

TOPIC: Final = TopicName.parse("small-chunked")
LAST: Final = datetime(2026, 11, 21, 12, 50, tzinfo=UTC)
"""The latest time that the metadata has."""
NEWEST: Final = LAST - CLOCK_DIFFERENCE
"""What was written then may be as new as the metadata."""
TAKEN: Final = LAST + timedelta(days=30)
OLD: Final = NEWEST - timedelta(microseconds=1)
_MINUTE_MS: Final = 60_000
_UUID: Final = UUID(int=7)


@cache
def golden() -> tuple[LedgerCopy, ...]:
    """The golden topic's eight ledgers, 14 … 21, as their cluster wrote them to an object store."""
    contents = read_bucket(Location(str(GOLDEN / "pulsar-4.0.7-small" / "objects")))
    return tuple(named(copy, "pulsar") for copy in contents.copies if copy.topic == TOPIC)


def named(copy: LedgerCopy, cluster: str | None) -> LedgerCopy:
    """The copy, of a cluster of this name."""
    assert copy.ledger is not None
    told = {} if cluster is None else {CLUSTER_NAME_KEY: cluster}
    return replace(copy, ledger=replace(copy.ledger, user_metadata=told))


def changed(copy: LedgerCopy, **of_metadata: Any) -> LedgerCopy:  # noqa: ANN401
    """The copy, with something else in its ledger metadata."""
    assert copy.ledger is not None
    metadata = replace(ledger_metadata(copy), **of_metadata)
    index = replace(copy.ledger.index, ledger_metadata=metadata)
    return replace(copy, ledger=replace(copy.ledger, index=index))


def ledger_metadata(copy: LedgerCopy) -> LedgerMetadata:
    """What its index object says of the ledger."""
    assert copy.ledger is not None
    return copy.ledger.index.ledger_metadata


def under(copy: LedgerCopy, uuid: UUID) -> LedgerCopy:
    """The copy under another uuid."""
    return replace(copy, name=replace(copy.name, uuid=uuid))


def told(copy: LedgerCopy) -> LedgerInfo:
    """What the cluster says of a copy of its own."""
    metadata = ledger_metadata(copy)
    created_ms = metadata.ctime_ms or 0
    return LedgerInfo(
        ledger_id=copy.name.ledger_id,
        entries=metadata.last_entry_id + 1,
        size_bytes=metadata.length_bytes,
        timestamp_ms=created_ms + 1,
        offload=OffloadContext(uuid=copy.name.uuid, complete=True, timestamp_ms=created_ms + 2),
    )


@dataclass
class Scene:
    """A bucket, metadata, and an attempt that nothing needs; tests change one thing of it."""

    subject: LedgerCopy
    own: list[LedgerCopy] = field(default_factory=lambda: list(golden()))
    infos: list[LedgerInfo] | None = field(default_factory=lambda: list(map(told, golden())))
    modified: datetime | None = OLD
    proven_to: int = 2**62
    is_live: bool = False
    is_one_cluster: bool = False
    last: datetime | None = LAST
    listed: Sequence[TopicName] = ()
    others: list[TopicLedgers] = field(default_factory=list)
    attempt_cluster: str | None = "pulsar"

    def deletability(self) -> tuple[Deletability, TopicLedgers]:
        """What is asked, and the topic."""
        copies = [*self.own, self.subject]
        copies.sort(key=lambda copy: copy.name.ledger_id)
        topic = from_bucket(TOPIC, copies)
        if self.infos is not None:
            topic = from_metadata(self._metadata(self.infos), copies, lambda _: None)
        contents = BucketContents(Location("memory://none"), tuple(copies))
        told = None if self.attempt_cluster is None else {CLUSTER_NAME_KEY: self.attempt_cluster}
        catalog = SimpleNamespace(
            contents=contents,
            taken=TAKEN,
            source=SimpleNamespace(is_live=self.is_live, topics=lambda _: list(self.listed)),
            location=contents.location,
            attempt_metadata=lambda _: told,
        )
        topics = [topic, *self.others]
        return (
            Deletability(cast("Catalog", catalog), topics, is_one_cluster=self.is_one_cluster),
            topic,
        )

    def _metadata(self, infos: list[LedgerInfo]) -> TopicMetadata:
        if self.last is None:
            infos = [timeless(info) for info in infos]
        else:
            # An empty ledger behind the others, closed at the latest time.
            last_ms = milliseconds_of(self.last)
            infos = [*infos, LedgerInfo(ledger_id=30, entries=0, timestamp_ms=last_ms)]
        return TopicMetadata(
            topic=TOPIC, ledgers=tuple(infos), proven_to_ledger_id=min(self.proven_to, 30)
        )

    def doubt(self) -> str | None:
        """Why the attempt is kept, if it has an index object."""
        deletability, topic = self.deletability()
        return deletability.doubt_of_copy(topic, self.subject, self.modified)

    def doubt_of_data(self) -> str | None:
        """Why it is kept, if it has none."""
        deletability, topic = self.deletability()
        return deletability.doubt_of_data(topic, self.subject.name, self.modified)

    def doubt_of_upload(self) -> str | None:
        """Why it is kept, if it is an upload."""
        deletability, topic = self.deletability()
        return deletability.doubt_of_upload(topic, self.subject.name, self.modified)


def timeless(info: LedgerInfo) -> LedgerInfo:
    """The ledger without any time."""
    offload = info.offload and replace(info.offload, timestamp_ms=None)
    return replace(info, timestamp_ms=None, offload=offload)


def double() -> Scene:
    """A further copy of ledger 17, which is there as the metadata says."""
    return Scene(under(golden()[3], _UUID))


def orphan() -> Scene:
    """Ledger 17, which the metadata does not have any more."""
    first, subject, behind = golden()[:3], golden()[3], golden()[4:]
    own = [*first, *behind]
    return Scene(subject, own=own, infos=list(map(told, own)))


def of_deleted_topic() -> Scene:
    """Ledger 17 of a topic that a live cluster, which wrote the bucket, does not know."""
    other = TopicName.parse("other")
    own = [replace(copy, topic=other) for copy in (*golden()[:3], *golden()[4:])]
    metadata = TopicMetadata(topic=other, ledgers=tuple(map(told, own)))
    return Scene(
        golden()[3],
        own=[],
        infos=None,
        is_live=True,
        is_one_cluster=True,
        others=[from_metadata(metadata, own, lambda _: None)],
    )


SCENES: Final = (double, orphan, of_deleted_topic)


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
        (_write_time_unknown, "the store does not tell when it was written"),
        (_written_with_the_metadata, "it was written after the metadata, perhaps"),
        (_written_after_the_metadata, "it was written after the metadata, perhaps"),
    ],
)
def test_what_is_not_surely_older_is_kept(
    scene: Callable[[], Scene], change: Callable[[Scene], None], doubt: str
) -> None:
    """An unknown write time, one that is equal, one that is later."""
    changed_scene = scene()
    change(changed_scene)

    assert changed_scene.doubt() == doubt
    assert changed_scene.doubt_of_data() == doubt
    assert changed_scene.doubt_of_upload() == doubt


@pytest.mark.parametrize("scene", [double, orphan])
def test_metadata_without_a_time_is_of_no_age(scene: Callable[[], Scene]) -> None:
    """Nothing is older than it, unless a live cluster tells it now."""
    timeless_scene = scene()
    timeless_scene.last = None

    assert timeless_scene.doubt() == "it was written after the metadata, perhaps"
    timeless_scene.is_live = True
    assert timeless_scene.doubt() is None


@pytest.mark.parametrize("scene", [double, orphan])
def test_times_of_the_future_tell_nothing(scene: Callable[[], Scene]) -> None:
    """A clock that was ahead would let everything look old; the time of the listing is none."""
    ahead = scene()
    ahead.last, ahead.modified = TAKEN, TAKEN - CLOCK_DIFFERENCE - timedelta(microseconds=1)
    assert ahead.doubt() is None
    ahead.last = TAKEN + timedelta(milliseconds=1)
    assert ahead.doubt() == "it was written after the metadata, perhaps"


def _offload_of(scene: Scene, ledger_id: int, **changes: Any) -> None:  # noqa: ANN401
    assert scene.infos is not None
    scene.infos = [
        replace(info, offload=replace(info.offload, **changes))
        if info.ledger_id == ledger_id and info.offload is not None
        else info
        for info in scene.infos
    ]


@pytest.mark.parametrize(
    ("uuid", "complete", "state"),
    [
        (_UUID, True, "complete"),
        (_UUID, False, "under way, or failed"),
        (_UUID, None, "begun"),
    ],
)
def test_attempt_that_the_metadata_names_is_kept(
    uuid: UUID, complete: bool | None, state: str
) -> None:
    """Whatever it says of it."""
    scene = double()
    _offload_of(scene, 17, uuid=uuid, complete=complete)

    for doubt in (scene.doubt(), scene.doubt_of_data(), scene.doubt_of_upload()):
        assert doubt == f"the metadata names it: {state}"


def test_attempt_that_another_answer_names_is_kept() -> None:
    """Two answers that name two attempts disagree, so neither is superfluous."""
    scene = double()
    _offload_of(scene, 17, other_uuids=(UUID(int=8), _UUID))

    assert scene.doubt() == "the metadata names it: another of its answers names another"


@pytest.mark.parametrize("scene", [orphan, of_deleted_topic])
def test_attempt_that_another_topic_names_is_kept(scene: Callable[[], Scene]) -> None:
    """Whatever an index object says of its topic."""
    named_scene = scene()
    other = TopicName.parse("another")
    metadata = TopicMetadata(topic=other, ledgers=(told(named_scene.subject),))
    named_scene.others.append(from_metadata(metadata, (), lambda _: None))

    assert named_scene.doubt() == "the metadata names it: complete"


def test_ledger_behind_the_last_is_kept() -> None:
    """The metadata may be older than the ledger; the last itself is not newer than it."""
    for ledger_id, doubt in (
        (30, None),
        (31, "the ledger is newer than the topic's last in the metadata"),
    ):
        scene = orphan()
        name = replace(scene.subject.name, ledger_id=ledger_id)
        scene.subject = changed(replace(scene.subject, name=name), ctime_ms=None)
        if ledger_id == 30:
            assert scene.infos is not None
            scene.infos.append(LedgerInfo(ledger_id=29, entries=0))
            scene.subject = replace(scene.subject, name=replace(name, ledger_id=28))
        assert scene.doubt() == doubt


def test_attempt_of_a_ledger_that_nothing_else_tells_of_is_deletable() -> None:
    """Not the metadata, nor a copy in the bucket: it is what a trimmed ledger left behind."""
    deletability, topic = orphan().deletability()
    name = LedgerObjectName(_UUID, 28)

    assert deletability.doubt_of_data(topic, name, OLD) is None
    assert deletability.doubt_of_upload(topic, name, OLD) is None


def test_topic_without_ledgers_deletes_none() -> None:
    """Metadata of no ledgers is older than any."""
    scene = orphan()
    scene.infos, scene.is_live, scene.last = [], True, None

    assert scene.doubt() == "the ledger is newer than the topic's last in the metadata"


@pytest.mark.parametrize("scene", [double, orphan])
@pytest.mark.parametrize("proven_to", [-1, 16])
def test_metadata_that_is_not_proven_whole_deletes_nothing(
    scene: Callable[[], Scene], proven_to: int
) -> None:
    """Not behind the ledger up to which it is proven."""
    unproven = scene()
    unproven.proven_to = proven_to

    for doubt in (unproven.doubt(), unproven.doubt_of_data(), unproven.doubt_of_upload()):
        assert doubt is not None
        assert doubt.startswith("nothing proves that the metadata is whole")
    unproven.proven_to = 17
    assert unproven.doubt() is None


def test_copy_is_kept_where_none_that_is_named_can_be_read() -> None:
    """It may be the only one left."""
    kept = "no copy that the metadata names can be read in its place"
    scene = double()
    scene.own.remove(golden()[3])
    assert scene.doubt() == kept
    assert scene.doubt_of_data() == kept
    assert scene.doubt_of_upload() == kept


def test_copy_is_kept_where_no_uuid_is_told() -> None:
    """Which of two copies counts is not known."""
    scene = double()
    _offload_of(scene, 17, uuid=None)

    assert scene.doubt() == "the metadata does not tell which copy counts"


@pytest.mark.parametrize("is_one_cluster", [True, False])
def test_topic_must_show_itself_that_its_cluster_wrote_the_bucket(*, is_one_cluster: bool) -> None:
    """A ledger that is there as the metadata says, uuid and all; a guess is no witness."""
    kept = "no ledger of the topic shows that the metadata is of the cluster that wrote the bucket"
    scene = orphan()
    scene.is_one_cluster = is_one_cluster
    for info in scene.infos or ():
        if info.ledger_id != 14:
            _offload_of(scene, info.ledger_id, uuid=None)
    assert scene.doubt() is None
    _offload_of(scene, 14, uuid=None)
    assert scene.doubt() == kept
    assert scene.doubt_of_data() == kept
    assert scene.doubt_of_upload() == kept


def test_copies_that_cannot_be_read_are_no_witnesses() -> None:
    """Names alone are told by metadata of any cluster."""
    scene = orphan()
    scene.own = [replace(copy, data=None, ledger=None, error=ValueError()) for copy in scene.own]  # type: ignore[arg-type]

    doubt = scene.doubt()

    assert doubt is not None
    assert doubt.startswith("no ledger of the topic shows")


@pytest.mark.parametrize("scene", SCENES)
def test_another_cluster_keeps_what_is_its(scene: Callable[[], Scene]) -> None:
    """Its name is told by the user metadata, and no word of the user's counts against it."""
    foreign = scene()
    foreign.is_one_cluster = True
    foreign.subject = named(foreign.subject, "other")
    foreign.attempt_cluster = "other"

    assert foreign.doubt() == "it is another cluster's"
    assert foreign.doubt_of_data() == "it is another cluster's"


def test_upload_is_kept_where_clusters_share_the_bucket() -> None:
    """It tells of none."""
    scene = double()
    scene.own.append(named(under(golden()[0], UUID(int=99)), "other"))

    doubt = scene.doubt_of_upload()

    assert doubt == "ledgers of several clusters lie in the bucket, and an upload tells of none"


@pytest.mark.parametrize("scene", [double, orphan])
@pytest.mark.parametrize("whose", ["subject", "own"])
def test_what_tells_no_cluster_is_kept_unless_there_is_one(
    scene: Callable[[], Scene], whose: str
) -> None:
    """As in a folder; the user may say so."""
    unnamed = scene()
    if whose == "subject":
        unnamed.subject, unnamed.attempt_cluster = named(unnamed.subject, None), None
    else:
        unnamed.own = [named(copy, None) for copy in unnamed.own]

    assert unnamed.doubt() == "nothing tells which cluster wrote it"
    assert unnamed.doubt_of_data() == "nothing tells which cluster wrote it"
    unnamed.is_one_cluster = True
    assert unnamed.doubt() is None
    assert unnamed.doubt_of_data() is None


def _in_other_bookies(copy: LedgerCopy) -> LedgerCopy:
    segment = replace(ledger_metadata(copy).segments[0], ensemble_members=("bookie-b:3181",))
    return changed(copy, segments=(segment,))


def _created(by_ms: int) -> Callable[[LedgerCopy], LedgerCopy]:
    return lambda copy: changed(copy, ctime_ms=(ledger_metadata(copy).ctime_ms or 0) + by_ms)


_DAY_MS: Final = 86_400_000


@pytest.mark.parametrize("scene", [orphan, of_deleted_topic])
@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        (_in_other_bookies, "it was in bookies that no ledger of the cluster was in"),
        (_created(-_DAY_MS), "its ledger was not created between those before and behind it"),
        (_created(_DAY_MS), "its ledger was not created between those before and behind it"),
    ],
    ids=["bookies", "created before", "created later"],
)
def test_cluster_of_the_same_name_keeps_what_is_its(
    scene: Callable[[], Scene], change: Callable[[LedgerCopy], LedgerCopy], doubt: str
) -> None:
    """Bookies are of one cluster, and ids are given out in the order of time."""
    foreign = scene()
    foreign.is_one_cluster = True
    foreign.subject = change(foreign.subject)

    assert foreign.doubt() == doubt


@pytest.mark.parametrize(
    "change",
    [_in_other_bookies, _created(1), _created(-1)],
    ids=["bookies", "created later", "created before"],
)
def test_double_is_of_the_very_ledger(change: Callable[[LedgerCopy], LedgerCopy]) -> None:
    """BookKeeper's metadata of a ledger is copied with each attempt, so it is the same."""
    scene = double()
    scene.is_one_cluster = True
    scene.subject = change(scene.subject)

    told_doubt = "it is of another ledger than the copy that counts: another cluster's, perhaps"
    assert scene.doubt() == told_doubt


@pytest.mark.parametrize("by_ms", [-_MINUTE_MS, _MINUTE_MS])
def test_clocks_of_brokers_may_be_a_minute_apart(by_ms: int) -> None:
    """What one broker noted before another is not of another cluster."""
    scene = orphan()
    neighbour = ledger_metadata(golden()[2 if by_ms < 0 else 4]).ctime_ms or 0
    if by_ms < 0:
        # The closing of the ledger before it is noted later than its creation.
        neighbour += 1
    scene.subject = changed(scene.subject, ctime_ms=neighbour + by_ms)
    assert scene.doubt() is None
    scene.subject = changed(scene.subject, ctime_ms=neighbour + by_ms + (by_ms // _MINUTE_MS))
    assert scene.doubt() is not None


def test_trimmed_ledger_was_not_created_behind_the_first() -> None:
    """Nor one between the last ledger that is there and one that was closed later."""
    for at, by_ms in ((0, _DAY_MS), (7, -_DAY_MS)):
        subject = golden()[at]
        own = [copy for copy in golden() if copy is not subject]
        scene = Scene(subject, own=own, infos=list(map(told, own)))
        assert scene.doubt() is None
        scene.subject = _created(by_ms)(subject)
        assert scene.doubt() == "its ledger was not created between those before and behind it"


def test_times_of_messages_are_no_times_of_closing() -> None:
    """Who wrote a topic without a broker noted those, and they may be years older."""
    scene = orphan()
    scene.infos = [replace(info, timestamp_ms=1) for info in scene.infos or ()]

    assert scene.doubt() is None


def test_what_tells_nothing_is_kept_beside_a_stranger() -> None:
    """A data object alone, an upload, and an index object that cannot be read."""
    for subject in (double().subject, orphan().subject):
        scene = double() if subject.name.uuid == _UUID else orphan()
        scene.own.append(_in_other_bookies(under(golden()[0], UUID(int=99))))
        several = "ledgers of several clusters lie in the bucket, perhaps, and it tells of none"
        assert scene.doubt() is None
        assert scene.doubt_of_data() == several
        assert scene.doubt_of_upload() == several


def test_bookie_of_what_was_written_offline_is_none() -> None:
    """It stands in what no bookie ever had, so it is no sign of one cluster or of two."""
    (segment,) = ledger_metadata(golden()[3]).segments
    segment = replace(segment, ensemble_members=("127.0.0.1:3181",))
    scene = of_deleted_topic()
    scene.subject = named(changed(scene.subject, segments=(segment,)), None)

    assert scene.doubt() == "it was in bookies that no ledger of the cluster was in"
    scene.others = [
        replace(
            scene.others[0],
            states=tuple(
                replace(state, copy=state.copy and changed(state.copy, segments=(segment,)))
                for state in scene.others[0].states
            ),
        )
    ]
    assert scene.doubt() == "nothing tells which cluster wrote it"


def test_deleted_topic_is_the_users_word_and_the_clusters() -> None:
    """That there is one cluster, which is asked now, and which does not list the topic."""
    for changes, doubt in (
        ({"is_one_cluster": False}, "the topic may be another cluster's"),
        (
            {"is_live": False},
            "the metadata may not be of all topics: only a live cluster knows each of its own",
        ),
        ({"listed": (TOPIC,)}, "the cluster lists the topic"),
        (
            {"others": []},
            "no ledger shows that the metadata is of the cluster that wrote the bucket",
        ),
    ):
        scene = replace(of_deleted_topic(), **changes)
        assert scene.doubt() == doubt
        assert scene.doubt_of_data() == doubt


def test_bookies_vouch_for_a_deleted_topic_that_tells_no_cluster() -> None:
    """As in a folder; a data object alone has none, so it is kept."""
    scene = of_deleted_topic()
    scene.subject, scene.attempt_cluster = named(scene.subject, None), None

    assert scene.doubt() is None
    assert scene.doubt_of_data() == "nothing tells which cluster wrote it"
