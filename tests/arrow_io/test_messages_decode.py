"""The hot loop takes any bytes: each is decoded or told to be broken, by both builds alike."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from arrow_io.core import builds
from arrow_io.messages import layout
from tests.support.builds import BUILDS
from tests.support.entries import Framing, Message, encode_entry
from tests.support.hot_loop import decode_entry, error_of, properties, split, walk
from tests.support.pulsar_proto import EncryptionKeys, MessageMetadata, SingleMessageMetadata

if TYPE_CHECKING:
    from types import ModuleType

    from arrow_io.core.builds import Build

_REQUIRED = b"\x0a\x01p\x10\x05\x18\x06"
_SINGLE_PROPERTY, _BATCH_PROPERTY = 34, 10
_RICH = encode_entry(
    [
        Message(
            payload=b"payload",
            properties=(("name", "value"), ("", "")),
            partition_key="key",
            ordering_key=b"ordering",
            event_time=2**40,
            null_partition_key=False,
            extra_fields=b"\xc0\x3e\x96\x01\xc1\x3e12345678\xc2\x3e\x02hi\xc5\x3e1234",
        )
    ],
    batched=False,
    framing=Framing(broker_metadata=(10**12, 77), codec="LZ4"),
    producer_name="producer",
    sequence_id=2**64 - 1,
    publish_time=10**12,
    replicated_from="cluster",
    schema_version=bytes(8),
    deliver_at_time=10**12,
    txnid_most_bits=1,
    txnid_least_bits=2**64 - 2,
)


def _entry(metadata: bytes, payload: bytes = b"") -> bytes:
    """An entry without checksum."""
    return len(metadata).to_bytes(4) + metadata + payload


def _framed(*entries: bytes, first_entry_id: int = 0) -> bytes:
    return b"".join(
        len(entry).to_bytes(4) + (first_entry_id + n).to_bytes(8, signed=True) + entry
        for n, entry in enumerate(entries)
    )


def _member(metadata: bytes, payload: bytes = b"") -> bytes:
    return len(metadata).to_bytes(4) + metadata + payload


# Choice of the build


def _python(code: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.strip()


@pytest.mark.parametrize(
    ("switch", "compiled"), [("", "True"), ("0", "True"), ("1", "False"), ("yes", "False")]
)
def test_environment_chooses_the_build(switch: str, compiled: str) -> None:
    """`PULSAR_OFFLOAD_PURE` picks the source; unset, empty or 0, the compiled module decodes."""
    code = (
        "from arrow_io.core.builds import in_use as build\n"
        "modules = [build.entries, build.metadata, build.columns, build.payloads('arena')]\n"
        "print(build.is_compiled, *(each.__name__.rpartition('_')[2] for each in modules))"
    )

    suffix = "c" if compiled == "True" else "py"
    told = _python(code, PULSAR_OFFLOAD_PURE=switch)
    assert told.split() == [compiled, suffix, suffix, suffix, suffix]


@pytest.mark.parametrize("missing", ["entries", "metadata", "columns"])
def test_missing_compiled_module_is_told(missing: str) -> None:
    """Without a compiled module the sources decode, and a warning says what that costs."""
    code = (
        "import sys, warnings\n"
        f"sys.modules['arrow_io.messages._{missing}_c'] = None\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    from arrow_io.core import builds\n"
        "print(builds.in_use.is_compiled, [w.category.__name__ for w in caught], caught[0].message)"
    )

    told = _python(code, PULSAR_OFFLOAD_PURE="")

    assert told.startswith("False ['UncompiledCoreWarning'] pulsar-offload was installed without")


def test_a_missing_compiled_module_can_be_an_error() -> None:
    """With 0, nothing may be decoded by the sources, however slow they are."""
    code = (
        "import sys\n"
        "sys.modules['arrow_io.messages._entries_c'] = None\n"
        "try:\n"
        "    from arrow_io.core import builds\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error)"
    )

    told = _python(code, PULSAR_OFFLOAD_PURE="0")

    assert told.startswith("PULSAR_OFFLOAD_PURE=0 requires the compiled core, which is missing")


def test_source_runs_without_cython() -> None:
    """The source needs no Cython to be installed, and decodes the same."""
    code = (
        "import sys\n"
        "sys.modules['cython'] = None\n"
        "from arrow_io.core.builds import in_use\n"
        "from tests.support.hot_loop import decode_entry\n"
        f"print(decode_entry(in_use, {_RICH!r}))"
    )

    assert _python(code, PULSAR_OFFLOAD_PURE="1") == str(decode_entry(BUILDS["compiled"], _RICH))


def test_builds_are_what_they_say() -> None:
    """Both builds stand side by side, and know which they are."""
    assert {name: build.is_compiled for name, build in BUILDS.items()} == {
        "pure": False,
        "compiled": True,
    }
    assert builds.in_use.entries in [build.entries for build in BUILDS.values()]


@pytest.mark.parametrize("part", ["entries", "metadata", "columns"])
def test_builds_have_the_same_functions(part: str) -> None:
    """What can be called of the source is in the compiled module too, but for C functions."""
    source, compiled = (getattr(BUILDS[name], part) for name in ("pure", "compiled"))

    c_functions = {"read_broker_metadata", "read_message_metadata"} if part == "metadata" else set()
    assert _functions(source) - set(dir(compiled)) == c_functions


def _functions(module: ModuleType) -> set[str]:
    return {
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and value.__module__ == module.__name__
    }


# Walking entries


def test_entries_are_walked_to_the_last(build: Build) -> None:
    """Entries back to back are read until the last one asked for."""
    data = _framed(_entry(_REQUIRED), _entry(_REQUIRED, b"x"), _RICH, first_entry_id=7)

    found = walk(build, data, first_entry_id=7, last_entry_id=8)

    assert [entry[layout.ENTRY_ID] for entry in found.entries] == [7, 8]
    assert (found.status, found.position) == (layout.COMPLETE, len(data) - len(_RICH) - 12)


def test_walk_stops_when_the_table_is_full(build: Build) -> None:
    """No more entries are read than the table takes."""
    data = _framed(*[_entry(_REQUIRED)] * 3)

    found = walk(build, data, capacity=2)

    assert (len(found.entries), found.status) == (2, layout.COMPLETE)


def test_cut_entry_tells_what_it_needs(build: Build) -> None:
    """At any cut, the whole entries are read, and the bytes that the next one takes are told."""
    entries = [_entry(_REQUIRED, b"first"), _entry(_REQUIRED, b"second")]
    data = _framed(*entries)
    first, second = (12 + len(entry) for entry in entries)

    for stop in range(len(data)):
        found = walk(build, data, stop=stop)
        whole = stop >= first
        left = stop - first * whole
        assert len(found.entries) == whole
        assert found.position == first * whole
        assert found.status == layout.CUT
        assert found.needed == (12 if left < 12 else (second if whole else first))


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"\xfe\xdc\xde\xad" * 3, layout.PADDING),
        (b"\xfb\xdb\xab\xcb" + bytes(8), layout.PADDING),
        (b"\xff\xff\xff\xff" + bytes(8), layout.PADDING),
        (b"\x80\x00\x00\x00" + bytes(8), layout.PADDING),
        (b"\x00\x00\x00\x00" + (1).to_bytes(8), layout.WRONG_ENTRY_ID),
        (b"\x00\x00\x00\x00" + b"\xff" * 8, layout.WRONG_ENTRY_ID),
        (b"\x7f\xff\xff\xff" + bytes(8), layout.CUT),
    ],
)
def test_what_is_no_entry_stops_the_walk(build: Build, header: bytes, status: int) -> None:
    """Padding, another block, and other ids are told apart; none is read."""
    found = walk(build, header + bytes(40))

    assert (found.entries, found.position, found.status) == ([], 0, status)
    assert found.needed == (12 + 2**31 - 1 if status == layout.CUT else 0)


@pytest.mark.parametrize("entry_id", [2**31, 2**32 + 5, 2**63 - 1])
def test_entry_ids_have_64_bits(build: Build, entry_id: int) -> None:
    """Ids beyond 32 bits are compared whole."""
    data = _framed(_entry(_REQUIRED), first_entry_id=entry_id)

    found = walk(build, data, first_entry_id=entry_id, last_entry_id=entry_id)
    other = walk(build, data, first_entry_id=entry_id & 0xFFFFFFFF, last_entry_id=2**62)

    assert found.entries[0][layout.ENTRY_ID] == entry_id
    assert entry_id < 2**32 or other.status == layout.WRONG_ENTRY_ID


# Entries


def test_cut_entry_is_broken(build: Build) -> None:
    """An entry that ends before its metadata does is broken; a payload may have any length."""
    length = len(_RICH) - decode_entry(build, _RICH)[layout.PAYLOAD] % 2**32

    for stop in range(length):
        assert error_of(build, _RICH[:stop]) != 0
    for stop in range(length, len(_RICH)):
        assert error_of(build, _RICH[:stop]) == 0


def test_metadata_cut_at_each_byte(build: Build) -> None:
    """Of metadata that ends anywhere, what protobuf can read is read, all else is broken."""
    metadata = MessageMetadata(
        producer_name="p" * 130,
        sequence_id=2**64 - 1,
        publish_time=300,
        partition_key="key",
        uncompressed_size=2**32 - 1,
        encryption_keys=[EncryptionKeys(key="k", value=b"v")],
        schema_version=bytes(8),
        uuid="u",
    ).SerializeToString()

    for stop in range(len(metadata) + 1):
        broken = error_of(build, _entry(metadata[:stop])) != 0
        try:
            readable = MessageMetadata.FromString(metadata[:stop]).IsInitialized()
        except Exception:  # noqa: BLE001 - protobuf's own, of any kind
            readable = False
        assert broken != readable, stop


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"\x00",
        bytes(3),
        bytes(4),  # no metadata at all
        b"\x0e\x01",
        b"\x0e\x01" + bytes(3),
        b"\x0e\x01" + bytes(4),
        b"\x0e\x01" + bytes(7),
        b"\x0e\x02",
        b"\x0e\x02" + bytes(3),
        b"\x0e\x02\xff\xff\xff\xff" + bytes(20),
        b"\x0e\x02\x00\x00\x00\x02\x08\x80" + _entry(_REQUIRED),  # a cut number of the broker
        b"\x0e\x02\x00\x00\x00\x01\x0e" + _entry(_REQUIRED),  # wire type 6
        b"\x0e\x02\x00\x00\x00\x02\x00\x00" + _entry(_REQUIRED),  # field 0
        b"\xff\xff\xff\xff" + _REQUIRED,
        b"\x80\x00\x00\x00" + _REQUIRED,
        b"\x00\x00\x00\x08" + _REQUIRED,
        b"\x0e\x02\x00\x00\x00\x00" * 2 + _entry(_REQUIRED),  # broker metadata twice
        b"\x0e\x01\x00\x00\x00\x00" * 2 + _entry(_REQUIRED),  # checksum twice
    ],
)
def test_frames_that_do_not_add_up(build: Build, entry: bytes) -> None:
    """Magics, lengths and sizes that contradict the entry's length make it broken."""
    assert error_of(build, entry) in {
        layout.BAD_FRAME,
        layout.BAD_BROKER_METADATA,
        layout.BAD_METADATA,
        layout.MISSING_FIELD,
    }


@pytest.mark.parametrize(
    ("extra", "error"),
    [
        (b"\x48\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 0),  # ten bytes
        (b"\x48\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 0),  # bits beyond 64
        (b"\x48\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", layout.BAD_METADATA),  # eleven
        (b"\x48" + b"\x80" * 9 + b"\x00", 0),  # a long zero
        (b"\x48" + b"\x80" * 200, layout.BAD_METADATA),
        (b"\xc8\x80\x80\x80\x80\x80\x80\x80\x80\x00\x05", 0),  # a long tag
        (b"\xff" * 10, layout.BAD_METADATA),
        (b"\x00\x00", layout.BAD_METADATA),  # field 0
        (b"\x07", layout.BAD_METADATA),
        (b"\x2b", layout.BAD_METADATA),  # a group begins
        (b"\x2c", layout.BAD_METADATA),  # a group ends
        (b"\x2e\x00", layout.BAD_METADATA),  # wire type 6
        (b"\x2f\x00", layout.BAD_METADATA),  # wire type 7
        (b"\x29" + bytes(7), layout.BAD_METADATA),  # 64 bits, cut
        (b"\x29" + bytes(8), 0),
        (b"\x2d" + bytes(3), layout.BAD_METADATA),  # 32 bits, cut
        (b"\x2d" + bytes(4), 0),
        (b"\x32\x01", layout.BAD_METADATA),  # a byte beyond the end
        (b"\x32\xff\xff\xff\xff\x0f", layout.BAD_METADATA),
        (b"\x32\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", layout.BAD_METADATA),
        (b"\x32\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", layout.BAD_METADATA),  # 2**63
        (b"\xc2\x3e\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", layout.BAD_METADATA),
        (b"\x6a\x01", layout.BAD_METADATA),
    ],
)
def test_hostile_fields_of_metadata(build: Build, extra: bytes, error: int) -> None:
    """Numbers too long, lengths beyond the end, groups and unknown wire types are told."""
    assert error_of(build, _entry(_REQUIRED + extra, b"payload")) == error


@pytest.mark.parametrize(
    "metadata",
    [
        _REQUIRED[3:],  # no producer
        _REQUIRED[:3] + _REQUIRED[5:],  # no sequence id
        _REQUIRED[:5],  # no publish time
        b"\x08\x01" + _REQUIRED[3:],  # a producer that is a number
        _REQUIRED[:3] + b"\x12\x01x" + _REQUIRED[5:],  # a sequence id that is a text
        b"",
    ],
)
def test_required_fields(build: Build, metadata: bytes) -> None:
    """Metadata without a required field, or with one of another kind, is broken."""
    assert error_of(build, _entry(metadata)) == layout.MISSING_FIELD


# Batches


@pytest.mark.parametrize("capacity", [1, 2, 50])
def test_batch_is_split(build: Build, capacity: int) -> None:
    """Members come with their own values, else with those of the batch, however small the table."""
    own = SingleMessageMetadata(payload_size=3, event_time=5, sequence_id=2**64 - 1)
    body = (
        _member(own.SerializeToString(), b"abc") + _member(b"\x18\x00") + _member(b"\x18\x01", b"z")
    )

    found = split(build, body, 3, capacity=capacity)

    assert (found.error, found.position, found.batch_index) == (0, len(body), 3)
    assert [row[layout.ROW_BATCH_INDEX] for row in found.rows] == [0, 1, 2]
    assert [row[layout.ROW_EVENT_TIME] for row in found.rows] == [5, 77, 77]
    assert [row[layout.ROW_SEQUENCE_ID] for row in found.rows] == [-1, 88, 88]
    assert [row[layout.ROW_PAYLOAD] & 0xFFFFFFFF for row in found.rows] == [3, 0, 1]


@pytest.mark.parametrize(
    ("body", "members", "error", "sound"),
    [
        (b"", 1, layout.BAD_BATCH_SIZE, 0),
        (b"\x00" * 5, 1, layout.BAD_BATCH_SIZE, 0),
        (_member(b"\x18\x00") * 2, 3, layout.BAD_BATCH_SIZE, 0),
        (b"\xff\xff\xff\xff\x18\x00", 1, layout.BAD_MESSAGE_SIZE, 0),
        (b"\x00\x00\x00\x03\x18\x00", 1, layout.BAD_MESSAGE_SIZE, 0),
        (_member(b"", b"--"), 1, layout.MISSING_FIELD, 0),
        (_member(b"\x28\x01"), 1, layout.MISSING_FIELD, 0),
        (_member(b"\x18\x01"), 1, layout.BAD_PAYLOAD_SIZE, 0),
        (_member(b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), 1, layout.BAD_PAYLOAD_SIZE, 0),
        (_member(b"\x18\x80\x80\x80\x80\x08"), 1, layout.BAD_PAYLOAD_SIZE, 0),  # -2**31
        (_member(b"\x18\xff\xff\xff\xff\x07"), 1, layout.BAD_PAYLOAD_SIZE, 0),  # 2**31 - 1
        (_member(b"\x18", b"-"), 1, layout.BAD_MESSAGE_METADATA, 0),
        (_member(b"\x18\x00\x00"), 1, layout.BAD_MESSAGE_METADATA, 0),
        (_member(b"\x18\x00\x1b"), 1, layout.BAD_MESSAGE_METADATA, 0),
        (_member(b"\x18\x00\x12\x05"), 1, layout.BAD_MESSAGE_METADATA, 0),
        (_member(b"\x18\x00\x12" + b"\xff" * 9 + b"\x01"), 1, layout.BAD_MESSAGE_METADATA, 0),
        (_member(b"\x18\x06", b"abcdef"), 2, layout.BAD_MESSAGE_SIZE, 1),
        (_member(b"\x18\x03", b"abc") + bytes(3), 2, layout.BAD_MESSAGE_SIZE, 1),
        (_member(b"\x18\x00") * 3, 2, layout.TRAILING_BYTES, 2),
        (_member(b"\x18\x00") + b"\x00", 1, layout.TRAILING_BYTES, 1),
        (_member(b"\x18\x00"), 0, layout.TRAILING_BYTES, 0),
        (_member(b"\x18\x00"), -5, layout.BAD_BATCH_SIZE, 0),
        (_member(b"\x18\x00"), 2**31 - 1, layout.BAD_BATCH_SIZE, 0),
        (b"", 0, 0, 0),
        (_member(b"\x1a\x01x\x18\x00"), 1, 0, 1),  # payload size as a text is unknown
        (_member(b"\x18\x05\x18\x00"), 1, 0, 1),  # the last occurrence counts
    ],
)
def test_hostile_batches(build: Build, body: bytes, members: int, error: int, sound: int) -> None:
    """Members that lie of their sizes or of their number are told; those before them are sound."""
    found = split(build, body, members)

    assert (found.error, len(found.rows)) == (error, sound)


# Properties


def _property(name: bytes, value: bytes) -> bytes:
    inner = b"\x0a%c%b\x12%c%b" % (len(name), name, len(value), value)
    return b"\x0a%c%b" % (len(inner), inner)


@pytest.mark.parametrize(
    "inner",
    [
        b"\x0a\x01a",  # no value
        b"\x12\x01b",  # no name
        b"",
        b"\x0a\x05a",
        b"\x0a\x01a\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0a\x01a\x12\x01b\x00",
        b"\x0a\x01a\x12\x01b\x1b",
        b"\x0a\x01a\x12\x01b\x18",
        b"\x08\x01\x12\x01b",  # a name that is a number
    ],
)
def test_properties_that_are_none(build: Build, inner: bytes) -> None:
    """A property without name or value, or that cannot be decoded, is told."""
    metadata = _property(b"fine", b"x") + b"\x0a%c%b" % (len(inner), inner)

    found = properties(build, metadata, tag=_BATCH_PROPERTY)

    assert found.error == layout.BAD_PROPERTY
    assert found.pairs == []


@pytest.mark.parametrize("value_bytes", [0, 1, 118, 119, 120, 127, 128, 300])
@pytest.mark.parametrize("name_bytes", [0, 1, 4, 127, 128, 300])
def test_properties_of_every_length(build: Build, name_bytes: int, value_bytes: int) -> None:
    """Lengths of one byte and of more, in either order of the two fields."""
    name, value = b"n" * name_bytes, b"v" * value_bytes
    fields = _field(b"\x0a", name), _field(b"\x12", value)
    in_order, reversed_ = (_field(b"\x0a", b"".join(each)) for each in (fields, fields[::-1]))

    for metadata in (in_order, reversed_, _property(b"m", b"w") + in_order):
        found = properties(build, metadata, tag=_BATCH_PROPERTY)
        assert (found.pairs[-1], found.error) == ((name, value), 0)
        assert properties(build, metadata[:-1], tag=_BATCH_PROPERTY).error == layout.BAD_PROPERTY


def _field(tag: bytes, data: bytes) -> bytes:
    length = len(data)
    varint = [length] if length < 128 else [length & 127 | 128, length >> 7]
    return tag + bytes(varint) + data


@pytest.mark.parametrize("behind", [b"\x28\x05", _property(b"m", b"w"), b"\xff"])
def test_nothing_is_read_behind_the_last_property(build: Build, behind: bytes) -> None:
    """Of a message whose properties are counted, no more of them are looked for."""
    metadata = b"\x12\x03key" + _property(b"n", b"v") + behind

    assert properties(build, metadata, tag=_BATCH_PROPERTY, count=0).pairs == []
    found = properties(build, metadata, tag=_BATCH_PROPERTY, count=1)
    assert (found.pairs, found.error) == ([(b"n", b"v")], 0)


@pytest.mark.parametrize("extra", [b"\x28\x05", b"\x12\x03key", b"\x2d1234", b"\x29" + bytes(8)])
def test_other_fields_are_no_properties(build: Build, extra: bytes) -> None:
    """Fields of other numbers and wire types are passed over."""
    metadata = extra + _property(b"n", b"v") + extra

    assert properties(build, metadata, tag=_BATCH_PROPERTY).pairs == [(b"n", b"v")]
    assert properties(build, metadata, tag=_SINGLE_PROPERTY).pairs == []
