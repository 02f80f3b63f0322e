"""`connector.upkeep.audit.cluster_evidence`: what may be another cluster's is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final
from uuid import UUID

import pytest

from arrow_io.errors import MissingObjectError
from connector.catalog.kinds.offloaded_copy import OffloadedCopy
from connector.catalog.metadata.topic_metadata import LedgerInfo, TopicMetadata
from connector.catalog.topic_ledgers import TopicLedgers, from_metadata
from connector.inputs.topic_names import TopicName
from tests.support.deletion_scenes import (
    OTHER_UUID,
    SCENES,
    TOPIC,
    Scene,
    Store,
    change_offload,
    changed,
    double,
    golden,
    ledger_metadata,
    named,
    of_deleted_topic,
    orphan,
    told,
    under,
    unreadable,
)

if TYPE_CHECKING:
    from collections.abc import Callable


_MINUTE_MS: Final = 60_000


@pytest.mark.parametrize("is_one_cluster", [True, False])
def test_topic_must_show_itself_that_its_cluster_wrote_the_bucket(*, is_one_cluster: bool) -> None:
    """A ledger that is there as the metadata says, uuid and all; a guess is no witness."""
    kept = "no ledger of the topic shows that the metadata is of the cluster that wrote the bucket"
    scene = orphan()
    scene.is_one_cluster = is_one_cluster
    for info in scene.infos or ():
        if info.ledger_id != 15:
            change_offload(scene, info.ledger_id, uuid=None)
    assert scene.doubt() is None
    # What other topics show is of them.
    scene.others.append(_other_topic())
    change_offload(scene, 15, uuid=None)
    assert scene.doubts() == [kept] * 3


def test_copies_that_cannot_be_read_are_no_witnesses() -> None:
    """Names alone are told by metadata of any cluster."""
    scene = orphan()
    scene.own = [
        replace(copy, data=None, ledger=None, error=MissingObjectError("gone"))
        for copy in scene.own
    ]

    assert (scene.doubt() or "").startswith("no ledger of the topic shows")
    scene.subject = unreadable(scene.subject)
    for doubt in scene.doubts():
        assert (doubt or "").startswith("no ledger of the topic shows")


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

    assert doubt == "the bucket has ledgers of several clusters, and an upload names none"


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

    assert unnamed.doubt() == "nothing says which cluster wrote it"
    assert unnamed.doubt_of_data() == "nothing says which cluster wrote it"
    unnamed.is_one_cluster = True
    assert unnamed.doubt() is None
    assert unnamed.doubt_of_data() is None


@pytest.mark.parametrize("scene", SCENES)
def test_unreadable_index_object_is_judged_by_what_the_store_keeps_with_it(
    scene: Callable[[], Scene],
) -> None:
    """It tells no bookies and no time; of a topic that the cluster lacks, its name is enough."""
    damaged = scene()
    damaged.subject = unreadable(damaged.subject)
    assert damaged.doubt() == (
        None
        if damaged.is_one_cluster and damaged.infos is not None
        else "nothing says which cluster wrote it"
    )
    damaged.store.clusters[damaged.subject.name.index_name] = "other"
    assert damaged.doubt() == "it is another cluster's"
    damaged.store.clusters[damaged.subject.name.index_name] = "pulsar"
    assert damaged.doubt() is None


@pytest.mark.parametrize("scene", [double, orphan])
def test_name_that_only_a_request_tells_is_asked_for_once(scene: Callable[[], Scene]) -> None:
    """Some stores give no user metadata with an object; each further request costs money."""
    asked = scene()
    store = Store()
    asked.own = [store.keeps(copy, "pulsar") for copy in asked.own]
    for cluster, doubt in (("pulsar", None), ("other", "it is another cluster's")):
        store.asked.clear()
        asked.subject = store.keeps(asked.subject, cluster)
        deletability, topic = asked.deletability()
        for _ in range(2):
            assert deletability.doubt_of_copy(topic, asked.subject, asked.modified) == doubt
        names = {asked.subject.name.index_name, asked.own[-1].name.index_name}
        assert sorted(store.asked) == sorted(names)


def _in_other_bookies(copy: OffloadedCopy) -> OffloadedCopy:
    segment = replace(ledger_metadata(copy).segments[0], ensemble_members=("bookie-b:3181",))
    return changed(copy, segments=(segment,))


def _created(by_ms: int) -> Callable[[OffloadedCopy], OffloadedCopy]:
    return lambda copy: changed(copy, ctime_ms=(ledger_metadata(copy).ctime_ms or 0) + by_ms)


_DAY_MS: Final = 86_400_000


def _other_topic() -> TopicLedgers:
    """A topic of the cluster, whose only ledger is 13, created a minute before ledger 14."""
    first = golden()[0]
    copy = replace(first, topic=TopicName.parse("before"), name=replace(first.name, ledger_id=13))
    copy = changed(copy, ctime_ms=(ledger_metadata(first).ctime_ms or 0) - _MINUTE_MS)
    info = told(copy)
    metadata = TopicMetadata(topic=TopicName.parse("before"), ledgers=(info,))
    return from_metadata(metadata, [copy], lambda _: None)


@pytest.mark.parametrize("scene", [orphan, of_deleted_topic])
@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        (_in_other_bookies, "it was stored on bookies that no ledger of the cluster used"),
        (_created(-_DAY_MS), "its ledger was not created between the previous and the next ledger"),
        (_created(_DAY_MS), "its ledger was not created between the previous and the next ledger"),
    ],
    ids=["bookies", "created before", "created later"],
)
def test_cluster_of_the_same_name_keeps_what_is_its(
    scene: Callable[[], Scene], change: Callable[[OffloadedCopy], OffloadedCopy], doubt: str
) -> None:
    """Bookies are of one cluster, and ids are given out in the order of time."""
    foreign = scene()
    foreign.is_one_cluster = True
    foreign.others.append(_other_topic())
    foreign.subject = change(foreign.subject)

    assert foreign.doubt() == doubt


@pytest.mark.parametrize(
    "change",
    [_in_other_bookies, _created(1), _created(-1)],
    ids=["bookies", "created later", "created before"],
)
def test_double_is_of_the_very_ledger(change: Callable[[OffloadedCopy], OffloadedCopy]) -> None:
    """BookKeeper's metadata of a ledger is copied with each attempt, so it is the same."""
    scene = double()
    scene.is_one_cluster = True
    scene.subject = change(scene.subject)

    told_doubt = "it is of another ledger than the copy that counts, perhaps another cluster's"
    assert scene.doubt() == told_doubt


@pytest.mark.parametrize("by_ms", [-_MINUTE_MS, _MINUTE_MS])
def test_clocks_of_brokers_may_be_a_minute_apart(by_ms: int) -> None:
    """What one broker noted before another is not of another cluster."""
    scene = orphan()
    scene.others.append(_other_topic())
    neighbour = ledger_metadata(golden()[1]).ctime_ms or 0
    if by_ms < 0:
        neighbour = (ledger_metadata(golden()[0]).ctime_ms or 0) - _MINUTE_MS
    scene.subject = changed(scene.subject, ctime_ms=neighbour + by_ms)
    assert scene.doubt() is None
    scene.subject = changed(scene.subject, ctime_ms=neighbour + by_ms + (by_ms // _MINUTE_MS))
    assert scene.doubt() is not None


def test_trimmed_ledger_was_not_created_behind_the_first() -> None:
    """BookKeeper gives out ids in the order of time."""
    scene = orphan()
    scene.subject = _created(_DAY_MS)(scene.subject)
    assert scene.doubt() == "its ledger was not created between the previous and the next ledger"


def test_one_ledger_behind_is_enough() -> None:
    """If it tells when it was created, and nothing else tells any time."""
    subject, witness = golden()[1:3]
    infos = [told(witness), LedgerInfo(ledger_id=30, entries=0)]
    scene = Scene(subject, own=[witness], infos=infos, is_live=True, last=None)
    assert scene.doubt() is None
    scene.subject = _created(_DAY_MS)(subject)
    assert scene.doubt() == "its ledger was not created between the previous and the next ledger"


@pytest.mark.parametrize("whose", ["subject", "own"])
def test_ledger_that_does_not_tell_when_it_was_created_speaks_against_none(whose: str) -> None:
    """Older releases of BookKeeper did not note it."""
    scene = orphan()
    if whose == "subject":
        scene.subject = changed(scene.subject, ctime_ms=None)
    else:
        scene.own = [changed(copy, ctime_ms=None) for copy in scene.own]

    assert scene.doubt() is None


def test_times_of_closing_tell_where_ledgers_do_not_tell_when_they_were_created() -> None:
    """The metadata has them, of the topic alone."""
    scene = orphan()
    scene.own = [changed(copy, ctime_ms=None) for copy in scene.own]
    scene.subject = _created(_DAY_MS)(scene.subject)

    assert scene.doubt() == "its ledger was not created between the previous and the next ledger"


def test_times_of_messages_are_no_times_of_closing() -> None:
    """Who wrote a topic without a broker noted those, and they may be years older."""
    scene = orphan()
    scene.infos = [replace(info, timestamp_ms=1) for info in scene.infos or ()]

    assert scene.doubt() is None


def test_what_tells_nothing_is_kept_beside_a_stranger() -> None:
    """A data object alone, an upload, and an index object that cannot be read."""
    for subject in (double().subject, orphan().subject):
        scene = double() if subject.name.uuid == OTHER_UUID else orphan()
        scene.own.append(_in_other_bookies(under(golden()[0], UUID(int=99))))
        several = (
            "the bucket may hold ledgers of several clusters, and nothing says which wrote this one"
        )
        assert scene.doubt() is None
        assert scene.doubt_of_data() == several
        assert scene.doubt_of_upload() == several
        scene.subject = unreadable(subject)
        scene.store.clusters[subject.name.index_name] = "pulsar"
        assert scene.doubt() == several


def test_bookie_of_what_was_written_offline_is_none() -> None:
    """It stands in what no bookie ever had, so it is no sign of one cluster or of two."""
    (segment,) = ledger_metadata(golden()[3]).segments
    segment = replace(segment, ensemble_members=("127.0.0.1:3181",))
    scene = of_deleted_topic()
    scene.subject = named(changed(scene.subject, segments=(segment,)), None)

    told_doubt = "it names no bookie, unlike the cluster's ledgers"
    assert scene.doubt() == told_doubt
    scene.others = [
        replace(
            scene.others[0],
            states=tuple(
                replace(state, copy=changed(state.copy, segments=(segment,)))
                for state in scene.others[0].states
                if isinstance(state.copy, OffloadedCopy)
            ),
        )
    ]
    assert scene.doubt() == "nothing says which cluster wrote it"


def test_deleted_topic_is_the_users_word_and_the_clusters() -> None:
    """That there is one cluster, which is asked now, and which does not list the topic."""
    for changes, doubt in (
        ({"is_one_cluster": False}, "the topic may be another cluster's"),
        (
            {"is_live": False},
            "saved metadata may lack topics; only a live cluster can say that one was deleted",
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
    assert scene.doubt_of_data() == "nothing says which cluster wrote it"


def _of_lookalike(scene: Scene) -> None:
    """A ledger between those of the topic, as a cluster of the same names would write it."""
    ledger = golden()[3]
    scene.own = [copy for copy in scene.own if copy is not ledger]
    assert scene.infos is not None
    scene.infos = [info for info in scene.infos if info.ledger_id != ledger.name.ledger_id]
    scene.own.append(ledger)


def test_ledger_between_those_of_the_metadata_is_kept() -> None:
    """Brokers trim from the front only: the metadata is damaged, or there is another cluster."""
    subject = golden()[3]
    own = [copy for copy in golden() if copy is not subject]
    scene = Scene(subject, own=own, infos=list(map(told, own)), is_one_cluster=True)

    assert scene.doubts() == ["the metadata has earlier and later ledgers, but not this one"] * 3


@pytest.mark.parametrize("is_one_cluster", [True, False])
def test_trimmed_ledger_is_kept_beside_a_cluster_of_the_same_names(*, is_one_cluster: bool) -> None:
    """One ledger that ids or times give away makes all doubtful but copies of the cluster's own."""
    scene = orphan()
    scene.is_one_cluster = is_one_cluster
    assert scene.doubt() is None
    _of_lookalike(scene)
    kept = "another cluster of the same name and bookies seems to write into the bucket too"
    assert scene.doubt() == kept
    twice = under(golden()[5], OTHER_UUID)
    assert replace(scene, subject=twice, own=[*scene.own, golden()[0]]).doubt() is None


def test_ledger_whose_bookies_changed_shows_no_other_cluster() -> None:
    """An offload that is repeated after a bookie was replaced copies other ledger metadata."""
    scene = orphan()
    scene.own.append(_in_other_bookies(under(golden()[3], OTHER_UUID)))

    assert scene.doubt() is None
