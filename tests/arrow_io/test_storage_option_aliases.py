"""Storage options are known by the names that other libraries have for them."""

from __future__ import annotations

import pickle
import re
from typing import TYPE_CHECKING, Any

import pytest

from arrow_io.errors import OptionError
from arrow_io.storage.hidden import hidden
from arrow_io.storage.location import Location
from arrow_io.storage.option_aliases import resolve_aliases
from connector import open_topic
from connector.tables.delta_options import delta_storage_options
from tests.support.faulty_storage import FaultScript
from tests.support.golden import GOLDEN
from tests.support.s3_server import ACCESS_KEY, REGION, SECRET_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.s3_server import S3Server


_TOPIC = "multi-ledger"
_CLIENTS = [{}, {"client": "obstore"}]


@pytest.fixture(scope="module")
def url(s3_server: S3Server) -> str:
    """A bucket with a golden set."""
    return s3_server.upload_golden(GOLDEN / "pulsar-4.0.7").url


@pytest.mark.s3
@pytest.mark.parametrize("client", _CLIENTS, ids=["fsspec", "obstore"])
@pytest.mark.parametrize(
    "names",
    [
        ("aws_access_key_id", "aws_secret_access_key", "aws_endpoint_url", "aws_region"),
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT", "AWS_DEFAULT_REGION"),
        ("access_key_id", "secret_access_key", "endpoint", "region"),
        ("access_key", "secret_key", "endpoint_override", "region_name"),
        ("key_id", "secret", "endpoint_url", "REGION"),
    ],
)
def test_names_of_other_libraries(
    s3_server: S3Server, url: str, client: dict[str, str], names: tuple[str, ...]
) -> None:
    """A bucket is read by either client with the names of Polars, obstore, PyArrow or DuckDB."""
    values = (ACCESS_KEY, SECRET_KEY, s3_server.endpoint_url, REGION)
    options = {**dict(zip(names, values, strict=True)), "aws_allow_http": "true", **client}
    assert open_topic(url, _TOPIC, storage_options=options).count_rows() == 255


@pytest.mark.s3
@pytest.mark.parametrize("client", _CLIENTS, ids=["fsspec", "obstore"])
@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_endpoint_of_the_environment(
    s3_server: S3Server,
    url: str,
    client: dict[str, str],
    variable: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An endpoint in the environment may be `http://`, for either client and for Delta tables."""
    monkeypatch.setenv(variable, s3_server.endpoint_url)
    options = {"key": ACCESS_KEY, "secret": SECRET_KEY, **client}
    assert open_topic(url, _TOPIC, storage_options=options).count_rows() == 255
    delta = delta_storage_options(Location(url, options))
    assert (delta["AWS_ENDPOINT_URL"], delta["AWS_ALLOW_HTTP"]) == (s3_server.endpoint_url, "true")


@pytest.mark.parametrize(
    ("url", "options", "known"),
    [
        (
            "s3://b",
            {"region": "eu", "client_kwargs": {"verify": False}, "max_connections": 4},
            {"client_kwargs": {"verify": False, "region_name": "eu"}, "max_connections": 4},
        ),
        ("s3://b", {"key": "k", "aws_access_key_id": "k"}, {"key": "k"}),
        ("s3a://b", {"aws_session_token": "t", "skip_signature": "false"},
         {"token": "t", "anon": False}),
        ("s3://b", {"aws_skip_signature": True, "allow_http": False}, {"anon": True}),
        ("gs://b", {"google_service_account": "key.json"}, {"token": "key.json"}),
        (
            "az://c",
            {"azure_storage_account_name": "me", "azure_client_id": "1", "sas_key": "s"},
            {"account_name": "me", "client_id": "1", "sas_token": "s"},
        ),
        ("memory://folder", {"region": "eu"}, {"region": "eu"}),
        ("zip::s3://b/a.zip", {"s3": {"region": "eu"}}, {"s3": {"region": "eu"}}),
    ],
)  # fmt: skip
def test_known_names(url: str, options: dict[str, Any], known: dict[str, Any]) -> None:
    """Each name becomes that of the store's file system; what is hidden stays hidden."""
    assert resolve_aliases(url, options) == known
    assert repr(resolve_aliases(url, hidden(options))) == repr(hidden(known))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "k", "aws_access_key_id": "other"}, "key and aws_access_key_id mean the same"),
        (
            {"region": "eu", "client_kwargs": {"region_name": "us"}},
            "region_name and region mean the same",
        ),
        ({"endpoint": "http://host", "aws_allow_http": "false"}, "aws_allow_http is false"),
    ],
)
def test_contradictions(options: dict[str, Any], message: str) -> None:
    """Two values of one option are refused, and neither value is shown."""
    with pytest.raises(OptionError, match=message) as raised:
        Location("s3://bucket", options)
    assert "other" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("aws_acces_key_id", "is it aws_access_key_id?"), ("regionn", "is it region?"), ("xyzzy", "")],
)
def test_unknown_names(name: str, hint: str) -> None:
    """An option that nothing knows is named, with the one that it may be."""
    with pytest.raises(OptionError, match=f"no storage option {name}.*{re.escape(hint)}$"):
        Location("s3://bucket", {name: "value"}).list_objects()


@pytest.mark.parametrize("client", _CLIENTS, ids=["fsspec", "obstore"])
@pytest.mark.parametrize(
    "endpoint",
    ["ftp://127.0.0.1", "htps://127.0.0.1", "minio:9000", "http://", "http://h:99999", "http://[h"],
)
def test_endpoints_that_are_no_servers(
    client: dict[str, str], endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An endpoint that no request could be sent to is refused, wherever it is named."""
    key: dict[str, Any] = {"key": "k", "secret": "s", **client}
    given: list[dict[str, Any]] = [
        {"endpoint": endpoint},
        {"client_kwargs": {"endpoint_url": endpoint}},
    ]
    for options in given:
        with pytest.raises(OptionError, match="endpoint_url must be the URL of a server"):
            Location("s3://bucket", key | options)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(OptionError, match="AWS_ENDPOINT_URL in the environment must be"):
        delta_storage_options(Location("s3://bucket", key))
    if client:
        with pytest.raises(OptionError, match="AWS_ENDPOINT_URL in the environment must be"):
            Location("s3://bucket", key).list_objects()


@pytest.mark.parametrize("url", ["http://h:99999/x", "https:///x", "sftp://h:port/x", "ftp://"])
def test_urls_of_no_server(url: str) -> None:
    """A URL without a host, or with a port that cannot be, is refused."""
    with pytest.raises(OptionError, match="names no host, or an impossible port"):
        Location(url)


@pytest.mark.parametrize("url", ["memory://folder", "/folder", "oss://bucket", "zip::s3://b/a.zip"])
def test_urls_of_no_bucket_for_obstore(url: str) -> None:
    """A URL that obstore is not for is refused in the same words, read or written."""
    location = Location(url, {"client": "obstore"})
    with pytest.raises(OptionError, match=r"^client 'obstore' is for URLs of S3"):
        location.list_objects()
    if "::" not in url:
        with pytest.raises(OptionError, match=r"^client 'obstore' is for URLs of S3"):
            location.check_writable()


# Options of our own


def _pool_of(options: Mapping[str, object]) -> int:
    """Connections that botocore's client keeps, which is made without a request."""
    location = Location("s3://bucket/prefix", {"key": "k", "secret": "s", **options})
    client = location._sender.store()._file_system.s3
    pool: int = client.meta.config.max_pool_connections
    return pool


@pytest.mark.parametrize(
    ("options", "most"), [({}, 32), ({"max_connections": 5}, 5), ({"max_connections": "64"}, 64)]
)
def test_max_connections_goes_where_the_location_goes(
    options: dict[str, object], most: int
) -> None:
    """As text too; to folders and other processes, and never to the file system."""
    script = FaultScript({"a": b"data"})
    location = Location("faulty://folder", {"script": script, **options})

    assert (location.max_connections, location.child("folder").max_connections) == (most, most)
    assert location.read_object("a", max_bytes=4).data == b"data"
    plain = Location("memory://folder", options)
    assert pickle.loads(pickle.dumps(plain)).max_connections == most


@pytest.mark.parametrize("value", [0, -1, 1.5, "many", None, 1025, float("nan")])
def test_max_connections_out_of_bounds_is_refused(value: object) -> None:
    """Before any request; a number is no secret, so it is shown."""
    with pytest.raises(OptionError, match=r"max_connections must be .* not"):
        Location("memory://folder", hidden({"max_connections": value}))


@pytest.mark.parametrize(
    ("options", "pool"),
    [
        ({}, 64),
        ({"max_connections": 7}, 7),
        ({"config_kwargs": hidden({"user_agent_extra": "x"})}, 64),
        ({"config_kwargs": {"max_pool_connections": 3}}, 3),
    ],
)
def test_the_pool_of_s3_follows(options: dict[str, object], pool: int) -> None:
    """Else botocore's ten connections bound what is sent; who sets the pool by name gets it."""
    assert _pool_of(options) == pool


def test_no_other_store_is_told_of_a_pool() -> None:
    """Their file systems take no such option."""
    script = FaultScript({"a": b"data"})
    assert script.location(max_connections=3).read_object("a", max_bytes=4).data == b"data"
