"""Whatever messages a topic has, and however its bytes are cut, they come out as they went in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from hypothesis import given
from hypothesis import strategies as st

from arrow_io.read_metrics import ReadMetrics
from connector import open_topic
from connector.scan.execution import execute
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.builds import BUILDS, using_build
from tests.support.expected import COLUMNS, expected_rows, rows_of
from tests.support.pulsar_proto import MessageMetadata
from tests.support.reading import read
from tests.support.reference import BROKER_METADATA_MAGIC, CHECKSUM_MAGIC, decode_topic
from tests.support.topics import Topic, topics

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_BYTES: Final = st.sampled_from((140, 300, 1000, 5000, 1 << 20))
RANGE_BYTES: Final = st.sampled_from((64, 100, 333, 1024, 4096, 1 << 20))
BATCH_ROWS: Final = st.sampled_from((1, 2, 3, 7, 65_536))
BATCH_BYTES: Final = st.sampled_from((1, 100, 1000, 8 << 20))


def _read_with_each_build(url: str, **options: Any) -> dict[str, tuple[pa.Table, ReadMetrics]]:  # noqa: ANN401
    results = {}
    for name in BUILDS:
        with using_build(name):
            metrics = ReadMetrics()
            scan = open_topic(url, TOPIC, columns=COLUMNS, **options).scan
            results[name] = read(scan, metrics=metrics), metrics
    return results


@given(
    topic=topics(),
    block_bytes=BLOCK_BYTES,
    range_bytes=RANGE_BYTES,
    batch_rows=BATCH_ROWS,
    batch_bytes=BATCH_BYTES,
    transactions=st.sampled_from(("committed", "all")),
)
def test_rows_are_the_messages_that_the_topic_delivers(
    *,
    topic: Topic,
    block_bytes: int,
    range_bytes: int,
    batch_rows: int,
    batch_bytes: int,
    transactions: Literal["committed", "all"],
) -> None:
    """All columns of all messages, by both builds, whatever the sizes of blocks and ranges."""
    messages = decode_topic(topic.ledgers, transactions=transactions)

    with memory_bucket(offload(topic.ledgers, block_bytes=block_bytes)) as bucket:
        results = _read_with_each_build(
            bucket.url,
            range_bytes=range_bytes,
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
            transactions=transactions,
        )

    table, metrics = results["compiled"]
    table.validate(full=True)
    assert rows_of(table) == expected_rows(messages, topic=TOPIC)
    assert results["pure"] == (table, metrics)
    assert all(batch.num_rows <= batch_rows for batch in table.to_batches())
    assert metrics.rows == len(messages)
    assert metrics.entries == sum(len(entries) for _, entries in topic.ledgers)
    assert metrics.open_transactions == (
        0 if transactions == "all" else len(topic.open_transactions)
    )
    assert not metrics.lost
    assert not metrics.replaced_texts


@given(topic=topics(), block_bytes=BLOCK_BYTES)
def test_unchecked_rows_are_the_same(topic: Topic, block_bytes: int) -> None:
    """Without a comparison of checksums, sound entries give the same rows."""
    with memory_bucket(offload(topic.ledgers, block_bytes=block_bytes)) as bucket:
        (checked, _), _ = _read_with_each_build(bucket.url).values()
        (unchecked, _), _ = _read_with_each_build(bucket.url, verify_checksums=False).values()

    assert unchecked.equals(checked)


def _announced(entry: bytes) -> int:
    """How many messages an entry says that it holds; 0 of a marker or a chunk."""
    if entry.startswith(BROKER_METADATA_MAGIC):
        entry = entry[6 + int.from_bytes(entry[2:6]) :]
    if entry.startswith(CHECKSUM_MAGIC):
        entry = entry[6:]
    metadata = MessageMetadata.FromString(entry[4 : 4 + int.from_bytes(entry[:4])])
    is_row = not metadata.HasField("marker_type") and metadata.num_chunks_from_msg < 2
    return metadata.num_messages_in_batch if is_row else 0


@given(topic=topics(), block_bytes=BLOCK_BYTES)
def test_count_takes_batches_at_their_word(topic: Topic, block_bytes: int) -> None:
    """Rows are counted without a look into batches: what compaction emptied, counts."""
    announced = sum(_announced(entry) for _, entries in topic.ledgers for entry in entries)
    chunked = sum(at.first_chunk is not None for at in topic.delivered)

    with memory_bucket(offload(topic.ledgers, block_bytes=block_bytes)) as bucket:
        for name in BUILDS:
            with using_build(name):
                scan = open_topic(bucket.url, TOPIC, transactions="all").scan
                counted = sum(
                    batch.num_rows
                    for task in scan.select([]).plan()
                    for batch in execute(task, ReadMetrics())
                )
                assert counted == announced + chunked
