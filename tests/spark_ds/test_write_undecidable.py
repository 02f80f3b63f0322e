"""Stores that cannot take a name only if it is free, so that nothing can be decided there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from arrow_io.errors import OptionError
from arrow_io.storage.location import Location
from arrow_io.storage.object_store import MemoryObjectStore
from arrow_io.storage.trace import RequestTrace
from connector import write_messages
from spark_ds.datasource import PulsarOffloadDataSource
from tests.support.buckets import MemoryBucket
from tests.support.offloads import names

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCHEMA = StructType([StructField("__value__", StringType())])


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryBucket]:
    """An empty bucket of a store as those of Google and Azure are."""
    empty = MemoryBucket()
    monkeypatch.setattr(MemoryObjectStore, "can_put_new", False)
    yield empty
    empty.drop()


def test_a_write_id_is_refused_before_anything_is_done(bucket: MemoryBucket) -> None:
    """No row is taken, and no request is sent."""
    trace = RequestTrace()

    def rows() -> Iterator[object]:
        pytest.fail("a row was taken")
        yield

    with pytest.raises(OptionError, match="cannot create an object atomically"):
        write_messages(bucket.url, "orders", rows(), write_id="a", trace=trace)

    assert trace.counts.requests == 0


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
