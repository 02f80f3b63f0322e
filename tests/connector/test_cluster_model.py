"""Reading, auditing and cleaning a bucket, whatever its clusters did and whenever one looks."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.admin_server import running_admin_server
from tests.support.cluster_model import DAY_MS, HOUR_MS, ModelTopic, ModelWorld, Owner, Stage
from tests.support.model_checks import check_audit, check_cleaning, check_reading
from tests.support.offline_topics import has_metadata, save_folder, write_offline
from tests.support.saved_metadata import (
    FORMS,
    Damage,
    Form,
    Layout,
    SavedMetadata,
    ask_live,
    damage_snapshot,
    save,
    save_snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.admin_server import AdminServer
    from tests.support.cluster_model import ModelLedger

ORDERS: Final = "persistent://public/default/orders"
TOPICS: Final = (ORDERS, "persistent://a/b/c__d", "persistent://a/b__c/d")
"""Of the last two, folders named by tenant, namespace and topic have one name."""
SHOP: Final = "persistent://public/default/shop"

_PAUSES_MS: Final = st.sampled_from((0, 0, 1, HOUR_MS, 2 * HOUR_MS, DAY_MS, DAY_MS, 10 * DAY_MS))
_SAFETY_AGES: Final = (timedelta(0), timedelta(hours=2), timedelta(days=7))
_INDEXES: Final = st.integers(0, 7)
_DAMAGES: Final = st.builds(
    Damage,
    fraction=st.floats(0, 1, exclude_max=True),
    bit=st.none() | st.integers(0, 7),
)

_EXAMPLES: Final = settings().max_examples
_IS_EXHAUSTIVE: Final = _EXAMPLES > 1_000
MACHINE_SETTINGS: Final = settings(
    max_examples=_EXAMPLES // (5 if _IS_EXHAUSTIVE else 2),
    stateful_step_count=50 if _IS_EXHAUSTIVE else 30,
    # To make a sequence shorter takes minutes: the exhaustive profile does it.
    phases=tuple(Phase) if _IS_EXHAUSTIVE else (Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class ClusterMachine(RuleBasedStateMachine):
    """Does to a model's bucket what happens to buckets, and looks at it by what was saved."""

    server: AdminServer

    saved: Bundle[SavedMetadata] = Bundle("saved")

    @initialize(
        skew_ms=st.sampled_from((0, 0, -HOUR_MS, HOUR_MS)),
        tells_times=st.sampled_from((True, True, True, False)),
        cluster=st.sampled_from(("pulsar", None)),
        next_id=st.sampled_from((0, 6, 62)),
    )
    def begin(
        self,
        skew_ms: int,
        tells_times: bool,
        cluster: str | None,
        next_id: int,
    ) -> None:
        """Make the first cluster, with a topic that was offloaded once."""
        self.world = world = ModelWorld(skew_ms=skew_ms, tells_times=tells_times)
        world.first.cluster, world.first.next_id = cluster, next_id
        self.offline = Owner("offline", cluster=None)
        self.kept: list[SavedMetadata] = []
        self.grow(world.create(world.first, ORDERS))
        world.end_step()

    def grow(self, topic: ModelTopic) -> None:
        """Fill a ledger, and offload it."""
        self.world.produce(topic, 2)
        self.world.roll(topic)
        self.offload_first(topic)

    def offload_first(self, topic: ModelTopic, index: int = 0) -> None:
        """Offload a closed ledger that is not offloaded."""
        waiting = [
            each
            for each in topic.ledgers
            if each.is_closed
            and not (each.attempt and (each.is_offloaded or each.attempt.is_running))
        ]
        if waiting:
            self.world.offload(waiting[index % len(waiting)])

    def teardown(self) -> None:
        """Forget the buckets."""
        if hasattr(self, "world"):
            self.world.drop()

    @property
    def clusters(self) -> list[Owner]:
        """Owners that are clusters."""
        return [each for each in self.world.owners if each is not self.offline]

    @property
    def topics(self) -> list[ModelTopic]:
        """All topics of clusters."""
        return [topic for owner in self.clusters for topic in owner.topics.values()]

    def topic(self, index: int) -> ModelTopic:
        """One of them."""
        return self.topics[index % len(self.topics)]

    def offloaded(self) -> list[ModelLedger]:
        """Ledgers of clusters that are offloaded."""
        return [ledger for topic in self.topics for ledger in topic.ledgers if ledger.is_offloaded]

    @rule(owner=_INDEXES, name=st.sampled_from(TOPICS))
    def create(self, owner: int, name: str) -> None:
        """A topic is made, or made anew under the name that it had."""
        cluster = self.clusters[owner % len(self.clusters)]
        if name not in cluster.topics:
            self.grow(self.world.create(cluster, name))
            self.world.end_step()

    @precondition(lambda self: self.topics)
    @rule(topic=_INDEXES, count=st.integers(1, 2), then_rolled=st.booleans())
    def produce(self, topic: int, count: int, then_rolled: bool) -> None:
        """Messages come, perhaps enough to close the ledger."""
        chosen = self.topic(topic)
        if not chosen.is_terminated:
            self.world.produce(chosen, count)
            if then_rolled:
                self.world.roll(chosen)
            self.world.end_step()

    @precondition(lambda self: self.topics)
    @rule(topic=_INDEXES, pause_ms=_PAUSES_MS)
    def produce_and_offload(self, topic: int, pause_ms: int) -> None:
        """A ledger is filled, closed and offloaded."""
        self.world.tick(pause_ms)
        chosen = self.topic(topic)
        if not chosen.is_terminated:
            self.grow(chosen)
            self.world.end_step()

    @precondition(lambda self: self.topics)
    @rule(topic=_INDEXES, index=st.integers(0, 1))
    def offload(self, topic: int, index: int) -> None:
        """A closed ledger is offloaded, the oldest or another."""
        self.offload_first(self.topic(topic), index)
        self.world.end_step()

    @precondition(lambda self: self.topics)
    @rule(topic=_INDEXES, stage=st.sampled_from((Stage.UPLOAD, Stage.DATA)))
    def begin_offload(self, topic: int, stage: Stage) -> None:
        """An offload is begun."""
        for ledger in self.topic(topic).ledgers:
            is_busy = ledger.attempt is not None and ledger.attempt.is_running
            if ledger.is_closed and not ledger.is_offloaded and not is_busy:
                self.world.begin_offload(ledger, stage)
                break
        self.world.end_step()

    @precondition(lambda self: self.world.running)
    @rule(index=_INDEXES, fails=st.booleans(), pause_ms=_PAUSES_MS)
    def end_offload(self, index: int, fails: bool, pause_ms: int) -> None:
        """An offload completes, or fails half-way."""
        self.world.tick(pause_ms)
        running = self.world.running
        attempt = running[index % len(running)]
        if fails:
            self.world.fail_offload(attempt)
        else:
            self.world.finish_offload(attempt)
        self.world.end_step()

    @precondition(lambda self: self.offloaded())
    @rule(index=_INDEXES, remove=st.booleans(), pause_ms=_PAUSES_MS)
    def offload_again(self, index: int, remove: bool, pause_ms: int) -> None:
        """A ledger is offloaded once more, under another uuid."""
        self.world.tick(pause_ms)
        ledgers = self.offloaded()
        self.world.offload_again(ledgers[index % len(ledgers)], remove=remove)
        self.world.end_step()

    @precondition(lambda self: self.offloaded())
    @rule(ledger=_INDEXES, index=st.booleans(), data=st.booleans())
    def lose(self, ledger: int, index: bool, data: bool) -> None:
        """Objects of an offloaded ledger are deleted by mistake."""
        ledgers = self.offloaded()
        self.world.lose(ledgers[ledger % len(ledgers)], index=index, data=data)
        self.world.end_step()

    @precondition(lambda self: self.offloaded())
    @rule(index=_INDEXES)
    def delete_from_bookkeeper(self, index: int) -> None:
        """BookKeeper's copy of an offloaded ledger is deleted."""
        ledgers = self.offloaded()
        self.world.delete_from_bookkeeper(ledgers[index % len(ledgers)])
        self.world.end_step()

    @precondition(lambda self: self.topics)
    @rule(topic=_INDEXES, remove=st.booleans(), pause_ms=_PAUSES_MS)
    def trim(self, topic: int, remove: bool, pause_ms: int) -> None:
        """Retention takes the oldest ledger; its objects go, or are left behind."""
        self.world.tick(pause_ms)
        self.world.trim(self.topic(topic), remove=remove)
        self.world.end_step()

    @precondition(lambda self: self.topics)
    @rule(topic=_INDEXES, remove=st.booleans())
    def delete_topic(self, topic: int, remove: bool) -> None:
        """A topic is deleted; its objects go, or are left behind."""
        self.world.delete_topic(self.topic(topic), remove=remove)
        self.world.end_step()

    @precondition(lambda self: self.topics)
    @rule(topic=_INDEXES, reloaded=st.booleans())
    def terminate(self, topic: int, reloaded: bool) -> None:
        """A topic is terminated."""
        chosen = self.topic(topic)
        if not chosen.is_terminated:
            self.world.terminate(chosen, reloaded=reloaded)
            self.world.end_step()

    @precondition(lambda self: len(self.clusters) == 1)
    @rule(
        cluster=st.sampled_from(("pulsar", "other", None)),
        bookie=st.sampled_from(("bookie-b:3181", "bookie-a:3181", "127.0.0.1:3181")),
        next_id=st.sampled_from((0, 1, 50)),
        offloads_here=st.sampled_from((True, True, False)),
    )
    def add_cluster(
        self,
        cluster: str | None,
        bookie: str,
        next_id: int,
        offloads_here: bool,
    ) -> None:
        """Another cluster comes to use the bucket, perhaps one of the same name."""
        second = Owner("second", cluster, bookie, next_id, offloads_here)
        self.world.add_owner(second)
        self.grow(self.world.create(second, ORDERS))
        self.world.end_step()

    @rule(
        topic=st.sampled_from((SHOP, *TOPICS)),
        count=st.integers(1, 3),
        append=st.booleans(),
        with_folder=st.booleans(),
    )
    def write(self, topic: str, count: int, append: bool, with_folder: bool) -> None:
        """Messages are written offline, or appended."""
        if self.offline not in self.world.owners:
            self.world.add_owner(self.offline)
        write_offline(
            self.world, self.offline, topic, count, append=append, with_folder=with_folder
        )
        self.world.end_step()

    @precondition(lambda self: any(each.topics for each in self.clusters))
    @rule(
        target=saved,
        owner=_INDEXES,
        forms=st.sampled_from(FORMS),
        layout=st.sampled_from((*Layout, Layout.MAPPING, Layout.LISTED)),
        damage=st.none() | _DAMAGES,
        damaged=_INDEXES,
    )
    def save_files(
        self,
        owner: int,
        forms: tuple[Form, ...],
        layout: Layout,
        damage: Damage | None,
        damaged: int,
    ) -> SavedMetadata:
        """Metadata is saved, whole or damaged."""
        owners = [each for each in self.clusters if each.topics]
        chosen = owners[owner % len(owners)]
        saved = save(self.world, chosen, forms, layout=layout, damage=damage, damaged=damaged)
        return self.keep(saved)

    @rule(target=saved, older=saved, forms=st.sampled_from(FORMS))
    def save_more(self, older: SavedMetadata, forms: tuple[Form, ...]) -> SavedMetadata:
        """Further files are saved beside older ones."""
        if older.is_snapshot or not older.files or not older.is_whole or not older.owner.topics:
            return older
        return self.keep(save(self.world, older.owner, forms, older=older))

    @rule(target=saved, older=saved, lacking=_INDEXES)
    def save_part(self, older: SavedMetadata, lacking: int) -> SavedMetadata:
        """A value that lacks one ledger is saved beside older answers."""
        if older.is_snapshot or not older.files or not older.is_whole or not older.owner.topics:
            return older
        return self.keep(save(self.world, older.owner, (Form.VALUE,), older=older, lacking=lacking))

    @precondition(lambda self: any(each.topics for each in self.clusters))
    @rule(target=saved, owner=_INDEXES, forms=st.sampled_from(FORMS), damage=st.none() | _DAMAGES)
    def save_catalog(
        self, owner: int, forms: tuple[Form, ...], damage: Damage | None
    ) -> SavedMetadata:
        """A snapshot is saved, whole or damaged."""
        owners = [each for each in self.clusters if each.topics]
        snapshot = save_snapshot(self.world, save(self.world, owners[owner % len(owners)], forms))
        if damage is not None:
            snapshot = damage_snapshot(self.world, snapshot, damage)
        return self.keep(snapshot)

    @precondition(lambda self: has_metadata(self.world))
    @rule(target=saved)
    def save_written(self) -> SavedMetadata:
        """The folder that offline writing made is kept as it is."""
        return self.keep(save_folder(self.world, self.offline))

    def keep(self, saved: SavedMetadata) -> SavedMetadata:
        """Let this metadata be used for audits from now on."""
        self.kept.append(saved)
        return saved

    @invariant()
    def audits_are_right(self) -> None:
        """Whenever an audit is made, by metadata of whatever age, it is right."""
        for number, saved in enumerate(self.kept[-3:]):
            check_audit(self.world, saved, is_one_cluster=(self.world.step + number) % 3 > 0)

    @rule()
    def look_at_the_bucket_alone(self) -> None:
        """The bucket is read without metadata."""
        check_reading(self.world, None)

    @rule(saved=saved)
    def look(self, saved: SavedMetadata) -> None:
        """The bucket is read by metadata that was saved."""
        check_reading(self.world, saved)

    @rule(
        saved=saved,
        is_one_cluster=st.booleans(),
        safety_age=st.sampled_from(_SAFETY_AGES),
    )
    def tidy(self, saved: SavedMetadata, is_one_cluster: bool, safety_age: timedelta) -> None:
        """The bucket is audited and cleaned by metadata that was saved."""
        check_cleaning(self.world, saved, is_one_cluster=is_one_cluster, safety_age=safety_age)

    @precondition(lambda self: self.topics)
    @rule(
        topic=_INDEXES,
        forms=st.sampled_from(FORMS),
        layout=st.sampled_from(Layout),
        is_one_cluster=st.booleans(),
    )
    def save_and_tidy(
        self,
        topic: int,
        forms: tuple[Form, ...],
        layout: Layout,
        is_one_cluster: bool,
    ) -> None:
        """The bucket is audited and cleaned by metadata that is newer than most that is in it."""
        chosen = self.topic(topic)
        self.world.tick(DAY_MS)
        if not chosen.is_terminated:
            self.grow(chosen)
        self.world.end_step()
        saved = save(self.world, chosen.ledgers[-1].owner, forms, layout=layout)
        check_cleaning(self.world, saved, is_one_cluster=is_one_cluster)

    @precondition(lambda self: any(each.topics for each in self.clusters))
    @rule(owner=_INDEXES, is_one_cluster=st.booleans(), reads=st.booleans(), pause_ms=_PAUSES_MS)
    def ask_the_cluster(
        self,
        owner: int,
        is_one_cluster: bool,
        reads: bool,
        pause_ms: int,
    ) -> None:
        """The bucket is read, or audited and cleaned, by what a cluster says now."""
        self.world.tick(pause_ms)
        owners = [each for each in self.clusters if each.topics]
        live = ask_live(self.world, owners[owner % len(owners)], self.server)
        if reads:
            check_reading(self.world, live)
        else:
            check_cleaning(self.world, live, is_one_cluster=is_one_cluster)


@pytest.fixture(scope="module")
def server() -> Iterator[AdminServer]:
    """A cluster's admin API, which answers what it is told to."""
    with running_admin_server() as server:
        yield server


def test_machine(server: AdminServer) -> None:
    """Nothing that is offloaded is passed over in silence, nothing that is needed is deleted."""
    ClusterMachine.server = server
    run_state_machine_as_test(ClusterMachine, settings=MACHINE_SETTINGS)
