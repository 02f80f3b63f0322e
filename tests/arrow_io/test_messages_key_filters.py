"""A filter of keys never denies a key that it was given, and is Parquet's to the bit."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

import mmh3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.columns import Origin, projection
from arrow_io.core import builds
from arrow_io.messages import layout
from arrow_io.messages.delivery import Delivery
from arrow_io.messages.encryption import PayloadDecryptor
from arrow_io.messages.key_filters import hash_range, key_filter, match_filters
from arrow_io.messages.message_reader import MessageReader
from arrow_io.read_metrics import Tally
from connector import open_topic
from tests.support.builds import BUILDS, using_build
from tests.support.entries import Message, encode_entry
from tests.support.golden_scalable import NAMES, OBJECTS
from tests.support.runs import entry_run

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK_BYTES: Final = 32
_KEYS: Final = projection(["__entry_id__", "__key__"])
_ABSENT: Final = [f"absent-{number}" for number in range(1000)]


def _hash(data: bytes) -> int:
    """The hash of some bytes, between others."""
    hashes = memoryview(bytearray(8)).cast("Q")
    offsets = memoryview(bytearray(8)).cast("i")
    offsets[0], offsets[1] = 3, 3 + len(data)
    builds.in_use.keys.hash_texts(b"xyz" + data + b"z", offsets, 1, hashes)
    return hashes[0]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"message digest", 0x066ED728FCEEB3BE),
        (b"abcdefghijklmnopqrstuvwxyz", 0xCFE1F278FA89835C),
        (b"1234567890" * 8, 0xE04A477F19EE145D),
    ],
)
@pytest.mark.usefixtures("build")
def test_hash_is_xxh64(data: bytes, expected: int) -> None:
    """By the values that xxHash's authors and its ports publish, seed 0."""
    assert _hash(data) == expected


def _by_parquet(keys: list[str]) -> bytes:
    """The filter that Parquet's own writer makes of keys, sized for them."""
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"key": keys}),
        sink,
        use_dictionary=False,
        bloom_filter_options={"key": {"ndv": len(keys), "fpp": 0.01}},
    )
    told = pq.read_metadata(sink).row_group(0).column(0)
    stop = told.bloom_filter_offset + told.bloom_filter_length
    # A header stands before the bits; they are as many as our own.
    return sink.getvalue()[stop - len(key_filter(pa.array(keys))) : stop]


@pytest.mark.parametrize("count", [24, 48, 97, 195, 390])
@pytest.mark.usefixtures("build")
def test_filter_is_that_of_parquet(count: int) -> None:
    """Of as many blocks, to the bit: for keys of all lengths up to hundreds of bytes."""
    keys = [f"{number}" + "ключ" * (number % 33) + "k" * (number % 37) for number in range(count)]

    assert key_filter(pa.array(keys)) == _by_parquet(keys)


@given(keys=st.lists(st.text(max_size=70), max_size=10), build=st.sampled_from(sorted(BUILDS)))
def test_both_builds_make_the_same_filter_and_deny_no_key(keys: list[str], build: str) -> None:
    """Whatever the keys are; a filter of them all is sized for the different ones."""
    with using_build(build):
        made = key_filter(pa.array([*keys, None, *keys], pa.string()))
        alone = [key_filter(pa.array([key])) for key in keys]
        pairs = zip(alone, keys, strict=True)
        answers = [match_filters(pa.array([made, one]), key) for one, key in pairs]
    with using_build("pure"):
        assert made == key_filter(pa.array(sorted(set(keys)), pa.string()))
        assert alone == [key_filter(pa.array([key])) for key in keys]

    assert all(each.to_pylist() == [True, True] for each in answers)


@pytest.mark.usefixtures("build")
def test_wrong_answers_are_few() -> None:
    """Of keys that are not there, at the most two in a hundred may be, and none is denied."""
    keys = [f"key-{number}" for number in range(5000)]
    made = pa.array([key_filter(pa.array(keys))])

    found = [match_filters(made, key)[0].as_py() for key in keys[::10]]
    wrong = sum(match_filters(made, key)[0].as_py() for key in _ABSENT)

    assert all(found)
    assert wrong <= 0.02 * len(_ABSENT)
    assert len(made[0].as_py()) == 206 * _BLOCK_BYTES


@pytest.mark.usefixtures("build")
def test_filters_of_a_slice_are_looked_at() -> None:
    """Filters and keys may stand anywhere in their buffers, nulls among them."""
    keys = pa.array(["a", None, "b", "c", "", None, "d"])
    filters = pa.array([key_filter(keys.slice(at, 2)) for at in range(6)] + [None, b"", b"short"])

    found = [match_filters(filters.slice(1), key).to_pylist() for key in ("b", "", "d", "zz")]

    # What is no filter denies nothing.
    assert found == [
        [True, True, False, False, False, True, True, True],
        [False, False, True, True, False, True, True, True],
        [False, False, False, False, True, True, True, True],
        [False] * 5 + [True] * 3,
    ]


@pytest.mark.usefixtures("build")
def test_no_key_makes_an_empty_filter() -> None:
    """It has a block, as any other, and denies each key."""
    for keys in (pa.array([], pa.string()), pa.nulls(3, pa.string())):
        made = key_filter(keys)
        assert made == bytes(_BLOCK_BYTES)
        assert match_filters(pa.array([made]), "").to_pylist() == [False]
    assert len(match_filters(pa.array([], pa.binary()), "a")) == 0


@pytest.mark.usefixtures("build")
def test_keys_of_bytes_and_texts_are_the_same() -> None:
    """A key counts by its bytes."""
    texts = pa.array(["поток", "b", "b"])

    assert key_filter(texts) == key_filter(texts.cast(pa.binary())) == key_filter(texts.unique())


@given(keys=st.lists(st.text(max_size=20), max_size=6), build=st.sampled_from(sorted(BUILDS)))
def test_hashes_are_murmur3(keys: list[str], build: str) -> None:
    """By another library: the lower 16 bits of the hash of 32 bits with seed 0."""
    with using_build(build):
        found = hash_range(pa.array([*keys, None, *keys], pa.string()))
    expected = [mmh3.hash(each, 0, signed=False) & 0xFFFF for each in keys]

    assert found == (min(expected, default=65_536), max(expected, default=-1))


@pytest.mark.usefixtures("build")
def test_stamps_of_the_golden_set_agree_with_its_keys() -> None:
    """The lower half of each hash is within the stamp of its entry, the upper half is not."""
    lower, upper, keyed = 0, 0, 0
    for name in NAMES:
        for key, (least, greatest) in _stamped_keys(name):
            hashed = mmh3.hash(key, 0, signed=False)
            keyed += 1
            lower += least <= hashed & 0xFFFF <= greatest
            upper += least <= hashed >> 16 <= greatest

    assert (keyed, lower, upper) == (817, 817, 333)


def _stamped_keys(name: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield key and stamp of each message with a key in segments of a golden topic."""
    scan = open_topic(str(OBJECTS), name, transactions="all", value="raw").scan
    for topic in scan.topics:
        for ledger in topic.data if topic.topic.segment is not None else ():
            for run in ledger.entry_runs(0, ledger.last_entry_id, Tally()):
                stamps = [run.number(index, layout.KEY_HASHES) for index in range(run.count)]
                delivery = Delivery([run], Tally(), PayloadDecryptor())
                for rows in MessageReader(delivery, _KEYS.needs, Tally()):
                    assembly = _KEYS.assembly(Origin())
                    for batch in assembly.record_batches(rows, Tally()):
                        for row in batch.to_pylist():
                            stamp = stamps[row["__entry_id__"] - run.number(0, layout.ENTRY_ID)]
                            if row["__key__"] is not None:
                                yield row["__key__"], (stamp >> 16, stamp & 0xFFFF)


@pytest.mark.parametrize(
    ("fields", "stamp"),
    [
        ({}, layout.ABSENT),
        ({"entry_hash_min": 1}, layout.ABSENT),
        ({"entry_hash_max": 1}, layout.ABSENT),
        ({"entry_hash_min": 0, "entry_hash_max": 0}, 0),
        ({"entry_hash_min": 1, "entry_hash_max": 2}, 1 << 16 | 2),
        ({"entry_hash_min": 65_535, "entry_hash_max": 65_535}, 65_535 << 16 | 65_535),
        ({"entry_hash_min": 3, "entry_hash_max": 2}, layout.ABSENT),
        ({"entry_hash_min": 0, "entry_hash_max": 65_536}, layout.ABSENT),
        ({"entry_hash_min": 2**32 - 1, "entry_hash_max": 2**32 - 1}, layout.ABSENT),
    ],
)
@pytest.mark.usefixtures("build")
def test_stamp_of_an_entry(fields: Any, stamp: int) -> None:  # noqa: ANN401
    """A stamp counts only if both fields are there and in range, and in order."""
    stamped = encode_entry([Message()], batched=False, **fields)
    plain = encode_entry([Message()], batched=False)
    entries = [stamped, plain, stamped]

    run = entry_run(entries)

    assert [run.number(index, layout.KEY_HASHES) for index in range(3)] == [stamp, -1, stamp]
