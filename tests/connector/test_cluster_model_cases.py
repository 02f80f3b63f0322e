"""Sequences of what clusters did that once led to lost rows or to the loss of needed objects.

Each is short enough to be read; `test_cluster_model` finds such sequences by itself.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

from connector.upkeep.audit.findings import FindingKind
from tests.support.admin_server import running_admin_server
from tests.support.cluster_model import (
    DAY_MS,
    HOUR_MS,
    ModelLedger,
    ModelTopic,
    ModelWorld,
    Owner,
    Stage,
)
from tests.support.model_checks import (
    audited,
    check_audit,
    check_cleaning,
    check_reading,
    opened,
    read,
)
from tests.support.offline_topics import save_folder, write_offline
from tests.support.saved_metadata import (
    FORMS,
    Damage,
    Form,
    Layout,
    SavedMetadata,
    ask_live,
    save,
    save_snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

ORDERS: Final = "persistent://public/default/orders"
SHOP: Final = "persistent://public/default/shop"
BEFORE_CUT: Final = "persistent://a/b/c__d"
BEHIND_CUT: Final = "persistent://a/b__c/d"
"""Folders named by tenant, namespace and topic have one name for these two."""


@pytest.fixture
def world() -> Iterator[ModelWorld]:
    """A bucket, and a cluster that uses it."""
    world = ModelWorld()
    yield world
    world.drop()


def grow(world: ModelWorld, topic: ModelTopic, ledger_count: int = 1) -> list[ModelLedger]:
    """Fill, close and offload ledgers, a day each."""
    filled = topic.ledgers[-1:]
    for _ in range(ledger_count):
        world.produce(topic, 2)
        world.roll(topic)
        world.offload(topic.ledgers[-2])
        world.tick(DAY_MS)
        filled.append(topic.ledgers[-1])
    world.end_step()
    return filled[:-1]


def saved_later(
    world: ModelWorld, topic: ModelTopic, forms: tuple[Form, ...] = FORMS[-1]
) -> SavedMetadata:
    """Metadata that is surely newer than all that lies in the bucket, but for what comes last."""
    world.tick(DAY_MS)
    grow(world, topic)
    return save(world, topic.ledgers[-1].owner, forms)


@pytest.mark.parametrize("forms", FORMS)
@pytest.mark.parametrize("layout", [Layout.MAPPING, Layout.LISTED, Layout.NESTED])
def test_ledger_that_was_open(world: ModelWorld, forms: tuple[Form, ...], layout: Layout) -> None:
    """What was offloaded since the metadata was saved is told, and its only copy is no double."""
    topic = world.create(world.first, ORDERS)
    grow(world, topic, 2)
    world.produce(topic)
    files = save(world, world.first, forms, layout=layout)
    snapshot = save_snapshot(world, files)
    grow(world, topic)

    for older in (files, snapshot):
        check_reading(world, older)
        check_cleaning(world, older, is_one_cluster=True)


@pytest.mark.parametrize("forms", FORMS)
def test_ledger_that_was_being_offloaded(world: ModelWorld, forms: tuple[Form, ...]) -> None:
    """An offload that had failed, and was done since under another uuid, is told."""
    topic = world.create(world.first, ORDERS)
    grow(world, topic)
    world.produce(topic)
    world.roll(topic)
    world.fail_offload(world.begin_offload(topic.ledgers[-2]))
    world.end_step()
    older = save(world, world.first, forms)
    world.tick(DAY_MS)
    world.offload(topic.ledgers[-2])
    world.end_step()

    check_reading(world, older)
    check_cleaning(world, older, is_one_cluster=True)


def test_ledger_that_was_passed_over(world: ModelWorld) -> None:
    """One that is only in BookKeeper, with an offloaded one behind it, is an error and a gap."""
    topic = world.create(world.first, ORDERS)
    world.produce(topic)
    world.roll(topic)
    grow(world, topic)

    saved = save(world, world.first, FORMS[-1])

    check_reading(world, saved)
    found = check_audit(world, saved, is_one_cluster=True)
    assert found is not None
    assert [each.kind for each in found.findings] == [FindingKind.GAP]


def test_appended_without_the_folder(world: ModelWorld) -> None:
    """Whoever reads by the metadata folder is told of what was appended without it."""
    writer = world.add_owner(Owner("writer", cluster=None))
    assert write_offline(world, writer, SHOP, 3, append=False, with_folder=True)
    assert write_offline(world, writer, SHOP, 3, append=True, with_folder=False)
    world.end_step()

    folder = save_folder(world, writer)

    check_reading(world, folder)
    check_cleaning(world, folder, is_one_cluster=True)


def test_appended_with_the_folder(world: ModelWorld) -> None:
    """The folder has then what was written first and what was appended, and all of it is read."""
    writer = world.add_owner(Owner("writer", cluster=None))
    assert write_offline(world, writer, SHOP, 3, append=False, with_folder=True)
    world.end_step()
    older = save_folder(world, writer)
    world.tick(DAY_MS)
    assert write_offline(world, writer, SHOP, 3, append=True, with_folder=True)
    world.end_step()

    folder = save_folder(world, writer)

    check_reading(world, folder)
    check_reading(world, older)
    rows = read(opened(world, folder), SHOP, salvage=False).rows
    assert sum(map(len, rows.values())) == 6
    check_cleaning(world, older, is_one_cluster=True)
    assert check_cleaning(world, folder, is_one_cluster=True) == []


def test_appended_without_the_folder_and_then_with_it(world: ModelWorld) -> None:
    """What the folder never knew of is told, whatever came behind it, and never deleted."""
    writer = world.add_owner(Owner("writer", cluster=None))
    assert write_offline(world, writer, SHOP, 3, append=False, with_folder=True)
    assert write_offline(world, writer, SHOP, 3, append=True, with_folder=False)
    world.end_step()
    for _ in range(2):
        world.tick(10 * DAY_MS)
        write_offline(world, writer, SHOP, 3, append=True, with_folder=True)
        world.end_step()

    folder = save_folder(world, writer)

    check_reading(world, folder)
    check_cleaning(world, folder, is_one_cluster=True)


@pytest.mark.parametrize("forms", FORMS)
def test_folder_whose_name_can_be_cut_in_two_ways(
    world: ModelWorld, forms: tuple[Form, ...]
) -> None:
    """What is known of one topic makes nothing of another deletable."""
    orders, before = world.create(world.first, ORDERS), world.create(world.first, BEFORE_CUT)
    grow(world, orders, 2)
    grow(world, before, 2)
    grow(world, world.create(world.first, BEHIND_CUT), 2)
    grow(world, orders, 2)

    saved = save(world, world.first, forms, layout=Layout.JOINED)

    check_reading(world, saved)
    check_cleaning(world, saved, is_one_cluster=True)


@pytest.mark.parametrize("forms", [(Form.VALUE,), (Form.INFO,), (Form.VALUE, Form.INFO)])
def test_metadata_that_is_cut(world: ModelWorld, forms: tuple[Form, ...]) -> None:
    """Cut anywhere, it makes nothing deletable that is needed."""
    # Brokers write ledgers in the order of a Java HashMap, here the last ones first.
    world.first.next_id = 62
    topic = world.create(world.first, ORDERS)
    grow(world, topic, 4)
    whole = save(world, world.first, forms)
    length = len(whole.files[ORDERS, Form.VALUE.file if Form.VALUE in forms else forms[0].file])

    for place in range(0, length, 1 + length // 100):
        damaged = save(world, world.first, forms, damage=Damage(place / length), damaged=1)
        check_audit(world, damaged, is_one_cluster=True)
        if place % 3 == 0:
            check_reading(world, damaged)


@pytest.mark.parametrize("forms", [(Form.VALUE,), (Form.INFO,), (Form.VALUE, Form.INFO)])
def test_metadata_with_a_wrong_bit(world: ModelWorld, forms: tuple[Form, ...]) -> None:
    """Wherever one bit is wrong, it makes nothing deletable that is needed."""
    topic = world.create(world.first, ORDERS)
    grow(world, topic, 3)
    whole = save(world, world.first, forms)
    file = Form.VALUE.file if Form.VALUE in forms else forms[0].file
    length = len(whole.files[ORDERS, file])

    for place in range(0, length, 1 + length // 200):
        damage = Damage((place + 0.5) / length, bit=place % 8)
        damaged = save(world, world.first, forms, damage=damage, damaged=1)
        check_audit(world, damaged, is_one_cluster=True)


@pytest.mark.parametrize("names", [("pulsar", "pulsar"), ("a", "b"), ("a", None), (None, None)])
@pytest.mark.parametrize("bookie", ["bookie-b:3181", "bookie-a:3181", "127.0.0.1:3181"])
@pytest.mark.parametrize("next_ids", [(0, 0), (0, 2), (0, 50), (10, 0)])
def test_two_clusters(
    world: ModelWorld,
    names: tuple[str | None, str | None],
    bookie: str,
    next_ids: tuple[int, int],
) -> None:
    """What another cluster wrote under the same topic is kept, whatever tells them apart."""
    world.first.cluster, world.first.next_id = names[0], next_ids[0]
    second = world.add_owner(Owner("second", names[1], bookie, next_ids[1]))
    theirs = world.create(second, ORDERS)
    grow(world, theirs, 3)
    topic = world.create(world.first, ORDERS)
    grow(world, topic, 4)
    for stage in (Stage.UPLOAD, Stage.DATA):
        world.produce(theirs)
        world.roll(theirs)
        world.begin_offload(theirs.ledgers[-2], stage)

    saved = saved_later(world, topic)

    check_reading(world, saved)
    check_cleaning(world, saved, is_one_cluster=False)


@pytest.mark.parametrize("stage", [Stage.UPLOAD, Stage.DATA])
@pytest.mark.parametrize("bookie", ["bookie-b:3181", "bookie-a:3181"])
@pytest.mark.parametrize(
    "names", [("pulsar", "pulsar"), ("a", "b"), ("b", "a"), ("a", None), (None, None)]
)
def test_offload_of_another_cluster(
    world: ModelWorld, names: tuple[str | None, str | None], bookie: str, stage: Stage
) -> None:
    """An offload that another cluster has under way is kept, a whole ledger of it beside it."""
    world.first.cluster, world.first.next_id = names[0], 1
    second = world.add_owner(Owner("second", names[1], bookie))
    theirs = world.create(second, ORDERS)
    grow(world, theirs)
    world.produce(theirs)
    world.roll(theirs)
    topic = world.create(world.first, ORDERS)
    grow(world, topic, 4)
    world.begin_offload(theirs.ledgers[-2], stage)

    saved = saved_later(world, topic)

    check_cleaning(world, saved, is_one_cluster=False)


def test_topic_that_is_in_bookkeeper_only(world: ModelWorld) -> None:
    """That another topic of the cluster is in the bucket tells nothing of who wrote this one."""
    second = world.add_owner(Owner("second", "pulsar", world.first.bookie))
    grow(world, world.create(second, SHOP), 3)
    world.first.next_id = 10
    topic, shop = world.create(world.first, ORDERS), world.create(world.first, SHOP)
    grow(world, topic, 3)
    world.produce(shop)
    world.roll(shop)
    grow(world, topic, 1)

    saved = saved_later(world, topic)

    check_reading(world, saved)
    check_cleaning(world, saved, is_one_cluster=False)


@pytest.mark.parametrize("is_early", [True, False])
def test_two_clusters_on_one_machine(world: ModelWorld, *, is_early: bool) -> None:
    """Bookies of one name tell no clusters apart; the order in which ledgers were made does."""
    second = world.add_owner(Owner("second", "pulsar", world.first.bookie, next_id=20))
    if is_early:
        grow(world, world.create(second, ORDERS), 2)
    world.first.next_id = 10
    topic = world.create(world.first, ORDERS)
    grow(world, topic, 2)
    world.first.next_id = 30
    grow(world, topic, 2)
    if not is_early:
        grow(world, world.create(second, ORDERS), 2)

    saved = saved_later(world, topic)

    check_reading(world, saved)
    check_cleaning(world, saved, is_one_cluster=False)


def test_cluster_that_has_no_ledger_here(world: ModelWorld) -> None:
    """Metadata of a cluster that offloads elsewhere makes nothing here deletable."""
    topic = world.create(world.first, ORDERS)
    grow(world, topic, 3)
    second = world.add_owner(Owner("second", "pulsar", "bookie-b:3181", 1, offloads_here=False))
    theirs = world.create(second, ORDERS)
    grow(world, theirs, 4)
    world.tick(DAY_MS)

    for forms in FORMS:
        check_cleaning(world, save(world, second, forms), is_one_cluster=False)


@pytest.mark.parametrize(("index", "data"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("forms", FORMS)
def test_last_copy_of_a_ledger(
    world: ModelWorld, forms: tuple[Form, ...], *, index: bool, data: bool
) -> None:
    """Where the copy that counts is lost, another one is kept, by which it can be mended."""
    topic = world.create(world.first, ORDERS)
    first, _ = grow(world, topic, 2)
    world.tick(DAY_MS)
    world.offload_again(first)
    world.lose(first, index=index, data=data)

    saved = saved_later(world, topic, forms)

    check_reading(world, saved)
    check_cleaning(world, saved, is_one_cluster=True)


def test_topic_that_a_live_cluster_does_not_have(world: ModelWorld) -> None:
    """It may be another's of the same name, unless the user says that there is one cluster."""
    topic = world.create(world.first, ORDERS)
    grow(world, topic, 3)
    second = world.add_owner(Owner("second", "pulsar", world.first.bookie, next_id=50))
    theirs = world.create(second, SHOP)
    grow(world, theirs, 3)

    with running_admin_server() as server:
        live = ask_live(world, world.first, server)
        check_reading(world, live)
        assert check_cleaning(world, live, is_one_cluster=False) == []
        world.delete_topic(theirs, remove=False)
        world.end_step()
        live = ask_live(world, world.first, server)
        assert len(check_cleaning(world, live, is_one_cluster=True)) == 6


def test_topic_that_was_written_beside_a_live_cluster(world: ModelWorld) -> None:
    """What tells no cluster and was in no bookie of this one is none of its deleted topics."""
    world.first.next_id = 10
    grow(world, world.create(world.first, ORDERS), 3)
    writer = world.add_owner(Owner("writer", cluster=None, bookie="127.0.0.1:3181"))
    theirs = world.create(writer, SHOP)
    grow(world, theirs, 2)
    world.tick(DAY_MS)

    with running_admin_server() as server:
        live = ask_live(world, world.first, server)
        check_reading(world, live)
        assert check_cleaning(world, live, is_one_cluster=True) == []


@pytest.mark.parametrize("stage", [Stage.UPLOAD, Stage.DATA, Stage.COMPLETE])
def test_ledger_that_is_newer_than_the_last_of_a_live_cluster(
    world: ModelWorld, stage: Stage
) -> None:
    """A cluster has given out no such id yet, so another one did, and needs it."""
    topic = world.create(world.first, ORDERS)
    grow(world, topic, 3)
    second = world.add_owner(Owner("second", "pulsar", world.first.bookie, next_id=50))
    theirs = world.create(second, ORDERS)
    world.produce(theirs)
    world.roll(theirs)
    attempt = world.begin_offload(theirs.ledgers[0], min(stage, Stage.DATA, key=list(Stage).index))
    if stage is Stage.COMPLETE:
        world.finish_offload(attempt)
    world.end_step()
    world.tick(DAY_MS)

    with running_admin_server() as server:
        live = ask_live(world, world.first, server)
        assert check_cleaning(world, live, is_one_cluster=False) == []
        assert world.bucket.objects.keys() >= set(attempt.objects)


def test_topic_that_a_live_cluster_lists_and_does_not_tell_of(world: ModelWorld) -> None:
    """It has the topic, so all of it is kept."""
    grow(world, world.create(world.first, ORDERS), 3)
    grow(world, world.create(world.first, SHOP), 3)

    with running_admin_server() as server:
        live = ask_live(world, world.first, server)
        for path in list(server.answers):
            if path[-2:-1] == ("shop",):
                del server.answers[path]
        found = audited(world, live, is_one_cluster=True)
        assert not any(each.deletable for each in found.findings)


@pytest.mark.parametrize("tells_times", [True, False])
@pytest.mark.parametrize("skew_ms", [-HOUR_MS, 0, HOUR_MS])
def test_ledger_that_was_offloaded_again_since(skew_ms: int, *, tells_times: bool) -> None:
    """The copy that counts now is kept, however the store's clock goes, or if it tells no time."""
    world = ModelWorld(skew_ms=skew_ms, tells_times=tells_times)
    topic = world.create(world.first, ORDERS)
    first, _ = grow(world, topic, 2)
    world.produce(topic)
    world.roll(topic)
    world.end_step()
    older = save(world, world.first, FORMS[-1])
    world.offload_again(first)
    world.end_step()

    check_reading(world, older)
    check_cleaning(world, older, is_one_cluster=True)
    world.drop()


def test_metadata_that_tells_no_time(world: ModelWorld) -> None:
    """Where all its times lie in the future, nothing is surely older than it."""
    topic = world.create(world.first, ORDERS)
    first, _ = grow(world, topic, 2)
    older = save(world, world.first, FORMS[-1])
    world.offload_again(first)
    world.end_step()

    # The clock of whoever looks is far behind.
    world.tick(-100 * DAY_MS)
    check_audit(world, older, is_one_cluster=True)


def test_answers_that_name_two_copies(world: ModelWorld) -> None:
    """Where files of several times name two copies, each may be the one that counts."""
    topic = world.create(world.first, ORDERS)
    first, _ = grow(world, topic, 2)
    older = save(world, world.first, (Form.VALUE,))
    world.offload_again(first)
    world.tick(DAY_MS)
    grow(world, topic, 2)

    for forms in ((Form.INFO, Form.STATS), (Form.INFO,)):
        saved = save(world, world.first, forms, older=older)
        check_cleaning(world, saved, is_one_cluster=True)


@pytest.mark.parametrize("forms", [forms for forms in FORMS if len(forms) > 1])
def test_what_nothing_needs_is_deletable(world: ModelWorld, forms: tuple[Form, ...]) -> None:
    """Doubts have an end: what two files agree upon lets go of leavings, and of nothing else."""
    topic = world.create(world.first, ORDERS)
    trimmed, twice, failed, uploaded = grow(world, topic, 4)
    assert trimmed.attempt is not None
    assert twice.attempt is not None
    left = [*trimmed.attempt.objects, *twice.attempt.objects]
    world.offload_again(twice)
    for ledger, stage in ((failed, Stage.DATA), (uploaded, Stage.UPLOAD)):
        counting = ledger.attempt
        attempt = world.begin_offload(ledger, stage)
        world.fail_offload(attempt)
        ledger.attempt = counting
        left += attempt.objects
    world.trim(topic, remove=False)
    world.end_step()
    saved = saved_later(world, topic, forms)

    assert check_cleaning(world, saved, is_one_cluster=True, safety_age=timedelta(days=7)) == []
    kept = {left[0], left[1]} if Form.INFO not in forms and Form.VALUE not in forms else set()
    deleted = check_cleaning(world, saved, is_one_cluster=True)

    assert set(deleted) == set(left) - kept
    found = check_audit(world, saved, is_one_cluster=True)
    assert found is not None
    assert {each.kind for each in found.findings} <= {FindingKind.ORPHAN}


@pytest.mark.parametrize("is_one_cluster", [True, False])
@pytest.mark.parametrize("forms", [(Form.STATS,), (Form.INFO,), (Form.INFO, Form.STATS)])
def test_value_that_lacks_a_ledger_beside_older_answers(
    world: ModelWorld, forms: tuple[Form, ...], *, is_one_cluster: bool
) -> None:
    """Whichever ledger it lacks, the one too that was open before, nothing needed is deletable."""
    topic = world.create(world.first, ORDERS)
    grow(world, topic, 3)
    world.produce(topic)
    older = save(world, world.first, forms)
    grow(world, topic, 3)
    world.tick(10 * DAY_MS)
    grow(world, topic)

    for lacking in range(len(topic.ledgers)):
        part = save(world, world.first, (Form.VALUE,), older=older, lacking=lacking)
        check_reading(world, part)
        check_audit(world, part, is_one_cluster=is_one_cluster)
        check_cleaning(world, part, is_one_cluster=is_one_cluster)
