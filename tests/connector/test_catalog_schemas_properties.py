"""Whatever a registry holds loads equal in every form, and no bytes break the reader of schemas."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import OptionError
from arrow_io.payloads.schema_info import SCHEMA_TYPES, SchemaInfo, TopicSchema
from connector.catalog.schemas.forms import BARE_TYPES
from connector.catalog.schemas.loading import load_schema
from tests.support.buckets import memory_bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


@dataclass(frozen=True)
class _Registered:
    """A schema as a registry has it, and what must come of it."""

    type: str
    definition: Any
    properties: Mapping[str, str]

    @property
    def info(self) -> SchemaInfo:
        """What must come of it."""
        text = ""
        if self.definition is not None:
            text = json.dumps(self.definition, separators=(",", ":"), ensure_ascii=False)
        return SchemaInfo(self.type, text, tuple(sorted(self.properties.items())))

    @property
    def raw(self) -> bytes:
        """The schema data in Pulsar's registry."""
        return b"" if self.definition is None else json.dumps(self.definition, indent=1).encode()

    @property
    def rest(self) -> object:
        """The schema data as the admin API gives it."""
        return "" if self.definition is None else json.dumps(self.definition)

    @property
    def cli(self) -> object:
        """The schema data as `pulsar-admin` prints it."""
        return "" if self.definition is None else self.definition


@dataclass(frozen=True)
class _RegisteredPair:
    """A KEY_VALUE schema as a registry has it, and what must come of it."""

    key: _Registered
    value: _Registered
    is_separated: bool
    own: Mapping[str, str]
    type: str = "KEY_VALUE"

    @property
    def properties(self) -> Mapping[str, str]:
        """Those that Pulsar's client writes for a KEY_VALUE schema."""
        return {
            "kv.encoding.type": "SEPARATED" if self.is_separated else "INLINE",
            "key.schema.name": "k",
            "key.schema.type": self.key.type,
            "key.schema.properties": json.dumps(self.key.properties),
            "value.schema.name": "",
            "value.schema.type": self.value.type,
            "value.schema.properties": json.dumps(self.value.properties),
            **self.own,
        }

    @property
    def info(self) -> SchemaInfo:
        """What must come of it."""
        own = tuple(sorted(self.own.items()))
        return SchemaInfo("KEY_VALUE", "", own, self.key.info, self.value.info, self.is_separated)

    @property
    def raw(self) -> bytes:
        """The schema data in Pulsar's registry."""
        return b"".join(len(part).to_bytes(4) + part for part in (self.key.raw, self.value.raw))

    @property
    def rest(self) -> object:
        """The schema data as the admin API gives it."""
        return json.dumps(self.cli)

    @property
    def cli(self) -> object:
        """The schema data as `pulsar-admin` prints it."""
        return {"key": self.key.cli, "value": self.value.cli}


_TEXT: Final = st.text(max_size=6)
_PROPERTIES: Final = st.dictionaries(_TEXT.map("p".__add__), _TEXT, max_size=2)
_DEFINITIONS: Final = st.fixed_dictionaries(
    {"type": st.just("record"), "name": _TEXT, "fields": st.lists(st.integers(), max_size=2)}
)
_SINGLE: Final = st.builds(
    _Registered, st.sampled_from(["AVRO", "JSON", "PROTOBUF"]), _DEFINITIONS, _PROPERTIES
) | st.builds(_Registered, st.sampled_from(BARE_TYPES), st.none(), _PROPERTIES)
_REGISTERED: Final = _SINGLE | st.builds(
    _RegisteredPair, _SINGLE, _SINGLE, st.booleans(), _PROPERTIES
)
_VERSIONS: Final = st.dictionaries(
    st.integers(0, (1 << 63) - 1), _REGISTERED, min_size=1, max_size=4
)


def _rest(version: int, schema: _Registered | _RegisteredPair) -> dict[str, Any]:
    return {
        "version": version,
        "type": schema.type,
        "timestamp": 1,
        "data": schema.rest,
        "properties": dict(schema.properties),
    }


def _raw(version: int, schema: _Registered | _RegisteredPair) -> dict[str, Any]:
    return {
        "version": version,
        "type": SCHEMA_TYPES[schema.type],
        "name": "orders",
        "schema_base64": base64.b64encode(schema.raw).decode(),
        "properties": dict(schema.properties),
    }


def _cli(version: int, schema: _Registered | _RegisteredPair) -> dict[str, Any]:
    fields = {"name": "orders", "schema": schema.cli, "type": schema.type, "timestamp": 0}
    return {"version": version, "schemaInfo": {**fields, "properties": dict(schema.properties)}}


@given(versions=_VERSIONS, write=st.sampled_from([_rest, _raw, _cli]), chosen=st.integers(0, 3))
def test_random_versions_load_equal_in_each_form(
    versions: dict[int, _Registered | _RegisteredPair],
    write: Callable[[int, _Registered | _RegisteredPair], dict[str, Any]],
    chosen: int,
) -> None:
    """Whatever a registry holds, each form and each way to hand it over gives the same."""
    expected = tuple(sorted((version, schema.info) for version, schema in versions.items()))
    objects = [write(version, schema) for version, schema in versions.items()]
    version, reader = expected[chosen % len(expected)]
    infos = [info for _, info in expected]
    newest = ([info for info in infos if info.type != "BYTES"] or infos)[-1]

    with memory_bucket(
        {f"{n}.json": json.dumps(each).encode() for n, each in enumerate(objects)}
    ) as bucket:
        sources: Iterable[Any] = (
            objects,
            {"getSchemaResponses": objects},
            json.dumps(objects),
            json.dumps(objects).encode(),
            [json.dumps(each) for each in objects],
            bucket.url,
        )
        for source in sources:
            assert load_schema(source) == TopicSchema(newest, expected)
            assert load_schema(source, schema_version=version) == TopicSchema(reader, expected)


@given(data=st.binary(max_size=60) | st.binary(max_size=40).map(b"\n\x0a".__add__))
def test_any_bytes_are_a_schema_or_an_option_error(data: bytes) -> None:
    """No file breaks the reader."""
    for source in (data, {"type": "KEY_VALUE", "data": data}, {"type": "AVRO", "data": data}):
        try:
            schema = load_schema(source)
        except OptionError:
            continue
        assert load_schema(source) == schema


@given(position=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_damaged_descriptor_sets_are_schemas_or_option_errors(position: int, byte: int) -> None:
    """A byte of a descriptor set that is another, or a set that is cut there."""
    descriptors = FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(descriptors.file.add())
    whole = bytearray(descriptors.SerializeToString())
    position %= len(whole)
    cut = bytes(whole[:position])
    whole[position] = byte

    for data in (bytes(whole), cut):
        try:
            schema = load_schema(data).reader
        except OptionError:
            continue
        assert schema.type == "PROTOBUF_NATIVE"
