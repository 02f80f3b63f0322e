"""Storage options on the command line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from connector.cli.options import key_values
from tests.support.buckets import golden_objects
from tests.support.command_line import (
    ORDERS,
    STORAGE,
    UNREADABLE,
    URL,
    USAGE,
    lines_of,
    run,
    store_arguments,
)
from tests.support.encryption import KEY_FOLDER, key_pair
from tests.support.golden import GOLDEN, golden_topic
from tests.support.s3_server import ACCESS_KEY, REGION, SECRET_KEY, S3Address, running_s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.mark.parametrize(("ends_with", "ends"), [("", STORAGE), ("?versions=1", USAGE)])
def test_secrets_are_never_printed(ends_with: str, ends: int) -> None:
    """Neither a failing request nor a wrong option shows a storage option's value."""
    options = [
        "--storage-option", "key=AKIAVERYPUBLIC",
        "--storage-option", "secret=TopSecret/Value",
        "--storage-option", "token=SessionToken",
        "--storage-option", "endpoint_url=http://127.0.0.1:1",
        "--storage-option", 'config_kwargs.retries={"max_attempts": 0}',
    ]  # fmt: skip
    runs = [
        run("topics", f"s3://bucket{ends_with}", *options, ends=ends),
        run("query", f"s3://bucket{ends_with}", "SELECT 1", *options, ends=ends),
        run("topics", "s3://bucket", "--storage-option", "TopSecret/Value", ends=USAGE),
        run(
            "topics",
            "s3://bucket",
            *options,
            "--storage-option",
            "key.below=TopSecret/Value",
            ends=USAGE,
        ),
    ]

    for result in runs:
        assert result.stderr.startswith("error: ")
        assert not re.search("AKIAVERYPUBLIC|TopSecret|SessionToken", result.output)


@pytest.mark.s3
def test_storage_options_reach_the_store() -> None:
    """Options given as texts, nested ones and JSON values too, open a bucket of S3."""
    golden = GOLDEN / "pulsar-4.0.7-small"
    with running_s3_server() as server:
        address = server.upload_golden(golden, prefix="deep/down")
        options = [
            "--storage-option", f"key={ACCESS_KEY}",
            "--storage-option", f"secret={SECRET_KEY}",
            "--storage-option", f"endpoint_url={server.endpoint_url}",
            "--storage-option", f"client_kwargs.region_name={REGION}",
            "--storage-option", "default_block_size=65536",
            "--storage-option", "use_listings_cache=false",
        ]  # fmt: skip
        listed = lines_of("topics", address.url, *options)
        sql = 'SELECT count(*) AS n FROM "small-compacted"'
        [counted] = lines_of("query", address.url, sql, *options)

    assert listed == lines_of("topics", str(golden / "objects"))
    assert counted["n"] == golden_topic("small-compacted").message_count


def test_storage_options_are_json_where_they_can_be() -> None:
    """Dots nest, JSON is taken as JSON, the rest as text; quotes keep a number a text."""
    given = ["a=true", "b.c.d=5", 'b.c.e="5"', "b.f=x=y", 'g={"h": [1]}', "i=", "j=NaN,1"]

    assert key_values("--storage-option", given) == {
        "a": True,
        "b": {"c": {"d": 5, "e": "5"}, "f": "x=y"},
        "g": {"h": [1]},
        "i": "",
        "j": "NaN,1",
    }


@pytest.mark.parametrize("keys", [KEY_FOLDER, KEY_FOLDER / "client-rsa-priv.pem"])
def test_decryption_keys_open_encrypted_topics(keys: Path) -> None:
    """A folder of keys, or the file of one, gives what Pulsar's client read."""
    topic = golden_topic("encrypted")
    sql = "SELECT sha256(__value__) AS hash FROM encrypted"
    option = ["--decryption-keys", str(keys)]

    rows = lines_of("query", URL, sql, *option)
    [first] = lines_of("head", URL, "encrypted", "-n", "1", "--columns", "__value__", *option)

    assert [row["hash"] for row in rows] == [message["sha256"] for message in topic.messages()]
    assert first["__value__"] is not None


@pytest.mark.parametrize("command", [("head", "encrypted"), ("query", "FROM encrypted")])
def test_decryption_keys_are_never_printed(command: tuple[str, str], tmp_path: Path) -> None:
    """A wrong key, or none, is told without what was given."""
    name, what = command
    pem = key_pair("P-256").pem().decode()
    body = "".join(pem.splitlines()[1:-1])
    cut = tmp_path / "cut.pem"
    cut.write_text(pem[:-50])

    for given, ends, said in (
        (pem, UNREADABLE, "the private key client-rsa: it is the wrong key"),
        (body, USAGE, "it is not shown"),
        (str(cut), USAGE, "it is not a private key in PEM form"),
        (str(tmp_path / "absent.pem"), USAGE, "nor a readable file"),
    ):
        result = run(name, URL, what, "--decryption-keys", given, ends=ends)
        assert said in " ".join(result.stderr.split())
        assert body[:20] not in result.output


_TOPIC = "json-orders"
_SQL = 'SELECT "orderId" FROM "json-orders"'


@pytest.fixture(scope="module")
def place() -> Iterator[S3Address]:
    """A bucket with a topic, and with its schemas in a folder of it."""
    schemas = (ORDERS.folder / "schemas-rest.json").read_bytes()
    objects = golden_objects(ORDERS)
    with running_s3_server() as server:
        yield server.upload(objects | {"schemas/schemas-rest.json": schemas})


@pytest.mark.s3
@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("head", [_TOPIC]),
        ("plan", [_TOPIC]),
        ("query", [_SQL]),
        ("cost", [_TOPIC]),
        ("cost", ["--sql", _SQL]),
    ],
)
def test_schemas_may_lie_in_the_private_bucket(
    place: S3Address, command: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The options of the storage hold for the file of the schema too; there are none elsewhere."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    options = store_arguments(place.storage_options)
    schema = f"{place.url}/schemas/schemas-rest.json"

    result = run(command, place.url, *arguments, "--schema", schema, *options, "--json")

    assert result.stdout
