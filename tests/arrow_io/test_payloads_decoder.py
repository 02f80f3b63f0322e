"""Each payload is read by the schema of its version; what cannot be read is told, or counted."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from arrow_io.errors import PayloadDecodeError, SchemaError, UnknownSchemaVersionError
from arrow_io.payloads.decoder import PayloadDecoder, is_decodable
from arrow_io.payloads.schema_info import SCHEMA_TYPES, SchemaInfo, TopicSchema
from arrow_io.payloads.writer_schemas import PulsarVersions, version_number
from arrow_io.read_metrics import Tally, Unit
from tests.support.payload_rows import messages, rows_of, values_of, version_bytes
from tests.support.payloads import record
from tests.support.protobuf_payloads import schema_data

if TYPE_CHECKING:
    from arrow_io.payloads.program import Program
    from arrow_io.payloads.shape import Shape

pytestmark = pytest.mark.usefixtures("build")


def _avro(*fields: object) -> SchemaInfo:
    return SchemaInfo("AVRO", json.dumps(record(*fields)))


_V0 = _avro(("a", "int"))
_V1 = _avro(("b", "string"), ("a", "long"))
_READER = _avro(("a", "long"), {"name": "b", "type": "string", "default": "none"})
_SCHEMA = TopicSchema(_READER, ((0, _V0), (1, _V1), (5, _READER)))
_UNIT = (Unit.VALUE, "UnknownSchemaVersionError")


def test_version_numbers() -> None:
    """Eight bytes are a number, signed; others are of another registry and opaque."""
    assert version_number(None) is None
    assert version_number(b"") is None
    assert version_number(bytes(8)) == 0
    assert version_number(b"\0" * 6 + b"\1\2") == 258
    assert version_number(b"\xff" * 8) == -1
    assert version_number(bytes(7)) is version_number(bytes(9)) is None


@pytest.mark.parametrize("compress", [False, True])
def test_each_payload_by_its_version(compress: bool) -> None:
    """In any mix, in one buffer or in several; what has no version was written by the reader."""
    rows = rows_of(
        (version_bytes(0), messages(b"\x02", None, b"\x04")),
        (version_bytes(1), messages(b"\x02x\x06")),
        (None, messages(b"\x08\x02y")),
        (b"", messages(b"\x0a\x02z")),
        (version_bytes(5), messages(b"\x0c\x00")),
        (version_bytes(0), messages(b"\x0e")),
        compress=compress,
    )

    assert values_of(_SCHEMA, rows) == {
        "a": [1, None, 2, 3, 4, 5, 6, 7],
        "b": ["none", None, "none", "x", "y", "z", "", "none"],
    }


def test_without_versions_all_is_the_readers() -> None:
    """A schema that somebody gives alone reads all that there is, whatever the entries say."""
    rows = rows_of(*((version, messages(b"\x02")) for version in (None, version_bytes(7), b"xx")))

    assert values_of(TopicSchema(_V0), rows) == {"a": [1, 1, 1]}


def test_json_is_read_by_the_reader() -> None:
    """Whatever schema its version has, as long as that is JSON too, broken or not."""
    reader = SchemaInfo("JSON", _V0.data)
    schema = TopicSchema(reader, ((0, reader), (9, SchemaInfo("JSON", "{"))))
    rows = rows_of((version_bytes(9), messages(b'{"a":1,"c":2}')), (b"", messages(b'{"a":3}')))

    assert values_of(schema, rows) == {"a": [1, 3]}


def _descriptors() -> str:
    """What a PROTOBUF_NATIVE schema keeps of the message `R`, whose field 1 is the int32 `a`."""
    file = FileDescriptorProto(name="r.proto", syntax="proto3")
    field = file.message_type.add(name="R").field.add(name="a", number=1)
    field.type, field.label = field.TYPE_INT32, field.LABEL_OPTIONAL
    return schema_data([file], "R", "r.proto")


_NATIVE = _descriptors()
_PAYLOADS = {
    "STRING": (SchemaInfo("STRING"), b"x"),
    "INT64": (SchemaInfo("INT64"), bytes(8)),
    "AVRO": (_V0, b"\x02"),
    "JSON": (SchemaInfo("JSON", _V0.data), b'{"a":1}'),
    "PROTOBUF_NATIVE": (SchemaInfo("PROTOBUF_NATIVE", _NATIVE), b"\x08\x01"),
    "KEY_VALUE": (
        SchemaInfo("KEY_VALUE", key=SchemaInfo("STRING"), value=_V0),
        b"\0\0\0\x01k\0\0\0\x01\x02",
    ),
}


@pytest.mark.parametrize(("reader", "payload"), _PAYLOADS.values(), ids=_PAYLOADS)
@pytest.mark.parametrize("version", [version_bytes(7), b"xx"], ids=["number", "opaque"])
def test_versions_matter_to_all_types(reader: SchemaInfo, payload: bytes, version: bytes) -> None:
    """One that is not known is an error where versions are given, and else none."""
    rows = rows_of((version, messages(payload)))
    schema = TopicSchema(reader, ((0, reader), (3, reader)))

    with pytest.raises(UnknownSchemaVersionError, match=r"is missing, available are: 0, 3;"):
        values_of(schema, rows)
    tally = Tally(salvage=True)
    assert [*values_of(schema, rows, tally=tally).values()] in ([[None]], [[None], [None]])
    assert tally.metrics.lost == {_UNIT: 1}
    known = values_of(schema, rows_of((version_bytes(3), messages(payload))))
    assert values_of(TopicSchema(reader), rows) == known
    assert all(values != [None] for values in known.values())


def test_versions_of_other_types() -> None:
    """Bytes of one type are never read as another, however well their length fits."""
    double, int64 = SchemaInfo("DOUBLE"), SchemaInfo("INT64")
    schema = TopicSchema(int64, ((0, double), (1, int64)))
    one = (1).to_bytes(8)
    rows = rows_of(
        (version_bytes(1), messages(one)),
        (version_bytes(0), messages(struct.pack(">d", 1.5), None)),
        (version_bytes(1), messages(one)),
    )

    with pytest.raises(SchemaError, match=r"^schema version 0 is of type DOUBLE, not INT64") as e:
        values_of(schema, rows)
    assert (e.value.ledger_id, e.value.entry_id, e.value.batch_index) == (1, 1, 0)
    tally = Tally(salvage=True)
    assert values_of(schema, rows, tally=tally) == {"__value__": [1, None, None, 1]}
    assert tally.metrics.lost == {(Unit.VALUE, "SchemaError"): 1}


def test_versions_of_one_value_or_two() -> None:
    """A KEY_VALUE is never read as its value alone, nor a value as one."""
    int64 = SchemaInfo("INT64")
    pair = SchemaInfo("KEY_VALUE", key=SchemaInfo("STRING"), value=int64)

    for reader, other in ((int64, pair), (pair, int64)):
        schema = TopicSchema(reader, ((0, other), (1, reader)))
        for payload in (bytes(8), b"\0\0\0\x01k\0\0\0\x08" + bytes(8)):
            told = f"^schema version 0 is of type {other.type}, not {reader.type}"
            with pytest.raises(SchemaError, match=told):
                values_of(schema, rows_of((version_bytes(0), messages(payload))))


def test_both_kinds_of_protobuf_are_one() -> None:
    """A topic may change from PROTOBUF to PROTOBUF_NATIVE and back: the payloads are the same."""
    rest, native = SchemaInfo("PROTOBUF", "{}"), SchemaInfo("PROTOBUF_NATIVE", _NATIVE)
    rows = rows_of(*((version_bytes(n), messages(bytes([8, n]))) for n in (1, 2)))

    assert values_of(TopicSchema(native, ((1, rest), (2, native))), rows) == {"a": [1, 2]}
    described = SchemaInfo("PROTOBUF", _NATIVE)
    assert values_of(TopicSchema(described, ((1, native), (2, rest))), rows) == {"a": [1, 2]}


@pytest.mark.parametrize(
    ("version", "told"),
    [(version_bytes(2), "version 2"), (b"\xff" * 8, "version -1"), (b"\1\2", "version 0x0102")],
)
def test_unknown_versions(version: bytes, told: str) -> None:
    """They are an error that names the version, those that are known, and the message."""
    rows = rows_of(
        (version_bytes(0), messages(b"\x02")), (version, messages(None, b"\x02", b"\x04"))
    )

    with pytest.raises(
        UnknownSchemaVersionError, match=f"{told} is missing, available are: 0, 1, 5;"
    ) as e:
        values_of(_SCHEMA, rows)
    assert (e.value.ledger_id, e.value.entry_id, e.value.batch_index) == (1, 1, 1)
    tally = Tally(salvage=True)
    assert values_of(_SCHEMA, rows, tally=tally) == {
        "a": [1, None, None, None],
        "b": ["none", None, None, None],
    }
    assert tally.metrics.lost == {_UNIT: 2}


def test_unknown_versions_of_nulls() -> None:
    """A null value needs no schema, so nothing is lost."""
    rows = rows_of((version_bytes(2), messages(None, None)))

    assert values_of(_SCHEMA, rows) == {"a": [None, None], "b": [None, None]}


def test_versions_that_cannot_be_read() -> None:
    """A schema that is broken, or of another type, is an error of those who need it only."""
    versions = ((0, _V0), (1, SchemaInfo("AVRO", "{")), (2, SchemaInfo("JSON", _V0.data)))
    schema = TopicSchema(_V0, versions)

    assert values_of(schema, rows_of((version_bytes(0), messages(b"\x02")))) == {"a": [1]}
    for number, told in ((1, "not JSON"), (2, "version 2 is of type JSON, not AVRO")):
        rows = rows_of((version_bytes(number), messages(b"\x02", b"\x04")))
        with pytest.raises(SchemaError, match=told):
            values_of(schema, rows)
        tally = Tally(salvage=True)
        assert values_of(schema, rows, tally=tally) == {"a": [None, None]}
        assert tally.metrics.lost == {(Unit.VALUE, "SchemaError"): 2}


def test_defaults_that_are_none() -> None:
    """They are an error where a version lacks the field, and only there."""
    reader = _avro(("a", "int"), {"name": "c", "type": "int", "default": "x"})
    schema = TopicSchema(reader, ((0, _V0), (1, reader)))

    assert values_of(schema, rows_of((version_bytes(1), messages(b"\x02\x04")))) == {
        "a": [1],
        "c": [2],
    }
    with pytest.raises(SchemaError, match="default"):
        values_of(schema, rows_of((version_bytes(0), messages(b"\x02"))))
    assert values_of(schema, rows_of((version_bytes(0), messages(b"\x02"))), names=["a"]) == {
        "a": [1]
    }


@pytest.mark.parametrize(
    "payload",
    [b"\0", b"\0\0\0\x01{}", "\ufeff{}".encode(), b"abc", b"x{}", b"\xff\xfe{", b"+1", b"'a'"],
    ids=repr,
)
@pytest.mark.parametrize("schema", [_V0.data, '"string"', '{"type": "array", "items": "int"}'])
def test_payloads_that_do_not_begin_as_json(schema: str, payload: bytes) -> None:
    """They are told to be no JSON, not to be of another type, whatever the schema."""
    rows = rows_of((None, messages(b" null", payload)))

    with pytest.raises(PayloadDecodeError, match=r"^the payload is not JSON") as caught:
        values_of(TopicSchema(SchemaInfo("JSON", schema)), rows)
    assert (caught.value.batch_index, caught.value.field_path) == (1, "")


@pytest.mark.parametrize("compress", [False, True])
def test_payloads_that_do_not_fit(compress: bool) -> None:
    """They are an error that says what, in which field of which message; or null and counted."""
    inner = record(("x", {"type": "array", "items": "int"}), name="S")
    schema = TopicSchema(_avro(("a", "int"), ("s", inner)))
    sound, long_ = b"\x02\x02\x04\0", b"\x02\x02\x80\x80\x80\x80\x80\x01\0"
    rows = rows_of(
        (None, messages(sound, None)),
        (None, messages(sound, long_, sound, b"\x02")),
        compress=compress,
    )

    with pytest.raises(PayloadDecodeError, match=r"s\.x\[\]: .* out of the range") as caught:
        values_of(schema, rows)
    error = caught.value
    assert error.field_path == "s.x[]"
    assert (error.object_key, error.ledger_id, error.entry_id, error.batch_index) == (
        "data-object", 1, 1, 1,
    )  # fmt: skip
    tally = Tally(salvage=True)
    assert values_of(schema, rows, tally=tally) == {
        "a": [1, None, 1, None, 1, None],
        "s": [{"x": [2]}, None, {"x": [2]}, None, {"x": [2]}, None],
    }
    assert tally.metrics.lost == {(Unit.VALUE, "PayloadDecodeError"): 2}
    assert "entry 1" in tally.metrics.losses[0]


def test_text_in_other_character_sets() -> None:
    """STRING is UTF-8, or what its schema says; what is none becomes U+FFFD, as in Java."""
    rows = rows_of((None, messages("é".encode(), b"\xe9", None, b"")))

    def read(charset: str | None) -> tuple[list[str | None], int]:
        properties = () if charset is None else (("__charset", charset),)
        schema = TopicSchema(SchemaInfo("STRING", properties=properties))
        tally = Tally()
        return values_of(schema, rows, tally=tally)["__value__"], tally.metrics.replaced_texts

    assert read(None) == read("utf-8") == read("UTF8") == (["é", "\ufffd", None, ""], 1)
    assert read("ISO-8859-1") == (["Ã©", "é", None, ""], 0)
    assert read("US-ASCII") == (["\ufffd\ufffd", "\ufffd", None, ""], 2)
    assert read("UTF-16")[0][3] == ""
    assert read("UTF-16")[1] == 1


@pytest.mark.parametrize(
    ("charset", "payload"), [("UTF-7", b"+2AA-"), ("unicode_escape", rb"\ud800")]
)
def test_characters_that_utf_8_has_not(charset: str, payload: bytes) -> None:
    """Half a pair of surrogates becomes U+FFFD, as what is no text at all does, and is counted."""
    schema = TopicSchema(SchemaInfo("STRING", properties=(("__charset", charset),)))
    tally = Tally()
    rows = rows_of((None, messages(payload, b"a")))

    found = values_of(schema, rows, tally=tally)["__value__"]
    assert set(found[0]) == {"\ufffd"}
    assert found[1] == "a"
    assert tally.metrics.replaced_texts == 1


@pytest.mark.parametrize("charset", ["no-such", "undefined", "idna", "hex", "a\0b", ""])
def test_character_sets_that_cannot_be_used(charset: str) -> None:
    """They are an error that names them, whatever Python has under their name."""
    schema = TopicSchema(SchemaInfo("STRING", properties=(("__charset", charset),)))
    rows = rows_of((None, messages(b"xn--\xff." + b"x" * 70, None)))

    with pytest.raises(SchemaError) as caught:
        values_of(schema, rows)
    assert str(caught.value).startswith(f"the character set {charset!r} of the schema cannot be")


def test_types_of_schemas() -> None:
    """Every type can be read but KEY_VALUE, which is two, and EXTERNAL, which Pulsar lacks."""
    for name in SCHEMA_TYPES.keys() - {
        "NONE",
        "AVRO",
        "JSON",
        "PROTOBUF",
        "PROTOBUF_NATIVE",
        "KEY_VALUE",
        "EXTERNAL",
    }:
        assert isinstance(
            PayloadDecoder(SchemaInfo(name), PulsarVersions(SchemaInfo(name)), "ns").arrow_type,
            pa.DataType,
        )
    for name in ("KEY_VALUE", "NONE", "EXTERNAL", "AUTO_CONSUME"):
        with pytest.raises(SchemaError, match=name):
            _ = PayloadDecoder(SchemaInfo(name), PulsarVersions(SchemaInfo(name)), "ns").arrow_type
    with pytest.raises(SchemaError):
        _ = PayloadDecoder(
            SchemaInfo("AVRO", "5"), PulsarVersions(SchemaInfo("AVRO", "5")), "ns"
        ).arrow_type


def test_what_can_be_decoded() -> None:
    """PROTOBUF can be if a descriptor came with it, also as a part of KEY_VALUE."""
    bare, native = SchemaInfo("PROTOBUF", "{}"), SchemaInfo("PROTOBUF", '{"fileDescriptorSet": ""}')

    assert is_decodable(TopicSchema(_READER))
    assert is_decodable(TopicSchema(native))
    assert not is_decodable(TopicSchema(bare))
    assert not is_decodable(TopicSchema(SchemaInfo("KEY_VALUE", key=_READER, value=bare)))
    assert is_decodable(TopicSchema(SchemaInfo("KEY_VALUE", key=_READER, value=native)))


def test_programs_are_kept() -> None:
    """A program is made once for each version and selection of fields."""
    decoder = PayloadDecoder(_READER, PulsarVersions(_READER, dict(_SCHEMA.versions)), "ns")

    first = decoder.program(version_bytes(0), ("a",))
    assert decoder.program(version_bytes(0), ("a",)) is first
    assert decoder.program(version_bytes(1), ("a",)) is not first
    assert decoder.program(version_bytes(0), ("a", "b")) is not first
    assert decoder.program(None, None) is decoder.program(b"", None)


def test_programs_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that are made for the same, as by two threads, both have one, which is kept."""
    decoder = PayloadDecoder(_READER, PulsarVersions(_READER, dict(_SCHEMA.versions)), "ns")
    compile_ = PayloadDecoder._compile
    others: list[Program] = []

    def overtaken(self: PayloadDecoder, version: int | None, shape: Shape) -> Program:
        monkeypatch.setattr(PayloadDecoder, "_compile", compile_)
        others.append(self.program(version_bytes(0), None))
        return compile_(self, version, shape)

    monkeypatch.setattr(PayloadDecoder, "_compile", overtaken)
    program = decoder.program(version_bytes(0), None)
    assert [program] == others
    assert program is others[0] is decoder.program(version_bytes(0), None)


def test_only_requested_fields_lose_a_value() -> None:
    """A field that does not fit takes those with it that are decoded together, and no others."""
    schema = TopicSchema(SchemaInfo("JSON", json.dumps(record(("a", "int"), ("b", "int")))))
    rows = {
        ("a",): ({"a": [2]}, 0),
        ("b",): ({"b": [None]}, 1),
        ("a", "b"): ({"a": [None], "b": [None]}, 1),
    }
    for names, (values, lost) in rows.items():
        tally = Tally(salvage=True)
        found = rows_of((None, messages(b'{"a":2,"b":"bad"}')))

        assert values_of(schema, found, names=names, tally=tally) == values
        assert tally.metrics.lost.total() == lost
