"""Whatever became of the segments of a topic, each row is read once, and a key's rows in order."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from arrow_io.errors import IncompleteReadWarning
from connector import open_catalog, open_topic
from connector.increments.increment import Increments, Limits, execute_increment
from connector.increments.progress import Progress
from connector.upkeep.audit.audit import audit
from tests.support.buckets import memory_bucket, offload
from tests.support.entries import Message, encode_entry
from tests.support.scalable_model import KEYS, TOPIC, ScalableWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.scalable_model import ModelSegment

NAME: Final = str(TOPIC)
CLASSIC: Final = "persistent://public/default/classic"
ENTRY: Final = encode_entry([Message(payload=b"classic")], batched=False)
KEY: Final = st.sampled_from(KEYS)
STEP: Final = st.tuples(
    st.sampled_from(
        (
            *("publish", "publish", "publish", "roll", "offload", "offload", "split", "merge"),
            *("rebucket", "migrate", "prune", "read", "read"),
        )
    ),
    st.integers(0, 30),
    st.lists(KEY | st.none(), min_size=1, max_size=8),
    st.booleans(),
)
_IS_EXHAUSTIVE: Final = settings().max_examples > 1_000
MACHINE: Final = settings(
    max_examples=settings().max_examples // 2,
    # To make a history shorter takes minutes: the exhaustive profile does it.
    phases=tuple(Phase) if _IS_EXHAUSTIVE else (Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class _Stream:
    """A reader of increments, each by a new catalog, as after a restart."""

    def __init__(self, world: ScalableWorld, save: Callable[[], str | None]) -> None:
        self._world = world
        self._save = save
        self.progress = Progress()
        self.numbers: list[int] = []
        self.notices: list[str] = []

    def read(self, limits: Limits | None = None) -> bool:
        """Read one increment; return whether there was anything new."""
        catalog = open_catalog(self._world.bucket.url, metadata=self._save())
        options = _open(self._world, catalog).scan.options
        increments = Increments(catalog, [NAME], options)
        before = Progress.from_json(self.progress.to_json())
        increment = increments.next_increment(before, limits)
        self.notices = list(increment.notices)
        again = increments.increment_between(increment.before, increment.after)
        assert [each.ranges for each in again.reads] == [each.ranges for each in increment.reads]
        for read in increment.reads:
            for task in read.tasks(1 << 20):
                for batch in execute_increment(task):
                    self.numbers += map(int, batch["__value__"].to_pylist())
        self.progress = increment.after
        return increment.after != increment.before

    def has_read(self, segment: ModelSegment) -> bool:
        """Whether all offloaded ledgers of a segment have been read."""
        following = self.progress.topic_progress(segment.name).next.ledger_id
        return all(each.ledger_id < following for each in segment.offloaded)


def _open(world: ScalableWorld, catalog: Any, **options: Any) -> Any:  # noqa: ANN401
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteReadWarning)
        columns = ["__value__", "__topic__", "__segment_id__", "__key__"]
        return open_topic(
            world.bucket.url, NAME, catalog=catalog, value="raw", columns=columns, **options
        )


def _numbers(world: ScalableWorld, metadata: str | None, **options: Any) -> list[int]:  # noqa: ANN401
    catalog = open_catalog(world.bucket.url, metadata=metadata)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteReadWarning)
        table = _open(world, catalog, **options).to_table()
    return list(map(int, table["__value__"].to_pylist()))


def _apply(world: ScalableWorld, step: tuple[str, int, list[str | None], bool]) -> None:
    kind, number, keys, is_flagged = step
    active, current = world.active, world.current
    if kind == "publish":
        world.publish(keys)
    elif kind == "roll":
        world.roll(active[number % len(active)])
    elif kind == "offload":
        segment = current[number % len(current)]
        if is_flagged:
            world.roll(segment)
        world.offload(segment)
    elif kind == "split":
        meanwhile = [each for each in keys if each is not None] if is_flagged else []
        world.split(active[number % len(active)], writes_meanwhile=meanwhile)
    elif kind == "merge":
        world.merge(active[number % len(active)])
    elif kind == "rebucket":
        world.rebucket(active[number % len(active)])
    elif kind == "migrate":
        world.migrate()


def _check_batch(world: ScalableWorld) -> None:
    expected = world.rows()
    folder, graph = world.save(), world.save(with_ledgers=False)
    if any(each.offloaded or each.name.is_scalable for each in world.current):
        assert _numbers(world, folder) == expected
        assert _numbers(world, graph) == expected
    for numbers in world.by_key(expected):
        assert numbers == sorted(numbers)
    last: dict[str, int] = {}
    for number in expected:
        key = world.keys[number]
        if key is not None:
            last[key] = number
    assert set(_numbers(world, folder, view="latest")) == set(last.values())
    every = [*world.segments.values()]
    if any(each.is_pruned and each.offloaded for each in every):
        assert _numbers(world, folder, segments="all") == world.rows(every)
    if any(each.offloaded and each.name.is_scalable for each in every):
        assert _numbers(world, None) == world.rows(every)


@MACHINE
@given(
    st.lists(STEP, min_size=30, max_size=60),
    st.sampled_from((0, 0, -1, 1, 3)),
    st.integers(0, 2**32),
    st.sampled_from(("whole", "whole", "graph", "bucket")),
)
def test_every_history(
    steps: Sequence[tuple[str, int, list[str | None], bool]], partitions: int, seed: int, form: str
) -> None:
    """A batch has each row in the order of segments; a stream has the same rows, each once.

    With metadata of ledgers, the rows of each key come in the order in which they were sent, even
    in a stream that runs while segments split and merge.
    """
    classic = offload([(10**6, [ENTRY])], managed_ledger="public/default/persistent/classic")
    with memory_bucket(classic) as bucket, tempfile.TemporaryDirectory() as folder:
        world = ScalableWorld(bucket, Path(folder), Random(seed), partitions)
        saves: dict[str, Callable[[], str | None]] = {
            "whole": world.save,
            "graph": lambda: world.save(with_ledgers=False),
            "bucket": lambda: None,
        }
        stream = _Stream(world, saves[form])
        for step in steps:
            kind, number, _, is_flagged = step
            can_read = world.is_migrated and (
                form != "bucket"
                or any(each.offloaded and each.name.is_scalable for each in world.segments.values())
            )
            if kind == "read" and can_read:
                stream.read(Limits(max_ledgers=1 + number % 3) if is_flagged else None)
            elif kind == "prune":
                segment = world.current[number % len(world.current)]
                if stream.has_read(segment):
                    world.prune(segment, leaves_objects=is_flagged)
            else:
                _apply(world, step)
        world.migrate()
        _check_batch(world)
        world.publish(list(KEYS))
        world.offload_everything()
        _check_batch(world)
        assert set(_numbers(world, world.save(), view="latest")) == world.latest([*world.keys])
        while stream.read(Limits(max_ledgers=2)):
            pass
        assert len(stream.numbers) == len(set(stream.numbers))
        assert set(stream.numbers) >= set(world.rows())
        assert set(stream.numbers) <= set(world.keys)
        if form == "whole":
            assert not [each for each in stream.notices if "precede" in each]
            for numbers in world.by_key(stream.numbers):
                assert numbers == sorted(numbers)
        found = audit(open_catalog(bucket.url, metadata=world.save()), is_one_cluster=True)
        assert not found.losses
        pruned = {str(each.name) for each in world.segments.values() if each.is_pruned}
        assert {str(each.topic) for each in found.findings} <= {*pruned, CLASSIC}
        assert not any(each.deletable for each in found.findings)
        assert open_topic(bucket.url, CLASSIC, value="raw").count_rows() == 1
