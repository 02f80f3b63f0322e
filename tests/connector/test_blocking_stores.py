"""A file system that only one thread may use at a time is read and written through every door."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pytest

from arrow_io.errors import MissingObjectError, StorageError
from connector import copy_topics, open_catalog, open_topic, register_duckdb, write_messages
from connector.upkeep.audit.audit import audit
from connector.upkeep.verify.verification import verify
from tests.support import exclusive_folder
from tests.support.file_servers import PASSWORD, USER, running_ftp_server, running_sftp_server
from tests.support.golden import GOLDEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pyarrow as pa

_TOPIC = "multi-ledger"
_LOGIN: Final = {"username": USER, "password": PASSWORD}
_NO_KEYS: Final = {"look_for_keys": False, "allow_agent": False}


@pytest.fixture
def bucket(tmp_path: Path) -> str:
    """URL of a bucket with a topic of six ledgers."""
    shutil.copytree(GOLDEN / "pulsar-4.0.7" / "objects", tmp_path / "bucket")
    return f"exclusive://{tmp_path}/bucket"


@pytest.fixture
def expected() -> pa.Table:
    """The rows of the topic."""
    return open_topic(str(GOLDEN / "pulsar-4.0.7" / "objects"), _TOPIC).to_table()


@pytest.fixture(autouse=True)
def intrusions() -> Iterator[list[str]]:
    """Threads that came while another was inside: none may be left at a test's end."""
    exclusive_folder.INTRUSIONS.clear()
    yield exclusive_folder.INTRUSIONS
    assert exclusive_folder.INTRUSIONS == []


def _messages() -> pa.Table:
    dataset = open_topic(str(GOLDEN / "pulsar-4.0.7" / "objects"), _TOPIC, value="raw")
    return dataset.to_table(columns=["__key__", "__value__"])


def _topic(url: str) -> pa.Table:
    return open_topic(url, _TOPIC).to_table()


def _streamed(url: str) -> pa.Table:
    return open_topic(url, _TOPIC, range_bytes=1000, batch_rows=10).scanner().to_reader().read_all()


def _catalog(url: str) -> pa.Table:
    return open_topic(url, _TOPIC, catalog=open_catalog(url)).to_table()


def _duckdb(url: str) -> pa.Table:
    with duckdb.connect() as connection:
        register_duckdb(connection)
        return connection.sql(f"from read_pulsar('{_TOPIC}', url := '{url}')").to_arrow_table()


def _polars(url: str) -> pa.Table:
    return open_topic(url, _TOPIC).scan_polars().collect().to_arrow()


@pytest.mark.parametrize("read", [_topic, _streamed, _catalog, _duckdb, _polars])
def test_reads(bucket: str, expected: pa.Table, read: Callable[[str], pa.Table]) -> None:
    """Every door gives the rows, and sends one request at a time."""
    assert read(bucket).num_rows == expected.num_rows


def test_upkeep(bucket: str) -> None:
    """An audit and a verification find what they find in a folder."""
    plain, catalog = open_catalog(bucket.removeprefix("exclusive://")), open_catalog(bucket)
    assert audit(catalog).findings == audit(plain).findings
    checked = [(each.ledger_id, each.problems) for each in verify(catalog.select(_TOPIC))]
    assert checked == [(each.ledger_id, each.problems) for each in verify(plain.select(_TOPIC))]


def test_copies_and_statistics(bucket: str, expected: pa.Table, tmp_path: Path) -> None:
    """A copy copies each row, and statistics are written and gone by."""
    [copied] = copy_topics(bucket, _TOPIC, str(tmp_path / "table"), format="parquet")
    assert copied.rows == expected.num_rows
    folder = f"exclusive://{tmp_path}/statistics"
    assert len(open_catalog(bucket).analyze(folder, _TOPIC)) == 6
    first = expected["__publish_time__"][0].as_py()
    read = open_topic(bucket, _TOPIC, statistics=folder, start=first).to_table()
    assert read.num_rows == expected.num_rows


def test_written_topics(expected: pa.Table, tmp_path: Path) -> None:
    """A topic is written, and appended to."""
    url = f"exclusive://{tmp_path}/new"
    write_messages(url, "written", _messages())
    assert open_topic(url, "written").count_rows() == expected.num_rows


@pytest.mark.parametrize(
    ("running", "options"),
    [(running_ftp_server, _LOGIN), (running_sftp_server, _LOGIN | _NO_KEYS)],
    ids=["ftp", "sftp"],
)
def test_servers(
    running: Callable[[Path], AbstractContextManager[str]],
    options: dict[str, Any],
    expected: pa.Table,
    tmp_path: Path,
) -> None:
    """Topics on servers of FTP and SFTP are read and written, and what fails is a typed error."""
    shutil.copytree(GOLDEN / "pulsar-4.0.7" / "objects", tmp_path / "bucket")
    with running(tmp_path) as url:
        dataset = open_topic(f"{url}bucket", _TOPIC, storage_options=options, range_bytes=4000)
        assert dataset.to_table() == expected
        write_messages(f"{url}new", "written", _messages(), storage_options=options)
        written = open_topic(f"{url}new", "written", storage_options=options)
        assert written.count_rows() == expected.num_rows
        with pytest.raises(MissingObjectError, match="no such folder"):
            open_catalog(f"{url}nowhere", storage_options=options)
        with pytest.raises(StorageError, match="Authentication failed") as raised:
            open_catalog(f"{url}bucket", storage_options=options | {"password": "guessed-wrong"})
        assert "guessed-wrong" not in str(raised.value)
