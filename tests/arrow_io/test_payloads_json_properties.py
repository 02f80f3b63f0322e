"""Any JSON text is read as Python's `json` reads it, or refused with it; both builds agree.

Where `json` and we differ: nesting of unknown fields beyond `tables.MAX_DEPTH` is refused, but no
text here has it; and what is no UTF-8 is refused in texts that are given, and in others only where
the payload has to be written anew.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.payloads import tables
from tests.support.avro_schemas import schemas
from tests.support.golden import golden_topic, row_payload
from tests.support.golden_values import golden_schema
from tests.support.json_payloads import MisfitError, Oracle, texts
from tests.support.payloads import json_text, shredded_alike

if TYPE_CHECKING:
    from tests.support.avro_schemas import Schema


def _check_as_the_oracle(schema: Schema, payloads: list[bytes], time_unit: str = "ns") -> None:
    """The oracle refuses the same payloads and has the same values."""
    oracle = Oracle(schema, time_unit)
    expected, refused = [], []
    for row, payload in enumerate(payloads):
        try:
            expected.append(oracle.value(payload))
        except MisfitError:
            expected.append(None)
            refused.append(row)

    found = shredded_alike(json_text(schema, time_unit=time_unit), payloads)

    more = {misfit.row for misfit in found.misfits} - set(refused)
    assert not [payloads[row] for row in more if _is_text(payloads[row])]
    assert {misfit.row for misfit in found.misfits} == {*refused, *more}
    assert found.rows == [None if row in more else each for row, each in enumerate(expected)]
    for misfit in found.misfits:
        assert misfit.code in tables.REASONS
        assert 0 <= misfit.offset <= len(payloads[misfit.row])


def _is_text(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def _schema(data: st.DataObject) -> Schema:
    return fastavro.parse_schema(data.draw(schemas(json=True)))


@given(data=st.data(), time_unit=st.sampled_from(("ns", "us")))
def test_any_text(data: st.DataObject, time_unit: str) -> None:
    """Text of any schema, or nearly of it."""
    schema = _schema(data)
    payloads = data.draw(st.lists(texts(schema), min_size=1, max_size=6))

    _check_as_the_oracle(schema, [each.encode() for each in payloads], time_unit)


@given(data=st.data())
def test_changed_bytes(data: st.DataObject) -> None:
    """Every cut of a text, and every byte of it changed in some ways."""
    schema = _schema(data)

    _check_as_the_oracle(schema, _mutations(data.draw(texts(schema)).encode()[:70]))


def _mutations(payload: bytes) -> list[bytes]:
    others = [bytes([byte]) for byte in b'"\\{}[],:0e-.n \x00\x80\xc3']
    changed = [
        payload[:place] + other + payload[place + 1 :]
        for place in range(len(payload))
        for other in (bytes([payload[place] ^ 1]), *others)
    ]
    return [payload[:stop] for stop in range(len(payload))] + changed


@given(data=st.data(), payloads=st.lists(st.binary(max_size=30), max_size=20))
def test_random_bytes(data: st.DataObject, payloads: list[bytes]) -> None:
    """Random bytes."""
    _check_as_the_oracle(_schema(data), payloads)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["json-orders", "clients-cpp-json"])
def test_every_change_of_real_payloads(name: str) -> None:
    """Every cut and many changed bytes of payloads that Pulsar's clients wrote."""
    topic = golden_topic(name)
    schema = fastavro.parse_schema(json.loads(golden_schema(topic).reader.data))
    payloads = {row_payload(row) for row in topic.messages()}

    for payload in sorted(each for each in payloads if each)[:10]:
        _check_as_the_oracle(schema, _mutations(payload))
