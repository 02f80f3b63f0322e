"""Credentials go where they were registered for, whatever place a statement names."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pytest

from connector import UnusedStatisticsWarning, open_catalog, register_duckdb
from connector.engines.credential_scope import HOSTLESS, origins
from tests.support.golden import GOLDEN
from tests.support.http_servers import serving
from tests.support.lake_copies import write_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.s3_server import S3Server

_SECRET: Final = "Bearer s3cr3t-of-the-registrar"  # noqa: S105 - invented
_GOLDEN: Final = str(GOLDEN / "pulsar-4.0.7-small" / "objects")


@dataclass
class _Host:
    """A server that has nothing, and remembers what it was told."""

    url: str = ""
    told: list[str | None] = field(default_factory=list)
    page: bytes | None = None
    """A page that it answers with instead, for a folder."""


@contextmanager
def _host() -> Iterator[_Host]:
    host = _Host()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host.told.append(self.headers.get("Authorization"))
            if host.page is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(host.page)))
            self.end_headers()
            self.wfile.write(host.page)

        do_HEAD = do_GET  # noqa: N815 - the name that the base class looks for

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as host.url:
        yield host


@pytest.fixture
def own() -> Iterator[_Host]:
    """The host that credentials are registered for."""
    with _host() as host:
        yield host


@pytest.fixture
def other() -> Iterator[_Host]:
    """One that a statement names."""
    with _host() as host:
        yield host


def _run(sql: str, url: str | None, **options: Any) -> str:  # noqa: ANN401
    with duckdb.connect() as con:
        register_duckdb(con, url, **options)
        with pytest.raises(duckdb.Error) as caught:
            con.execute(sql)
    return str(caught.value)


_STORAGE: Final = {"client_kwargs": {"headers": {"Authorization": _SECRET}}}
_TOKEN: Final = {"token": _SECRET.removeprefix("Bearer ")}


@pytest.mark.parametrize(
    "argument",
    [
        "url := '{other}/bucket'",
        "url := 'zip::{other}/bucket'",
        "schema := '{other}/schema.json'",
        "schema := ['{other}/schema.json', '{own}/schema.json']",
        "schema := '[\"{other}/schema.json\"]'",
        "buckets := {{'b': '{other}/bucket'}}, metadata := 'tests/data/golden/pulsar-4.0.7-small'",
    ],
)
def test_storage_options_stay(own: _Host, other: _Host, argument: str) -> None:
    """A URL of another port in a statement is asked without the registrar's headers."""
    named = argument.format(own=own.url, other=other.url)

    _run(f"FROM read_pulsar('t', {named})", f"{own.url}/bucket", storage_options=_STORAGE)

    assert _SECRET not in other.told
    if "buckets" not in argument:
        assert other.told


_OF_STATISTICS = [f"{name}('small-chunked', {{}})" for name in ("read_pulsar", "pulsar_plan")]
_OF_STATISTICS.append("pulsar_zones({})")


@pytest.mark.parametrize("function", _OF_STATISTICS)
@pytest.mark.parametrize("has_catalog", [False, True])
def test_storage_options_go_to_no_other_statistics(
    other: _Host, function: str, *, has_catalog: bool
) -> None:
    """Statistics at another host are refused, unless the statement says what to send there."""
    given: dict[str, Any] = {"storage_options": _STORAGE}
    if has_catalog:
        given = {"catalog": open_catalog(_GOLDEN, storage_options=_STORAGE)}
    sql = f"FROM {function}"

    text = _run(sql.format(f"statistics := '{other.url}/s'"), _GOLDEN, value="raw", **given)

    assert other.told == []
    assert "set storage_options in the statement" in text
    own_headers = {"client_kwargs": {"headers": {"Authorization": "mine"}}}
    named = f"url := '{_GOLDEN}', statistics := '{other.url}/s', storage_options := {own_headers}"
    with duckdb.connect() as con:
        register_duckdb(con, _GOLDEN, value="raw", **given)
        with pytest.raises(duckdb.Error, match="there is no folder"):
            con.execute(sql.format(named))
    assert set(other.told) == {"mine"}


def test_storage_options_go_to_no_table_on_another_host(other: _Host) -> None:
    """A statement may name a table, and receives no credentials for another host with it."""
    sql = f"FROM read_pulsar('small-chunked', lake := '{other.url}/t')"

    text = _run(sql, _GOLDEN, value="raw", storage_options=_STORAGE)
    assert other.told == []
    assert "set storage_options in the statement" in text
    registered = {"lake": f"{_GOLDEN}/t", "lake_options": {"storage_options": _STORAGE}}
    text = _run(sql, _GOLDEN, value="raw", **registered)
    assert _SECRET not in other.told
    assert "register_duckdb's lake_options were not sent there" in text


@pytest.mark.parametrize("has_catalog", [False, True])
def test_storage_options_go_to_no_endpoint_of_a_table(
    other: _Host, s3_server: S3Server, *, has_catalog: bool
) -> None:
    """Options of a table in a statement may name the host of a store whose URL has none."""
    url = f"s3://{s3_server.new_bucket()}/offloaded"
    write_topic(url, range(3), storage_options=s3_server.storage_options)
    given: dict[str, Any] = {"storage_options": s3_server.storage_options}
    if has_catalog:
        given = {"catalog": open_catalog(url, **given)}
    endpoint = {"AWS_ENDPOINT_URL": other.url, "AWS_ALLOW_HTTP": "true"}
    sql = f"FROM read_pulsar('orders', lake := 's3://other/t', lake_options := {endpoint})"

    text = _run(sql, url, value="raw", **given)

    assert other.told == []
    assert "set storage_options in lake_options" in text


@pytest.mark.parametrize("function", ["read_pulsar", "pulsar_zones", "pulsar_plan"])
def test_storage_options_go_to_no_statistics_of_a_snapshot(
    other: _Host, tmp_path: Path, function: str
) -> None:
    """A snapshot that a statement names may name another host; a registered one is trusted."""
    snapshot = str(tmp_path / "catalog.json.gz")
    other.page = b'<html><a href="notes.txt">notes.txt</a></html>'
    with pytest.warns(UnusedStatisticsWarning):
        open_catalog(_GOLDEN).save(snapshot, statistics=f"{other.url}/s")
    other.page = None
    other.told.clear()
    given: dict[str, Any] = {"storage_options": _STORAGE, "value": "raw"}

    sql = f"FROM {function}('small-chunked', metadata := '{snapshot}')"
    text = _run(sql, _GOLDEN, **given)

    assert other.told == []
    assert "set storage_options in the statement" in text
    with duckdb.connect() as con:
        register_duckdb(con, _GOLDEN, metadata=snapshot, **given)
        # The host has no statistics, which matters to who asks for them alone.
        with suppress(duckdb.Error):
            con.execute(f"FROM {function}('small-chunked')")
    assert set(other.told) == {_SECRET}


@pytest.mark.parametrize("function", ["read_pulsar('t', {})", "pulsar_topics({})"])
@pytest.mark.parametrize("form", ["'{}'", "{{'t': '{}/x'}}"])
def test_metadata_options_stay(own: _Host, other: _Host, function: str, form: str) -> None:
    """Another cluster in a statement never hears the token, and the error says so."""
    named = f"metadata := {form.format(other.url)}"

    text = _run(
        f"FROM {function.format(named)}",
        _GOLDEN,
        metadata=own.url,
        metadata_options=_TOKEN,
    )

    assert other.told
    assert _SECRET not in other.told
    assert "register_duckdb's metadata_options were not sent there" in text


def test_options_go_where_they_were_registered_for(own: _Host, other: _Host) -> None:
    """By another path too; and what a statement gives itself goes where it says."""
    _run(f"FROM read_pulsar('t', url := '{own.url}/else')", own.url, storage_options=_STORAGE)
    assert set(own.told) == {_SECRET}
    own.told.clear()

    upper = own.url.replace("http", "HTTP")
    _run(
        f"FROM read_pulsar('t', metadata := '{upper}/')",
        _GOLDEN,
        metadata=own.url,
        metadata_options=_TOKEN,
    )
    assert set(own.told) == {_SECRET}

    _run(
        f"FROM read_pulsar('t', metadata := '{other.url}', metadata_options := {_TOKEN})",
        _GOLDEN,
        metadata=own.url,
    )
    assert set(other.told) == {_SECRET}


def test_options_without_a_place_go_to_no_host_of_a_statement(other: _Host) -> None:
    """Whoever registers headers alone has not said whose they are."""
    _run(f"FROM read_pulsar('t', url := '{other.url}')", None, storage_options=_STORAGE)
    _run(
        f"FROM read_pulsar('t', metadata := '{other.url}')",
        _GOLDEN,
        metadata_options=_TOKEN,
    )

    assert other.told
    assert _SECRET not in other.told


@pytest.mark.parametrize("function", ["read_pulsar", "pulsar_plan", "pulsar_bounds"])
def test_options_without_a_place_go_to_listed_stores_only(function: str) -> None:
    """A URL that names no host may still lead to one, which its scheme implies."""
    text = _run(f"FROM {function}('t', url := 'unheard:///x')", None, storage_options=_STORAGE)

    assert "topic t: " in text
    assert "register_duckdb's storage_options were not sent there" in text
    assert origins(["s3://bucket", "az://container"]) <= HOSTLESS
    assert origins("github://org:repo@/").isdisjoint(HOSTLESS)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("folder/of/mine", []),
        (Path("folder"), []),
        ("memory://x", []),
        ("file:///x", []),
        ("STRING", []),
        ('{"type": "http://x"}', []),
        ("[not json", []),
        (None, []),
        (5, []),
        ("s3://bucket/prefix", [("S3", "", None)]),
        ("S3A://other", [("S3", "", None)]),
        ("gs://bucket", [("Google Cloud Storage", "", None)]),
        ("az://container/x@y", [("Azure Blob Storage", "", None)]),
        (
            "abfs://c@Acc.dfs.core.windows.net/x",
            [("Azure Blob Storage", "acc.dfs.core.windows.net", None)],
        ),
        ("https://Host/x", [("https", "host", 443)]),
        ("https://host:443", [("https", "host", 443)]),
        ("http://host", [("http", "host", 80)]),
        ("http://user:pw@host:8080/x", [("http", "host", 8080)]),
        ("https://host:99999", [("https", "host:99999", None)]),
        ("simplecache::sftp://host/x", [("sftp", "host", 22)]),
        (["s3://a", "https://b"], [("S3", "", None), ("https", "b", 443)]),
        ({"a": "https://b"}, [("https", "b", 443)]),
        ("http://[::1]:80/a", [("http", "::1", 80)]),
        ("zip::http://[::1]:80/a", [("http", "::1", 80)]),
        ("oxia://[2001:db8::2]:6648/a", [("oxia", "2001:db8::2", 6648)]),
        ("zk://a:2181,b:2181/c", [("zk", "a:2181,b:2181", None)]),
        ("zk://a:2181/c", [("zk", "a", 2181)]),
    ],
    ids=repr,
)
def test_origins(place: object, expected: list[object]) -> None:
    """Scheme, host and port of URLs; kind of store and account of buckets; nothing of paths."""
    assert origins(place) == set(expected)
