"""Keys and values of KEY_VALUE messages, in the payload together or apart, in any mix."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import CorruptEntryError, PayloadDecodeError
from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from arrow_io.read_metrics import Tally, Unit
from tests.support.builds import BUILDS, using_build
from tests.support.entries import Message
from tests.support.payload_rows import NULL, messages, rows_of, values_of, version_bytes
from tests.support.payloads import record

_TEXT, _INT = SchemaInfo("STRING"), SchemaInfo("INT32")
_INLINE = TopicSchema(SchemaInfo("KEY_VALUE", key=_TEXT, value=_INT))
_APART = TopicSchema(SchemaInfo("KEY_VALUE", key=_TEXT, value=_INT, is_separated=True))


def _int(number: int) -> bytes:
    return number.to_bytes(4, signed=True)


def _part(data: bytes | None) -> bytes:
    return _int(-1) if data is None else _int(len(data)) + data


def _together(key: bytes | None, value: bytes | None) -> bytes:
    return _part(key) + _part(value)


def _keyed(key: bytes, value: bytes | None, *, padded: bool = True) -> Message:
    """A message as `KeyValueSchema` writes it SEPARATED: its key is the Base64 of the bytes."""
    text = base64.b64encode(key).decode()
    return Message(
        payload=value or b"",
        null_value=value is None,
        partition_key=text if padded else text.rstrip("="),
        partition_key_b64_encoded=True,
    )


def _read(schema: TopicSchema, *groups: Any, tally: Tally | None = None, **more: Any) -> Any:  # noqa: ANN401
    return values_of(schema, rows_of(*groups, **more), tally=tally)


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("compress", [False, True])
def test_apart(compress: bool) -> None:
    """The key is the message's, as Base64, padded or not; either may be null."""
    found = _read(
        _APART,
        (
            None,
            [
                _keyed(b"key", _int(7)),
                _keyed(b"k", _int(8), padded=False),
                _keyed(b"l", None),
                Message(payload=_int(9), null_partition_key=True),
                Message(payload=_int(10), partition_key="as text"),
                Message(payload=_int(11)),
                _keyed(b"", _int(12)),
                NULL,
            ],
        ),
        compress=compress,
    )

    assert found == {
        "__key": ["key", "k", "l", None, "as text", None, "", None],
        "__value__": [7, 8, None, 9, 10, 11, 12, None],
    }


@pytest.mark.usefixtures("build")
def test_keys_that_are_no_base64() -> None:
    """They are an error of the message, or null and counted; the value stands."""
    bad = Message(payload=_int(7), partition_key="?", partition_key_b64_encoded=True)
    group = (None, [bad, _keyed(b"k", _int(8))])

    with pytest.raises(CorruptEntryError, match="Base64"):
        _read(_APART, group)
    tally = Tally(salvage=True)
    assert _read(_APART, group, tally=tally) == {"__key": [None, "k"], "__value__": [7, 8]}
    assert sum(tally.metrics.lost.values()) == 1


_TORN = [
    b"",
    b"\0\0\0",
    _int(1),
    _int(1) + b"k",
    _part(b"k") + b"\0\0\0",
    _part(b"k") + _int(5) + _int(7),
    _part(b"k") + _part(_int(7)) + b"\0",
    _int(-2) + _part(_int(7)),
    _int(2**31 - 1) + b"k",
    _int(-(2**31)) + b"k",
    _part(b"k") + _int(-2),
    _part(None),
]


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("torn", _TORN, ids=repr)
def test_torn_payloads(torn: bytes) -> None:
    """A payload that is no pair is an error of its message, or null in both and counted once."""
    group = (None, messages(_together(b"k", _int(7)), torn, _together(b"l", _int(8))))

    with pytest.raises(PayloadDecodeError, match="not a key and value with lengths") as caught:
        _read(_INLINE, group)
    assert (caught.value.entry_id, caught.value.batch_index) == (0, 1)
    tally = Tally(salvage=True)
    assert _read(_INLINE, group, tally=tally) == {
        "__key": ["k", None, "l"],
        "__value__": [7, None, 8],
    }
    assert tally.metrics.lost == {(Unit.VALUE, "PayloadDecodeError"): 1}


@pytest.mark.usefixtures("build")
def test_parts_that_do_not_fit() -> None:
    """A key or value that is not of its type is null by itself when salvaging."""
    group = (None, messages(_together(b"k", b"not four"), _together(b"l", _int(8))))

    with pytest.raises(PayloadDecodeError, match="length of its type"):
        _read(_INLINE, group)
    tally = Tally(salvage=True)
    found = _read(_INLINE, group, tally=tally)
    assert found == {"__key": ["k", "l"], "__value__": [None, 8]}
    assert tally.metrics.lost == {(Unit.VALUE, "PayloadDecodeError"): 1}


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("is_separated", [False, True])
def test_a_message_is_lost_once(is_separated: bool) -> None:
    """Where neither key nor value fits, one value is lost, however often columns are read."""
    pair = SchemaInfo("KEY_VALUE", key=_INT, value=_INT, is_separated=is_separated)
    parts = [(b"k", b"v"), (_int(1), _int(2)), (b"k", _int(3)), (_int(4), b"v")]
    sent = [
        _keyed(key, value) if is_separated else Message(payload=_together(key, value))
        for key, value in parts
    ]
    rows, tally = rows_of((None, sent)), Tally(salvage=True)

    for names in (["__key"], ["__value__", "__key"], ["__value__"]):
        found = values_of(TopicSchema(pair), rows, names=names, tally=tally)
        assert found == {
            name: {"__key": [None, 1, None, 4], "__value__": [None, 2, 3, None]}[name]
            for name in names
        }
    assert tally.metrics.lost == {(Unit.VALUE, "PayloadDecodeError"): 3}


def _avro(*fields: object) -> SchemaInfo:
    return SchemaInfo("AVRO", json.dumps(record(*fields)))


_K0, _K1 = _avro(("id", "int")), _avro(("id", "long"), ("region", ["null", "string"]))
_V0, _V1 = _avro(("x", "int")), _avro({"name": "y", "type": "int", "default": 9, "aliases": ["x"]})
_READER = SchemaInfo("KEY_VALUE", key=_avro(("id", "long")), value=_V1)
_VERSIONS = (
    (0, SchemaInfo("KEY_VALUE", key=_K0, value=_V0)),
    (1, SchemaInfo("KEY_VALUE", key=_K1, value=_V1, is_separated=True)),
    (2, SchemaInfo("KEY_VALUE", key=_K0, value=_V1, is_separated=True)),
    (3, _READER),
)


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("compress", [False, True])
def test_each_version_has_its_encoding(compress: bool) -> None:
    """Keys are together with values or apart from them as the message's version says."""
    groups = (
        (version_bytes(0), messages(_together(b"\x02", b"\x04"), _together(b"\x06", None))),
        (version_bytes(1), [_keyed(b"\x08\0", b"\x0a"), _keyed(b"\x0c\x02\x02n", None)]),
        (version_bytes(3), messages(_together(None, b"\x0e"))),
        (version_bytes(2), [_keyed(b"\x10", b"\x12"), NULL]),
        (None, messages(_together(b"\x14", b"\x16"))),
        (version_bytes(0), messages(_together(b"\x18", b"\x1a"))),
    )
    schema = TopicSchema(_READER, _VERSIONS)
    rows = rows_of(*groups, compress=compress)
    expected = {
        "__key.id": [1, 3, 4, 6, None, 8, None, 10, 12],
        "y": [2, None, 5, None, 7, 9, None, 11, 13],
    }

    assert values_of(schema, rows) == expected
    for name, values in expected.items():
        assert values_of(schema, rows, names=[name]) == {name: values}
    assert values_of(schema, rows, is_flat=False) == {
        "__key": [None if n is None else {"id": n} for n in expected["__key.id"]],
        "__value__": [None if n is None else {"y": n} for n in expected["y"]],
    }


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("is_flat", [False, True])
def test_field_paths(is_flat: bool) -> None:
    """Those of a key begin with `__key`, those of a value with the field."""
    number = _avro(("id", "int"))
    pair = TopicSchema(SchemaInfo("KEY_VALUE", key=number, value=number))
    plain = TopicSchema(SchemaInfo("KEY_VALUE", key=_INT, value=number))
    beyond = b"\x80\x80\x80\x80\x80\x01"

    for schema, payload, path in (
        (pair, _together(beyond, b"\x02"), "__key.id"),
        (pair, _together(b"\x02", beyond), "id"),
        (plain, _together(b"?", b"\x02"), "__key"),
    ):
        with pytest.raises(PayloadDecodeError) as caught:
            values_of(schema, rows_of((None, messages(payload))), is_flat=is_flat)
        assert caught.value.field_path == path


@given(
    payloads=st.lists(
        st.binary(max_size=14)
        | st.builds(_together, *(st.none() | st.binary(max_size=5) for _ in range(2))),
        min_size=1,
        max_size=20,
    ),
    compress=st.booleans(),
)
def test_random_payloads(payloads: list[bytes], *, compress: bool) -> None:
    """Pairs are found as they are read by hand, everything else is refused, by both builds."""
    raw = SchemaInfo("BYTES")
    schema = TopicSchema(SchemaInfo("KEY_VALUE", key=raw, value=raw))
    expected = [_by_hand(payload) for payload in payloads]

    for name in BUILDS:
        with using_build(name):
            tally = Tally(salvage=True)
            found = _read(schema, (None, messages(*payloads)), compress=compress, tally=tally)
            assert list(zip(found["__key"], found["__value__"], strict=True)) == [
                pair or (None, None) for pair in expected
            ]
            assert sum(tally.metrics.lost.values()) == expected.count(None)


def _by_hand(payload: bytes) -> tuple[bytes | None, ...] | None:
    parts: list[bytes | None] = []
    for _ in range(2):
        if len(payload) < 4:
            return None
        length, payload = int.from_bytes(payload[:4], signed=True), payload[4:]
        if length < -1 or length > len(payload):
            return None
        parts.append(None if length == -1 else payload[:length])
        payload = payload[max(length, 0) :]
    return None if payload else tuple(parts)
