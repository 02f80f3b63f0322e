"""obstore receives the server, region and credentials that a file system found."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import fsspec
import pytest

from arrow_io.storage import resolved_places
from arrow_io.storage.attempts import RetryPolicy
from arrow_io.storage.obstore_object_store import ObstoreObjectStore
from arrow_io.storage.resolved_places import FsspecOnlyError, resolved_place

if TYPE_CHECKING:
    from arrow_io.storage.obstore_options import ObstorePlace

_KEYS: Final[dict[str, object]] = {"key": "k", "secret": "s"}
_IRELAND: Final[dict[str, object]] = {"client_kwargs": {"region_name": "eu-west-1"}}
_MINIO: Final[dict[str, object]] = {"endpoint_url": "http://minio.example.com:9000"}
_VIRTUAL: Final[dict[str, object]] = {"config_kwargs": {"s3": {"addressing_style": "virtual"}}}
_AZURE: Final = "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=a2V5;"


@pytest.fixture(autouse=True)
def _no_certificates_and_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def _place(url: str, options: dict[str, object]) -> ObstorePlace:
    file_system, _ = fsspec.url_to_fs(url, skip_instance_cache=True, **options)
    place = resolved_place(url, file_system)
    assert ObstoreObjectStore(place, 1, RetryPolicy()).can_put_new, "obstore takes it"
    return place


@pytest.mark.parametrize(
    ("bucket", "options", "endpoint", "is_virtual"),
    [
        ("bucket", {}, "https://bucket.s3.amazonaws.com", "true"),
        ("bucket", _IRELAND, "https://bucket.s3.eu-west-1.amazonaws.com", "true"),
        ("with.dots", _IRELAND, "https://s3.eu-west-1.amazonaws.com", "false"),
        ("bucket", _MINIO, "http://minio.example.com:9000", "false"),
        ("bucket", _MINIO | _VIRTUAL, "http://bucket.minio.example.com:9000", "true"),
        ("bucket", {"endpoint_url": "https://host/folder/"}, "https://host/folder", "false"),
        ("bucket", {"client_kwargs": {"region_name": "cn-north-1"}},
         "https://bucket.s3.cn-north-1.amazonaws.com.cn", "true"),
    ],
)  # fmt: skip
def test_an_address_is_that_of_botocore(
    bucket: str, options: dict[str, object], endpoint: str, is_virtual: str
) -> None:
    """Of AWS in each partition, and of other servers."""
    place = _place(f"s3://{bucket}/folder", _KEYS | options)

    assert place.config["AWS_ENDPOINT_URL"] == endpoint
    assert place.config["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] == is_virtual
    assert place.allows_http == endpoint.startswith("http://")
    assert place.credentials is not None
    assert place.credentials() == {
        "access_key_id": "k", "secret_access_key": "s", "token": None, "expires_at": None
    }  # fmt: skip


@pytest.mark.parametrize(
    ("bucket", "options"),
    [
        ("arn:aws:s3:eu-west-1:123456789012:accesspoint/mine", {}),
        ("bucket--euw1-az1--x-s3", _IRELAND),
        ("bucket", {"config_kwargs": {"s3": {"use_accelerate_endpoint": True}}}),
        ("bucket", {"client_kwargs": {"verify": False}}),
    ],
)
def test_a_special_bucket_is_left_to_s3fs(bucket: str, options: dict[str, object]) -> None:
    """Its requests are addressed or signed in another way."""
    with pytest.raises(FsspecOnlyError):
        _place(f"s3://{bucket}", _KEYS | options)


def test_certificates_of_the_environment_are_left_to_s3fs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Obstore would trust others too; a server without TLS shows no certificate."""
    monkeypatch.setenv("AWS_CA_BUNDLE", "/etc/own.pem")
    with pytest.raises(FsspecOnlyError, match="certificates"):
        _place("s3://bucket", _KEYS)
    assert _place("s3://bucket", _KEYS | _MINIO).allows_http


def test_public_buckets_are_read_unsigned() -> None:
    """Of S3 and of Google Cloud Storage."""
    assert _place("s3://bucket", {"anon": True}).config["AWS_SKIP_SIGNATURE"] == "true"
    place = _place("gs://bucket", {"token": "anon", "endpoint_url": "http://localhost:4443/"})
    assert place.config == {"base_url": "http://localhost:4443", "skip_signature": "true"}
    assert place.credentials is None


@pytest.mark.parametrize(
    ("options", "config"),
    [
        ({"connection_string": f"{_AZURE}BlobEndpoint=http://127.0.0.1:1/me"},
         {"account_name": "me", "account_key": "a2V5", "endpoint": "http://127.0.0.1:1/me"}),
        ({"account_name": "me", "account_key": "a2V5"},
         {"account_name": "me", "account_key": "a2V5",
          "endpoint": "https://me.blob.core.windows.net"}),
        ({"account_name": "me", "sas_token": "sv=1&sig=x"},
         {"account_name": "me", "sas_key": "?sv=1&sig=x",
          "endpoint": "https://me.blob.core.windows.net"}),
        ({"account_name": "me", "anon": True},
         {"account_name": "me", "skip_signature": "true",
          "endpoint": "https://me.blob.core.windows.net"}),
    ],
)  # fmt: skip
def test_an_account_of_azure_is_that_of_adlfs(
    options: dict[str, object], config: dict[str, str]
) -> None:
    """Options of the environment count too, because adlfs has read them."""
    assert _place("az://container/folder", options).config == config


def test_tokens_are_asked_for_again() -> None:
    """Of Google's library, which omits the time zone, and of Azure's."""
    expiry = datetime(2026, 1, 1, tzinfo=UTC)
    source = SimpleNamespace(
        maybe_refresh=lambda: None,
        credentials=SimpleNamespace(token="token", expiry=expiry.replace(tzinfo=None)),
    )
    token = SimpleNamespace(token="token", expires_on=expiry.timestamp())
    azure = SimpleNamespace(get_token=lambda _scope: token)

    for provide in (
        resolved_places._gcs_credentials(source),
        resolved_places._azure_credentials(azure),
    ):
        assert provide() == {"token": "token", "expires_at": expiry}
