"""What is no schema is told in few words, which name the source and never quote the whole of it."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - pytest looks at annotations
from typing import Any, Final

import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from arrow_io.errors import OptionError, StorageError
from arrow_io.payloads.schema_info import SchemaInfo
from connector.catalog.schemas import forms, loading
from connector.catalog.schemas.loading import load_schema
from tests.support.faulty_storage import FaultScript, raising
from tests.support.golden import golden_topic

_RECORD: Final = {"type": "record", "name": "R", "fields": []}
_EVOLVED: Final = golden_topic("avro-evolved").folder / "schemas-rest.json"
_TIMESTAMP: Final = FileDescriptorSet()
timestamp_pb2.DESCRIPTOR.CopyToProto(_TIMESTAMP.file.add())

_NATIVE: Final = {"type": "PROTOBUF_NATIVE", "version": 1}
_KV: Final = {"type": "KEY_VALUE", "version": 1}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "neither JSON nor a path"),
        ("record R {\n}", "neither JSON nor a path"),
        ("x" * 5_000, "text of 5000 characters .* neither JSON nor a path"),
        ("INT23", "'INT23': there is no such file or folder; .* INT32, .* TIMESTAMP"),
        ("no/such/file.json", "there is no such file"),
        ("no/such.desc#a.B", "'no/such.desc': there is no such file"),
        ("avro", "AVRO: needs a definition"),
        ("KEY_VALUE", "needs a definition"),
        ("auto_consume", "'AUTO_CONSUME' is a mode of Pulsar's clients"),
        ({"type": -3, "data": ""}, "-3 is a mode of Pulsar's clients"),
        ({"type": "AUTO", "data": ""}, "mode of Pulsar's clients"),
        ({"type": 23, "data": ""}, "unknown schema type 23; known are NONE"),
        ({"type": "DELETE", "data": ""}, "unknown schema type 'DELETE'"),
        ({"type": True, "data": ""}, "unknown schema type True"),
        ({"type": None, "data": ""}, "unknown schema type None"),
        ({"type": "X" * 5_000, "data": ""}, "unknown schema type 'X"),
        (7, "read from a value of type int"),
        ([], "contains no schema"),
        ("[]", "contains no schema"),
        ({"getSchemaResponses": []}, "contains no schema"),
        ({"getSchemaResponses": {}}, "neither an object nor a list"),
        ({"getSchemaResponses": ["x"]}, "neither an object nor a list"),
        ({"reason": "Schema not found"}, "not a schema: an object without type"),
        ({"version": 1, "schemaInfo": "x"}, "not a schema: an object without type"),
        ({"version": -1, "type": "INT8"}, "-1 is not a version"),
        ({"version": 1 << 63, "type": "INT8"}, "is not a version"),
        ({"version": "1", "type": "INT8"}, "'1' is not a version"),
        ({"version": True, "type": "INT8"}, "True is not a version"),
        ({"version": 7, "type": "AVRO", "data": ""}, "version 7: AVRO without a definition"),
        ({"type": "JSON", "data": None}, "JSON without a definition"),
        ({"type": "JSON", "data": "{"}, "malformed JSON at line 1, column 2"),
        ({"type": "JSON", "data": b"\xff"}, "not UTF-8 at byte 0"),
        ({"type": "JSON", "data": "9" * 5_000}, "too many digits"),
        ({"type": "JSON", "data": '"\\ud800"'}, "half a surrogate pair"),
        ({"type": "JSON", "data": {1, 2}}, "cannot be written as JSON"),
        ({"type": "JSON", "schema_base64": "e30"}, "schema_base64 is malformed Base64"),
        ({"type": "JSON", "schema_base64": "é"}, "schema_base64 is malformed Base64"),
        ({"type": "JSON", "schema_base64": 3}, "schema_base64 is missing or not text"),
        ({"type": "INT8", "properties": []}, "properties are not an object"),
        ({"type": "INT8", "properties": {"a": 1}}, "the value of 'a' is not text"),
        ({"type": "INT8", "properties": {"a": "\ud800"}}, "half a surrogate pair"),
        ({**_NATIVE, "data": "[]"}, "not an object with fileDescriptorSet"),
        ({**_NATIVE, "data": {}}, "fileDescriptorSet is missing"),
        ({**_NATIVE, "data": {"fileDescriptorSet": "!"}}, "fileDescriptorSet is malformed"),
        ({**_NATIVE, "data": {"fileDescriptorSet": ""}}, "fileDescriptorSet is malformed"),
        ({**_NATIVE, "data": {"fileDescriptorSet": "////"}}, "malformed or empty"),
        (
            {**_NATIVE, "data": {"fileDescriptorSet": "CgA=", "rootMessageTypeName": 1}},
            "rootMessageTypeName is not text",
        ),
        ({**_NATIVE, "data": {"fileDescriptorSet": "CgA="}}, "descriptor set has none"),
        ({**_KV, "data": "x"}, "neither JSON nor two sequences of a length"),
        ({**_KV, "data": b"\0\0\0\1"}, "neither JSON nor two sequences of a length"),
        ({**_KV, "data": b"\0\0\0\0"}, "neither JSON nor two sequences of a length"),
        ({**_KV, "data": b"\0" * 9}, "1 byte after the definitions"),
        ({**_KV, "data": 3}, "not an object with key and value"),
        ({**_KV, "data": "\ud800"}, "half a surrogate pair"),
        ({**_KV, "properties": {"kv.encoding.type": "X"}}, "neither INLINE nor SEPARATED"),
        (
            {**_KV, "properties": {"key.schema.type": "KEY_VALUE"}},
            "key: a KEY_VALUE schema cannot be part",
        ),
        ({**_KV, "properties": {"value.schema.type": "AVRO"}}, "value: AVRO without"),
        ({**_KV, "properties": {"value.schema.properties": "["}}, "value: malformed JSON"),
        ({**_KV, "properties": {"value.schema.properties": "[]"}}, "properties are not an object"),
        ("{", "JSON text given as schema: malformed JSON at line 1, column 2"),
        ("[" * 100_000, "nested too deeply"),
        (b"", "the bytes given as schema: malformed JSON"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b'"text"', "neither an object nor a list"),
        ("[" * 10 + "]" * 10, "nested more than 8 deep"),
        (b"[" * 11 + b"]" * 11, "nested more than 8 deep"),
    ],
)
def test_option_errors(source: Any, message: str) -> None:  # noqa: ANN401
    """Each malformed source has an error of its own, of bounded length."""
    with pytest.raises(OptionError, match=message) as raised:
        load_schema(source)
    assert len(str(raised.value)) < 600


def test_a_list_that_holds_itself() -> None:
    """It ends, like any other nesting that is too deep."""
    source: list[object] = []
    source.append(source)

    with pytest.raises(OptionError, match="nested more than 8 deep"):
        load_schema(source)


@pytest.mark.parametrize("content", [b"{", b"\xff", b'["INT8"]', b'"x"', b'{"type":"X"}'])
def test_the_file_is_named(tmp_path: Path, content: bytes) -> None:
    """A file that holds no schema is named; nor is a path in it ever followed."""
    (tmp_path / "bad.json").write_bytes(content)

    with pytest.raises(OptionError, match=r"bad\.json: "):
        load_schema(tmp_path / "bad.json")


@pytest.mark.parametrize("content", [b"{", b'{"type":"X","data":""}'])
def test_the_file_in_a_folder_is_named(tmp_path: Path, content: bytes) -> None:
    """One malformed file in a folder is an error: its version would be missing."""
    (tmp_path / "good.json").write_text(json.dumps(_RECORD))
    (tmp_path / "bad.json").write_bytes(content)

    with pytest.raises(OptionError, match=r"bad\.json: "):
        load_schema(tmp_path)


def test_a_folder_without_schemas(tmp_path: Path) -> None:
    """Nothing in it is mistaken for a schema."""
    (tmp_path / "stats.json").write_bytes(b"{}")

    with pytest.raises(OptionError, match="in this folder contains a schema"):
        load_schema(tmp_path)


def test_versions_that_are_not_there() -> None:
    """The error lists those that are, a bounded number of them."""
    many = [{"version": n, "type": "INT8"} for n in range(5_000)]

    with pytest.raises(OptionError, match=r"version 3; versions: 0, 1, 2$"):
        load_schema(_EVOLVED, schema_version=3)
    with pytest.raises(OptionError, match=r"versions \(the newest 20 of 5000\): 4980, .*, 4999$"):
        load_schema(many, schema_version=5_000)
    with pytest.raises(OptionError, match="versions: none is known"):
        load_schema([], schema_version=0)


def test_two_schemas_for_one_version(tmp_path: Path) -> None:
    """Which one is right cannot be told; both sources are named."""
    (tmp_path / "a.json").write_text(json.dumps({"version": 1, "type": "INT8"}))
    (tmp_path / "b.json").write_text(json.dumps({"version": 1, "type": "INT16"}))

    with pytest.raises(OptionError, match=r"of version 1: in .*a\.json and in .*b\.json"):
        load_schema(tmp_path)
    with pytest.raises(OptionError, match="two different schemas without a version"):
        load_schema(["INT8", _RECORD])
    assert load_schema(["INT8", "int8"]).reader == SchemaInfo("INT8")


def test_a_schema_that_is_too_long() -> None:
    """16 MiB is the longest definition, however it is written."""
    fits = "x" * (forms.MAX_SCHEMA_BYTES - 2)

    assert len(load_schema({"type": "JSON", "data": [fits[2:]]}).reader.data) == 16 << 20
    for data in (fits + "x", "é" * (len(fits) // 2 + 1)):
        with pytest.raises(OptionError, match="longer than the 16777216 bytes"):
            load_schema({"type": "JSON", "data": json.dumps(data, ensure_ascii=False)})


def test_sources_that_are_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files, folders and texts are measured before they are read whole."""
    for module in (forms, loading):
        monkeypatch.setattr(module, "MAX_SOURCE_BYTES", 100)
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps({"version": 1, "type": "INT8"}).ljust(60))
    (tmp_path / "long.avsc").write_text(json.dumps(_RECORD).ljust(101))
    (tmp_path / "x.desc").write_bytes(_TIMESTAMP.SerializeToString())

    too_long = (tmp_path / "long.avsc", tmp_path / "x.desc", _TIMESTAMP, " " * 101 + "{}")
    for source in (*too_long, str(tmp_path)):
        with pytest.raises(OptionError, match=r"longer than (the )?100 bytes"):
            load_schema(source)


def test_secrets_are_not_shown() -> None:
    """Neither those in a URL nor a path of any length."""
    with pytest.raises(OptionError) as raised:
        load_schema("memory://me:hidden@bucket/" + "x" * 4_000)
    assert "hidden" not in str(raised.value)
    assert len(str(raised.value)) < 600


def test_a_store_that_refuses() -> None:
    """What cannot be read may be there: this is no error of the caller's."""
    script = FaultScript({"a.json": b"{}"}, [raising(PermissionError("no"))])
    location = script.location()

    with pytest.raises(StorageError, match="PermissionError"):
        load_schema(f"{location.url}/a.json", storage_options=location.storage_options)
