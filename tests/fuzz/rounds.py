"""Changed bytes of real ledgers, round after round, through the decoders, codecs and shredders.

A round fails where a read raises what is no error of ours, gives an array that Arrow finds invalid,
or writes beside its place. What is read beyond the bytes is for the sanitizers to notice.
"""

from __future__ import annotations

import functools
import struct
from array import array
from typing import TYPE_CHECKING, Final

from arrow_io.columns import ALL_COLUMNS, Origin, projection
from arrow_io.core import builds
from arrow_io.errors import PulsarOffloadError
from arrow_io.messages import layout
from arrow_io.messages.delivery import Delivery
from arrow_io.messages.encryption import PayloadDecryptor
from arrow_io.messages.message_reader import MessageReader, Needs
from arrow_io.payloads import value_columns
from arrow_io.payloads.value_columns import ValueColumns
from arrow_io.read_metrics import Tally
from tests.support.arenas import GuardedShredding, TightShredding
from tests.support.buckets import memory_bucket
from tests.support.codecs import Codec, compress
from tests.support.golden import golden_topics, row_payload
from tests.support.golden_entries import golden_entries
from tests.support.golden_values import golden_schema, topics_with_values
from tests.support.map_files import ESCAPE, MARKER, golden_map_files, open_map_file, vint
from tests.support.payloads import shredded
from tests.support.pulsar_proto import COMPRESSION_TYPES, MessageMetadata
from tests.support.runs import entry_run

if TYPE_CHECKING:
    from random import Random

    from arrow_io.columns import Projection
    from arrow_io.payloads.program import Program
    from tests.support.golden import GoldenTopic
    from tests.support.map_files import GoldenMapFile

_EDGES: Final = (
    b"\xff",
    b"\x00",
    b"\x7f",
    b"\x80",
    b"\xff" * 9 + b"\x01",
    b"\x80" * 10,
    b'"',
    b"\\",
)
_MAX_BYTES: Final = 1 << 16
_CODECS: Final[tuple[Codec, ...]] = ("LZ4", "SNAPPY", "ZSTD", "ZLIB")


def changed(random: Random, data: bytes) -> bytes:
    """The bytes with some of them changed, cut out, put in, or repeated up to hundreds of times."""
    for _ in range(random.choice((0, 1, 1, 1, 2, 4))):
        start = random.randint(0, len(data))
        stop = min(len(data), start + random.choice((0, 1, 2, 3, 9, 40)))
        part = data[start:stop]
        kind = random.randrange(6)
        if kind == 0:
            part = random.choice(_EDGES)
        elif kind == 1:
            part = random.randbytes(len(part))
        elif kind == 2:
            part *= random.choice((2, 3, 64, 300))
        elif kind == 3:
            part = bytes(each ^ 1 << random.randrange(8) for each in part)
        elif kind == 4:
            part = b""
        else:
            stop = len(data)
        data = (data[:start] + part + data[stop:])[:_MAX_BYTES]
    return data


@functools.cache
def _entries() -> list[tuple[GoldenTopic, list[bytes]]]:
    """The entries of each ledger, with its topic."""
    return [
        (topic, entries)
        for topic in golden_topics()
        for _, entries in golden_entries(topic)
        if entries
    ]


@functools.cache
def _columns(topic: GoldenTopic) -> Projection:
    names = [column.name for column in ALL_COLUMNS]
    if topic not in topics_with_values():
        return projection(names)
    values = ValueColumns(golden_schema(topic), is_flat=False)
    return projection(
        [name for name in names if name != "__value__"] + [each.name for each in values.fields],
        values=values,
    )


def decode(random: Random) -> int:
    """Decode some changed entries of one ledger, into all columns; how many rows they gave."""
    topic, entries = random.choice(_entries())
    first = random.randrange(len(entries))
    some = [changed(random, each) for each in entries[first : first + random.randint(1, 4)]]
    tally = Tally(salvage=True)
    rows = 0
    try:
        runs = Delivery([entry_run(some)], tally, PayloadDecryptor())
        reader = MessageReader(
            runs,
            Needs(),
            tally,
            verify=random.random() < 0.2,
            copy_values=random.random() < 0.5,
        )
        for columns in reader:
            for batch in _columns(topic).assembly(Origin()).record_batches(columns, tally):
                batch.validate(full=True)
                rows += batch.num_rows
    except PulsarOffloadError:
        # What salvaging does not pass over, such as a payload without its key.
        return rows
    return rows


@functools.cache
def _programs() -> dict[str, list[tuple[Program, list[bytes]]]]:
    """Programs of all schemas by their encoding, with the payloads of their topics."""
    found: dict[str, list[tuple[Program, list[bytes]]]] = {}
    for topic in topics_with_values():
        schema = golden_schema(topic)
        payloads = sorted({each for row in topic.messages() if (each := row_payload(row))})
        parts = (True, False) if schema.reader.type == "KEY_VALUE" else (False,)
        for is_key in parts:
            decoder = value_columns._decoder(schema, "ns", is_key=is_key, is_debezium=False)
            program = decoder.program(None, None)
            if payloads:
                found.setdefault(program.encoding, []).append((program, payloads))
    return found


def shred(random: Random) -> int:
    """Shred some changed payloads of one topic; how many of them fitted."""
    # Most topics have primitives, which are soon tried.
    encoding = random.choice(("primitive", "avro", "avro", "json", "json", "protobuf"))
    program, payloads = random.choice(_programs()[encoding])
    some = [changed(random, random.choice(payloads)) for _ in range(random.randint(1, 5))]
    if random.random() < 0.3:
        # So many that they are read together, except where some of them are odd.
        for _ in range(random.choice((8, 63, 64, 130))):
            some.insert(random.randint(0, len(some)), random.choice(payloads))
    arena = random.choice((GuardedShredding, TightShredding))
    found = shredded(program, some, believed_bytes=0, arena=arena, between=b"")
    return len(some) - len(found.misfits)


def decompress(random: Random) -> int:
    """Decompress some changed payloads, each compressed by itself; how many gave a message."""
    codec = random.choice(_CODECS)
    _, payloads = random.choice(_programs()[random.choice(("avro", "json", "protobuf"))])
    some = []
    for _ in range(random.randint(1, 8)):
        payload = random.choice(payloads) * random.choice((0, 1, 1, 2, 9, 200))
        stored = compress(codec, payload, other_client=random.random() < 0.2)
        size = len(payload) + random.choice((0, 0, 0, 0, -1, 1, 30))
        metadata = MessageMetadata(
            producer_name="p",
            sequence_id=1,
            publish_time=1,
            compression=COMPRESSION_TYPES[codec],
            uncompressed_size=max(0, size),
        ).SerializeToString()
        some.append(len(metadata).to_bytes(4) + metadata + changed(random, stored))
    values = 0
    for columns in MessageReader([entry_run(some)], Needs(), Tally(salvage=True)):
        values += len(columns.row_bytes(layout.ROW_PAYLOAD).drop_null())
    return values


@functools.cache
def _map_files() -> list[GoldenMapFile]:
    """The shorter ones of each compression."""
    return [each for each in golden_map_files() if each.is_complete and len(each.data) < _MAX_BYTES]


def walk_records(random: Random) -> int:
    """Read a MapFile with changed data, with its index or none; how many entries it gave."""
    golden = random.choice(_map_files())
    data = changed(random, golden.data)
    index = random.choice((golden.index, b""))
    count = 0
    with memory_bucket({golden.name.data_name: data, golden.name.index_name: index}) as bucket:
        try:
            ledger = open_map_file(bucket.url, len(data), golden.name).data
            last = min(ledger.last_entry_id, 10_000)
            for run in ledger.entry_runs(random.randint(0, last), last, Tally(salvage=True)):
                count += run.count
        except PulsarOffloadError:
            # What cannot be opened, such as a file without its first record.
            return count
    return count


def copy_records(random: Random) -> int:
    """Copy changed records, and values of changed lengths; how many were copied."""
    records, result = builds.in_use.records, array("q", bytes(48))
    values = [random.randbytes(random.choice((0, 1, 7, 300))) for _ in range(random.randint(1, 9))]
    bodies = [len(each).to_bytes(4) + each for each in values]
    count, escape = len(values), ESCAPE + MARKER
    stored = (
        random.choice((b"", escape)) + struct.pack(">iiq", 8 + len(body), 8, key) + body
        for key, body in enumerate(bodies)
    )
    data = changed(random, b"".join(stored))
    target = bytearray(len(data))
    records.frame_records(data, 0, len(data), 0, 99, escape, target, result)
    copied = result[0]
    encoded = changed(random, b"".join(vint(len(body)) for body in bodies))
    lengths = array("q", bytes(8 * count))
    records.read_lengths(encoded, len(encoded), lengths, count, 1 << 20, result)
    body = changed(random, b"".join(bodies))
    keys = struct.pack(f">{count}q", *range(count))
    target = bytearray(len(body) + 8 * min(count, len(body) // 4))
    records.frame_values(body, len(body), lengths, keys, 0, count, 0, target, result)
    return int(copied + result[0])


ROUNDS: Final = {
    "decoders": decode,
    "codecs": decompress,
    "shredders": shred,
    "MapFiles": walk_records,
    "records": copy_records,
}
"""By what is tried."""
