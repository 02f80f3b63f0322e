"""Copies to tables of a catalog that is a server have each row once, whatever disturbs them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from botocore.httpsession import URLLib3Session
from pyiceberg.exceptions import NoSuchTableError
from requests import PreparedRequest, Session
from requests.adapters import HTTPAdapter

from arrow_io.errors import ConcurrentCopyError, LakeTableError, OptionError
from connector import CopySizes, MaintenanceSettings, copy_topics, maintain_table
from connector.lake.maintenance import maintain
from connector.tables.table_kinds import open_table
from tests.support.lake_copies import COLUMNS, SCHEMA, batch_rows, in_order, write_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyiceberg.table import Table

    from tests.catalogs.conftest import Lake
    from tests.support.buckets import MemoryBucket
    from tests.support.grids import Grid

pytestmark = [pytest.mark.catalogs, pytest.mark.timeout(600)]

_SMALL: Final = CopySizes(task_bytes=1, commit_bytes=1)
_FROM_NOW: Final = MaintenanceSettings(
    min_files=2, expire_after=timedelta(), delete_after=timedelta()
)


class _KilledError(BaseException):
    """The process is no more."""


def _copy(bucket: MemoryBucket, lake: Lake, **options: Any) -> int:  # noqa: ANN401
    """Copy what is new, and return how many rows that was."""
    table_options = lake.options | options.pop("table_options", {})
    summaries = copy_topics(
        bucket.url,
        "orders",
        lake.name,
        format="iceberg",
        table_options=table_options,
        target_options=lake.storage_options,
        schema=SCHEMA,
        **options,
    )
    return sum(each.rows for each in summaries)


def _load(lake: Lake) -> Table:
    return lake.open().load_table(lake.name)


def _rows(lake: Lake, **options: Any) -> pa.Table:  # noqa: ANN401
    return _load(lake).scan(**options).to_arrow()


@contextmanager
def _watched(happens: Callable[[int], None]) -> Iterator[None]:
    """Call a function before and after each request to a catalog, with the number of these calls.

    Requests that the function itself sends do not count.
    """
    count, is_own = 0, False

    def happen() -> None:
        nonlocal count, is_own
        if is_own:
            return
        is_own, count = True, count + 1
        try:
            happens(count)
        finally:
            is_own = False

    def wrap(send: Callable[..., Any]) -> Callable[..., Any]:
        def send_and_tell(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            happen()
            answer = send(*args, **options)
            happen()
            return answer

        return send_and_tell

    with (
        mock.patch.object(Session, "send", wrap(Session.send)),
        mock.patch.object(URLLib3Session, "send", wrap(URLLib3Session.send)),
    ):
        yield


def test_each_run_copies_what_is_new(bucket: MemoryBucket, lake: Lake) -> None:
    """PyIceberg, DuckDB and Polars read the rows of a batch read."""
    write_topic(bucket.url, range(10))
    partition_by = ["day(__publish_time__)", "bucket(4, __key__)"]
    assert _copy(bucket, lake, partition_by=partition_by) == 10
    assert _copy(bucket, lake) == 0
    write_topic(bucket.url, range(10, 25), append=True)
    assert _copy(bucket, lake) == 15

    expected = batch_rows(bucket.url)
    table = _load(lake)
    assert in_order(_rows(lake).select(list(COLUMNS))) == expected
    with duckdb.connect() as connection:
        table.scan().to_duckdb("copied", connection)
        sums = connection.execute("select count(*), sum(number) from copied").fetchone()
    numbers = [row["number"] for row in expected]
    assert sums == (len(numbers), sum(numbers))
    frame = pl.scan_iceberg(table, reader_override="pyiceberg").collect()
    assert frame["number"].sum() == sum(numbers)


def test_killed_at_each_request(bucket: MemoryBucket, lakes: Iterator[Lake], grid: Grid) -> None:
    """A run is killed at any request, before it or before its answer, and the next one finishes."""
    write_topic(bucket.url, range(8))
    expected = batch_rows(bucket.url)
    steps = grid.steps()
    for step in steps:
        lake = next(lakes)

        def kill(number: int, step: int = step) -> None:
            if number == step:
                raise _KilledError

        try:
            with _watched(kill):
                _copy(bucket, lake, sizes=_SMALL)
        except _KilledError:
            _copy(bucket, lake, sizes=_SMALL)
        else:
            steps.passed()
        assert in_order(_rows(lake).select(list(COLUMNS))) == expected, step
    assert steps.count > 10


def test_two_runs_at_a_time(bucket: MemoryBucket, lakes: Iterator[Lake], grid: Grid) -> None:
    """If another run copies all at a request of one, each row is in the table once."""
    write_topic(bucket.url, range(8))
    expected = batch_rows(bucket.url)
    steps = grid.steps()
    failures = 0
    for step in steps:
        lake = next(lakes)
        has_come = False

        def come(number: int, lake: Lake = lake, step: int = step) -> None:
            nonlocal has_come
            if number == step:
                has_come = True
                _copy(bucket, lake)

        with _watched(come):
            try:
                _copy(bucket, lake)
            except ConcurrentCopyError:
                failures += 1
        if not has_come:
            steps.passed()
        assert in_order(_rows(lake).select(list(COLUMNS))) == expected, step
    assert failures > 0


def test_maintenance(bucket: MemoryBucket, lake: Lake) -> None:
    """Files are merged, snapshots expire, files are deleted; rows and progress remain."""
    for number in range(4):
        write_topic(bucket.url, range(number * 6, number * 6 + 6), append=number > 0)
        _copy(bucket, lake)
    table = open_table("iceberg", lake.name, lake.storage_options, lake.options)

    later = datetime.now(UTC) + timedelta(hours=1)
    summary = maintain(table, "iceberg", _FROM_NOW, later)  # type: ignore[arg-type] # it is one

    assert (summary.merged_files, summary.new_files) == (4, 1)
    assert summary.expired_versions == 4
    assert len(summary.deleted_files) >= 8
    assert in_order(_rows(lake).select(list(COLUMNS))) == batch_rows(bucket.url)
    assert _copy(bucket, lake) == 0
    write_topic(bucket.url, range(24, 30), append=True)
    assert _copy(bucket, lake) == 6
    assert in_order(_rows(lake).select(list(COLUMNS))) == batch_rows(bucket.url)


def test_maintenance_killed_at_each_request(
    bucket: MemoryBucket, lakes: Iterator[Lake], grid: Grid
) -> None:
    """The table is complete, and a later run finishes."""
    write_topic(bucket.url, range(4))
    expected = batch_rows(bucket.url)
    steps = grid.steps()
    for step in steps:
        lake = next(lakes)
        _copy(bucket, lake, sizes=_SMALL)

        def kill(number: int, step: int = step) -> None:
            if number == step:
                raise _KilledError

        try:
            with _watched(kill):
                _maintain(lake)
        except _KilledError:
            assert in_order(_rows(lake).select(list(COLUMNS))) == expected, step
            _maintain(lake)
        else:
            steps.passed()
        assert len(list(_load(lake).scan().plan_files())) == 1
        assert in_order(_rows(lake).select(list(COLUMNS))) == expected, step
        assert _copy(bucket, lake) == 0


def _maintain(lake: Lake) -> None:
    maintain_table(
        lake.name,
        format="iceberg",
        target_options=lake.storage_options,
        table_options=lake.options,
        settings=MaintenanceSettings(min_files=2, expire_after=timedelta()),
    )


def test_what_a_new_table_has(bucket: MemoryBucket, lake: Lake) -> None:
    """Properties, sort order and identifier are those of the options."""
    options = {"sort-order": "country", "table-default.history.expire.min-snapshots-to-keep": "5"}
    write_topic(bucket.url, range(10))
    _copy(bucket, lake, table_options=options, latest_per_key=True)

    table = _load(lake)
    assert table.properties["history.expire.min-snapshots-to-keep"] == "5"
    [order] = table.sort_order().fields
    assert table.schema().find_column_name(order.source_id) == "country"
    assert table.schema().identifier_field_names() == {"__key__"}
    write_topic(bucket.url, range(10, 15), append=True)
    assert _copy(bucket, lake, latest_per_key=True) == 5
    assert sorted(_rows(lake)["__key__"].to_pylist()) == ["k0", "k1", "k2", "k3", "k4"]


def test_a_branch_and_a_tag(bucket: MemoryBucket, lake: Lake) -> None:
    """A copy to a branch leaves the rows of others alone, until the branch is published."""
    write_topic(bucket.url, range(6))
    with pytest.raises(OptionError, match="no rows yet"):
        _copy(bucket, lake, table_options={"branch": "audit"})
    assert _copy(bucket, lake, table_options={"tag": "first"}) == 6
    write_topic(bucket.url, range(6, 10), append=True)
    assert _copy(bucket, lake, table_options={"branch": "audit", "tag": "audited"}) == 4
    assert _copy(bucket, lake, table_options={"branch": "audit"}) == 0

    table = _load(lake)
    counts = {
        name: table.scan(snapshot_id=ref.snapshot_id).count()
        for name, ref in table.metadata.refs.items()
    }
    assert counts == {"main": 6, "first": 6, "audit": 10, "audited": 10}
    table.manage_snapshots().set_current_snapshot(ref_name="audit").commit()
    assert _copy(bucket, lake) == 0
    assert in_order(_rows(lake).select(list(COLUMNS))) == batch_rows(bucket.url)


def test_a_table_of_version_3(bucket: MemoryBucket, rest: Lake) -> None:
    """PyIceberg reads it and cannot write it: a copy and maintenance say so, and write nothing."""
    lake = replace(rest, name="v3.orders")
    lake.open().create_namespace("v3")
    columns = pa.schema({"number": pa.int64()})
    table = lake.open().create_table(lake.name, columns, properties={"format-version": "3"})
    write_topic(bucket.url, range(3))

    with pytest.raises(LakeTableError, match=r"v3\.orders has format version 3"):
        _copy(bucket, lake)
    with pytest.raises(LakeTableError, match=r"v3\.orders has format version 3"):
        _maintain(lake)
    assert not Path(table.location().removeprefix("file:"), "data").exists()


@pytest.mark.parametrize(
    ("options", "authorization", "query"),
    [
        (
            {"warehouse": "lake", "token": "unity-token"},
            "Bearer unity-token",
            "warehouse=lake",
        ),
        (
            {
                "warehouse": "arn:aws:s3tables:eu-west-1:1:bucket/lake",
                "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
                "rest.sigv4-enabled": "true",
                "rest.signing-name": "s3tables",
                "rest.signing-region": "eu-west-1",
                "client.access-key-id": "key",
                "client.secret-access-key": "secret",
            },
            "AWS4-HMAC-SHA256 Credential=key/",
            "warehouse=arn%3Aaws%3As3tables%3Aeu-west-1%3A1%3Abucket%2Flake",
        ),
    ],
    ids=["unity", "s3tables"],
)
def test_what_services_expect(
    bucket: MemoryBucket, rest: Lake, options: dict[str, str], authorization: str, query: str
) -> None:
    """A copy by the options of the documentation sends the credentials and names the warehouse."""
    name = f"{authorization.partition(' ')[0]}.orders".replace("-", "_")
    lake = replace(rest, name=name)
    rest.open().create_namespace(name.partition(".")[0])
    write_topic(bucket.url, range(3))
    requests: list[PreparedRequest] = []
    send = HTTPAdapter.send

    def record(self: Any, request: PreparedRequest, **more: Any) -> Any:  # noqa: ANN401
        requests.append(request)
        return send(self, request, **more)

    with mock.patch.object(HTTPAdapter, "send", record):
        assert _copy(bucket, lake, table_options=options) == 3

    assert query in str(requests[0].url)
    assert len(requests) > 3
    for each in requests:
        assert str(each.headers["Authorization"]).startswith(authorization)


def test_a_catalog_that_is_down(bucket: MemoryBucket, lake: Lake) -> None:
    """The error names the table, shows no secret, and leaves no table."""
    write_topic(bucket.url, range(3))
    secret = "very-" + "secret"

    def refuse(_number: int) -> None:
        raise ConnectionError(f"connection refused: {secret}")

    options = {"token": secret, "glue.session-token": secret}
    with _watched(refuse), pytest.raises(Exception, match="catalog") as failed:
        _copy(bucket, lake, table_options=options)
    assert secret not in str(failed.value)
    with pytest.raises(NoSuchTableError):
        _load(lake)
