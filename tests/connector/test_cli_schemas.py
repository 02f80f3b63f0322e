"""The commands `schema show` and `schema export`, and the files of schemas."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import fastavro
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from connector import open_topic
from connector.catalog.schemas.answers import registered_versions
from connector.catalog.schemas.files import schema_files
from connector.catalog.schemas.loading import load_schema
from tests.support.command_line import URL, USAGE, lines_of, run
from tests.support.golden import golden_topics

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.golden import GoldenTopic

METADATA = URL.removesuffix("/objects")
_WITH_SCHEMA = [each for each in golden_topics() if (each.folder / "schemas-rest.json").exists()]


@pytest.mark.parametrize("topic", _WITH_SCHEMA, ids=str)
def test_files_say_what_the_registry_has(topic: GoldenTopic) -> None:
    """Read back they are the same schemas; Avro's and protobuf's own libraries take the others."""
    schema = load_schema(topic.folder / "schemas-rest.json")
    if schema is None:
        pytest.skip("the topic has no schema")
    files = schema_files(schema)

    again = load_schema(json.loads(files["schemas-rest.json"]))
    assert again is not None
    assert registered_versions(again) == registered_versions(schema)
    for name, data in files.items():
        if name.endswith(".avsc"):
            fastavro.parse_schema(json.loads(data))
        elif name.endswith(".desc"):
            assert FileDescriptorSet.FromString(data).file
    infos = [info for _, info in registered_versions(schema)]
    defined = [part for each in infos for part in (each.key, each.value, each) if part is not None]
    wanted = sum(part.type in {"AVRO", "JSON", "PROTOBUF", "PROTOBUF_NATIVE"} for part in defined)
    proto_texts = sum(name.endswith(".proto") for name in files)
    assert len(files) == 1 + wanted + proto_texts
    assert proto_texts == sum(part.type == "PROTOBUF_NATIVE" for part in defined)


def test_versions_are_shown_and_written(tmp_path: Path) -> None:
    """Each is a row; what was written decodes the topic."""
    given = ("avro-evolved", "--metadata", METADATA)

    shown = lines_of("schema", "show", URL, *given)
    told = run("schema", "export", URL, *given, "--to", str(tmp_path / "new" / "schemas")).stdout

    assert [each["version"] for each in shown] == [0, 1, 2]
    assert {each["type"] for each in shown} == {"AVRO"}
    assert shown[1]["fields"]["items"] == "int32"
    assert "items" not in shown[0]["fields"]
    assert told == f"4 files written to {tmp_path}/new/schemas\n"
    exported = tmp_path / "new" / "schemas"
    assert json.loads((exported / "v1.avsc").read_text()) == json.loads(str(shown[1]["definition"]))
    rows = open_topic(URL, "avro-evolved", schema=exported / "schemas-rest.json").to_table()
    assert rows.equals(open_topic(URL, "avro-evolved", metadata=METADATA).to_table())


def test_keys_and_values_are_shown_both() -> None:
    """A KEY_VALUE has a line for each."""
    [shown] = lines_of("schema", "show", URL, "kv-string-avro-separated", "--metadata", METADATA)
    key, value = str(shown["definition"]).split("\n")
    assert key == "STRING"
    assert value.startswith('AVRO {"')


def test_what_has_no_schema_is_told(tmp_path: Path) -> None:
    """Without metadata there is none; a file in place of the folder is told, too."""
    assert "the schema of bool is unknown" in run("schema", "show", URL, "bool", ends=USAGE).stderr
    (tmp_path / "file").write_bytes(b"")
    given = ("bool", "--metadata", METADATA, "--to", str(tmp_path / "file"))
    assert "files cannot be written" in run("schema", "export", URL, *given, ends=USAGE).stderr


def test_protobuf_is_written_as_text_too(tmp_path: Path) -> None:
    """In a folder for each version, in which its files import each other."""
    given = ("protobuf-native", "--metadata", METADATA, "--to", str(tmp_path))
    assert run("schema", "export", URL, *given).stdout == f"3 files written to {tmp_path}\n"
    assert "message Reading {" in (tmp_path / "v0" / "telemetry.proto").read_text()


def test_fields_that_nothing_tells_are_null() -> None:
    """As Pulsar keeps a PROTOBUF schema in a form of its own."""
    [shown] = lines_of("schema", "show", URL, "protobuf", "--metadata", METADATA)
    assert shown["type"] == "PROTOBUF"
    assert shown["fields"] is None
