"""Commands over a private bucket: everything in it is asked for with the options that are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.buckets import golden_objects
from tests.support.command_line import ORDERS, run
from tests.support.s3_server import S3Address, running_s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.s3

_TOPIC = "json-orders"
_SQL = 'SELECT "orderId" FROM "json-orders"'


@pytest.fixture(scope="module")
def place() -> Iterator[S3Address]:
    """A bucket with a topic, and with its schemas in a folder of it."""
    schemas = (ORDERS.folder / "schemas-rest.json").read_bytes()
    objects = golden_objects(ORDERS)
    with running_s3_server() as server:
        yield server.upload(objects | {"schemas/schemas-rest.json": schemas})


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
    options = [
        f"--storage-option={name}={value}"
        for name, value in place.storage_options.items()
        if isinstance(value, str)
    ]
    schema = f"{place.url}/schemas/schemas-rest.json"

    result = run(command, place.url, *arguments, "--schema", schema, *options, "--json")

    assert result.stdout
