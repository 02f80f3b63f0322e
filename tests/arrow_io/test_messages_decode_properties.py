"""Both builds of the hot loop give the same for every input, and never leave their bounds."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from arrow_io.columns import Origin, projection
from arrow_io.errors import PulsarOffloadError
from arrow_io.messages import entry_run, layout
from arrow_io.messages.message_reader import BatchLimits, MessageReader, Needs
from arrow_io.read_metrics import Tally
from tests.support.builds import BUILDS, using_build
from tests.support.codecs import CODECS, decompress
from tests.support.entries import Framing, Message, encode_entry
from tests.support.golden import golden_topic
from tests.support.golden_entries import golden_entries
from tests.support.hot_loop import decode_entry, properties, split, walk
from tests.support.pulsar_proto import COMPRESSION_TYPES, MessageMetadata
from tests.support.runs import runs_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from arrow_io.messages.entry_run import EntryRun

_GOLDEN = (
    "transactions-open",
    "delayed-and-sequenced",
    "kv-string-avro-separated",
    "small-compacted",
    "small-encrypted",
    "clients-cpp-avro",
)
_TAGS = st.sampled_from((34, 10))


@functools.cache
def _entries() -> list[bytes]:
    """Some real entries of all kinds, the shorter ones."""
    entries = [
        entry
        for name in _GOLDEN
        for _, ledger in golden_entries(golden_topic(name))
        for entry in ledger
    ]
    return sorted(entries, key=len)[:150]


@functools.cache
def _batches() -> list[tuple[bytes, int]]:
    """Decompressed bodies of real batches, and how many messages they hold."""
    batches = []
    for entry in _entries():
        decoded = decode_entry(BUILDS["compiled"], entry)
        if decoded[layout.FLAGS] & (layout.SPECIAL | layout.BATCHED) == layout.BATCHED:
            start, length = divmod(decoded[layout.METADATA], 2**32)
            metadata = MessageMetadata.FromString(entry[start - 12 : start - 12 + length])
            payload = entry[start - 12 + length :]
            body = decompress(CODECS[metadata.compression], payload, metadata.uncompressed_size)
            batches.append((body, metadata.num_messages_in_batch))
    assert batches
    return batches


_EDGES = st.sampled_from((b"\xff", b"\x00", b"\x7f", b"\x80", b"\xff" * 9 + b"\x01", b"\x80" * 10))


@st.composite
def _mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes with some of them changed, cut out, or put in."""
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(data)))
        length = draw(st.integers(0, 3))
        other = draw(_EDGES | st.binary(max_size=3))
        data = data[:place] + other + data[place + length :]
    return data


def _same(call: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - whatever is compared
    """What a call gives with the sources, after a check that the compiled build gives the same."""
    pure = call(BUILDS["pure"])
    assert call(BUILDS["compiled"]) == pure
    return pure


@given(data=st.data())
def test_mutated_entries(data: st.DataObject) -> None:
    """Of real entries with changed bytes, both builds make the same table, within the entry."""
    entry = data.draw(st.sampled_from(_entries()).flatmap(_mutated))

    decoded = _same(lambda build: decode_entry(build, entry))

    if not decoded[layout.FLAGS if len(decoded) > 4 else 3] & layout.BROKEN:
        for field in (
            layout.CHECKED,
            layout.PAYLOAD,
            layout.METADATA,
            layout.PRODUCER_NAME,
            layout.KEY,
            layout.ORDERING_KEY,
            layout.SCHEMA_VERSION,
            layout.REPLICATED_FROM,
            layout.UUID,
        ):
            start, length = divmod(decoded[field], 2**32)
            assert decoded[field] == -1 or 12 <= start <= start + length <= 12 + len(entry)


@given(data=st.binary(max_size=200))
@example(data=b"")
@example(data=b"\x00\x00\x00\x00" + bytes(8))
def test_random_bytes_as_entries(data: bytes) -> None:
    """Whatever bytes are walked, both builds stop at the same place for the same reason."""
    found = _same(lambda build: walk(build, data))

    assert 0 <= found.position <= len(data)


@given(data=st.data())
def test_mutated_ledgers(data: st.DataObject) -> None:
    """Of several entries back to back with changed bytes, both builds read the same ones."""
    entries = data.draw(st.lists(st.sampled_from(_entries()), max_size=4))
    whole = b"".join(
        len(entry).to_bytes(4) + n.to_bytes(8) + entry for n, entry in enumerate(entries)
    )
    damaged = data.draw(_mutated(whole))
    stop = data.draw(st.integers(0, len(damaged)))

    _same(lambda build: walk(build, damaged, stop=stop))


_PLAIN = layout.KEY_IS_BASE64 | layout.NULL_VALUE | layout.NULL_KEY | layout.HAS_BROKER_INDEX
_SINGLE_MESSAGES = st.builds(
    Message,
    payload=st.sampled_from([b"", b"value", b"v" * 90]),
    properties=st.sampled_from([(), (("name", "value"),), (("n" * 150, "v"),)]),
    partition_key=st.sampled_from([None, "key", "yek"]),
    event_time=st.sampled_from([None, 1, 127, 128, 1_795_265_305_000]),
    null_value=st.sampled_from([None, True]),
)
_FRAMINGS = st.builds(
    Framing,
    broker_metadata=st.sampled_from([None, (1_795_265_305_000, 5), (1_795_265_305_000, 300)]),
    checksum=st.booleans(),
)


@given(
    alike=st.lists(st.tuples(_SINGLE_MESSAGES, _FRAMINGS), min_size=1, max_size=3),
    order=st.lists(st.integers(0, 2), min_size=1, max_size=12),
    damage=st.none() | st.tuples(st.integers(0, 11), st.data()),
)
def test_plain_entries(
    alike: list[tuple[Message, Framing]],
    order: list[int],
    damage: tuple[int, st.DataObject] | None,
) -> None:
    """Entries that are called plain are so when they are decoded, and sound ones are called so."""
    singles = [encode_entry([each], batched=False, framing=framing) for each, framing in alike]
    entries = [singles[each % len(singles)] for each in order]
    if damage is not None:
        place, data = damage[0] % len(entries), damage[1]
        entries[place] = data.draw(_mutated(entries[place]))
    whole = b"".join(len(each).to_bytes(4) + n.to_bytes(8) + each for n, each in enumerate(entries))

    # Heads are compared if enough bytes follow them.
    found = _same(lambda build: walk(build, whole + b"\xff" * 200))

    assert len(found.entries) == len(entries)
    if found.possible_flags != -1:
        flags = [each[3] if len(each) == 4 else each[layout.FLAGS] for each in found.entries]
        assert not any(each & ~found.possible_flags for each in flags)
        assert not found.possible_flags & ~_PLAIN
    elif damage is None:
        raise AssertionError(found)


@pytest.mark.parametrize(
    "field",
    [
        {"marker_type": 10},
        {"txnid_most_bits": 1, "txnid_least_bits": 2},
        {"num_chunks_from_msg": 2, "chunk_id": 0},
        {"compression": COMPRESSION_TYPES["LZ4"]},
        {"num_messages_in_batch": 1},
        {"encryption_keys": [{"key": "k", "value": b"v"}]},
        {},
    ],
)
def test_entries_that_depend_on_others_are_not_plain(field: dict[str, Any]) -> None:
    """One such entry is found among plain ones of the same length."""
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, **field)
    encoded = metadata.SerializeToString()
    # The last: a key instead of the time, which is required.
    other = encoded if field else encoded[:-2] + b"\x32\x00"
    plain = MessageMetadata(producer_name="p" * (len(other) - 6), sequence_id=1, publish_time=2)
    heads = [plain.SerializeToString(), plain.SerializeToString(), other]
    assert len({len(each) for each in heads}) == 1
    frames = [b"\x0e\x01" + bytes(4) + len(each).to_bytes(4) + each for each in heads]
    whole = b"".join(len(each).to_bytes(4) + n.to_bytes(8) + each for n, each in enumerate(frames))

    found = _same(lambda build: walk(build, whole + b"\xff" * 200))
    before = _same(lambda build: walk(build, whole + b"\xff" * 200, last_entry_id=1))

    assert found.possible_flags == -1
    assert before.possible_flags & ~_PLAIN == 0


@given(data=st.data(), capacity=st.sampled_from((1, 3, 50)), flags=st.sampled_from((0, 6)))
def test_mutated_batches(data: st.DataObject, capacity: int, flags: int) -> None:
    """Of real batches with changed bytes, both builds split off the same messages."""
    body, members = data.draw(st.sampled_from(_batches()))
    damaged = data.draw(_mutated(body))
    announced = data.draw(st.just(members) | st.integers(-2, 2 * members))

    found = _same(lambda build: split(build, damaged, announced, capacity=capacity, flags=flags))

    for row in found.rows:
        for column in (layout.ROW_PAYLOAD, layout.ROW_KEY, layout.ROW_METADATA):
            start, length = divmod(row[column], 2**32)
            assert row[column] == -1 or 0 <= start <= start + length <= len(damaged)


@given(data=st.binary(max_size=100), members=st.integers(-1, 20))
def test_random_bytes_as_batches(data: bytes, members: int) -> None:
    """Whatever bytes are split, both builds stop at the same place for the same reason."""
    found = _same(lambda build: split(build, data, members))

    assert 0 <= found.position <= len(data)


@given(data=st.data(), tag=_TAGS)
def test_mutated_properties(data: st.DataObject, tag: int) -> None:
    """Of metadata with changed bytes, both builds find the same properties, within it."""
    pairs = data.draw(st.lists(st.tuples(st.text(max_size=2), st.text(max_size=3)), max_size=70))
    field = b"\x22" if tag == 34 else b"\x0a"
    inner = [
        _length_field(b"\x0a", n.encode()) + _length_field(b"\x12", v.encode()) for n, v in pairs
    ]
    metadata = b"".join(_length_field(field, each) for each in inner)

    found = _same(lambda build: properties(build, metadata, tag=tag))
    assert dict(found.pairs) == {n.encode(): v.encode() for n, v in pairs}
    assert found.many or len(found.pairs) == len(dict(found.pairs))
    damaged = data.draw(_mutated(metadata))
    _same(lambda build: properties(build, damaged, tag=tag))


def _length_field(tag: bytes, data: bytes) -> bytes:
    assert len(data) < 128
    return tag + bytes([len(data)]) + data


@given(data=st.binary(max_size=60), tag=_TAGS)
def test_random_bytes_as_properties(data: bytes, tag: int) -> None:
    """Whatever bytes are searched, both builds find the same."""
    _same(lambda build: properties(build, data, tag=tag))


# Batches that are verified, split and copied at once

_Kind = Literal["plain", "damaged", "unchecked", "bad size", "LZ4", "single"]


def _entry(members: list[Message], kind: _Kind) -> bytes:
    if kind == "single":
        return encode_entry(members[:1], batched=False)
    framing = Framing(codec="LZ4" if kind == "LZ4" else "NONE", checksum=kind != "unchecked")
    entry = encode_entry(members, batched=True, framing=framing)
    if kind == "damaged":
        return entry[:-1] + bytes([entry[-1] ^ 1])
    if kind == "bad size":
        # Without its checksum, and too short for its last message.
        return encode_entry(members, batched=True, framing=Framing(checksum=False))[:-1]
    return entry


_MEMBERS = st.builds(
    lambda length, number, is_null, is_out: Message(
        payload=b"" if is_null else (b"%d" % number * length)[:length],
        partition_key=f"key {number}",
        null_value=is_null or None,
        compacted_out=is_out,
    ),
    st.sampled_from([0, 1, 15, 16, 17, 48, 49, 63, 64, 65, 300, 5000]),
    st.integers(0, 9),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([False, False, False, True]),
)
_PLAIN_KINDS: list[_Kind] = ["plain", "plain", "plain", "damaged", "unchecked", "bad size"]
_KINDS: list[_Kind] = [*_PLAIN_KINDS, "LZ4", "single"]
_ENTRIES_OF_KINDS = st.sampled_from([_PLAIN_KINDS, _KINDS]).flatmap(
    lambda kinds: st.lists(
        st.builds(
            _entry,
            st.lists(_MEMBERS, min_size=1, max_size=5),
            st.sampled_from(kinds),
        ),
        min_size=1,
        max_size=8,
    )
)


def _read(
    runs: list[EntryRun], limits: BatchLimits, *, salvage: bool, at_once: bool
) -> tuple[list[dict[str, object]], object, tuple[object, ...] | None]:
    """The rows in all default columns, what was lost, and the kind and entry of the error."""
    tally = Tally(salvage=salvage)
    if not at_once:
        for run in runs:
            run.verify_checksums()
    reader = MessageReader(runs, Needs(), tally, limits=limits, verify=at_once, copy_values=at_once)
    rows: list[dict[str, object]] = []
    try:
        for columns in reader:
            assert columns.count <= columns.capacity
            for batch in projection().assembly(Origin()).record_batches(columns, tally):
                batch.validate(full=True)
                rows += batch.to_pylist()
    except PulsarOffloadError as error:
        return rows, tally.metrics.lost, (type(error), error.entry_id, error.batch_index)
    return rows, tally.metrics.lost, None


@given(
    entries=_ENTRIES_OF_KINDS,
    length=st.integers(1, 8),
    max_rows=st.sampled_from([1, 2, 7, 100]),
    max_bytes=st.sampled_from([1, 300, 3000, 1 << 20]),
    salvage=st.booleans(),
    large_bytes=st.sampled_from([0, 0, 300]),
    build=st.sampled_from([*BUILDS]),
)
def test_batches_read_at_once(
    entries: list[bytes],
    length: int,
    max_rows: int,
    max_bytes: int,
    *,
    large_bytes: int,
    salvage: bool,
    build: str,
) -> None:
    """Rows, losses and errors are those of runs that are verified first and gathered last."""
    with using_build(build), mock.patch.object(entry_run, "_LARGE_BATCH_BYTES", large_bytes):
        limits = BatchLimits(
            first_rows=max_rows, max_rows=max_rows, first_bytes=max_bytes, max_bytes=max_bytes
        )
        runs = [list(runs_of(entries, length=length)) for _ in range(2)]
        first, second = (
            _read(each, limits, salvage=salvage, at_once=at_once)
            for each, at_once in zip(runs, (False, True), strict=True)
        )

        assert second == first
