"""Every column: its type, and what it holds of messages that are odd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Unpack

import pyarrow as pa
import pytest

from arrow_io.columns import ALL_COLUMNS, Origin, every_column, projection
from arrow_io.errors import CorruptEntryError, OptionError
from arrow_io.ledgers.reader import OffloadedLedger
from arrow_io.messages import layout
from arrow_io.messages.column_names import NAMINGS
from arrow_io.read_metrics import ReadMetrics, Tally, Unit
from arrow_io.storage.location import Location
from tests.support.buckets import memory_bucket, object_name, offload_ledger
from tests.support.entries import Framing, Message, encode_entry
from tests.support.expected import COLUMNS, time_of

if TYPE_CHECKING:
    from tests.support.entries import OuterFields

_BARE: Final = Framing(checksum=False)
_MAX_MS: Final = layout.MAX_MILLISECONDS

pytestmark = pytest.mark.usefixtures("build")


def _single(message: Message = Message(), **outer: Unpack[OuterFields]) -> bytes:  # noqa: B008
    return encode_entry([message], batched=False, framing=_BARE, **outer)


def _batch(*messages: Message, **outer: Unpack[OuterFields]) -> bytes:
    return encode_entry(messages, batched=True, framing=_BARE, **outer)


def _read(
    *entries: bytes, columns: list[str], salvage: bool = False
) -> tuple[pa.Table, ReadMetrics]:
    name = object_name(7)
    tally = Tally(salvage=salvage)
    with memory_bucket(offload_ledger(name, entries)) as bucket:
        ledger = OffloadedLedger.open(Location(bucket.url), name)
        batches = list(ledger.record_batches(columns, tally=tally))
    schema = projection(columns).schema
    table = pa.Table.from_batches(batches, schema)
    table.validate(full=True)
    return table, tally.metrics


def _values(*entries: bytes, column: str) -> list[Any]:
    table, metrics = _read(*entries, columns=[column])
    assert not metrics.lost
    values: list[Any] = table[column].to_pylist()
    return values


_TYPES: Final = {
    "__entry_id__": pa.int64(),
    "__ledger_id__": pa.int64(),
    "__batch_index__": pa.int32(),
    "__partition__": pa.int32(),
    "__publish_time__": pa.timestamp("us", "UTC"),
    "__event_time__": pa.timestamp("us", "UTC"),
    "__sequence_id__": pa.int64(),
    "__producer_name__": pa.string(),
    "__key__": pa.string(),
    "__properties__": pa.map_(pa.string(), pa.string()),
    "__value__": pa.binary(),
    "__message_id__": pa.string(),
    "__topic__": pa.string(),
    "__key_bytes__": pa.binary(),
    "__ordering_key__": pa.binary(),
    "__schema_version__": pa.int64(),
    "__null_value__": pa.bool_(),
    "__broker_time__": pa.timestamp("us", "UTC"),
    "__broker_index__": pa.int64(),
    "__deliver_at__": pa.timestamp("us", "UTC"),
    "__replicated_from__": pa.string(),
    "__txn_id__": pa.string(),
    "__segment_id__": pa.int64(),
}


def test_columns_have_their_types_and_order() -> None:
    """As engines know them; the cheapest first, those on request last."""
    schema = every_column().schema

    assert dict(zip(schema.names, schema.types, strict=True)) == _TYPES
    assert schema.names == list(_TYPES)
    assert [column.name for column in ALL_COLUMNS if column.default] == list(_TYPES)[:11]
    assert projection().schema.names == list(_TYPES)[:11]


def test_columns_are_described() -> None:
    """Each in a few words of its own, which say what null means where it can be null."""
    docs = [column.doc for column in ALL_COLUMNS]

    assert all(docs)
    assert len(set(docs)) == len(docs)


def test_every_column_is_made_in_its_type() -> None:
    """Each by itself and all together, of a single message and of a batch."""
    entries = (_single(), _batch(Message(), Message(partition_key="k")))
    whole, _ = _read(*entries, columns=COLUMNS)

    assert whole.num_rows == 3
    for name in COLUMNS:
        alone, _ = _read(*entries, columns=[name])
        assert alone.schema == pa.schema({name: _TYPES[name]})
        assert alone.equals(whole.select([name]))


def test_projection_keeps_the_order_asked_for() -> None:
    """And knows how deep to look for it."""
    chosen = projection(["__value__", "__entry_id__"])

    assert chosen.schema.names == ["__value__", "__entry_id__"]
    assert chosen.needs.payload
    positions = projection(["__message_id__", "__topic__"]).needs
    assert (positions.metadata, positions.members, positions.payload) == (False, False, False)
    producer = projection(["__producer_name__"]).needs
    assert (producer.metadata, producer.members, producer.payload) == (True, False, False)
    key = projection(["__key__"]).needs
    assert (key.metadata, key.members, key.payload) == (True, True, False)


@pytest.mark.parametrize("naming", NAMINGS)
def test_unknown_column_is_an_error_that_lists_all(naming: str) -> None:
    """Under the names that the naming gives them."""
    names = every_column(naming).schema.names

    with pytest.raises(OptionError) as caught:
        projection(["__entry_id__", "entry"], naming=naming)

    assert str(caught.value) == f"no column 'entry'; the columns are: {', '.join(names)}"


def test_column_that_was_not_chosen_is_unknown_further_on() -> None:
    """A projection can be narrowed only."""
    with pytest.raises(OptionError, match=r"no column '__key__'; the columns are: __entry_id__$"):
        projection(["__entry_id__"]).select(["__key__"])


def test_unknown_naming_is_an_error() -> None:
    """It lists those that there are."""
    with pytest.raises(
        OptionError, match=r"^naming must be one of pulsar-sql, pulsar-spark, not 'x'"
    ):
        projection(naming="x")


def test_origin_is_given_to_each_row() -> None:
    """Topic and partition come from outside the ledger; by default there is none."""
    assert Origin() == Origin("", -1)
    assert _values(_single(), column="__topic__") == [""]
    assert _values(_single(), column="__partition__") == [-1]


_TIME_COLUMNS: Final = ("__publish_time__", "__event_time__", "__deliver_at__")


def _at(milliseconds: int, column: str) -> bytes:
    match column:
        case "__publish_time__":
            return _single(publish_time=milliseconds)
        case "__event_time__":
            return _single(Message(event_time=milliseconds))
        case _:
            is_signed = milliseconds < 2**63
            return _single(deliver_at_time=milliseconds if is_signed else milliseconds - 2**64)


@pytest.mark.parametrize("column", _TIME_COLUMNS)
def test_times_are_exact_to_the_ends_of_their_type(column: str) -> None:
    """The greatest time that a timestamp in µs can hold is one."""
    times = [1, 253_402_300_799_999, _MAX_MS]

    table, metrics = _read(*(_at(time, column) for time in times), columns=[column])

    assert table[column].cast(pa.int64()).to_pylist() == [1000 * time for time in times]
    assert not metrics.lost


@pytest.mark.parametrize("column", _TIME_COLUMNS)
@pytest.mark.parametrize("milliseconds", [_MAX_MS + 1, 2**63 - 1, 2**63, 2**64 - _MAX_MS - 1])
def test_time_beyond_its_type_is_an_error_or_null(column: str, milliseconds: int) -> None:
    """Never another time: raised with its place, or null and counted when salvaging."""
    entries = [_at(1, column), _at(milliseconds, column)]

    with pytest.raises(CorruptEntryError, match=r"time -?\d+ ms is out of the range") as caught:
        _read(*entries, columns=[column])
    assert (caught.value.ledger_id, caught.value.entry_id) == (7, 1)

    table, metrics = _read(*entries, columns=[column], salvage=True)
    assert table[column].to_pylist() == [time_of(1), None]
    assert metrics.lost == {(Unit.MESSAGE, "CorruptEntryError"): 1}


def test_time_of_a_member_names_the_member() -> None:
    """Of a batch, one message has the time that is no time."""
    entry = _batch(Message(event_time=1), Message(event_time=2**62), Message())

    with pytest.raises(CorruptEntryError) as caught:
        _read(entry, columns=["__event_time__"])

    assert caught.value.batch_index == 1


def test_delivery_before_1970_is_a_time() -> None:
    """The field is signed."""
    assert _values(_single(deliver_at_time=-1), column="__deliver_at__") == [time_of(-1)]


@pytest.mark.parametrize("batched", [False, True])
def test_text_that_is_no_utf8_is_replaced_and_counted(batched: bool) -> None:
    """As Pulsar's Java client reads it; as bytes, it is what was written."""
    message = Message(partition_key="k\u00e9y", properties=(("n\u00e9", "v\u00e9"), ("a", "b")))
    entry = encode_entry([message], batched=batched, framing=_BARE).replace(
        b"\xc3\xa9", b"\xff\xfe"
    )
    sound = _single(Message(partition_key="\u00e9"))

    table, metrics = _read(entry, sound, columns=["__key__", "__properties__", "__key_bytes__"])

    assert table["__key__"].to_pylist() == ["k\ufffd\ufffdy", "\u00e9"]
    assert table["__properties__"].to_pylist() == [
        [("n\ufffd\ufffd", "v\ufffd\ufffd"), ("a", "b")],
        [],
    ]
    assert table["__key_bytes__"].to_pylist() == [b"k\xff\xfey", "\u00e9".encode()]
    assert metrics.replaced_texts == 3
    assert not metrics.lost


def test_columns_asked_for_twice_are_alike() -> None:
    """Each is looked at by itself: properties too that are not UTF-8, or have a name twice."""
    odd = _single(Message(properties=(("n\u00e9", "v\u00e9"),))).replace(b"\xc3\xa9", b"\xff\xfe")
    # More than are compared pair by pair where they are read.
    many = tuple((f"name {n % 100}", f"{n}") for n in range(102))
    columns = ["__properties__", "__key__", "__properties__", "__key__"]

    table, metrics = _read(odd, _single(Message(properties=many)), columns=columns)

    told = [each.to_pylist() for each in table.columns]
    assert [dict(row) for row in told[0]] == [{"n\ufffd\ufffd": "v\ufffd\ufffd"}, dict(many)]
    assert [len(row) for row in told[0]] == [1, 100]
    assert told == [told[0], [None, None]] * 2
    assert metrics.replaced_texts == 4


def test_producer_name_that_is_no_utf8_is_replaced_and_counted() -> None:
    """Names of producers and clusters are text too."""
    entry = _single(producer_name="p\u00e9", replicated_from="\u00e9").replace(
        b"\xc3\xa9", b"\xff\xfe"
    )

    table, metrics = _read(entry, columns=["__producer_name__", "__replicated_from__"])

    assert table.to_pylist() == [
        {"__producer_name__": "p\ufffd\ufffd", "__replicated_from__": "\ufffd\ufffd"}
    ]
    assert metrics.replaced_texts == 2


@pytest.mark.parametrize("text", ["a", "====", "a b=", "AP8AA", "\u00e9\u00e9"])
def test_key_that_is_no_base64_is_an_error_or_null(text: str) -> None:
    """The text is given as it is; the bytes cannot be."""
    entries = [
        _single(),
        _batch(Message(), Message(partition_key=text, partition_key_b64_encoded=True)),
    ]
    assert _values(*entries, column="__key__") == [None, None, text]

    with pytest.raises(CorruptEntryError, match="marked as Base64 and is not") as caught:
        _read(*entries, columns=["__key_bytes__"])
    assert (caught.value.entry_id, caught.value.batch_index) == (1, 1)

    table, metrics = _read(*entries, columns=["__key_bytes__"], salvage=True)
    assert table["__key_bytes__"].to_pylist() == [None, None, None]
    assert metrics.lost == {(Unit.MESSAGE, "CorruptEntryError"): 1}


def test_salvage_goes_on_around_what_is_lost() -> None:
    """Other columns of a message whose time is no time are given."""
    entries = [_at(2**62, "__event_time__"), _single(Message(partition_key="k"))]

    table, metrics = _read(*entries, columns=["__key__", "__event_time__"], salvage=True)

    assert table["__key__"].to_pylist() == [None, "k"]
    assert metrics.rows == 2
    assert "entry 0" in metrics.losses[0]


def test_base64_key_without_padding_is_decoded() -> None:
    """Java's decoder takes it too."""
    entry = _single(Message(partition_key="AP8", partition_key_b64_encoded=True))

    assert _values(entry, column="__key_bytes__") == [b"\x00\xff"]
