"""What a user tells s3fs, gcsfs or adlfs is told to obstore in its own words, or refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from arrow_io.errors import OptionError
from arrow_io.storage.attempts import RetryPolicy
from arrow_io.storage.hidden import hidden
from arrow_io.storage.location import Location
from arrow_io.storage.obstore_object_store import ObstoreObjectStore
from arrow_io.storage.obstore_options import ObstorePlace, obstore_place
from arrow_io.storage.store_kinds import StoreKind

if TYPE_CHECKING:
    from pathlib import Path

_AZURITE = (
    "DefaultEndpointsProtocol=http;AccountName=me;AccountKey=c2VjcmV0==;"
    "BlobEndpoint=http://127.0.0.1:10000/me"
)


@pytest.mark.parametrize(
    ("options", "config", "client_options"),
    [
        ({}, {}, {}),
        ({"key": "k", "secret": "s", "token": "t"},
         {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t"}, {}),
        ({"anon": True}, {"AWS_SKIP_SIGNATURE": "true"}, {}),
        ({"anon": False, "use_listings_cache": True, "profile": None},
         {"AWS_SKIP_SIGNATURE": "false"}, {}),
        ({"endpoint_url": "http://host:9000", "client_kwargs": {"region_name": "eu-west-1"}},
         {"AWS_ENDPOINT_URL": "http://host:9000", "AWS_REGION": "eu-west-1"}, {}),
        ({"client_kwargs": {"endpoint_url": "https://host", "verify": False}},
         {"AWS_ENDPOINT_URL": "https://host"}, {"allow_invalid_certificates": True}),
        ({"config_kwargs": {"s3": {"addressing_style": "virtual"}, "max_pool_connections": 9}},
         {"AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}, {}),
        ({"requester_pays": True}, {"AWS_REQUEST_PAYER": "true"}, {}),
    ],
)  # fmt: skip
def test_options_of_s3fs(
    options: dict[str, object], config: dict[str, str], client_options: dict[str, object]
) -> None:
    """Also if they are hidden from whoever prints them."""
    place = obstore_place("s3://bucket/some/prefix/", hidden(options))

    assert ObstoreObjectStore(place, 1, RetryPolicy()).can_put_new, "obstore takes them"
    assert place == ObstorePlace(StoreKind.S3, "bucket", "some/prefix", config, client_options)


def test_a_certificate_of_ones_own(tmp_path: Path) -> None:
    """`verify` names a file, as it does for boto."""
    (tmp_path / "ca.pem").write_bytes(b"certificate")
    place = obstore_place("s3://b", {"client_kwargs": {"verify": str(tmp_path / "ca.pem")}})

    assert place.client_options == {"root_certificate": b"certificate"}


@pytest.mark.parametrize("client", ["fsspec", "obstore"])
def test_certificates_that_cannot_be_read_are_an_option_error(client: str) -> None:
    """The option is named, and nothing is said of an object or a folder of the bucket."""
    options = {"client_kwargs": {"verify": "/no/ca.pem"}, "client": client}

    with pytest.raises(OptionError, match=r"storage option verify: /no/ca\.pem cannot be read"):
        Location("s3://bucket/folder", options).list_objects()


def test_options_of_gcsfs(tmp_path: Path) -> None:
    """A token is what a service account's file says, its path, or a word."""
    account = {"type": "service_account", "private_key": "secret"}
    (tmp_path / "account.json").write_text(json.dumps(account))

    for token, config in (
        (account, {"service_account_key": json.dumps(account)}),
        (str(tmp_path / "account.json"), {"application_credentials": f"{tmp_path}/account.json"}),
        ("anon", {"skip_signature": "true"}),
        ("google_default", {}),
        (None, {}),
    ):
        place = obstore_place("gs://bucket", {"token": token, "project": "mine"})
        assert place == ObstorePlace(StoreKind.GCS, "bucket", "", config, {})
    local = obstore_place("gcs://bucket", {"endpoint_url": "http://localhost:4443"})
    assert local.config == {"base_url": "http://localhost:4443"}
    assert local.allows_http
    with pytest.raises(OptionError, match="service account") as raised:
        obstore_place("gs://bucket", {"token": "ya29.secret"})
    assert "ya29" not in str(raised.value)


_NAMED = {"account_name": "me"}
_SECRET = {"tenant_id": "t", "client_id": "i", "client_secret": "s"}
_IN_CHINA = {**_NAMED, "endpoint": "https://me.blob.core.cloudapi.cn"}


@pytest.mark.parametrize(
    ("url", "options", "config"),
    [
        ("az://c/prefix", {**_NAMED, "account_key": "k"}, {**_NAMED, "account_key": "k"}),
        ("abfss://c@me.dfs.core.windows.net/prefix", {"sas_token": "sig=x", "anon": True},
         {**_NAMED, "sas_key": "sig=x"}),
        ("abfss://c@me.dfs.core.cloudapi.cn/prefix", {"account_key": "k"},
         {**_IN_CHINA, "account_key": "k"}),
        ("abfs://c/prefix", {**_NAMED, **_SECRET}, {**_NAMED, **_SECRET}),
        ("az://c/prefix",
         {"connection_string": "AccountName=me;AccountKey=a=;EndpointSuffix=core.cloudapi.cn"},
         {**_IN_CHINA, "account_key": "a="}),
        ("az://c/prefix", {**_NAMED, "account_host": "host:443", "anon": True},
         {**_NAMED, "endpoint": "https://host:443", "skip_signature": "true"}),
    ],
)  # fmt: skip
def test_options_of_adlfs(url: str, options: dict[str, object], config: dict[str, str]) -> None:
    """The account may stand in the URL."""
    assert obstore_place(url, options) == ObstorePlace(StoreKind.AZURE, "c", "prefix", config, {})


def test_a_connection_string_may_lead_to_this_machine() -> None:
    """Without TLS, as an emulator is reached."""
    place = obstore_place("az://container", {"connection_string": _AZURITE})

    assert place.allows_http
    assert place.config["endpoint"] == "http://127.0.0.1:10000/me"
    assert place.config["account_key"] == "c2VjcmV0=="


@pytest.mark.parametrize(
    ("url", "options", "named"),
    [
        ("s3://bucket", {"profile": "mine"}, "profile"),
        ("s3://bucket", {"s3_additional_kwargs": {"ServerSideEncryption": "aws:kms"}}, "s3_add"),
        ("s3://bucket", {"config_kwargs": {"proxies": {}}}, "proxies"),
        ("s3://bucket", {"config_kwargs": {"s3": {"use_accelerate_endpoint": True}}}, "s3"),
        ("gs://bucket", {"requester_pays": "me"}, "requester_pays"),
        ("az://container", {"credential": "secret"}, "credential"),
    ],
)
def test_what_has_no_counterpart_is_refused(
    url: str, options: dict[str, object], named: str
) -> None:
    """Before any request; it is named, its value is not."""
    location = Location(url, hidden({"client": "obstore", **options}))

    with pytest.raises(OptionError, match=f"option .*{named}") as raised:
        location.list_objects()
    assert "mine" not in str(raised.value)
    assert "secret" not in str(raised.value).replace("key, secret", "").replace("client_secret", "")


@pytest.mark.parametrize("url", ["memory://folder", "/tmp/folder", "dir::s3://bucket", "oss://b"])  # noqa: S108
def test_it_is_for_buckets_alone(url: str) -> None:
    """Other places are not reached in another way than asked for."""
    with pytest.raises(OptionError, match="S3, Google Cloud Storage and Azure"):
        Location(url, {"client": "obstore"}).list_objects()


@pytest.mark.parametrize("client", ["s3fs", "", None, True])
def test_another_client_is_refused(client: object) -> None:
    """When the location is made; the name is no secret."""
    with pytest.raises(OptionError, match="client must be 'auto', 'fsspec' or 'obstore', not"):
        Location("s3://bucket", hidden({"client": client}))


def test_fsspec_can_be_named() -> None:
    """It is what there is without the option, and no file system hears of it."""
    assert Location("memory://named-client", {"client": "fsspec"}).is_async is False
