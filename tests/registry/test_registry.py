"""A real registry has the schemas of recorded payloads, under the same ids."""

from __future__ import annotations

import json
import os
import urllib.request
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from arrow_io.errors import OptionError, UnknownSchemaVersionError
from connector import open_topic, write_messages
from connector.catalog.registry.registry import saved_answers
from connector.catalog.registry.sources import RestApi
from tests.stores.emulators import free_port, running
from tests.support.registries import RECORDED, frame, recorded_messages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.registry

_SUBJECTS: Final = ("orders-value", "events-value", "readings-value#shop.Reading")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of a registry with the recorded schemas."""
    port = free_port()
    settings = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
    with running(port, "java", "-Xmx512m", *settings, "-jar", os.environ["APICURIO"]):
        found = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        _register(found)
        yield found


def _register(url: str) -> None:
    recorded = json.loads((RECORDED / "registry.json").read_text("utf-8"))
    for each in sorted(recorded, key=lambda each: each["id"]):
        names = ("schema", "schemaType", "references")
        body = json.dumps({name: each[name] for name in names}).encode()
        request = urllib.request.Request(  # noqa: S310
            f"{url}/subjects/{each['subject']}/versions",
            body,
            {"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            assert json.loads(response.read())["id"] == each["id"]


@pytest.mark.parametrize("subject", _SUBJECTS)
def test_it_answers_as_recorded(url: str, tmp_path: Path, subject: str) -> None:
    """Values are those by the recorded answers, from the server and from what is saved of it."""
    name = subject.partition("#")[0]
    payloads = [each.payload for each in recorded_messages(name)]
    write_messages(str(tmp_path / "bucket"), "topic", pa.table({"__value__": payloads}))
    saved = tmp_path / "saved.json"
    saved.write_bytes(saved_answers(RestApi(url, {}), name))

    tables = [
        open_topic(
            str(tmp_path / "bucket"), "topic", schema=f"confluent:{place}#{subject}"
        ).to_table()
        for place in (RECORDED / "registry.json", url, saved)
    ]

    assert tables[0].num_rows == len(payloads)
    assert tables[1] == tables[0]
    assert tables[2] == tables[0]


def test_what_it_lacks(url: str, tmp_path: Path) -> None:
    """Its answers for unknown ids, subjects and versions are understood."""
    write_messages(str(tmp_path), "topic", pa.table({"__value__": [frame(999) + b"x"]}))
    place = f"confluent:{url}#orders-value"
    with pytest.raises(UnknownSchemaVersionError, match="999"):
        open_topic(str(tmp_path), "topic", schema=place).to_table()
    with pytest.raises(OptionError, match="no version 9"):
        open_topic(str(tmp_path), "topic", schema=place, schema_version=9)
    with pytest.raises(OptionError, match="no subject 'missing'; it has address"):
        open_topic(str(tmp_path), "topic", schema=f"confluent:{url}#missing")
