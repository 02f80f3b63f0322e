"""The bucket, endpoint and credentials of a connected file system, for obstore.

s3fs, gcsfs and adlfs look for credentials in many places: options, profiles, the environment,
assumed roles, the machine. obstore receives what they found, and asks them again before temporary
credentials expire. So both clients send requests to the same server in the same name.

An option that obstore cannot receive is a `FsspecOnlyError`: then the package of the file system
sends all requests.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies

from fsspec.asyn import sync

from arrow_io.storage.obstore_options import ObstorePlace, azure_config
from arrow_io.storage.store_kinds import StoreKind, store_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Credentials = Callable[[], Mapping[str, object]]
    """Returns credentials by obstore's names; `expires_at` is None if they do not expire."""

_CLIENT_KWARGS: Final = frozenset(
    {
        "aws_access_key_id",
        "aws_secret_access_key",
        "aws_session_token",
        "endpoint_url",
        "region_name",
        "use_ssl",
    }
)
"""Options of boto's client whose effect the connected client shows."""
_CONFIG_KWARGS: Final = frozenset(
    {
        "connect_timeout",
        "max_pool_connections",
        "read_timeout",
        "region_name",
        "retries",
        "s3",
        "tcp_keepalive",
    }
)
"""Options of botocore's configuration whose effect the connected client shows, or which the
deadline of a request replaces."""
_AWS_GLOBAL: Final = "s3.amazonaws.com"
"""Host in a presigned URL of AWS, in any region."""
_KEY: Final = "k"
_GCS_OPTIONS: Final = ("requester_pays", "session_kwargs", "version_aware", "_use_client_cert")
"""Attributes of gcsfs that change its requests."""
_AZURE_SCOPE: Final = "https://storage.azure.com/.default"


class FsspecOnlyError(Exception):
    """The reason for which obstore does not send the requests to a store."""


def resolved_place(url: str, file_system: Any) -> ObstorePlace:  # noqa: ANN401 - fsspec carries no types
    """Return the bucket or container of a URL, and the access to it that a file system found.

    It may ask the file system for credentials, so call it when the first request is due.

    Args:
        url: URL of S3, Google Cloud Storage or Azure.
        file_system: The connected file system of s3fs, gcsfs or adlfs.

    Raises:
        FsspecOnlyError: obstore would not reach the store in the same way.
        Exception: The file system's library found no credentials.
    """
    kind = store_kind(url)
    if kind is None or kind not in _RESOLVERS:
        raise FsspecOnlyError("the store is not S3, Google Cloud Storage or Azure")
    if getproxies().keys() & {"all", "http", "https"}:
        raise FsspecOnlyError("requests go through a proxy")
    bucket = url.partition("://")[2].partition("/")[0].partition("@")[0]
    config, client_options, credentials = _RESOLVERS[kind](bucket, file_system)
    return ObstorePlace(kind, bucket, "", config, client_options, credentials)


def _s3(bucket: str, file_system: Any) -> tuple[dict[str, str], dict[str, object], Any]:  # noqa: ANN401 - as above
    _check_s3_options(bucket, file_system)
    client = file_system.s3
    config = client.meta.config
    credentials = client._request_signer._credentials  # noqa: SLF001 - the chain's result
    if not file_system.anon and credentials is None:
        raise FsspecOnlyError("there are no credentials")
    if not file_system.anon and config.signature_version not in {None, "s3v4"}:
        raise FsspecOnlyError("requests are signed in another way than that of version 4")
    endpoint, is_virtual = _s3_endpoint(bucket, file_system)
    if endpoint.startswith("https://") and file_system.session.get_config_variable("ca_bundle"):
        raise FsspecOnlyError("only certain certificates are trusted")
    region = client.meta.region_name
    return (
        {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": "us-east-1" if region in {None, "aws-global"} else region,
            "AWS_REQUEST_PAYER": _flag(file_system.requester_pays),
            "AWS_SKIP_SIGNATURE": _flag(file_system.anon),
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": _flag(is_virtual),
        },
        {"connect_timeout": f"{int(config.connect_timeout * 1000)}ms"},
        None if file_system.anon else _s3_credentials(file_system.loop, credentials),
    )


def _check_s3_options(bucket: str, file_system: Any) -> None:  # noqa: ANN401 - as above
    if bucket.startswith("arn:") or bucket.endswith("--x-s3"):
        raise FsspecOnlyError("the bucket is an access point or a directory bucket")
    if file_system.s3_additional_kwargs or file_system.version_aware:
        raise FsspecOnlyError("s3_additional_kwargs or version_aware is set")
    if not file_system._session_is_owned:  # noqa: SLF001 - whether the user passed a session
        raise FsspecOnlyError("a session is passed")
    _check_names("client_kwargs", file_system.client_kwargs, _CLIENT_KWARGS)
    _check_names("config_kwargs", file_system.config_kwargs, _CONFIG_KWARGS)


def _check_names(option: str, names: Iterable[str], known: frozenset[str]) -> None:
    if unknown := set(names) - known:
        raise FsspecOnlyError(f"{option} has {', '.join(sorted(unknown))}")


def _s3_endpoint(bucket: str, file_system: Any) -> tuple[str, bool]:  # noqa: ANN401 - as above
    """Return the URL below which keys are, and whether the bucket is part of its host."""
    client = file_system.s3
    parameters = {"Bucket": bucket, "Key": _KEY}
    address = sync(file_system.loop, client.generate_presigned_url, "get_object", Params=parameters)
    signed, server = urlsplit(address), urlsplit(client.meta.endpoint_url)
    folder = server.path.rstrip("/")
    if (signed.netloc, signed.path) == (server.netloc, f"{folder}/{bucket}/{_KEY}"):
        return f"{server.scheme}://{server.netloc}{folder}", False
    hosts = {f"{bucket}.{host}" for host in (server.netloc, _AWS_GLOBAL)}
    if signed.netloc in hosts and signed.path == f"{folder}/{_KEY}":
        return f"{server.scheme}://{bucket}.{server.netloc}{folder}", True
    raise FsspecOnlyError("the endpoint is a special one")


def _s3_credentials(loop: Any, credentials: Any) -> Credentials:  # noqa: ANN401 - botocore carries no types
    def provide() -> Mapping[str, object]:
        frozen = sync(loop, credentials.get_frozen_credentials)
        expiry: datetime | None = getattr(credentials, "_expiry_time", None)
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            # obstore knows only the time zones of the standard library.
            "expires_at": None if expiry is None else expiry.astimezone(UTC),
        }

    return provide


def _gcs(bucket: str, file_system: Any) -> tuple[dict[str, str], dict[str, object], Any]:  # noqa: ANN401 - as above
    del bucket
    if any(getattr(file_system, name, None) for name in _GCS_OPTIONS):
        raise FsspecOnlyError("requester_pays, session_kwargs or a client certificate is set")
    config = {"base_url": file_system._location.rstrip("/")}  # noqa: SLF001 - has no other name
    if file_system.credentials.credentials is None:
        return {**config, "skip_signature": "true"}, {}, None
    return config, {}, _gcs_credentials(file_system.credentials)


def _gcs_credentials(source: Any) -> Credentials:  # noqa: ANN401 - as above
    def provide() -> Mapping[str, object]:
        source.maybe_refresh()
        expiry: datetime | None = source.credentials.expiry
        # Google's library leaves out the time zone, which is UTC.
        expires_at = None if expiry is None else expiry.replace(tzinfo=UTC)
        return {"token": source.credentials.token, "expires_at": expires_at}

    return provide


def _azure(bucket: str, file_system: Any) -> tuple[dict[str, str], dict[str, object], Any]:  # noqa: ANN401 - as above
    del bucket
    if file_system.location_mode != "primary":
        raise FsspecOnlyError("location_mode is set")
    if file_system.connection_string is not None:
        return azure_config({"connection_string": file_system.connection_string}, {}), {}, None
    config = {"account_name": file_system.account_name, "endpoint": file_system.account_url}
    # In the order in which adlfs prefers them.
    if file_system.credential is not None:
        if file_system.sync_credential is None:
            raise FsspecOnlyError("a credential is passed")
        return config, {}, _azure_credentials(file_system.sync_credential)
    if file_system.account_key is not None:
        return {**config, "account_key": file_system.account_key}, {}, None
    if file_system.sas_token is not None:
        return {**config, "sas_key": file_system.sas_token}, {}, None
    return {**config, "skip_signature": "true"}, {}, None


def _azure_credentials(source: Any) -> Credentials:  # noqa: ANN401 - as above
    def provide() -> Mapping[str, object]:
        token = source.get_token(_AZURE_SCOPE)
        expires_at = datetime.fromtimestamp(token.expires_on, tz=UTC)
        return {"token": token.token, "expires_at": expires_at}

    return provide


def _flag(value: object) -> str:
    return "true" if value else "false"


_RESOLVERS: Final[Mapping[StoreKind, Callable[..., Any]]] = {
    StoreKind.S3: _s3,
    StoreKind.GCS: _gcs,
    StoreKind.AZURE: _azure,
}
