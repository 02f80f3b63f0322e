"""A record batch ends where it is full, and the next one begins with the row that did not fit."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.columns import Origin, projection
from arrow_io.errors import PayloadDecodeError
from arrow_io.messages.gathering import Gathering
from arrow_io.messages.message_reader import BatchLimits, MessageReader, Needs
from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from arrow_io.payloads.shredding import Shredding
from arrow_io.payloads.value_columns import ValueColumns
from arrow_io.read_metrics import Tally, Unit
from tests.support.builds import BUILDS, using_build
from tests.support.entries import Framing, Message, encode_entry
from tests.support.golden_values import comparable
from tests.support.payloads import record
from tests.support.runs import entry_run

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, Sequence

    from arrow_io.columns import Projection
    from tests.support.codecs import Codec

_ARENA_BYTES: Final = 40_000
_WIDE: Final = record(*((f"f{n}", ["null", "long"]) for n in range(30)), name="W")
_GROWING: Final = record(
    ("id", "long"),
    ("text", ["null", "string"]),
    ("items", ["null", {"type": "array", "items": ["null", _WIDE]}]),
)


def _schema(type_: str = "JSON") -> TopicSchema:
    value = SchemaInfo("JSON", json.dumps(_GROWING))
    if type_ == "JSON":
        return TopicSchema(value)
    key = SchemaInfo("JSON", json.dumps(record(("text", ["null", "string"]), name="K")))
    return TopicSchema(
        SchemaInfo("KEY_VALUE", "", key=key, value=value, is_separated=type_ == "separated")
    )


class _Read(NamedTuple):
    """What a read gave: its rows, what was lost, the losses in words, and its record batches."""

    rows: list[dict[str, Any]]
    lost: Counter[tuple[Unit, str]]
    losses: list[str]
    batches: int


@contextmanager
def _limits(arena_bytes: int, batch_bytes: int) -> Iterator[None]:
    with (
        patch.object(Shredding, "max_bytes", arena_bytes),
        patch.object(Gathering, "max_bytes", batch_bytes),
    ):
        yield


def _read(entries: Sequence[bytes], columns: Projection, *, batch_rows: int = 1000) -> _Read:
    tally = Tally(salvage=True)
    limits = BatchLimits(first_rows=batch_rows, max_rows=batch_rows)
    assembly = columns.assembly(Origin("t"))
    batches = []
    for rows in MessageReader([entry_run(entries)], Needs(), tally, limits=limits):
        made = list(assembly.record_batches(rows, tally))
        assert sum(each.num_rows for each in made) == rows.count
        batches += made
    for each in batches:
        each.validate(full=True)
        assert each.schema == columns.schema
        assert each.num_rows > 0
    found = [row for each in batches for row in comparable(each.to_struct_array())]
    return _Read(found, tally.metrics.lost, sorted(tally.metrics.losses), len(batches))


def _payload(number: int, items: int, text: int) -> bytes:
    value = {"id": number, "items": [None] * items, "text": "x" * text}
    return json.dumps(value, separators=(",", ":")).encode()


_PAYLOADS: Final = st.one_of(
    st.builds(_payload, st.integers(0, 9), st.integers(0, 60), st.sampled_from((0, 5, 9_000))),
    # Alone too large for the arena; and such as do not fit the schema, at once or once read anew.
    st.builds(_payload, st.integers(0, 9), st.just(200), st.just(1)),
    st.sampled_from((b'{"id":"x"}', b'{"id":1,"items":[' + b"{}," * 90 + b"1]}", b"{")),
    st.integers(0, 300).map(lambda n: b'{"id":1,"items":1,"items":[%s1]}' % (b"{}," * n)),
    st.integers(0, 300).map(lambda n: b'{"items":1,"items":[%s{}]}' % (b"{}," * n)),
)


@given(payloads=st.lists(_PAYLOADS, min_size=1, max_size=12), batch_rows=st.integers(1, 12))
def test_rows_do_not_depend_on_their_neighbours(payloads: list[bytes], batch_rows: int) -> None:
    """Decoded rows, and what is lost of them, are those that each payload gives alone."""
    entries = [encode_entry([Message(payload=each) for each in payloads], batched=True)]
    names = ["__batch_index__", "id", "__producer_name__", "text", "items"]
    columns = projection(names, values=ValueColumns(_schema()))
    for build in BUILDS:
        with using_build(build), _limits(_ARENA_BYTES, 1 << 20):
            alone = _read(entries, columns, batch_rows=1)
            together = _read(entries, columns, batch_rows=batch_rows)
            everything = _read(entries, columns)

        assert together[:3] == everything[:3] == alone[:3]


@pytest.mark.parametrize("type_", ["inline", "separated"])
@pytest.mark.usefixtures("build")
def test_keys_and_values(type_: str) -> None:
    """Keys stay beside their values, and each loss is counted once."""
    messages = []
    for number in range(40):
        key = b'{"text":"%s%d"}' % (b"k" * (9_000 if number % 7 == 3 else 10), number)
        key = b"{" if number % 11 == 5 else key
        value = b"?" if number % 5 == 2 else _payload(number, number, 10)
        if type_ == "separated":
            messages.append(Message(payload=value, partition_key=key.decode()))
        else:
            pair = len(key).to_bytes(4) + key + len(value).to_bytes(4) + value
            messages.append(Message(payload=pair))
    entries = [encode_entry(messages, batched=True)]
    names = ["__batch_index__", "__key.text", "id", "items"]
    columns = projection(names, values=ValueColumns(_schema(type_)))
    whole = _read(entries, columns)
    with _limits(_ARENA_BYTES, 1 << 20):
        parts = _read(entries, columns)

    assert whole.batches == 1
    assert parts.batches > 5
    assert parts[:3] == whole[:3]
    assert whole.lost[Unit.VALUE, PayloadDecodeError.__name__] > 8


@pytest.mark.parametrize("codec", ["NONE", "LZ4"])
@pytest.mark.usefixtures("build")
def test_metadata_of_an_entry_in_each_row(codec: Codec) -> None:
    """What each member of a batch has of its entry's metadata fills several record batches."""
    name = "producer" * 1000
    twice = (("a", "1"), ("a", "2"))
    messages = [
        Message(payload=b"%d" % n, properties=twice, partition_key=f"{n}") for n in range(100)
    ]
    entries = [
        encode_entry(
            messages,
            batched=True,
            framing=Framing(codec=codec),
            producer_name=name,
            schema_version=b"long" * 10_000,
        )
    ]
    columns = projection(["*", "__schema_version__", "__message_id__"])
    with _limits(1 << 20, 100_000):
        parts = _read(entries, columns)
        one = _read(entries, columns, batch_rows=1)

    assert 8 <= parts.batches <= 16
    assert parts[:3] == one[:3] == _read(entries, columns)[:3]
    assert [row["__producer_name__"] for row in parts.rows] == [name] * 100
    assert parts.rows[7]["__properties__"] == {"a": "2"}


@pytest.mark.usefixtures("build")
def test_a_row_that_does_not_fit_alone() -> None:
    """The only error that is left is about one row, and says which."""
    payloads = [_payload(0, 5, 1), _payload(1, 400, 1), _payload(2, 5, 1)]
    entries = [encode_entry([Message(payload=each) for each in payloads], batched=True)]
    columns = projection(["id", "items"], values=ValueColumns(_schema()))
    (rows,) = MessageReader([entry_run(entries)], Needs(), Tally())
    with (
        _limits(_ARENA_BYTES, 1 << 20),
        pytest.raises(PayloadDecodeError, match="more memory than is allowed") as caught,
    ):
        list(columns.assembly(Origin("t")).record_batches(rows, Tally()))

    assert (caught.value.entry_id, caught.value.batch_index) == (0, 1)
    assert caught.value.field_path.startswith("items[]")
