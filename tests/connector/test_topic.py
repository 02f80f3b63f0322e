"""`open_topic`: each option is checked, and does what it says."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from arrow_io.errors import (
    ChecksumError,
    IncompleteReadWarning,
    OptionError,
    TopicNotFoundError,
    UndecodedValuesWarning,
)
from arrow_io.read_metrics import Unit
from arrow_io.storage.trace import RequestTrace
from connector import open_catalog, open_topic
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.entries import Message, encode_entry
from tests.support.expected import COLUMNS, rows_of
from tests.support.golden import GOLDEN, golden_topic
from tests.support.golden_datasets import open_golden, reference_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connector.options.topic_request import ValueShape

pytestmark = pytest.mark.usefixtures("build")

_SMALL: Final = str(GOLDEN / "pulsar-4.0.7-small" / "objects")
_PARTITIONS: Final = [golden_topic(f"small-partitioned-partition-{n}") for n in range(3)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Entry 0 and 2 are sound; of entry 1 the payload is not what was published."""
    entries = [
        encode_entry([Message(payload=value)], batched=False, publish_time=1_700_000_000_000)
        for value in (b"one", b"two", b"three")
    ]
    entries[1] = entries[1].replace(b"two", b"TWO")
    with memory_bucket(offload([(3, entries)])) as bucket:
        yield bucket.url


@pytest.mark.parametrize(
    ("option", "given", "allowed"),
    [
        ("range_bytes", 0, "range_bytes must be at least 1, not 0"),
        ("batch_rows", 0, "batch_rows must be at least 1, not 0"),
        ("batch_bytes", -1, "batch_bytes must be at least 1, not -1"),
        (
            "columns",
            ["__nothing__"],
            "no column '__nothing__'; the columns are: __entry_id__, __led",
        ),
        ("columns", "orderId", "columns must be a list of names, not 'orderId'"),
        ("batch_rows", 1.5, "batch_rows must be a whole number, not 1.5"),
        ("catalog", "x", "catalog must be a catalog from open_catalog, not a str"),
        ("trace", "x", "trace must be a RequestTrace, not a str"),
        ("storage_options", "x", "storage_options must be a mapping with names as keys, not a str"),
        ("buckets", {"b": 5}, "buckets must be URLs by the names of buckets"),
        ("buckets", {"b": ""}, "buckets must be URLs by the names of buckets"),
        ("metadata", {5: "folder"}, "metadata must be a mapping with names as keys, not a dict"),
        ("metadata", " ", "metadata must be a path or URL, such as s3://bucket/prefix, not an em"),
        ("topic", None, "a topic must be a name, a glob, or a list of these, not None"),
        ("topic", ["orders", 5], "a topic must be a name, a glob, or a list of these, not ['ord"),
        ("end", (1,), "end must be a datetime, its ISO text, or a message id"),
    ],
)
def test_option_errors_name_what_is_given_and_allowed(
    url: str, option: str, given: object, allowed: str
) -> None:
    """A mistake is told in words that say how to mend it, before any request."""
    trace = RequestTrace()
    options: dict[str, Any] = {"topic": TOPIC, "trace": trace, option: given}

    with pytest.raises(OptionError) as caught:
        open_topic(url, **options)

    assert str(caught.value).startswith(allowed)
    assert trace.counts.requests == 0


@pytest.mark.parametrize("wanted", [[], ""])
def test_no_topic_is_an_option_error(url: str, wanted: Any) -> None:  # noqa: ANN401
    """An empty list or name is a mistake, not a dataset without rows."""
    with pytest.raises(OptionError):
        open_topic(url, wanted)


def test_topic_of_a_list_that_is_not_there_is_an_error() -> None:
    """All that is named must be there: a dataset without one of them would lack rows silently."""
    with pytest.raises(TopicNotFoundError, match="'persistent://public/default/payments'"):
        open_topic(_SMALL, ["small-chunked", "payments"])


@pytest.mark.parametrize("value", ["flat", "struct", "raw"])
def test_undecoded_values_have_one_shape(url: str, value: ValueShape) -> None:
    """Without a schema, each shape of values gives the bytes as `__value__`."""
    dataset = open_topic(url, TOPIC, value=value, verify_checksums=False)

    assert dataset.to_table()["__value__"].to_pylist() == [b"one", b"TWO", b"three"]


def test_bad_checksum_is_an_error(url: str) -> None:
    """By default every entry is compared with its CRC32C."""
    with pytest.raises(ChecksumError) as caught:
        open_topic(url, TOPIC).to_table()

    assert (caught.value.ledger_id, caught.value.entry_id) == (3, 1)


def test_bad_checksum_costs_one_entry_when_salvaging(url: str) -> None:
    """The entries around it are given; the one lost is counted, told, and described."""
    dataset = open_topic(url, TOPIC, on_corruption="salvage")

    with pytest.warns(IncompleteReadWarning, match=f"^{TOPIC}: 1 × entry lost: ChecksumError$"):
        table = dataset.to_table()

    assert table["__value__"].to_pylist() == [b"one", b"three"]
    assert dataset.metrics.rows == 2
    assert dataset.metrics.lost == {(Unit.ENTRY, "ChecksumError"): 1}
    assert "ledger 3, entry 1" in dataset.metrics.losses[0]


@pytest.mark.parametrize(
    "wanted",
    [
        "small-partitioned",
        "public/default/small-partitioned",
        "persistent://public/default/small-partitioned",
        "small-part*",
        "small-partitione[d]",
        "persistent://public/*/small-partitioned",
        [topic.name for topic in _PARTITIONS],
        ["small-partitioned-partition-2", "small-partitioned"],
    ],
    ids=str,
)
def test_partitioned_topic_is_one_dataset(wanted: Any) -> None:  # noqa: ANN401
    """Rows of its partitions one after the other, each once, with the partition's number."""
    table = open_topic(_SMALL, wanted, columns=COLUMNS).to_table()

    assert rows_of(table) == [row for topic in _PARTITIONS for row in reference_rows(topic)]
    assert [number for number, _ in itertools.groupby(table["__partition__"].to_pylist())] == [
        0,
        1,
        2,
    ]


def test_several_topics_are_one_dataset_in_order_of_names() -> None:
    """The order is that of the names, however they are listed; each row says its topic."""
    names = ["small-transactions", "small-chunked"]

    table = open_topic(_SMALL, names, columns=["__topic__"]).to_table()

    counts = [
        (name, len(list(rows))) for name, rows in itertools.groupby(table["__topic__"].to_pylist())
    ]
    assert counts == [
        (topic.name, topic.message_count) for topic in map(golden_topic, reversed(names))
    ]


def test_catalog_spares_the_requests() -> None:
    """With a catalog at hand, a topic is opened without a request."""
    trace = RequestTrace()
    catalog = open_catalog(_SMALL, trace=trace)
    before = trace.counts

    open_topic(_SMALL, "small-chunked", catalog=catalog)

    assert trace.counts == before


_SPARK_NAMES: Final = {
    "__key__": "__key",
    "__topic__": "__topic",
    "__message_id__": "__messageId",
    "__publish_time__": "__publishTime",
    "__event_time__": "__eventTime",
    "__properties__": "__messageProperties",
    "__value__": "value",
}


def test_names_of_the_spark_connector() -> None:
    """`naming="pulsar-spark"`: other names in columns and filters, the same values."""
    topic = golden_topic("multi-ledger")
    ours = open_golden(topic).to_table(columns=COLUMNS)

    dataset = open_golden(topic, naming="pulsar-spark")
    theirs = dataset.to_table(columns=[_SPARK_NAMES.get(name, name) for name in COLUMNS])

    assert theirs.rename_columns(COLUMNS).equals(ours)
    assert dataset.schema.names == [_SPARK_NAMES.get(name, name) for name in COLUMNS[:11]]
    in_topic = pc.field("__topic") == topic.name
    assert dataset.count_rows(in_topic & pc.field("__key").is_valid()) == ours.num_rows - (
        ours["__key__"].null_count
    )
    assert dataset.count_rows(pc.field("__topic") == "another") == 0
    with pytest.raises(OptionError, match="no column '__key__'"):
        dataset.to_table(columns=["__key__"])
    columns = ["__messageId", "__key"]
    assert open_golden(topic, naming="pulsar-spark", columns=columns).schema.names == columns


def test_the_value_has_the_name_of_the_spark_connector(url: str) -> None:
    """A value that is no record is `value`, as bytes and decoded; a field keeps its own name."""
    spark = {"naming": "pulsar-spark", "verify_checksums": False}
    record = {"type": "record", "name": "R", "fields": [{"name": "__value__", "type": "int"}]}

    with pytest.warns(UndecodedValuesWarning, match="stay bytes, in value: "):
        undecoded = open_topic(url, TOPIC, **spark)  # type: ignore[arg-type]
    decoded = open_topic(url, TOPIC, schema="STRING", **spark)  # type: ignore[arg-type]
    schema = {"type": "AVRO", "schema": record}
    flat = open_topic(url, TOPIC, schema=schema, **spark)  # type: ignore[arg-type]
    whole = open_topic(url, TOPIC, schema=schema, value="struct", **spark)  # type: ignore[arg-type]

    assert undecoded.to_table(["value"])["value"].to_pylist() == [b"one", b"TWO", b"three"]
    assert decoded.to_table(["value"])["value"].to_pylist() == ["one", "TWO", "three"]
    assert flat.schema.names[-1] == "__value__"
    assert whole.schema.names[-1] == "value"


@pytest.mark.parametrize("batch_rows", [1, 7, 100])
def test_batches_have_at_most_the_rows_asked_for(batch_rows: int) -> None:
    """`batch_rows` bounds every record batch, the first too."""
    dataset = open_golden(golden_topic("multi-ledger"), batch_rows=batch_rows)

    counts = [batch.num_rows for batch in dataset.to_batches()]

    assert sum(counts) == 255
    assert batch_rows // 2 < max(counts) <= batch_rows


def test_many_fields_make_fewer_rows_a_batch() -> None:
    """A schema of thousands of fields lowers what `batch_rows` allows, and no row is left out."""
    fields = [{"name": f"f{number}", "type": "int"} for number in range(5_000)]
    schema = {
        "type": "JSON",
        "schema": json.dumps({"type": "record", "name": "R", "fields": fields}),
    }
    messages = [Message(payload=b'{"f7":%d}' % number) for number in range(2_000)]
    entries = [encode_entry(messages, batched=True)]
    most = (8 << 20) // 5_001
    with memory_bucket(offload([(3, entries)])) as bucket:
        for batch_rows, expected in ((65_536, most), (100, 100)):
            dataset = open_topic(bucket.url, TOPIC, schema=schema, batch_rows=batch_rows)
            batches = list(dataset.to_batches(columns=["f7", "f4999"]))

            assert max(batch.num_rows for batch in batches) == expected
            table = pa.Table.from_batches(batches)
            assert table["f7"].to_pylist() == [*range(2_000)]
            assert table["f4999"].null_count == 2_000
        whole = open_topic(bucket.url, TOPIC, schema=schema).to_table()
    assert whole["f7"].to_pylist() == [*range(2_000)]
