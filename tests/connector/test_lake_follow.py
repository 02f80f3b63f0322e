"""Repeated copies: each round copies the new messages once, by one process at a time."""

from __future__ import annotations

import gc
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tracemalloc
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from arrow_io.errors import (
    ConcurrentCopyError,
    LakeTableError,
    OptionError,
    StorageError,
    TopicNotFoundError,
)
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestTrace
from connector import (
    CopyRound,
    CopySizes,
    MaintenanceSettings,
    follow_copies,
    open_catalog,
)
from connector.cli import copying
from connector.lake.lease import LEASE, Lease
from connector.lake.table_copy import TableCopy
from connector.tables.parquet import ParquetTable
from connector.tables.state_file import STATE_FOLDER
from connector.tables.table_kinds import KINDS
from tests.support.buckets import TOPIC, MemoryBucket
from tests.support.command_line import URL, USAGE, run
from tests.support.golden import GOLDEN
from tests.support.lake_copies import COLUMNS, SCHEMA, batch_rows, in_order, write_topic
from tests.support.lake_kinds import read_back, table_in
from tests.support.lake_tables import table_of
from tests.support.latest_rows import catalog_options
from tests.support.snippets import snippets_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from connector.tables.evolution import TableKind

_INTERVAL: Final = timedelta(minutes=5)
_OTHER: Final = "persistent://public/default/orders-2"


class World:
    """A bucket, a clock that only waits move, and processes that follow topics.

    Attributes:
        now_s: The time.
        waits: How long each process waited.
    """

    def __init__(self, bucket: MemoryBucket, folder: Path) -> None:
        self.bucket, self.folder = bucket, folder
        self.now_s = 0.0
        self.waits: list[float] = []

    def wait(self, seconds: float) -> None:
        """Let the time pass."""
        self.waits.append(seconds)
        self.now_s += seconds

    def follow(
        self,
        topic: str | list[str] = TOPIC,
        target: str = "t",
        **options: Any,  # noqa: ANN401 - those of `follow_copies`
    ) -> Generator[CopyRound, None, None]:
        """Follow topics, without chance."""
        given: dict[str, Any] = {
            "interval": _INTERVAL,
            "format": "parquet",
            "schema": SCHEMA,
            "wait": self.wait,
            "clock": lambda: self.now_s,
            "uniform": lambda least, greatest: (least + greatest) / 2,
        }
        path = target if target == "shop.t" else str(self.folder / target)
        return follow_copies(self.bucket.url, topic, path, **(given | options))

    def lease(self, target: str = "t") -> dict[str, Any]:
        """The lease of a table."""
        found: dict[str, Any] = json.loads(
            (self.folder / target / STATE_FOLDER / LEASE).read_bytes()
        )
        return found

    def rows(self, target: str = "t") -> list[dict[str, Any]]:
        """The rows of a table."""
        return in_order(table_of(ParquetTable(Location(str(self.folder / target)))))


@pytest.fixture
def world(bucket: MemoryBucket, tmp_path: Path) -> World:
    """A topic of three ledgers."""
    write_topic(bucket.url, range(13))
    return World(bucket, tmp_path)


def test_each_round_copies_what_is_new(world: World) -> None:
    """Of the topics that there are by then; quiet rounds make no version of the table."""
    with closing(world.follow("orders*", "{topic}")) as rounds:
        first = next(rounds)
        assert [each.rows for each in first.summaries] == [13]
        quiet = next(rounds)
        assert [each.commits for each in quiet.summaries] == [0]
        write_topic(world.bucket.url, range(13, 19), append=True)
        write_topic(world.bucket.url, range(3), _OTHER)
        assert [each.rows for each in next(rounds).summaries] == [6, 3]
    assert world.rows("orders") == batch_rows(world.bucket.url)
    assert world.waits == [300, 300]
    manifests = (world.folder / "orders" / STATE_FOLDER).glob("manifest-*")
    assert len(list(manifests)) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_each_kind(kind: TableKind, world: World) -> None:
    """The lease is in the folder of a table before the table is, and survives maintenance."""
    options: dict[str, Any] = {
        "format": kind,
        "maintenance": MaintenanceSettings(min_files=2, delete_after=timedelta()),
        "sizes": CopySizes(commit_bytes=1),
    }
    with table_in(world.folder, kind) as table:
        if kind == "iceberg":
            options["table_options"] = catalog_options(world.folder)
        target = "shop.t" if kind == "iceberg" else table.location.url
        with closing(world.follow(target=target, **options)) as rounds:
            [summary] = next(rounds).summaries
            assert (summary.rows, summary.merged_files > 0) == (13, True)
            write_topic(world.bucket.url, range(13, 19), append=True)
            assert [each.rows for each in next(rounds).summaries] == [6]
        rows = read_back(table).select(list(COLUMNS))
        assert in_order(rows) == batch_rows(world.bucket.url)
        lease = table.location.child(STATE_FOLDER).read_object(LEASE, max_bytes=1000).data
        assert json.loads(lease).items() >= {"holder": None, "lag_bytes": 0}.items()


def test_an_interrupt_in_a_round(world: World) -> None:
    """The step is given up: its files are deleted, and the lease is released."""

    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    rounds = world.follow(on_progress=interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(rounds)
    assert list(world.folder.rglob("*.parquet")) == []
    assert world.lease()["holder"] is None
    with closing(world.follow()) as rounds:
        assert [each.rows for each in next(rounds).summaries] == [13]


def test_index_objects_are_read_once(world: World) -> None:
    """A quiet round lists the bucket, and reads the state of the table and its lease."""
    trace = RequestTrace(keep_records=True)
    catalog = open_catalog(world.bucket.url, trace=trace)
    with closing(world.follow(catalog=catalog)) as rounds:
        next(rounds)
        before = len(trace.records)
        next(rounds)
    assert {each.kind for each in trace.records[before:]} == {"list"}


def test_a_round_that_takes_long_is_followed_at_once(world: World) -> None:
    """The interval is that between starts."""

    def report(*_: int) -> None:
        world.now_s += 200

    with closing(world.follow(on_progress=report)) as rounds:
        first = next(rounds)
    assert first.wait_s == max(0, 300 - world.now_s)
    with closing(world.follow(uniform=lambda least, _: least)) as rounds:
        assert next(rounds).wait_s == pytest.approx(270)


def test_a_wait_may_end_it(world: World) -> None:
    """Then the lease is free."""
    assert len(list(world.follow(wait=lambda _: True))) == 1
    assert world.lease()["holder"] is None


class Failing:
    """Lets copies of some tables fail.

    Attributes:
        errors: The error of each table, by the end of its location.
        tried: The tables that were tried.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.errors: dict[str, Exception] = {}
        self.tried: list[str] = []
        copy = TableCopy.copy

        def failing(own: TableCopy) -> Any:  # noqa: ANN401
            name = str(own.table.location).rpartition("/")[2]
            self.tried.append(name)
            if name in self.errors:
                raise self.errors[name]
            return copy(own)

        monkeypatch.setattr(TableCopy, "copy", failing)


def test_a_table_that_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again after times that double up to an hour, and holds up no other table."""
    write_topic(world.bucket.url, range(3), _OTHER)
    failing = Failing(monkeypatch)
    failing.errors["orders"] = StorageError("no answer")
    file = world.folder / "copy.prom"
    with closing(world.follow("orders*", "{topic}", metrics_file=file)) as rounds:
        tried = []
        for copy_round in rounds:
            assert [each.topic for each in copy_round.summaries] == [_OTHER]
            if copy_round.failures:
                tried.append(world.now_s)
                [failure] = copy_round.failures
                assert failure.text.startswith("not copied: ")
            else:
                assert len(copy_round.postponed) == 1
            assert 'failures_total{table="' in file.read_text()
            if len(tried) == 9:
                break
        assert [b - a for a, b in itertools.pairwise(tried)] == [
            300, 300, 600, 1200, 2400, 3600, 3600, 3600,
        ]  # fmt: skip
        assert "} 9\n" in file.read_text()
        failing.errors.clear()
        world.now_s += 3600
        assert len(next(rounds).summaries) == 2
        assert next(rounds).postponed == []
    assert world.rows("orders") == batch_rows(world.bucket.url)


def test_errors_that_never_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """They end it if they are those of all tables."""
    write_topic(world.bucket.url, range(3), _OTHER)
    failing = Failing(monkeypatch)
    failing.errors["orders"] = LakeTableError("no such type")
    with closing(world.follow("orders*", "{topic}")) as rounds:
        assert len(next(rounds).failures) == 1
        failing.errors["orders-2"] = StorageError("no answer")
        assert len(next(rounds).failures) == 2
        failing.errors["orders-2"] = OptionError("no such option")
        with pytest.raises(LakeTableError, match="no such type") as raised:
            list(itertools.islice(rounds, 20))
        assert any("no such option" in each for each in raised.value.__notes__)
    assert world.lease("orders")["holder"] is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"topic": "nothing"}, TopicNotFoundError),
        ({"end": "2024-01-01"}, OptionError),
        ({"interval": timedelta()}, OptionError),
        ({"value": "none"}, OptionError),
        ({"partition_by": ["absent"]}, OptionError),
    ],
)
def test_refusals(options: dict[str, Any], error: type[Exception], world: World) -> None:
    """Options that no round can use are errors of the first one."""
    with pytest.raises(error):
        next(world.follow(**options))


def test_a_catalog_snapshot(world: World) -> None:
    """It never has new ledgers."""
    file = str(world.folder / "catalog.json.gz")
    open_catalog(world.bucket.url).save(file)
    with pytest.raises(OptionError, match="never has new ledgers"):
        next(world.follow(metadata=file))


def test_a_bucket_that_cannot_be_listed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is listed again later, and the metrics count a failure of the target."""
    file = world.folder / "copy.prom"
    with closing(world.follow(metrics_file=file)) as rounds:
        next(rounds)
        with monkeypatch.context() as patches:

            def refuse(_: object) -> None:
                raise StorageError("no answer")

            patches.setattr("connector.catalog.catalog.Catalog.refreshed", refuse)
            waits = [next(rounds).wait_s for _ in range(4)]
        assert waits == [pytest.approx(0.95 * each) for each in (300, 600, 1200, 2400)]
        assert "failures_total" in file.read_text()
        write_topic(world.bucket.url, range(13, 19), append=True)
        assert [each.rows for each in next(rounds).summaries] == [6]


def test_metrics_that_cannot_be_written(world: World) -> None:
    """Rounds continue, and the file is written again when its folder is back."""
    folder = world.folder / "metrics"
    folder.mkdir()
    with closing(world.follow(metrics_file=folder / "copy.prom")) as rounds:
        next(rounds)
        shutil.rmtree(folder)
        write_topic(world.bucket.url, range(13, 19), append=True)
        [failure] = next(rounds).failures
        assert "does not exist" in str(failure.error)
        folder.mkdir()
        assert [each.rows for each in next(rounds).summaries] == [6]
        assert "lag_bytes" in (folder / "copy.prom").read_text()


def test_metrics_do_not_hold_copies_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that copied is followed at the interval, and tables that failed are tried later."""
    write_topic(world.bucket.url, range(3), _OTHER)
    failing = Failing(monkeypatch)
    failing.errors["orders"] = StorageError("no answer")
    with closing(
        world.follow("orders*", "{topic}", metrics_file=world.folder / "copy.prom")
    ) as rounds:
        next(rounds)

        def refuse(*_: object) -> None:
            raise PermissionError(13, "denied")

        monkeypatch.setattr("connector.lake.metrics_file._replace", refuse)
        waits = []
        for _ in range(4):
            copy_round = next(rounds)
            assert "cannot write the metrics" in str(copy_round.failures[-1].error)
            assert len(copy_round.summaries) == 1
            waits.append(copy_round.wait_s)
        assert waits == [300] * 4
        assert failing.tried.count("orders") == 4


def test_a_topic_that_disappears(world: World) -> None:
    """It fails, and the others have tables of their own; it is copied again when it is back."""
    location = Location(world.bucket.url)
    before = {each.name for each in location.list_tree()}
    write_topic(world.bucket.url, range(3), _OTHER)
    own = {each.name for each in location.list_tree()} - before
    with closing(world.follow([TOPIC, _OTHER, "orders-2*"], "{topic}")) as rounds:
        assert len(next(rounds).summaries) == 2
        removed = {each: location.read_object(each, max_bytes=1 << 20).data for each in own}
        location.delete_objects(own)
        write_topic(world.bucket.url, range(13, 19), append=True)
        copy_round = next(rounds)
        assert [each.rows for each in copy_round.summaries] == [6]
        assert [each.topic for each in copy_round.failures] == [_OTHER, "orders-2*"]
        assert {type(each.error) for each in copy_round.failures} == {TopicNotFoundError}
        assert copy_round.wait_s == 300
        world.bucket.put(removed)
        assert [each.rows for each in next(rounds).summaries] == [0, 0]


def test_two_processes(world: World) -> None:
    """One copies; the other does once the first has not renewed its lease for its duration."""
    file = world.folder / "two.prom"
    one, two = world.follow(holder="one"), world.follow(holder="two", metrics_file=file)
    assert next(one).standby == []
    assert world.lease().items() >= {"holder": "one", "duration_s": 900, "lag_bytes": 0}.items()
    for _ in range(6):
        assert len(next(two).standby) == 1
        assert next(one).standby == []
    assert file.read_text() == ""
    write_topic(world.bucket.url, range(13, 19), append=True)
    # The first one is no more.
    start_s = world.now_s
    while not (copy_round := next(two)).summaries:
        assert len(copy_round.standby) == 1
    assert 900 <= world.now_s - start_s <= 1500
    assert [each.rows for each in copy_round.summaries] == [6]
    assert "last_success" in file.read_text()
    # It is back, and waits.
    assert len(next(one).standby) == 1
    one.close()
    assert world.lease()["holder"] == "two"
    two.close()
    assert world.lease()["holder"] is None
    with closing(world.follow(holder="three")) as three:
        assert next(three).standby == []
    assert world.rows() == batch_rows(world.bucket.url)


def test_a_lease_that_was_taken_over(world: World) -> None:
    """A process that stops leaves it to the process that took it over."""
    one, two = world.follow(holder="one"), world.follow(holder="two")
    next(one)
    while not next(two).summaries:
        pass
    one.close()
    assert world.lease()["holder"] == "two"
    two.close()
    assert world.lease()["holder"] is None


def test_a_process_that_starts_again(world: World) -> None:
    """It holds the lease of its own name."""
    one = world.follow(holder="one")
    next(one)
    with closing(world.follow(holder="one")) as again:
        assert next(again).standby == []


def test_a_lease_is_renewed_in_a_long_copy(world: World) -> None:
    """As soon as a third of its duration has passed."""
    renewals = []

    def report(*_: int) -> None:
        world.now_s += 301
        renewals.append(world.lease()["renewals"])

    with closing(world.follow(on_progress=report)) as rounds:
        next(rounds)
    assert renewals[0] == 1
    assert world.lease()["renewals"] > 1


def test_without_a_lease_that_can_be_used(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies need none: of two at a time, one fails and is repeated."""

    def refuse(*_: object, **__: object) -> None:
        raise StorageError("denied")

    monkeypatch.setattr(Lease, "_write", refuse)
    one, two = world.follow(holder="one"), world.follow(holder="two")
    assert [each.rows for each in next(one).summaries] == [13]
    assert [each.rows for each in next(two).summaries] == [0]
    one.close()
    two.close()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[1]",
        b"{",
        b'{"holder": [], "duration_s": 1e300}',
        b'{"holder": "x", "duration_s": "y"}',
    ],
)
def test_a_malformed_lease(content: bytes, world: World) -> None:
    """It holds nobody up for long."""
    path = world.folder / "t" / STATE_FOLDER / LEASE
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with closing(world.follow(interval=timedelta(hours=9))) as rounds:
        while not next(rounds).summaries:
            assert world.now_s < 8 * 24 * 3600


def test_a_copy_of_another_run_comes_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next round copies what that one did not."""
    failing = Failing(monkeypatch)
    failing.errors["t"] = ConcurrentCopyError("at the same time")
    with closing(world.follow()) as rounds:
        assert len(next(rounds).failures) == 1
        failing.errors.clear()
        assert [each.rows for each in next(rounds).summaries] == [13]


def test_memory_does_not_grow(world: World) -> None:
    """What a round allocates is freed, also if it looks for work of maintenance and analysis."""
    options: dict[str, Any] = {
        "maintenance": MaintenanceSettings(min_files=2),
        "analyze": True,
        "statistics": str(world.folder / "statistics"),
        "metrics_file": world.folder / "copy.prom",
    }
    snapshots = []
    with closing(world.follow(**options)) as rounds:
        tracemalloc.start()
        try:
            for number in range(1, 41):
                assert not next(rounds).failures
                if number % 20 == 0:
                    world.waits.clear()
                    gc.collect()
                    snapshots.append(tracemalloc.take_snapshot())
        finally:
            tracemalloc.stop()
    grown = snapshots[1].compare_to(snapshots[0], "lineno")
    # A catalog of three ledgers alone would take more than this a round.
    assert sum(each.size_diff for each in grown) < 16_000, grown[:5]


_COPY: Final = ("copy", URL, "json-orders")
_METADATA: Final = ("--metadata", str(GOLDEN / "pulsar-4.0.7"))


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It prints what each round copied, and an event for each round."""
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise OptionError("enough")

    monkeypatch.setattr(copying, "_wait", wait)
    arguments = (*_COPY, str(tmp_path / "t"), *_METADATA, "--follow", "1m", "--maintain")
    result = run(*arguments, "--json", "--progress=json", ends=USAGE)
    [line] = result.stdout.splitlines()
    assert json.loads(line)["rows"] == 400
    events = [json.loads(each) for each in result.stderr.splitlines()]
    rounds = [each for each in events if each["event"] == "round"]
    assert [each["rows"] for each in rounds] == [400, 0, 0]
    assert all(50 < each["wait_s"] <= 66 for each in rounds)
    assert waits == [pytest.approx(each["wait_s"], abs=1e-3) for each in rounds]
    run(*arguments, "--dry-run", ends=USAGE)
    run(*_COPY, str(tmp_path / "t"), *_METADATA, "--follow", "often", ends=USAGE)


@pytest.mark.posix
@pytest.mark.parametrize(
    ("by", "code"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.exhaustive)],
)
def test_a_signal_releases_the_lease(by: signal.Signals, code: int, tmp_path: Path) -> None:
    """It ends the wait at once, and the table is complete."""
    target = tmp_path / "t"
    arguments = [*_COPY, str(target), *_METADATA, "--follow", "9h", "--progress=json"]
    with subprocess.Popen(
        [sys.executable, "-m", "connector.cli", *arguments, "--format", "parquet"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=dict(os.environ),
        text=True,
    ) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if json.loads(line)["event"] == "round":
                    break
            process.send_signal(by)
            process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == code
    assert json.loads((target / STATE_FOLDER / LEASE).read_bytes())["holder"] is None
    assert table_of(ParquetTable(Location(str(target)))).num_rows == 400


def test_the_recipes_are_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit of systemd and the deployment of Kubernetes call the command with its options."""
    page = Path(__file__).parents[2] / "docs" / "recipes" / "scheduling.md"
    blocks = snippets_of(page.read_text("utf-8"))
    [deployment] = (yaml.safe_load(each.text) for each in blocks if each.kind == "yaml")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    [unit] = (each.text for each in blocks if "--follow" in each.text and each.kind == "ini")
    [line] = (each for each in unit.splitlines() if each.startswith("ExecStart="))
    called: list[dict[str, Any]] = []

    def follow(*arguments: object, **options: object) -> Iterator[CopyRound]:
        called.append({"target": arguments[2], **options})
        raise OptionError("enough")

    monkeypatch.setattr(copying, "follow_copies", follow)
    monkeypatch.setattr(copying, "catalog_at", lambda *_: None)
    for arguments in (container["command"] + container["args"], line[10:].split()):
        run(*arguments[1:], ends=USAGE)
    assert [each["target"] for each in called] == ["s3://lake/{topic}", "lake/{topic}"]
    assert all(each["interval"] == timedelta(minutes=5) for each in called)
    assert deployment["spec"]["selector"]["matchLabels"] == {"app": "follow-copy"}
