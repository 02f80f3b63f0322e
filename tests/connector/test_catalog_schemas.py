"""Schemas are found wherever they lie, and are equal in whichever form they come."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path  # noqa: TC003 - pytest looks at annotations
from typing import TYPE_CHECKING, Any, Final

import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from arrow_io.errors import OptionError
from arrow_io.payloads.protobuf_native import protobuf_shape
from arrow_io.payloads.schema_info import SCHEMA_TYPES, SchemaInfo, TopicSchema
from connector.catalog.schemas.answers import registered_versions, schemas_json
from connector.catalog.schemas.forms import descriptor_schema
from connector.catalog.schemas.loading import load_schema
from tests.support.buckets import memory_bucket
from tests.support.golden import golden_topic, golden_topics

if TYPE_CHECKING:
    from tests.support.golden import GoldenTopic

_RECORD: Final = {"type": "record", "name": "R", "fields": [{"name": "é", "type": "int"}]}
_RECORD_TEXT: Final = '{"type":"record","name":"R","fields":[{"name":"é","type":"int"}]}'
_AVRO: Final = SchemaInfo("AVRO", _RECORD_TEXT)
_PRIMITIVES: Final = sorted(
    set(SCHEMA_TYPES) - {"AVRO", "JSON", "KEY_VALUE", "NONE", "PROTOBUF", "PROTOBUF_NATIVE"}
)
_GOLDEN: Final = [
    topic for topic in golden_topics() if (topic.folder / "schemas-rest.json").exists()
]


def _golden_file(topic: str, name: str = "schemas-rest.json") -> Path:
    return golden_topic(topic).folder / name


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _telemetry() -> FileDescriptorSet:
    """The descriptor set of the golden `protobuf*` topics, of whose messages two are top level."""
    data = json.loads(load_schema(_golden_file("protobuf-native")).reader.data)
    return FileDescriptorSet.FromString(base64.b64decode(data["fileDescriptorSet"]))


def _timestamp() -> FileDescriptorSet:
    """A descriptor set with just one message."""
    descriptors = FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(descriptors.file.add())
    return descriptors


def _key_value(key: bytes, value: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, signed=True) + part for part in (key, value))


class TestGoldenSchemas:
    """What Pulsar itself says of its schemas."""

    def test_all_topics_with_a_schema_are_looked_at(self) -> None:
        """Nothing is proved by files that are not there."""
        assert len(_GOLDEN) == 44

    @pytest.mark.parametrize("topic", _GOLDEN, ids=str)
    def test_rest_and_raw_bytes_are_the_same_schemas(self, topic: GoldenTopic) -> None:
        """REST, the raw bytes of each version, and the topic's whole folder give one answer."""
        rest = load_schema(topic.folder / "schemas-rest.json")

        assert load_schema(str(topic.folder / "schemas.json")) == rest
        assert load_schema(topic.folder) == rest
        assert load_schema([topic.folder / "schemas.json", topic.folder]) == rest
        assert hash(rest) == hash(load_schema(topic.folder))
        (versions,) = json.loads((topic.folder / "schemas-rest.json").read_text()).values()
        assert [version for version, _ in rest.versions] == [each["version"] for each in versions]
        assert [schema.type for _, schema in rest.versions] == [each["type"] for each in versions]
        assert rest.reader is rest.versions[-1][1]

    def test_key_value_says_what_key_and_value_are(self) -> None:
        """Types, definitions and properties of both parts, and where keys are stored."""
        both = load_schema(_golden_file("kv-avro-separated")).reader
        inline = load_schema(_golden_file("kv-string-int-inline")).reader

        assert both.is_separated
        assert both.key is not None
        assert both.value is not None
        assert (both.key.type, both.value.type) == ("AVRO", "AVRO")
        assert json.loads(both.key.data)["name"] == "Key"
        assert json.loads(both.value.data)["name"] == "Order"
        assert dict(both.key.properties)["__alwaysAllowNull"] == "true"
        assert inline == SchemaInfo(
            "KEY_VALUE", key=SchemaInfo("STRING"), value=SchemaInfo("INT32"), is_separated=False
        )

    def test_protobuf_native_names_its_message(self) -> None:
        """The data is Pulsar's, and its descriptor set has the message it names."""
        schema = load_schema(_golden_file("protobuf-native")).reader
        data = json.loads(schema.data)

        (answer,) = json.loads(_golden_file("protobuf-native").read_text())["getSchemaResponses"]
        assert data == json.loads(answer["data"])
        assert data["rootMessageTypeName"] == "fleet.v1.Reading"
        assert data["rootFileDescriptorName"] == "telemetry.proto"
        assert "__PARSING_INFO__" in dict(schema.properties)


class TestForms:
    """One schema, in the forms that tools and people write it in."""

    @pytest.mark.parametrize(
        "source",
        [
            {"version": 3, "type": 4, "data": _RECORD, "timestamp": 1, "properties": None},
            {"version": 3, "type": "avro", "schema": _RECORD_TEXT.encode()},
            {"version": 3, "schemaInfo": {"schema": json.dumps(_RECORD, indent=2), "type": "AVRO"}},
        ],
        ids=["number", "bytes", "cli-text"],
    )
    def test_one_version(self, source: dict[str, Any], tmp_path: Path) -> None:
        """Object, JSON text, file, folder, list of them: the same version of the same schema."""
        expected = TopicSchema(_AVRO, ((3, _AVRO),))
        assert load_schema(source) == expected
        assert load_schema([source]) == expected
        assert load_schema({"getSchemaResponses": [source]}) == expected
        if isinstance(source.get("schema"), bytes):
            return

        text = json.dumps(source)
        file = tmp_path / "v3.json"
        file.write_text(text, encoding="utf-8-sig")
        for each in (text, f" {text}\n", f"[{text}]", text.encode(), file, str(file), tmp_path):
            assert load_schema(each) == expected
        assert load_schema(json.dumps([str(file)])) == expected

    @pytest.mark.parametrize(
        "source",
        [_RECORD, json.dumps(_RECORD), {"type": "AVRO", "schema": _RECORD}, _json(_RECORD)],
        ids=["object", "text", "schema-info", "bytes"],
    )
    def test_a_schema_without_a_version_is_the_readers_own(self, source: Any) -> None:  # noqa: ANN401
        """It is read by, and says nothing of versions."""
        assert load_schema(source) == TopicSchema(_AVRO)

    @pytest.mark.parametrize("kind", ["enum", "fixed", "map", "array", "error"])
    def test_avro_schemas_need_no_record(self, kind: str) -> None:
        """An object with one of Avro's type names is an Avro schema."""
        schema = {"type": kind, "name": "X", "version": "3", "properties": 1}

        assert load_schema(schema).reader.type == "AVRO"

    def test_avro_primitive_with_attributes(self) -> None:
        """Avro's `string` is one of Avro unless it comes with data, as in a SchemaInfo."""
        avro = {"type": "string", "logicalType": "uuid"}

        assert load_schema(avro).reader == SchemaInfo(
            "AVRO", json.dumps(avro, separators=(",", ":"))
        )
        assert load_schema({"type": {"type": "string"}}).reader.type == "AVRO"
        assert load_schema({"type": "string", "data": ""}).reader == SchemaInfo("STRING")

    @pytest.mark.parametrize("name", _PRIMITIVES)
    def test_names_of_primitive_types(self, name: str) -> None:
        """In any letter case and in a SchemaInfo by name and number, where data says nothing."""
        expected = TopicSchema(SchemaInfo(name))

        for given_name in (name, name.lower(), f" {name.title()} "):
            assert load_schema(given_name) == expected
        for given_type in (name, SCHEMA_TYPES[name]):
            assert load_schema({"type": given_type, "data": ""}) == expected
            assert load_schema({"type": given_type, "name": "x"}) == expected

    def test_none_is_bytes(self) -> None:
        """Pulsar's NONE says of the bytes what BYTES says."""
        for source in ("none", {"type": 0}, {"type": "NONE", "schema": ""}, {"type": -1}):
            assert load_schema(source).reader == SchemaInfo("BYTES")

    def test_properties_are_kept_in_order_of_their_names(self) -> None:
        """Equal properties are equal in whatever order they came."""
        properties = {"b": "2", "__charset": "UTF-16", "a": ""}
        schema = load_schema({"type": "STRING", "properties": properties}).reader

        assert schema.properties == (("__charset", "UTF-16"), ("a", ""), ("b", "2"))

    @pytest.mark.parametrize(
        "data",
        [
            {"key": "", "value": _RECORD},
            {"value": json.dumps(_RECORD)},
            json.dumps({"key": None, "value": _RECORD}),
            _json({"key": "", "value": _RECORD}),
            _key_value(b"", _json(_RECORD)),
            b"\xff\xff\xff\xff" + _key_value(b"", _json(_RECORD))[4:],
            _key_value(b"", _json(_RECORD)).decode("latin-1"),
        ],
        ids=["object", "text-in-it", "text", "bytes", "binary", "null-key", "binary-as-text"],
    )
    def test_key_value_data(self, data: object) -> None:
        """KEY_VALUE data as JSON, in Pulsar's binary form, and mixtures."""
        properties = {
            "key.schema.name": "k",
            "key.schema.type": "STRING",
            "key.schema.properties": '{"__charset": "UTF-16"}',
            "value.schema.type": "JSON",
            "kv.encoding.type": "SEPARATED",
            "own": "x",
        }
        schema = load_schema({"type": "KEY_VALUE", "data": data, "properties": properties}).reader

        assert schema == SchemaInfo(
            "KEY_VALUE",
            properties=(("own", "x"),),
            key=SchemaInfo("STRING", properties=(("__charset", "UTF-16"),)),
            value=SchemaInfo("JSON", _RECORD_TEXT),
            is_separated=True,
        )

    @pytest.mark.parametrize("data", [None, "", b"", b"\0" * 8, {}], ids=repr)
    def test_key_value_without_properties_is_bytes_inline(self, data: object) -> None:
        """What Pulsar's client takes where the properties say nothing."""
        schema = load_schema({"type": "KEY_VALUE", "data": data}).reader

        assert schema == SchemaInfo("KEY_VALUE", key=SchemaInfo("BYTES"), value=SchemaInfo("BYTES"))


class TestSources:
    """Files, folders and buckets."""

    def test_relative_path_and_url(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Files are found by relative path, by URL, and where a type has the same name."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "string").write_bytes(_json(_RECORD))
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "a#1.avsc").write_bytes(_json(_RECORD))

        assert load_schema("string") == TopicSchema(SchemaInfo("STRING"))
        for source in ("./string", f"file://{tmp_path}/string", "sub/a#1.avsc", "sub", "sub/"):
            assert load_schema(source) == TopicSchema(_AVRO), source

    def test_a_bucket(self) -> None:
        """Files in an object store, one for each version, by the URL of the folder or of each."""
        objects = {f"v{n}.json": _json({"version": n, "type": "INT8", "data": ""}) for n in (0, 2)}
        with memory_bucket({**objects, "own.AVSC": _json(_RECORD), "x.txt": b"x"}) as bucket:
            everything = load_schema(bucket.url, storage_options={})
            two = load_schema([f"{bucket.url}/{name}" for name in objects])

        int8 = SchemaInfo("INT8")
        assert everything == TopicSchema(_AVRO, ((0, int8), (2, int8)))
        assert two == TopicSchema(int8, ((0, int8), (2, int8)))

    def test_a_folder_may_hold_other_things(self, tmp_path: Path) -> None:
        """Other JSON files of the admin API, and files of other kinds, are not schemas."""
        (tmp_path / "v1.json").write_bytes(_json({"version": 1, "type": "INT8", "data": ""}))
        for name in ("stats.json", "package.json", "list.json", "text.json", "empty.json"):
            content = {"package.json": {"version": "1", "type": "module"}, "list.json": [1, "x"]}
            (tmp_path / name).write_bytes(_json(content.get(name, {"entriesAddedCounter": 3})))
        (tmp_path / "text.json").write_bytes(b'"text"')
        (tmp_path / "notes.md").write_bytes(b"\xff{")
        (tmp_path / "folder.json").mkdir()

        assert load_schema(tmp_path).versions == ((1, SchemaInfo("INT8")),)

    def test_an_own_schema_beside_versions_is_the_reader(self, tmp_path: Path) -> None:
        """A schema without a version is read by; the versions say how messages were written."""
        versions = load_schema(_golden_file("avro-evolved")).versions
        own = tmp_path / "own.avsc"
        own.write_bytes(_json(_RECORD))

        both = load_schema([_golden_file("avro-evolved"), own])

        assert both == TopicSchema(_AVRO, versions)
        with pytest.raises(OptionError, match="give one of them"):
            load_schema([_golden_file("avro-evolved"), own], schema_version=1)


class TestDescriptorSets:
    """Protobuf's own schemas, in which a message must be chosen."""

    @pytest.mark.parametrize("name", ["t.desc", "t.pb", "t.binpb", "t.protoset", "t", "t.json"])
    def test_the_message_stands_behind_a_hash(self, tmp_path: Path, name: str) -> None:
        """By its full name; a file is known by what it holds, not by what it is called."""
        file = tmp_path / name
        file.write_bytes(_telemetry().SerializeToString())

        schema = load_schema(f"{file}#fleet.v1.Reading").reader

        native = load_schema(_golden_file("protobuf-native")).reader
        assert schema == replace(native, properties=())
        position = json.loads(load_schema(f"{file}#.fleet.v1.Position").reader.data)
        assert position["rootMessageTypeName"] == "fleet.v1.Position"
        nested = json.loads(load_schema(f"{file}#fleet.v1.Reading.ExtrasEntry").reader.data)
        assert nested["rootFileDescriptorName"] == "telemetry.proto"
        other = json.loads(load_schema(f"{file}#google.protobuf.Timestamp").reader.data)
        assert other["rootFileDescriptorName"] == "google/protobuf/timestamp.proto"

    def test_the_only_message_needs_no_name(self, tmp_path: Path) -> None:
        """From a file, bytes or the library's own class."""
        file = tmp_path / "timestamp.desc"
        file.write_bytes(_timestamp().SerializeToString(deterministic=True))
        expected = load_schema(f"{file}#google.protobuf.Timestamp")

        for source in (file, file.read_bytes(), bytearray(file.read_bytes()), _timestamp()):
            assert load_schema(source) == expected
        assert expected.reader.type == "PROTOBUF_NATIVE"

    def test_several_messages_are_listed(self) -> None:
        """Of the last file, whose messages are those that the set was made for."""
        with pytest.raises(OptionError, match=r"has 'fleet\.v1\.Position', 'fleet\.v1\.Reading'$"):
            load_schema(_telemetry())

    @pytest.mark.parametrize("name", ["Reading", "fleet.v1", "fleet.v1.Reading.x", "fleet.v1.Mode"])
    def test_unknown_messages(self, tmp_path: Path, name: str) -> None:
        """The error lists the messages that there are."""
        file = tmp_path / "telemetry.desc"
        file.write_bytes(_telemetry().SerializeToString())

        with pytest.raises(
            OptionError, match=r"telemetry\.desc: no message .*'fleet\.v1\.Reading'"
        ):
            load_schema(f"{file}#{name}")

    def test_a_set_without_its_imports(self) -> None:
        """It says how to write it whole; Google's own files are known without it."""
        descriptors = _telemetry()
        whole = descriptor_schema(descriptors.SerializeToString(), "fleet.v1.Reading")
        del descriptors.file[0]

        known = descriptor_schema(descriptors.SerializeToString(), "fleet.v1.Reading")
        descriptors.file[0].dependency.append("shop/money.proto")

        assert whole is not None
        assert known is not None
        assert protobuf_shape(known.data, "ns").type == protobuf_shape(whole.data, "ns").type
        with pytest.raises(OptionError, match=r"lacks 'shop/money\.proto'.*include_imports"):
            load_schema(descriptors)

    def test_a_descriptor_for_a_protobuf_schema(self) -> None:
        """What Pulsar stores of PROTOBUF has no descriptor; a descriptor beside it is read by."""
        stored = load_schema(_golden_file("protobuf"))
        native = load_schema(_golden_file("protobuf-native")).reader
        described = {"type": "PROTOBUF", "data": native.data}

        assert json.loads(stored.reader.data)["name"] == "Reading"
        assert load_schema(described).reader == SchemaInfo("PROTOBUF", native.data)
        both = load_schema([_golden_file("protobuf"), described])
        assert both == TopicSchema(SchemaInfo("PROTOBUF", native.data), stored.versions)

    def test_a_message_of_json_is_refused(self) -> None:
        """Only a descriptor set has messages to choose from."""
        with pytest.raises(OptionError, match=r"schemas-rest\.json: not a descriptor set"):
            load_schema(f"{_golden_file('string')}#fleet.v1.Reading")


def test_deleted_schema_is_not_the_newest() -> None:
    """Of a schema that was deleted Pulsar keeps a version of type NONE, which is no schema."""
    versions = [
        {"version": 0, "type": "INT8", "data": ""},
        {"version": 1, "type": "NONE", "data": ""},
    ]

    schema = load_schema({"getSchemaResponses": versions})

    assert schema.reader == SchemaInfo("INT8")
    assert [version for version, _ in schema.versions] == [0, 1]
    assert load_schema({"getSchemaResponses": versions[1:]}).reader == SchemaInfo("BYTES")


_TOPICS = [topic for topic in golden_topics() if (topic.folder / "schemas-rest.json").exists()]
_A, _B = SchemaInfo("STRING"), SchemaInfo("INT32", properties=(("a", "b"),))


@pytest.mark.parametrize("topic", _TOPICS, ids=str)
def test_a_broker_s_answer_is_written_again(topic: GoldenTopic) -> None:
    """Types, definitions, properties and versions of every golden topic come back."""
    schema = load_schema(topic.folder / "schemas-rest.json")

    answer = schemas_json(schema, timestamp_ms=5)

    assert load_schema(answer) == schema
    assert load_schema(answer).versions == schema.versions
    assert [each["timestamp"] for each in json.loads(answer)["getSchemaResponses"]] == [5] * len(
        schema.versions
    )


@pytest.mark.parametrize(
    ("schema", "versions"),
    [
        (None, ()),
        (TopicSchema(_A), ((0, _A),)),
        (TopicSchema(_A, ((3, _A), (5, _B))), ((3, _A), (5, _B))),
        (TopicSchema(_A, ((3, _B),)), ((3, _B), (4, _A))),
        (TopicSchema(SchemaInfo("BYTES")), ()),
    ],
)
def test_a_reader_schema_is_a_version(
    schema: TopicSchema | None, versions: tuple[tuple[int, SchemaInfo], ...]
) -> None:
    """What messages are written by has a version, the next one if it is none of those known."""
    assert registered_versions(schema) == versions


@pytest.mark.parametrize("data", ['"long"', '["null","string"]', '{"type":"int"}'])
def test_a_part_of_a_key_value_may_be_any_definition(data: str) -> None:
    """Avro spells types as text, lists and objects."""
    part = SchemaInfo("AVRO", data)
    schema = TopicSchema(SchemaInfo("KEY_VALUE", key=_A, value=part))

    assert load_schema(schemas_json(schema, timestamp_ms=0)).reader == schema.reader


def test_a_topic_without_schema_has_an_empty_answer() -> None:
    """As a broker answers for such a topic."""
    assert schemas_json(None, timestamp_ms=0) == '{"getSchemaResponses": []}'
