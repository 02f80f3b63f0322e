"""Every door to a topic whose cluster offloads, trims and recreates it between any two requests."""

from __future__ import annotations

import shutil
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as pads
import pytest

from arrow_io.errors import (
    PulsarOffloadError,
    TopicNotFoundError,
    TrimmedEntriesError,
)
from arrow_io.read_report import ReadReport
from connector import copy_topics, open_catalog, open_topic
from connector.increments.increment import Increments, execute_increment
from connector.increments.progress import Progress
from connector.scan.topic_scan import DEFAULT_TASK_BYTES
from connector.upkeep.audit import audit
from connector.upkeep.cleaning import clean, plan_cleaning
from tests.support.admin_server import running_admin_server
from tests.support.moving_cluster import ORDERS, Move, MovingCluster, many_moves, one_move

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from tests.support.admin_server import AdminServer
    from tests.support.grids import Grid

    Door = Callable[["_Bucket"], None]

_COLUMNS = ["__ledger_id__", "__value__"]
_SEEDS = range(12)


@dataclass(frozen=True)
class _Setting:
    """How a cluster offloads, and what its reader knows of it.

    Attributes:
        by_metadata: Whether the reader asks the cluster.
        segments: In how many segments of streaming offload a ledger is written; 0: by PIP-17.
    """

    by_metadata: bool
    segments: int

    def __str__(self) -> str:
        """How tests name it."""
        source = "metadata" if self.by_metadata else "bucket alone"
        return f"{source}, {'segments' if self.segments else 'PIP-17'}"


class _Bucket:
    """A moving cluster, as one who reads it opens it."""

    def __init__(self, cluster: MovingCluster, folder: Path, *, by_metadata: bool) -> None:
        self.cluster = cluster
        self.folder = folder
        self.options: dict[str, Any] = {"metadata": cluster.server.url} if by_metadata else {}
        self.by_metadata = by_metadata

    def check(self, table: pa.Table, report: ReadReport) -> None:
        """Check that each ledger that was there all the time is whole, and that none is lost."""
        rows: dict[int, list[str]] = defaultdict(list)
        for row in table.select(_COLUMNS).to_pylist():
            rows[row["__ledger_id__"]].append(row["__value__"].decode())
        for ledger_id, values in rows.items():
            assert values == self.cluster.world.truth[values[0]].rows, f"{ledger_id} is not whole"
        lacking = {each: own for each, own in self.cluster.kept.items() if rows.get(each) != own}
        assert not lacking, "ledgers that are offloaded, and not trimmed, are left out"
        assert self.are_true(report.losses), f"called lost: {report.losses}"

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
    try:
        dataset = open_topic(bucket.cluster.url, ORDERS, value="raw", **options)
        table = dataset.to_table(columns=_COLUMNS)
    except PulsarOffloadError as error:
        if not bucket.is_true(error):
            raise
        return
    bucket.check(table, dataset.report)


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
    # The admin API does not name segments, so it does not tell which of two are needed.
    if {*bucket.cluster.log} == {"request"} and not bucket.cluster.world.first.segments:
        assert left.isdisjoint(bucket.cluster.leftover), "what nothing needs is kept"


def copy(bucket: _Bucket) -> None:
    """Copy the topic, and copy what is new of it once more when the cluster is at rest."""
    target = str(bucket.folder / "lake")
    try:
        _copied(bucket, target)
    except PulsarOffloadError as error:
        if not bucket.is_true(error):
            raise
        return
    if bucket.cluster.kept:
        bucket.check(pads.dataset(target, format="parquet").to_table(), ReadReport())


def _copied(bucket: _Bucket, target: str) -> None:
    for _ in range(2):
        copy_topics(
            bucket.cluster.url, ORDERS, target, format="parquet", value="raw", **bucket.options
        )


def follow(bucket: _Bucket) -> None:
    """Read increments from the beginning on, as streams and `tail --follow` do."""
    catalog = open_catalog(bucket.cluster.url, **bucket.options)
    dataset = open_topic(bucket.cluster.url, ORDERS, value="raw", catalog=catalog)
    options = dataset.scan.select(_COLUMNS).options
    increments, progress = Increments(catalog, [ORDERS], options), Progress()
    rows: Counter[str] = Counter()
    try:
        for _ in range(3):
            increment = increments.next_increment(progress)
            with increments.catalog.explaining():
                for read in increment.reads:
                    for task in read.tasks(DEFAULT_TASK_BYTES):
                        for batch in execute_increment(task):
                            rows.update(each.decode() for each in batch["__value__"].to_pylist())
            progress = increment.after
            increments.refresh()
    except PulsarOffloadError as error:
        if not bucket.is_true(error):
            raise
        return
    assert set(rows.values()) <= {1}
    kept = [row for own in bucket.cluster.kept.values() for row in own]
    assert set(kept) <= rows.keys()


_DOORS: tuple[Door, ...] = (
    read_strictly,
    read_salvaging,
    read_by_a_catalog,
    look_into,
    copy,
    follow,
)


@pytest.fixture(scope="module")
def server() -> Iterator[AdminServer]:
    """The cluster's admin API."""
    with running_admin_server() as server:
        yield server


def _enter(
    server: AdminServer,
    tmp_path: Path,
    door: Door,
    moves: Iterator[Move | None],
    setting: _Setting,
) -> MovingCluster:
    """Go through a door while the cluster moves."""
    folder = tmp_path / "work"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    cluster = MovingCluster(server, segments=setting.segments)
    try:
        with cluster.moving(moves), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            door(_Bucket(cluster, folder, by_metadata=setting.by_metadata))
    except (AssertionError, PulsarOffloadError) as error:
        error.add_note(f"{door.__name__}: {', '.join(cluster.log)}")
        raise
    finally:
        cluster.world.drop()
    return cluster


_settings = pytest.mark.parametrize(
    "setting",
    [
        _Setting(by_metadata=by_metadata, segments=segments)
        for by_metadata in (True, False)
        for segments in (0, 2)
    ],
    ids=str,
)


@_settings
@pytest.mark.parametrize("move", list(Move))
@pytest.mark.parametrize("door", _DOORS, ids=lambda door: door.__name__)
def test_one_move_before_each_request(
    server: AdminServer, tmp_path: Path, *, grid: Grid, door: Door, move: Move, setting: _Setting
) -> None:
    """Before whichever request the cluster moves once, nothing is left out or called lost."""
    steps = grid.steps()
    for step in steps:
        cluster = _enter(server, tmp_path, door, one_move(move, step - 1), setting)
        if move.value not in cluster.log:
            steps.passed()


@_settings
@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("door", _DOORS, ids=lambda door: door.__name__)
def test_many_moves(
    server: AdminServer, tmp_path: Path, door: Door, seed: int, setting: _Setting
) -> None:
    """However the cluster moves, nothing is left out or called lost."""
    _enter(server, tmp_path, door, many_moves(seed), setting)
