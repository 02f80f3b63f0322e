"""Payloads that name a schema of a registry are read by that schema, or refused by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from arrow_io.errors import PayloadDecodeError, SchemaError, UnknownSchemaVersionError
from arrow_io.messages import layout
from arrow_io.messages.message_reader import MessageReader, Needs
from arrow_io.payloads.frames import Frame, entry_frame, read_frame
from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from arrow_io.read_metrics import Tally, Unit
from tests.support.avro_evolutions import evolved
from tests.support.avro_schemas import schemas
from tests.support.builds import BUILDS, using_build
from tests.support.entries import Message, encode_entry
from tests.support.fastavro_oracle import REFUSALS, read_datum, reading_of, write_datum
from tests.support.golden import GOLDEN, SCALABLE_SET
from tests.support.payload_rows import messages, rows_of, values_of
from tests.support.payloads import record
from tests.support.protobuf_payloads import NoValueError, library_value
from tests.support.protobuf_strategies import messages as protobuf_messages
from tests.support.protobuf_strategies import schemas as protobuf_schemas
from tests.support.reference_ledger import read_entries
from tests.support.registries import IdsInMemory, frame
from tests.support.runs import entry_run, schema_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.messages.message_columns import MessageColumns
    from tests.support.avro_schemas import Schema

_MESSY: Final = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=40
)
_OLD: Final = SchemaInfo("AVRO", json.dumps(record(("a", "int"))))
_NEW: Final = SchemaInfo("AVRO", json.dumps(record(("a", "long"), ("b", {"type": "string"}))))
_READER: Final = SchemaInfo(
    "AVRO",
    json.dumps({
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "a", "type": "long"},
            {"name": "b", "type": "string", "default": "none"},
        ],
    }),
)  # fmt: skip
_IDS: Final = IdsInMemory(((1, _OLD), (2, _NEW), (3, SchemaInfo("JSON", '{"type":"object"}'))))
_SCHEMA: Final = TopicSchema(_READER, registry=_IDS)


def _rows(*entries: tuple[bytes | None, Sequence[Message]]) -> MessageColumns:
    """Rows of entries, each with the schema id of its metadata, and its messages."""
    encoded = [
        encode_entry(group, batched=True, schema_version=b"\xff" * 8)
        if schema_id is None
        else encode_entry(group, batched=True, schema_version=b"\xff" * 8, schema_id=schema_id)
        for schema_id, group in entries
    ]
    (rows,) = MessageReader([entry_run(encoded)], Needs(), Tally())
    return rows


@pytest.mark.parametrize(
    ("payload", "has_indexes", "expected"),
    [
        (b"\0\0\0\0\7rest", False, Frame(7, None)),
        (b"\0\xff\xff\xff\xff", False, Frame(-1, None)),
        (b"\0\0\0\0\7\0rest", True, Frame(7, (0,))),
        (b"\0\0\0\0\7\x02\x06rest", True, Frame(7, (3,))),
        (b"\0\0\0\0\7\x04\x02\x00rest", True, Frame(7, (1, 0))),
        (b"\0\0\0\0\7\x02\x80\x01rest", True, Frame(7, (64,))),
    ],
)
def test_frames(payload: bytes, has_indexes: bool, expected: Frame) -> None:
    """The id is big-endian; indexes are zigzag varints, and a number of 0 means the first."""
    found = read_frame(memoryview(payload), has_indexes=has_indexes)

    assert Frame.parse(found)[0] == expected.schema_id
    assert payload.startswith(found)
    if has_indexes:
        assert Frame.parse(found) == expected
        assert payload[len(found) :] == b"rest"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\0\0\0\0",
        b"{}    ",
        b"\1" + bytes(16),
        b"\0\0\0\0\7",
        b"\0\0\0\0\7\x02",
        b"\0\0\0\0\7\x01",  # −1 indexes
        b"\0\0\0\0\7\xff\xff\xff\xff\xff\x01",
        b"\0\0\0\0\7\x84\x01" + bytes(66),  # 66 indexes
        b"\0\0\0\0\7\x02\x80",
    ],
)
def test_malformed_frames(payload: bytes) -> None:
    """A payload without the byte 0, too short, or with bad indexes has no frame."""
    with pytest.raises(PayloadDecodeError):
        read_frame(payload, has_indexes=True)


@pytest.mark.parametrize(
    ("schema_id", "expected"),
    [
        (b"\xff\0\0\0\x2a", frame(42)),
        (b"\0\0\0\x2a", frame(42)),
        (b"\xff\0\0\0\0\x2a", frame(42)),
        (b"\0\0\0\0\x2a", frame(42)),
        (b"\xff\0\0\0\0\x2a\x02\x06", frame(42, b"\x02\x06")),
    ],
)
def test_schema_ids_of_entries(schema_id: bytes, expected: bytes) -> None:
    """The id may have Pulsar's byte before it, and be a whole frame."""
    assert entry_frame(schema_id) == expected


@pytest.mark.parametrize(
    ("schema_id", "kind", "reason"),
    [
        (b"\xff\1" + bytes(16), PayloadDecodeError, "a GUID"),
        (b"\xff", PayloadDecodeError, "unknown"),
        (b"\xff\0\0\0\0\x2a\x02", PayloadDecodeError, "unknown"),
        (b"\xff" + b"x" * 5, PayloadDecodeError, "unknown"),
        (b"\xfe\0\0\0\0\0\0\0\4\0\0\0\1", SchemaError, "a schema id each"),
    ],
)
def test_schema_ids_that_are_not_supported(
    schema_id: bytes, kind: type[Exception], reason: str
) -> None:
    """What is no id of Confluent's registry is refused, and names the entry."""
    with pytest.raises(kind, match=reason):
        entry_frame(schema_id)
    with pytest.raises(kind, match=r"ledger 1, entry 0, batch index 0"):
        values_of(_SCHEMA, _rows((schema_id, messages(b"\0\0\0\0\1\2"))))


@pytest.mark.usefixtures("build")
def test_ids_of_each_message() -> None:
    """Each message is read by the schema of its own id, nulls by none."""
    old, new = frame(1) + b"\x02", frame(2) + b"\x04\x02x"
    rows = rows_of((None, messages(None, old, new, None, new, old)), (bytes(8), messages(old)))

    assert values_of(_SCHEMA, rows) == {
        "a": [None, 1, 2, None, 2, 1, 1],
        "b": [None, "none", "x", None, "x", "none", "none"],
    }
    assert values_of(_SCHEMA, rows_of((None, messages(None, None))), names=["b"]) == {
        "b": [None, None]
    }


@pytest.mark.usefixtures("build")
def test_ids_of_entries_and_payloads() -> None:
    """The id of the metadata holds for payloads without a frame; the same id may be there twice."""
    rows = _rows(
        (b"\xff\0\0\0\1", messages(b"\x02", frame(1) + b"\x02", None, b"\x04")),
        (b"\xff\0\0\0\2", messages(frame(2) + b"\x04\x02x", b"\x06\x02y")),
        (None, messages(frame(2) + b"\x08\x02z")),
    )

    assert values_of(_SCHEMA, rows) == {
        "a": [1, 1, None, 2, 2, 3, 4],
        "b": ["none", "none", None, "none", "x", "y", "z"],
    }


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("compress", [False, True])
def test_losses_are_counted(compress: bool) -> None:
    """In salvage a value without a known schema is null, and counted once; the rest is read."""
    good = frame(1) + b"\x02"
    rows = rows_of(
        (None, messages(good, frame(9) + b"\x02", good)),
        (None, messages(b"{}", b"", frame(3) + b"{}", good)),
        compress=compress,
    )
    tally = Tally(salvage=True)

    assert values_of(_SCHEMA, rows, tally=tally)["a"] == [1, None, 1, None, None, None, 1]
    assert tally.metrics.lost == {
        (Unit.VALUE, "UnknownSchemaVersionError"): 1,
        (Unit.VALUE, "PayloadDecodeError"): 2,
        (Unit.VALUE, "SchemaError"): 1,
    }
    with pytest.raises(
        UnknownSchemaVersionError, match=r"the schema id 9 is unknown .*ledger 1, entry 0, batch"
    ):
        values_of(_SCHEMA, rows_of((None, messages(good, frame(9) + b"\x02"))))
    with pytest.raises(SchemaError, match="the schema id 3 is of type JSON, not AVRO"):
        values_of(_SCHEMA, rows_of((None, messages(frame(3) + b"{}"))))
    with pytest.raises(PayloadDecodeError, match=r"starts with 0x7b.*ledger 1, entry 0"):
        values_of(_SCHEMA, rows_of((None, messages(b"{} is JSON"))))


@pytest.mark.both_builds
@pytest.mark.usefixtures("build")
def test_ids_of_a_golden_topic() -> None:
    """Entries of Pulsar 5.0 have the id in their metadata, and none in their payloads."""
    (index,) = (GOLDEN / SCALABLE_SET / "objects").glob("*-ledger-106-index")
    data = index.with_name(index.name.removesuffix("-index"))
    entries = read_entries(data.read_bytes(), index.read_bytes())
    (rows,) = MessageReader([entry_run(entries)], Needs(), Tally())
    info = SchemaInfo("JSON", '{"type": "object", "properties": {"n": {"type": "integer"}}}')

    assert schema_names(rows, layout.SCHEMA_ID) == [(0, 36, b"\xff" + (42).to_bytes(4))]
    found = values_of(TopicSchema(info, registry=IdsInMemory(((42, info),))), rows)
    assert found["n"] == list(range(36))
    with pytest.raises(UnknownSchemaVersionError, match="the schema id 42 is unknown"):
        values_of(TopicSchema(info, registry=IdsInMemory(())), rows)


@given(data=st.data())
@_MESSY
def test_random_avro(data: st.DataObject) -> None:
    """Framed data of several schemas are read as fastavro resolves them to the reader's."""
    writer = data.draw(schemas(plain=True))
    reader = data.draw(evolved(writer))
    if isinstance(reader, list) or isinstance(writer, list) or not isinstance(reader, dict):
        reader = record(("only", reader), name="Whole")
        writer = record(("only", writer), name="Whole")
    written = [reading_of(writer), reading_of(reader)]
    ids = data.draw(st.lists(st.sampled_from((0, 1)), min_size=1, max_size=6))
    datums = [data.draw(written[each].datums(written[each].schema)) for each in ids]
    schemas_by_id = [writer, reader]
    try:
        payloads = [
            write_datum(schemas_by_id[n], each) for n, each in zip(ids, datums, strict=True)
        ]
    except ValueError:
        # fastavro does not take every choice of a branch that the strategy makes.
        reject()
    expected = [
        _read(schemas_by_id[n], each, reader) for n, each in zip(ids, payloads, strict=True)
    ]
    infos = [SchemaInfo("AVRO", json.dumps(each)) for each in (writer, reader)]
    schema = TopicSchema(infos[1], registry=IdsInMemory(((7, infos[0]), (8, infos[1]))))
    framed = [frame(7 + n) + payload for n, payload in zip(ids, payloads, strict=True)]

    for build in BUILDS:
        with using_build(build):
            tally = Tally(salvage=True)
            found = values_of(
                schema, rows_of((None, messages(*framed))), is_flat=False, tally=tally
            )
            assert found["__value__"] == expected


def _read(writer: Schema, payload: bytes, reader: Schema) -> Any:  # noqa: ANN401
    try:
        return reading_of(reader).as_arrow(read_datum(writer, payload, reader))
    except REFUSALS:
        return None


@given(data=st.data())
@_MESSY
def test_random_protobuf(data: st.DataObject) -> None:
    """Framed messages are read as the protobuf library reads them, whatever their indexes."""
    schema = data.draw(protobuf_schemas())
    written = data.draw(st.lists(protobuf_messages(schema), min_size=1, max_size=4))
    info = SchemaInfo("PROTOBUF_NATIVE", schema.data)
    topic = TopicSchema(info, registry=IdsInMemory(((5, info),)))
    indexes = st.sampled_from((b"\0", b"\2\0"))
    framed = [frame(5, data.draw(indexes)) + each.SerializePartialToString() for each in written]
    try:
        expected = [library_value(each) for each in written]
    except NoValueError:
        return

    for build in BUILDS:
        with using_build(build):
            found = values_of(topic, rows_of((None, messages(*framed))), is_flat=False)
            assert found["__value__"] == expected
            other = rows_of(
                (None, messages(frame(5, b"\2\2") + written[0].SerializePartialToString()))
            )
            with pytest.raises(SchemaError, match=r"has t\.M1 at \[1\], not t\.M0"):
                values_of(topic, other)


@given(data=st.data())
@_MESSY
def test_changed_bytes(data: st.DataObject) -> None:
    """Cut and changed frames raise an error or are counted, and never end otherwise."""
    payloads = [frame(1) + b"\x02", frame(2) + b"\x04\x02x", b"\x02", frame(2, b"\2\2") + b"\x02"]
    changed = []
    for each in data.draw(st.lists(st.sampled_from(payloads), min_size=1, max_size=8)):
        payload = bytearray(each[: data.draw(st.integers(0, len(each)))])
        for _ in range(data.draw(st.integers(0, 2))):
            if payload:
                place = data.draw(st.integers(0, len(payload) - 1))
                payload[place] = data.draw(st.integers(0, 255))
        changed.append(bytes(payload))
    schema_id = data.draw(
        st.one_of(st.none(), st.sampled_from((b"\xff\0\0\0\1", b"\0\0\0\2")), st.binary(max_size=7))
    )
    found = []

    for build in BUILDS:
        with using_build(build):
            tally = Tally(salvage=True)
            rows = _rows((schema_id, messages(*changed)))
            found.append((values_of(_SCHEMA, rows, tally=tally), tally.metrics.lost.total()))

    assert found[0] == found[1]
    assert found[0][1] == found[0][0]["a"].count(None)
