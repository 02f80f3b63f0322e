"""Jobs with a `write_id` that are run again, called as Spark calls a writer, without Spark."""

from __future__ import annotations

import itertools
import pickle
import warnings
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from arrow_io.errors import IncompleteReadWarning, OptionError, StorageError
from arrow_io.storage.location import Location
from arrow_io.storage.object_store import MemoryObjectStore
from arrow_io.storage.trace import RequestTrace
from connector import open_catalog, write_messages
from connector.upkeep.audit.audit import audit
from connector.writing.commit_record import COMMIT_RECORDS_FOLDER
from spark_ds.datasource import PulsarOffloadDataSource
from tests.support.appended_topics import payloads_of
from tests.support.buckets import MemoryBucket
from tests.support.offloads import names
from tests.support.stopping_store import Killed, stopping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.grids import Grid

_TASKS: Final = 2
_ROWS: Final = 3
_SCHEMA: Final = StructType([StructField("__value__", StringType())])
_STREAM: Final = {
    "sql.streaming.queryId": "11111111-2222-3333-4444-555555555555",
    "streaming.sql.batchId": "7",
}
"""What Spark tells tasks of a stream, and of a job that `foreachBatch` starts."""


class _Task:
    def __init__(self, number: int, properties: dict[str, str]) -> None:
        self._number = number
        self._properties = properties

    def partitionId(self) -> int:  # noqa: N802 - Spark's
        return self._number

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's
        return self._properties.get(name)


class _Job:
    """A job that writes rows of a number, in a stream's `foreachBatch` or not."""

    def __init__(
        self, patch: pytest.MonkeyPatch, properties: dict[str, str], **options: str
    ) -> None:
        self._patch = patch
        self._properties = properties
        self._options = {"topic": "orders", "write_id": "n1", **options}

    def run(self, *, rows: int = _ROWS) -> None:
        """Plan, run each task, and commit; abort, as Spark does, if that fails."""
        writer = PulsarOffloadDataSource(self._options).writer(_SCHEMA, overwrite=False)
        messages: list[Any] = []
        try:
            for number in range(_TASKS):
                task = _Task(number, self._properties)
                self._patch.setattr(TaskContext, "get", lambda task=task: task)
                values = [f"{number}-{row}" for row in range(rows)]
                batch = pa.RecordBatch.from_pydict({"__value__": pa.array(values, pa.string())})
                sent = pickle.loads(pickle.dumps(writer))
                messages.append(pickle.loads(pickle.dumps(sent.write(iter([batch])))))
            writer.commit(messages)
        except StorageError:
            # Spark logs it.
            with suppress(StorageError):
                writer.abort(messages)
            raise


@pytest.fixture
def bucket() -> Iterator[MemoryBucket]:
    """An empty bucket."""
    empty = MemoryBucket()
    yield empty
    empty.drop()


def _values(url: str, folder: Path | None) -> list[str]:
    with warnings.catch_warnings():
        # Readers are told of data without index, which the audit is asked for too.
        warnings.simplefilter("ignore", IncompleteReadWarning)
        return [each.decode() for each in payloads_of(url, folder)]


_ALL: Final = [f"{task}-{row}" for task in range(_TASKS) for row in range(_ROWS)]


@pytest.mark.parametrize("properties", [{}, _STREAM], ids=["job", "foreachBatch"])
@pytest.mark.parametrize("first_ledger_id", [None, "5000"])
@pytest.mark.parametrize("has_metadata", [False, True], ids=["bucket", "metadata"])
@pytest.mark.parametrize("error", [Killed, StorageError])
def test_a_job_that_is_run_again_is_there_once(
    monkeypatch: pytest.MonkeyPatch,
    properties: dict[str, str],
    first_ledger_id: str | None,
    error: type[BaseException],
    *,
    has_metadata: bool,
    grid: Grid,
) -> None:
    """Stopped at any request, or not at all: the next run ends it, and the one after is nothing."""
    steps = grid.steps()
    for step in steps:
        bucket = MemoryBucket()
        with TemporaryDirectory() as name:
            folder = Path(name) if has_metadata else None
            options = {"url": bucket.url}
            if first_ledger_id is not None:
                options["first_ledger_id"] = first_ledger_id
            if folder is not None:
                options["metadata_folder"] = name
            job = _Job(monkeypatch, properties, **options)
            once = error is StorageError
            with stopping(step, lambda: error("stopped"), once=once) as stopped, suppress(error):
                job.run()
            for _ in range(2):
                job.run()

                assert _values(bucket.url, folder) == _ALL, step
                catalog = open_catalog(bucket.url, metadata=name if has_metadata else None)
                assert audit(catalog).findings == (), step
        bucket.drop()
        if not stopped:
            steps.passed()
    assert steps.count >= 10


def test_what_was_decided_is_ended_by_a_job_without_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that the source has lost meanwhile were decided, and some of them are seen already."""
    decided = 0
    for step in itertools.count(1):
        bucket = MemoryBucket()
        job = _Job(monkeypatch, {}, url=bucket.url)
        with stopping(step, lambda: Killed("stopped"), once=False) as stopped, suppress(Killed):
            job.run()
        records = Location(bucket.url).child(COMMIT_RECORDS_FOLDER).child("public__default__orders")
        is_committed = bool(names(records))

        job.run(rows=0)

        if is_committed:
            decided += 1
            assert _values(bucket.url, None) == _ALL, step
        bucket.drop()
        if not stopped:
            break
    assert decided > _TASKS


@pytest.mark.parametrize("properties", [{}, _STREAM], ids=["job", "foreachBatch"])
def test_only_a_job_that_wrote_nothing_says_so(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    bucket: MemoryBucket,
    properties: dict[str, str],
) -> None:
    """The log has a line when the id was published before, and none of it otherwise."""
    job = _Job(monkeypatch, properties, url=bucket.url)

    job.run()
    assert "published before" not in caplog.text
    job.run()
    assert "a write n1" in caplog.text
    assert "was published before: nothing was written now" in caplog.text


@pytest.fixture
def undecidable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no store take a name only if it is free, as those of Google and Azure do not."""
    monkeypatch.setattr(MemoryObjectStore, "can_put_new", False)


@pytest.mark.usefixtures("undecidable")
def test_a_write_id_is_refused_before_anything_is_done(bucket: MemoryBucket) -> None:
    """No row is taken, and no request is sent."""
    trace = RequestTrace()

    def rows() -> Iterator[object]:
        pytest.fail("a row was taken")
        yield

    with pytest.raises(OptionError, match="cannot create an object atomically"):
        write_messages(bucket.url, "orders", rows(), write_id="a", trace=trace)

    assert trace.counts.requests == 0


@pytest.mark.usefixtures("undecidable")
def test_spark_is_refused_before_any_task_runs(bucket: MemoryBucket) -> None:
    """Be it a job with an id or the sink of a stream; a job without an id is not."""
    job = PulsarOffloadDataSource({"url": bucket.url, "topic": "orders"})
    named = PulsarOffloadDataSource({**job.options, "write_id": "a"})

    job.writer(_SCHEMA, overwrite=False)
    with pytest.raises(OptionError, match="cannot create an object atomically"):
        named.writer(_SCHEMA, overwrite=False)
    with pytest.raises(OptionError, match="cannot create an object atomically"):
        job.streamWriter(_SCHEMA, overwrite=False)

    assert names(Location(bucket.url)) == []
