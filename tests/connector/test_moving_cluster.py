"""Every door to a topic whose cluster offloads, trims and recreates it between any two requests."""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as pads
import pytest

from arrow_io.errors import (
    PulsarOffloadError,
    TopicNotFoundError,
    TrimmedEntriesError,
)
from arrow_io.read_metrics import ReadMetrics
from connector import copy_topics, open_catalog, open_topic
from connector.increments.increment import Increments, execute_increment
from connector.increments.progress import Progress
from connector.scan.topic_scan import DEFAULT_TASK_BYTES
from connector.upkeep.audit.audit import audit
from connector.upkeep.audit.cleaning import clean, plan_cleaning
from tests.support.admin_server import running_admin_server
from tests.support.cluster_model import ELSEWHERE
from tests.support.moving_cluster import (
    ORDERS,
    Move,
    MovingCluster,
    Setting,
    many_moves,
    one_move,
)
from tests.support.oxia_server import running_oxia_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from tests.support.admin_server import AdminServer
    from tests.support.grids import Grid
    from tests.support.oxia_server import OxiaServer

    Door = Callable[["_Bucket"], None]
    _Servers = tuple[AdminServer, OxiaServer]

_COLUMNS = ["__ledger_id__", "__value__"]
_THREADS = 4


class _Bucket:
    """A moving cluster, as one who reads it opens it."""

    def __init__(self, cluster: MovingCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.by_metadata = cluster.setting.by_metadata
        self.options: dict[str, Any] = {}
        if self.by_metadata:
            self.options["metadata"] = cluster.server.url
            self.options["buckets"] = {ELSEWHERE: cluster.world.elsewhere.url}

    def check(self, table: pa.Table, metrics: ReadMetrics) -> None:
        """Check that each ledger that was there all the time is whole, and that none is lost."""
        rows: dict[int, list[str]] = defaultdict(list)
        for row in table.select(_COLUMNS).to_pylist():
            rows[row["__ledger_id__"]].append(row["__value__"].decode())
        for ledger_id, values in rows.items():
            assert values == self.cluster.world.truth[values[0]].rows, f"{ledger_id} is not whole"
        lacking = {each: own for each, own in self.cluster.kept.items() if rows.get(each) != own}
        assert not lacking, "ledgers that are offloaded, and not trimmed, are left out"
        assert self.are_true(metrics.losses), f"called lost: {metrics.losses}"

    def is_true(self, error: PulsarOffloadError) -> bool:
        """Whether an error says, truly, that the topic was trimmed, or deleted, while it was read.

        Nothing of a topic that was made anew may be offloaded.
        """
        if isinstance(error, TopicNotFoundError):
            return not self.cluster.kept
        is_known = isinstance(error, TrimmedEntriesError) or self.are_true([str(error)])
        return is_known and error.ledger_id in self.cluster.trimmed

    def are_true(self, losses: Iterable[str]) -> bool:
        """Whether losses, truly, are only said to be possible, because the bucket alone is known.

        Only metadata tells that retention deletes a ledger.
        """
        may_be_deletion = not self.by_metadata and bool(self.cluster.trimmed)
        return all(may_be_deletion and "open the topic again" in each for each in losses)


def _read(bucket: _Bucket, **options: Any) -> None:  # noqa: ANN401
    dataset = open_topic(bucket.cluster.url, ORDERS, value="raw", **options)
    table = dataset.to_table(columns=_COLUMNS)
    bucket.check(table, dataset.metrics)


def read_strictly(bucket: _Bucket) -> None:
    """Open and read a topic."""
    _read(bucket, **bucket.options)


def read_salvaging(bucket: _Bucket) -> None:
    """The same, and go on after damage."""
    _read(bucket, **bucket.options, on_corruption="salvage")


def read_by_a_catalog(bucket: _Bucket) -> None:
    """Open a catalog, and read a topic by it twice, the second time after another look."""
    catalog = open_catalog(bucket.cluster.url, **bucket.options)
    _read(bucket, catalog=catalog)
    _read(bucket, catalog=catalog.refreshed())


def read_by_threads(bucket: _Bucket) -> None:
    """Read a topic in threads that share a catalog."""
    catalog = open_catalog(bucket.cluster.url, **bucket.options)
    with ThreadPoolExecutor(_THREADS) as executor:
        for each in [executor.submit(_read, bucket, catalog=catalog) for _ in range(_THREADS)]:
            each.result()


def look_into(bucket: _Bucket) -> None:
    """Audit the bucket, and clean it."""
    catalog = open_catalog(bucket.cluster.url, **bucket.options)
    found = audit(catalog, is_one_cluster=True)
    losses = [each.text for each in found.losses]
    assert bucket.are_true(losses), losses
    if not bucket.by_metadata:
        return
    later = datetime.now(UTC) + timedelta(days=30)
    list(clean(catalog.location, plan_cleaning(found, now=later, safety_age=timedelta(0))))
    left = bucket.cluster.world.bucket.objects.keys()
    assert bucket.cluster.world.needed(bucket.cluster.world.first) <= left
    # Without uuids, and the admin API never has those of segments, nothing tells which is needed.
    setting = bucket.cluster.setting
    tells_uuids = setting.tells_uuids and not setting.segments
    if {*bucket.cluster.log} == {"request"} and tells_uuids:
        assert left.isdisjoint(bucket.cluster.leftover), "what nothing needs is kept"


def gather(bucket: _Bucket) -> None:
    """Gather statistics of the topic."""
    catalog = open_catalog(bucket.cluster.url, **bucket.options)
    done = catalog.analyze(bucket.folder / "statistics", ORDERS, storage_options={})
    losses = [text for each in done for text in each.losses]
    assert bucket.are_true(losses), losses


def copy(bucket: _Bucket) -> None:
    """Copy the topic, and copy what is new of it once more."""
    target = str(bucket.folder / "lake")
    for _ in range(2):
        copy_topics(
            bucket.cluster.url, ORDERS, target, format="parquet", value="raw", **bucket.options
        )
    if bucket.cluster.kept:
        bucket.check(pads.dataset(target, format="parquet").to_table(), ReadMetrics())


def follow(bucket: _Bucket) -> None:
    """Read increments from the beginning on, as streams and `tail --follow` do."""
    catalog = open_catalog(bucket.cluster.url, **bucket.options)
    dataset = open_topic(bucket.cluster.url, ORDERS, value="raw", catalog=catalog)
    options = dataset.scan.select(_COLUMNS).options
    increments, progress = Increments(catalog, [ORDERS], options), Progress()
    rows: Counter[str] = Counter()
    for _ in range(3):
        increment = increments.next_increment(progress)
        with increments.catalog.explain_missing():
            for read in increment.reads:
                for task in read.tasks(DEFAULT_TASK_BYTES):
                    for batch in execute_increment(task):
                        rows.update(each.decode() for each in batch["__value__"].to_pylist())
        progress = increment.after
        increments.refresh()
    assert set(rows.values()) <= {1}
    kept = [row for own in bucket.cluster.kept.values() for row in own]
    assert set(kept) <= rows.keys()


_DOORS: tuple[Door, ...] = (
    read_strictly,
    read_salvaging,
    read_by_a_catalog,
    read_by_threads,
    look_into,
    gather,
    copy,
    follow,
)


_ORDERED_DOORS = tuple(each for each in _DOORS if each is not read_by_threads)
"""Those whose requests are about the same in each run, so that each has its number."""


@pytest.fixture(scope="module")
def servers() -> Iterator[_Servers]:
    """The cluster's admin API, and its metadata store."""
    with running_admin_server() as admin_api, running_oxia_server({}, shards=2) as store:
        yield admin_api, store


def _enter(
    servers: _Servers,
    tmp_path: Path,
    door: Door,
    moves: Iterator[Move | None],
    setting: Setting,
) -> MovingCluster:
    """Go through a door while the cluster moves; after an error that is true, once more."""
    cluster = MovingCluster(servers[setting.by_store], setting)
    try:
        with cluster.moving(moves), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            while True:
                was_at_rest = cluster.is_at_rest
                with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
                    bucket = _Bucket(cluster, Path(folder))
                    try:
                        door(bucket)
                    except PulsarOffloadError as error:
                        if not bucket.is_true(error) or (was_at_rest and cluster.kept):
                            raise
                        if not was_at_rest:
                            continue
                return cluster
    except (AssertionError, PulsarOffloadError) as error:
        error.add_note(f"{door.__name__}: {', '.join(cluster.log)}")
        raise
    finally:
        cluster.world.drop()


_SETTINGS = (
    Setting(label="metadata"),
    Setting(label="bucket alone", by_metadata=False),
    Setting(label="segments", segments=2),
    Setting(label="map files", writes_map_files=True),
    Setting(label="metadata without uuids", tells_uuids=False),
    Setting(label="two buckets", buckets=2),
    Setting(label="slow steps", gap=5),
    Setting(label="slow steps, bucket alone", gap=5, by_metadata=False),
    Setting(label="slow steps, two buckets", gap=3, buckets=2, tells_uuids=False),
    Setting(label="metadata store", by_store=True),
    Setting(label="metadata store, segments", by_store=True, segments=2),
    Setting(label="slow steps, metadata store, two buckets", by_store=True, gap=3, buckets=2),
)


@pytest.mark.parametrize("setting", _SETTINGS[:4], ids=str)
@pytest.mark.parametrize("move", list(Move))
@pytest.mark.parametrize("door", _ORDERED_DOORS, ids=lambda door: door.__name__)
def test_one_move_before_each_request(
    servers: _Servers, tmp_path: Path, *, grid: Grid, door: Door, move: Move, setting: Setting
) -> None:
    """Before whichever request the cluster moves once, nothing is left out or called lost."""
    steps = grid.steps()
    for step in steps:
        cluster = _enter(servers, tmp_path, door, one_move(move, step - 1), setting)
        if move.value not in cluster.log:
            steps.passed()


@pytest.mark.parametrize("setting", _SETTINGS, ids=str)
@pytest.mark.parametrize("door", _DOORS, ids=lambda door: door.__name__)
def test_many_moves(
    servers: _Servers, tmp_path: Path, *, grid: Grid, door: Door, setting: Setting
) -> None:
    """However the cluster moves, nothing is left out or called lost."""
    for seed in grid.of(range(12), count=4):
        _enter(servers, tmp_path, door, many_moves(seed), setting)


@pytest.mark.parametrize("by_store", [False, True], ids=["admin API", "metadata store"])
def test_cluster_at_rest_is_cleaned(servers: _Servers, tmp_path: Path, *, by_store: bool) -> None:
    """Either source proves that a replaced copy is not needed, so `clean` deletes it."""
    setting = Setting(label="at rest", by_store=by_store)
    cluster = _enter(servers, tmp_path, look_into, iter(()), setting)
    assert set(cluster.log) == {"request"}
