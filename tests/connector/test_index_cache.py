"""What opening a topic on S3 asks the store for, with and without the index cache."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import duckdb
import pytest

from arrow_io.format.index_block import FORMAT_VERSION_KEY
from arrow_io.format.object_names import LedgerObjectName
from arrow_io.ledgers.writer import new_ledger_metadata
from arrow_io.storage import index_cache
from connector import open_catalog, open_topic
from tests.support.buckets import offload_ledger
from tests.support.command_line import lines_of, run, store_arguments
from tests.support.encoded_ledgers import encode_ledger
from tests.support.entries import Message, encode_entry
from tests.support.golden import GOLDEN
from tests.support.large_bucket import LargeBucket
from tests.support.s3_server import running_s3_server
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from tests.support.s3_server import S3Address, S3Server

pytestmark = pytest.mark.s3

_LEDGERS: Final = 4
_TOPIC: Final = "t0"


def _objects(ledgers: int) -> dict[str, bytes]:
    """The objects of a topic with so many ledgers of five messages each."""
    bucket = LargeBucket.of(1, ledgers)
    [topic] = bucket.topics
    entry = encode_entry([Message(payload=b"value")] * 5, batched=True)
    name = LedgerObjectName(UUID(int=1), 0)
    owner = topic.managed_ledger_name
    data, index = offload_ledger(name, [entry], managed_ledger=owner).values()
    names = bucket.names(topic)
    return {each.data_name: data for each in names} | {each.index_name: index for each in names}


class _Requests:
    """The HTTP requests that a server received, by what they are for.

    Args:
        app: Answers them.

    Attributes:
        wave: Requests for index objects are answered when so many are there; None: at once.
    """

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.wave: threading.Barrier | None = None

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        method, name = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        kind = method.lower()
        if "list-type" in environ.get("QUERY_STRING", ""):
            kind = "list"
        elif method == "GET":
            kind = "index" if name.endswith("-index") else "range"
        with self._lock:
            self.counts[kind] += 1
        if kind == "index" and self.wave is not None:
            self.wave.wait(PATIENCE_S)
        return self._app(environ, start_response)

    def take_counts(self) -> dict[str, int]:
        """Return the counts since the last call."""
        with self._lock:
            counts, self.counts = dict(self.counts), Counter()
        return counts


class _Server:
    """A server with a bucket of one topic, and the requests that it received."""

    def __init__(self, server: S3Server, requests: _Requests) -> None:
        self.server = server
        self.requests = requests
        self.address: S3Address = server.upload(_objects(_LEDGERS))

    @property
    def options(self) -> dict[str, Any]:
        """Options of `open_topic`."""
        return {"storage_options": self.address.storage_options}


@pytest.fixture(scope="module")
def store() -> Iterator[_Server]:
    """A bucket with a few ledgers of a topic."""
    made: list[_Requests] = []

    def wrap(app: WSGIApplication) -> WSGIApplication:
        made.append(_Requests(app))
        return made[0]

    with running_s3_server(wrap) as server:
        yield _Server(server, made[0])


@pytest.fixture(autouse=True)
def _no_requests_before(store: _Server) -> None:
    store.requests.take_counts()


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an empty cache that is on."""
    folder = tmp_path / "index"
    monkeypatch.delenv(index_cache.SWITCH)
    monkeypatch.setattr(index_cache, "_cache_folder", lambda: folder)
    return folder


_ALL: Final = {"list": 1, "index": _LEDGERS}
_FIRST: Final = {**_ALL, "range": 1}
_SECOND: Final = {"list": 1, "range": 1}


@pytest.mark.usefixtures("cache_folder")
@pytest.mark.parametrize("client", ["fsspec", "obstore"])
def test_second_head_makes_a_listing_and_a_range_request(store: _Server, client: str) -> None:
    """In the shell, without metadata, through either client; the rows are the same."""
    command = ("head", store.address.url, _TOPIC, "-n", "3", "--value", "raw")
    arguments = store_arguments(store.address.storage_options | {"client": client})

    first = lines_of(*command, *arguments)
    assert store.requests.take_counts() == _FIRST

    assert lines_of(*command, *arguments) == first
    assert store.requests.take_counts() == _SECOND


def test_off_is_off(store: _Server, cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the option, in Python and the shell, and by the environment."""
    url, options = store.address.url, store.options
    arguments = store_arguments(store.address.storage_options)
    open_catalog(url, **options, index_cache=False)
    run("head", url, _TOPIC, "-n0", "--value", "raw", "--index-cache", "false", *arguments)
    with monkeypatch.context() as patch:
        patch.setenv(index_cache.SWITCH, "0")
        open_topic(url, _TOPIC, value="raw", **options)

    assert store.requests.take_counts()["index"] == 3 * _LEDGERS
    assert not cache_folder.exists()


@pytest.mark.usefixtures("cache_folder")
@pytest.mark.parametrize("command", ["audit", "clean", "repair", "report"])
def test_commands_of_the_owner_read_the_bucket_itself(
    store: _Server, tmp_path: Path, command: str
) -> None:
    """Whatever the cache has."""
    open_catalog(store.address.url, **store.options)
    store.requests.take_counts()
    metadata = LargeBucket.of(1, _LEDGERS).save_metadata(tmp_path / "metadata")
    more = ("--output", str(tmp_path / "report.html")) if command == "report" else ()

    run(
        command,
        store.address.url,
        "--metadata",
        str(metadata),
        *more,
        *store_arguments(store.address.storage_options),
    )

    assert store.requests.take_counts()["index"] == _LEDGERS


def test_index_objects_are_read_64_at_a_time(store: _Server) -> None:
    """The server answers none before all are there; fewer would fail, not take longer."""
    address = store.server.upload(_objects(64))
    store.requests.take_counts()
    store.requests.wave = threading.Barrier(64)
    try:
        open_catalog(address.url, **store.options)
    finally:
        store.requests.wave = None

    assert store.requests.take_counts() == {"list": 1, "index": 64}


@pytest.mark.parametrize("is_cached", [False, True])
def test_first_row_takes_three_round_trips_with_metadata(
    store: _Server, cache_folder: Path, tmp_path: Path, *, is_cached: bool
) -> None:
    """A listing, all index objects of the topic at once, and a range; two if they are cached."""
    del cache_folder
    metadata = LargeBucket.of(1, _LEDGERS).save_metadata(tmp_path / "metadata")
    options: dict[str, Any] = {**store.options, "metadata": metadata, "value": "raw"}
    if is_cached:
        open_topic(store.address.url, _TOPIC, **options)
        store.requests.take_counts()
    store.requests.wave = threading.Barrier(_LEDGERS)
    try:
        dataset = open_topic(store.address.url, _TOPIC, **options)
        rows = duckdb.from_arrow(dataset).limit(5).fetchall()
    finally:
        store.requests.wave = None

    assert len(rows) == 5
    # The barrier makes one round trip of the requests for index objects.
    assert store.requests.take_counts() == (_SECOND if is_cached else _FIRST)


@pytest.mark.usefixtures("cache_folder")
def test_objects_that_change_vanish_and_come_back(store: _Server) -> None:
    """Between two opens: new objects are read, and deleted ones are no ledgers any more."""
    server = store.server
    objects = _objects(4)
    address = server.upload(objects)
    client, bucket = server.client, address.url.removeprefix("s3://")
    options: dict[str, Any] = {"storage_options": address.storage_options, "value": "raw"}
    name = next(each for each in objects if each.endswith("-index"))

    def opened() -> tuple[int, int]:
        """The ledgers, and the index objects that were read."""
        store.requests.take_counts()
        ledgers = len(open_topic(address.url, _TOPIC, **options).scan.topics[0].ledgers)
        return ledgers, store.requests.take_counts().get("index", 0)

    assert (opened(), opened()) == ((4, 4), (4, 0))
    # The same ledger, whose index object has another owner: another ETag, and as many bytes.
    other = objects[name].replace(b"/t0", b"/t1")
    assert len(other) == len(objects[name])
    client.put_object(Bucket=bucket, Key=name, Body=other)
    assert (opened(), opened()) == ((3, 1), (3, 0))
    client.delete_object(Bucket=bucket, Key=name)
    client.delete_object(Bucket=bucket, Key=name.removesuffix("-index"))
    assert opened() == (3, 0)
    client.put_object(Bucket=bucket, Key=name, Body=objects[name])
    client.put_object(
        Bucket=bucket, Key=name.removesuffix("-index"), Body=objects[name.removesuffix("-index")]
    )
    ledgers, read = opened()
    assert ledgers == 4
    assert read <= 1  # none, if the store gives it the time of its first write
    assert opened() == (4, 0)


@pytest.mark.parametrize("damage", ["cut", "garbage", "no folder"])
def test_cache_that_does_not_work_costs_requests_only(
    store: _Server, cache_folder: Path, damage: str
) -> None:
    """It is no error, and the rows are the same."""
    options: dict[str, Any] = {**store.options, "value": "raw"}
    if damage == "no folder":
        cache_folder.write_bytes(b"in the way")
    expected = open_topic(store.address.url, _TOPIC, **options).to_table()
    for each in cache_folder.rglob("*"):
        if each.is_file():
            each.write_bytes(each.read_bytes()[:-1] if damage == "cut" else bytes(100))
    store.requests.take_counts()

    assert open_topic(store.address.url, _TOPIC, **options).to_table() == expected
    assert store.requests.take_counts()["index"] == _LEDGERS
    if damage != "no folder":
        open_catalog(store.address.url, **store.options)
        assert store.requests.take_counts() == {"list": 1}


@pytest.mark.parametrize(
    "set_name", ["streaming-4.0.6-one-entry", "streaming-4.0.6-two-ledgers-blocks"]
)
def test_segments_of_streaming_offload_are_read_once(
    store: _Server, cache_folder: Path, set_name: str
) -> None:
    """With the user metadata that names a topic; only searches for blocks are repeated."""
    objects = {each.name: each.read_bytes() for each in (GOLDEN / set_name / "objects").iterdir()}
    address = store.server.upload(objects)
    store.requests.take_counts()
    first = open_catalog(address.url, **store.options)
    reads = store.requests.take_counts()

    second = open_catalog(address.url, **store.options)

    assert reads.pop("index") == 1
    assert store.requests.take_counts() == reads
    assert second.contents == first.contents
    assert cache_folder.exists()


def test_user_metadata_that_names_the_topic_is_cached(store: _Server, cache_folder: Path) -> None:
    """Older releases of Pulsar wrote it nowhere else; S3 returns it with the index object."""
    entries = [encode_entry([Message(payload=b"value")], batched=False)]
    ledger = new_ledger_metadata([len(entries[0])], managed_ledger="gone", ctime_ms=0)
    encoded = encode_ledger(entries, replace(ledger, custom_metadata={}))
    pair = LedgerObjectName(UUID(int=1), 0)
    bucket = store.server.new_bucket()
    for name, data in ((pair.data_name, encoded.data), (pair.index_name, encoded.index)):
        metadata = {"managedledgername": f"public/default/persistent/{_TOPIC}"}
        metadata[FORMAT_VERSION_KEY] = "1"
        store.server.client.put_object(Bucket=bucket, Key=name, Body=data, Metadata=metadata)
    store.requests.take_counts()
    for expected in ({"list": 1, "index": 1}, {"list": 1}):
        catalog = open_catalog(f"s3://{bucket}", **store.options)

        assert [str(each) for each in catalog.topics()] == [f"persistent://public/default/{_TOPIC}"]
        assert store.requests.take_counts() == expected
    assert cache_folder.exists()
