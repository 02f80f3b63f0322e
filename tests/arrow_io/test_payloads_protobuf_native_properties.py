"""Random protobuf schemas and messages are read as the protobuf library reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arrow_io.payloads import tables
from arrow_io.payloads.shredding import Misfit
from tests.support.builds import BUILDS, using_build
from tests.support.payloads import shredded_alike
from tests.support.protobuf_payloads import NoValueError, library_value, program_of, read_payloads
from tests.support.protobuf_strategies import Schema, messages, odd_payloads, schemas

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNITS = st.sampled_from(("ns", "us"))
_TAKEN_BACK = {tables.BAD_UTF8, tables.OUT_OF_RANGE, tables.TOO_PRECISE}
"""What is refused at once, even if the same field stands there again and fits."""
_MESSY = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def _read_by_both(
    schema: Schema, payloads: Sequence[bytes], unit: str, names: Sequence[str] | None = None
) -> list[Any] | Misfit:
    """What one build makes of payloads, after a check that the other makes the same."""
    found = []
    for build in BUILDS:
        with using_build(build):
            found.append(read_payloads(program_of(schema.data, unit, names), payloads))
    # By their text, since a value that is a list may hold what is no equal of itself.
    assert repr(found[0]) == repr(found[1])
    return found[0]


def _check(schema: Schema, payload: bytes, unit: str) -> None:
    """A payload gives what the library gives, and fits not if the library refuses it."""
    found = _read_by_both(schema, [payload], unit)
    try:
        expected = library_value(schema.message_class.FromString(payload), unit)
    except (DecodeError, NoValueError):
        assert isinstance(found, Misfit), found
        assert found.code in tables.REASONS
        assert 0 <= found.offset <= len(payload)
        return
    if isinstance(found, Misfit) and found.code == tables.BAD_TAG:
        # In unknown groups and in messages without fields the library takes even field 0.
        assert payload[found.offset - 1] < 8
        return
    if isinstance(found, Misfit) and found.code in _TAKEN_BACK:
        # Valid payloads of `test_messages` fit, so that here another field took its place.
        return
    assert found == [expected]


@_MESSY
@given(data=st.data(), schema=schemas(), unit=_UNITS)
def test_messages(data: st.DataObject, schema: Schema, unit: str) -> None:
    """Whatever a message of whatever schema holds, its values are those that it was made of."""
    given_messages = data.draw(st.lists(messages(schema), min_size=1, max_size=4))
    payloads = [message.SerializePartialToString() for message in given_messages]

    found = _read_by_both(schema, payloads, unit)

    assert found == [library_value(message, unit) for message in given_messages]


@_MESSY
@given(data=st.data(), schema=schemas(recursive=False), unit=_UNITS)
def test_odd_payloads(data: st.DataObject, schema: Schema, unit: str) -> None:
    """Fields in any order, twice, unknown or of other wire types count as for the library."""
    _check(schema, data.draw(odd_payloads(schema)), unit)


@_MESSY
@given(data=st.data(), schema=schemas())
def test_projections(data: st.DataObject, schema: Schema) -> None:
    """Some of the fields have the values that they have among all fields."""
    payload = data.draw(odd_payloads(schema))
    fields = [field.name for field in schema.message_class.DESCRIPTOR.fields]
    names = data.draw(st.lists(st.sampled_from(fields), unique=True)) if fields else []
    whole = _read_by_both(schema, [payload], "ns")

    found = _read_by_both(schema, [payload], "ns", names)

    # What fits not may stand in a field that is read over.
    if not isinstance(whole, Misfit):
        assert found == [{name: whole[0][name] for name in names} if names else True]


@_MESSY
@given(data=st.data(), schema=schemas(recursive=False))
def test_changed_payloads(data: st.DataObject, schema: Schema) -> None:
    """A payload with changed bytes gives what the library gives, or does not fit."""
    payload = data.draw(odd_payloads(schema))
    place = data.draw(st.integers(0, len(payload)))
    length = data.draw(st.integers(0, 3))
    other = data.draw(
        st.binary(max_size=3) | st.sampled_from((b"\xff" * 9 + b"\x01", b"\x80" * 10))
    )

    _check(schema, payload[:place] + other + payload[place + length :], "ns")


@_MESSY
@given(schema=schemas(recursive=False), payload=st.binary(max_size=60))
def test_random_bytes(schema: Schema, payload: bytes) -> None:
    """Whatever bytes are read, both builds give what the library gives."""
    _check(schema, payload, "us")


@_MESSY
@given(data=st.data(), schema=schemas())
def test_payloads_together(data: st.DataObject, schema: Schema) -> None:
    """Messages of any schema, and odd payloads among them, are together what they are alone."""
    program = program_of(schema.data)
    made = data.draw(st.lists(messages(schema), min_size=1, max_size=3))
    payloads: list[bytes] = [each.SerializePartialToString() for each in made] * 8
    odd = data.draw(st.lists(odd_payloads(schema), max_size=1))

    found = shredded_alike(program, [*payloads, *odd, *payloads])

    alone = [shredded_alike(program, [each]) for each in (*payloads[: len(made)], *odd)]
    rows = [row for each in alone[: len(made)] for row in each.rows] * 8
    assert repr(found.rows) == repr([*rows, *(each.rows[0] for each in alone[len(made) :]), *rows])


@_MESSY
@given(data=st.data(), long_tags=st.booleans())
def test_many_payloads_together(data: st.DataObject, *, long_tags: bool) -> None:
    """Of any field that is read together, with a changed payload anywhere among a hundred."""
    schema = data.draw(schemas(plain=True, long_tags=long_tags))
    program = program_of(schema.data)
    fields = program.ops[tables.D]
    assert program.links[fields + tables.STEPS] != tables.ABSENT
    assert long_tags or program.links[fields + tables.COLUMNS] != tables.ABSENT
    made = data.draw(st.lists(messages(schema), min_size=1, max_size=3))
    written = [each.SerializePartialToString() for each in made]
    payloads = [written[0]] * 64 + written * data.draw(st.integers(0, 40))
    rows = [library_value(each) for each in made]
    expected = [rows[0]] * 64 + rows * ((len(payloads) - 64) // len(made))
    odd = bytearray(data.draw(st.sampled_from(written)))
    start = data.draw(st.integers(0, len(odd)))
    odd[start : start + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    place = data.draw(st.integers(0, len(payloads)))

    found = shredded_alike(program, [*payloads[:place], bytes(odd), *payloads[place:]])

    alone = shredded_alike(program, [bytes(odd)])
    assert found.codes == alone.codes
    assert repr(found.rows[place]) == repr(alone.rows[0])
    assert found.rows[:place] + found.rows[place + 1 :] == expected


@_MESSY
@given(data=st.data(), schema=schemas(plain=True))
def test_some_fields_of_many_payloads(data: st.DataObject, schema: Schema) -> None:
    """Whichever fields are asked for, the others are read over."""
    fields = [field.name for field in schema.message_class.DESCRIPTOR.fields]
    names = data.draw(st.lists(st.sampled_from(fields), min_size=1, unique=True))
    made = data.draw(st.lists(messages(schema), min_size=1, max_size=3)) * 30

    found = shredded_alike(
        program_of(schema.data, names=names), [each.SerializePartialToString() for each in made]
    )

    rows = [library_value(each) for each in made]
    assert found.rows == [{name: row[name] for name in names} for row in rows]
