"""A record batch has the same columns, however many of them share its message and its arena."""

from __future__ import annotations

import io
import json
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unittest.mock import patch

import fastavro
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arrow_io.columns import Origin, every_column
from arrow_io.messages.gathering import Gathering
from arrow_io.messages.message_reader import BatchLimits, MessageReader, Needs
from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from arrow_io.payloads.shredding import Shredding
from arrow_io.payloads.value_columns import ValueColumns
from arrow_io.read_metrics import Tally
from tests.support.avro_schemas import Reading, schemas, without_logical
from tests.support.builds import BUILDS, using_build
from tests.support.entries import Message, encode_entry
from tests.support.golden_values import comparable
from tests.support.json_payloads import texts
from tests.support.payloads import record, shredded
from tests.support.runs import entry_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.columns import Projection

_MAX_ROWS: Final = 1000
_PROPERTIES: Final = (
    (),
    (("a", "1"),),
    (("a", "1"), ("b", "zwei"), ("a", "3")),
    (("schlüssel", "数据"),),
)


class _Part(NamedTuple):
    """A schema, and payloads of which most have it; None: a null value."""

    info: SchemaInfo
    payloads: list[bytes | None]


@st.composite
def _parts(draw: st.DrawFn, *, is_pair: bool) -> _Part:
    kind = draw(st.sampled_from(("AVRO", "JSON", "MAPS", "STRING")[: 3 if is_pair else 4]))
    if kind == "STRING":
        found = draw(st.lists(st.text(max_size=9), min_size=1, max_size=4))
        return _Part(SchemaInfo("STRING"), [None, *(each.encode() for each in found)])
    if kind == "MAPS":
        schema = record(("n", "long"), ("m", {"type": "map", "values": ["null", "long"]}))
        keys = st.lists(st.sampled_from("ab"), max_size=3)
        pairs = draw(st.lists(keys, min_size=1, max_size=4))
        payloads: list[bytes | None] = [
            b'{"n":%d,"m":{%s}}' % (n, ",".join(f'"{key}":{n}' for key in each).encode())
            for n, each in enumerate(pairs)
        ]
        return _Part(SchemaInfo("JSON", json.dumps(schema)), payloads)
    schema = fastavro.parse_schema(draw(schemas(max_depth=2, json=kind == "JSON")))
    payloads = [b"\xff{"] if is_pair else [None, b"\xff{"]
    if kind == "JSON":
        payloads += [each.encode() for each in draw(st.lists(texts(schema), max_size=4))]
    else:
        plain = fastavro.parse_schema(without_logical(schema))
        for datum in draw(st.lists(Reading(schema).datums(schema), max_size=4)):
            file = io.BytesIO()
            fastavro.schemaless_writer(file, plain, datum)
            payloads.append(file.getvalue())
    return _Part(SchemaInfo(kind, json.dumps(schema)), draw(st.permutations(payloads)))


def _messages(payloads: Sequence[bytes | None]) -> list[Message]:
    return [
        Message(
            payload=payload or b"",
            null_value=True if payload is None else None,
            properties=_PROPERTIES[row % len(_PROPERTIES)],
            partition_key=None if row % 3 else "ключ" * (row % 5),
            event_time=(None, row, 1 << 62)[row % 3],
        )
        for row, payload in enumerate(payloads)
    ]


def _read(
    messages: Sequence[Message], columns: Projection, batch_rows: int = _MAX_ROWS
) -> dict[str, list[Any]]:
    """Return the values of each column."""
    run = entry_run([encode_entry(messages, batched=True)])
    limits = BatchLimits(first_rows=batch_rows, max_rows=batch_rows)
    tally = Tally(salvage=True)
    found: dict[str, list[Any]] = {name: [] for name in columns.schema.names}
    for rows in MessageReader([run], Needs(), tally, limits=limits):
        count = 0
        for batch in columns.assembly(Origin("t")).record_batches(rows, tally):
            batch.validate(full=True)
            assert batch.schema == columns.schema
            assert batch.num_rows > 0
            count += batch.num_rows
            for name in found:
                found[name] += comparable(batch.column(name))
        assert count == rows.count
    return found


def _typed(
    values: ValueColumns, names: Sequence[str], payloads: Sequence[bytes | None], *, is_key: bool
) -> dict[str, list[Any]]:
    """Return the values of the typed columns of the keys or of the values, from whole payloads."""
    fields = [each for each in values.fields if each.name in names and each.is_key == is_key]
    fields.sort(key=lambda each: names.index(each.name))
    if not fields:
        return {}
    decoder = values.decoder(is_key=is_key)
    selection = tuple(each.field for each in fields if each.field is not None) or None
    rows = shredded(decoder.program(None, selection), payloads).rows
    if selection is None:
        is_text = values.schema.reader.type == "STRING"
        return {fields[0].name: [each.decode() if is_text and each else each for each in rows]}
    return {
        each.name: [None if row is None else list(row.values())[number] for row in rows]
        for number, each in enumerate(fields)
    }


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    data=st.data(),
    key=st.none() | _parts(is_pair=True),
    count=st.sampled_from((1, 7, 65, 300)),
    batch_rows=st.sampled_from((1, 100, _MAX_ROWS)),
    limits=st.sampled_from(((2 << 30, 256 << 20), (60_000, 5_000))),
)
def test_columns_do_not_depend_on_others(
    data: st.DataObject,
    key: _Part | None,
    count: int,
    batch_rows: int,
    limits: tuple[int, int],
) -> None:
    """Each column has the values that it has alone, in any selection and order of columns."""
    value = data.draw(_parts(is_pair=key is not None))
    payloads = list(islice(cycle(value.payloads), count))
    schema, keys, messages = TopicSchema(value.info), [], _messages(payloads)
    if key is not None:
        keys = list(islice(cycle(key.payloads), count))
        schema = TopicSchema(SchemaInfo("KEY_VALUE", "", key=key.info, value=value.info))
        messages = _messages([_pair(*each) for each in zip(keys, payloads, strict=True)])
    is_flat = data.draw(st.booleans())
    columns = every_column(values=ValueColumns(schema, is_flat=is_flat))
    # Mostly those that are all in the message.
    is_any = data.draw(st.sampled_from((False, False, True)))
    names = columns.schema.names if is_any else columns.select(["*"]).schema.names
    names = data.draw(st.permutations(names))
    names = names[: data.draw(st.integers(1, len(names)))]
    chosen = columns.select(names)
    assert chosen.values is not None
    for build in BUILDS:
        with using_build(build):
            expected = _typed(chosen.values, names, keys, is_key=True)
            expected |= _typed(chosen.values, names, payloads, is_key=False)
            for name in names:
                if name not in expected:
                    expected[name] = _read(messages, columns.select([name]))[name]
            with (
                patch.object(Shredding, "max_bytes", limits[0]),
                patch.object(Gathering, "max_bytes", limits[1]),
            ):
                found = _read(messages, chosen, batch_rows)

        assert found == expected


def _pair(key: bytes | None, value: bytes | None) -> bytes:
    assert key is not None
    assert value is not None
    return len(key).to_bytes(4) + key + len(value).to_bytes(4) + value
