"""Damage: whatever byte of an object is flipped, wherever it is cut, no wrong row is given.

A read of a damaged topic gives the right rows, or a typed error that says where the damage is. The
bytes that no checksum covers are told apart, with what a flip of them may change. By default, the
compiled build meets every byte of small ledgers, but one in five in stretches that are all alike.
A byte that a checksum covers is flipped in one of the ways in which others are. The pure build and
the larger ledgers meet fewer.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from arrow_io.errors import (
    IncompleteReadWarning,
    PulsarOffloadError,
    TopicNotFoundError,
    TruncatedObjectError,
)
from arrow_io.format.index_block import read_index_block
from arrow_io.read_metrics import Unit
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.builds import BUILDS, using_build
from tests.support.damage import (
    BROKER_COLUMNS,
    MAX_MEMORY_BYTES,
    WOVEN,
    Part,
    Region,
    Specimen,
    flipped,
    ledger_id_of,
    memory_growth_bytes,
    regions,
    specimen,
)
from tests.support.entries import Framing, Message, encode_entry
from tests.support.expected import COLUMNS
from tests.support.golden import golden_topic
from tests.support.reading import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connector.scan.topic_scan import Scan

_PATTERNS: Final = (0xFF, 0x01)
_SMALL: Final = (
    WOVEN,
    "bool",  # single messages
    "kv-string-avro-separated",  # two ZLIB batches
    "transactions-open",  # and committed and aborted ones
)
_LARGER: Final = {
    "delayed-and-sequenced": 13,
    "clients-cpp-avro": 29,  # LZ4 batches
    "clients-cpp-batched-zstd": 101,
    "small-transactions": 61,  # across ledgers
    "small-chunked": 5003,  # chunked messages across ledgers
}
"""Topics of which only each nth byte is damaged by default."""
_PURE_STRIDE: Final = 37
_STRIDES: Final = [
    *(("compiled", name, 1) for name in _SMALL),
    *(("compiled", name, 2 * stride + 1) for name, stride in _LARGER.items()),
    *(("pure", name, _PURE_STRIDE) for name in _SMALL),
    *(("pure", name, _PURE_STRIDE * stride) for name, stride in _LARGER.items()),
]
_EXHAUSTIVE: Final = [
    *itertools.product(
        BUILDS,
        (
            *_SMALL,
            *(name for name in _LARGER if name != "small-chunked"),
            "compacted",
            "transactions",
        ),
        (1,),
    ),
    *((build, "small-chunked", 101) for build in BUILDS),
]
"""Every byte; of the 350 kB of `small-chunked`, some."""
_by_default = pytest.mark.parametrize(("build", "name", "stride"), _STRIDES)
_exhaustively = pytest.mark.parametrize(("build", "name", "stride"), _EXHAUSTIVE)
_ALIKE: Final = {Part.CHECKED, Part.BLOCK_FILL, Part.PADDING}
_ALIKE_STRIDE: Final = 11
"""Of the bytes of these parts, by default, one in so many, beside the first and the last."""
_CUT_STRIDE: Final = 61
"""Of the lengths in which no part of a data object begins or ends, by default, one in so many."""
_MOST_REQUESTS_PER_LEDGER: Final = 3
"""Each ledger is shorter than a range; of one cut short, the rest and the size are asked for."""
_CROSSING: Final = {
    TOPIC,
    *(
        golden_topic(name).name
        for name in ("transactions-open", "transactions", "small-transactions", "small-chunked")
    ),
}
"""Topics in which the loss of one entry can take rows of others with it."""


@dataclass(frozen=True, slots=True)
class _Damage:
    """The name of an object, what stands in its place, and what was done to it, in words."""

    name: str
    content: bytes
    what: str


@_by_default
def test_a_flip_in_a_data_object_gives_right_rows_or_an_error(
    build: str, name: str, stride: int
) -> None:
    """Each flip is an error that names its place, or in a byte of no consequence."""
    with specimen(name) as sound, using_build(build):
        _check_flips_of_data(sound, stride, whole=False)


@pytest.mark.exhaustive
@_exhaustively
def test_every_flip_in_a_data_object_gives_right_rows_or_an_error(
    build: str, name: str, stride: int
) -> None:
    """As above, for every byte."""
    with specimen(name) as sound, using_build(build):
        _check_flips_of_data(sound, stride, whole=True)


@_by_default
def test_a_cut_data_object_is_an_error(build: str, name: str, stride: int) -> None:
    """An object that became shorter is an error that names it; salvaging gives what is left."""
    with specimen(name) as sound, using_build(build):
        _check_cuts_of_data(sound, stride, whole=False)


@pytest.mark.exhaustive
@_exhaustively
def test_a_data_object_cut_anywhere_is_an_error(build: str, name: str, stride: int) -> None:
    """As above, for every length."""
    with specimen(name) as sound, using_build(build):
        _check_cuts_of_data(sound, stride, whole=True)


@pytest.mark.parametrize("name", [WOVEN, "bool", "transactions-open"])
def test_a_damaged_index_object_gives_right_rows_or_an_error(name: str) -> None:
    """No flip and no cut of an index object gives other rows than those of its ledger."""
    with specimen(name) as sound:
        _check_index_objects(sound)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [*_SMALL, *_LARGER])
def test_every_damaged_index_object_gives_right_rows_or_an_error(name: str) -> None:
    """As above, for more topics."""
    with specimen(name) as sound:
        _check_index_objects(sound)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize(
    "broker_metadata", [None, (1_700_000_000_500, 300)], ids=["bare", "broker"]
)
def test_no_value_of_a_framing_byte_takes_the_checksum_away(
    build: str, broker_metadata: tuple[int, int] | None
) -> None:
    """Whatever one byte of magics and lengths becomes, an entry is not read without its CRC.

    The entry is so large that most lengths fit into it.
    """
    framing = Framing(broker_metadata=broker_metadata)
    entry = encode_entry([Message(payload=bytes(150_000))], batched=False, framing=framing)
    objects = offload([(1, [entry])])
    (data_name, content), _ = objects.items()
    places = [
        position
        for region in regions(content)
        if region.part in {Part.BROKER_FRAME, Part.CHECKED}
        for position in range(region.start, min(region.stop, region.start + 10))
    ]

    with memory_bucket(objects) as bucket, using_build(build):
        sound = Specimen.of(TOPIC, objects, bucket)
        scan = sound.opened().scan
        for position, pattern in itertools.product(places, range(1, 256)):
            damaged = flipped(content, position, pattern)
            error = _outcome(sound, scan, _Damage(data_name, damaged, f"{position} ^ {pattern:#x}"))
            assert isinstance(error, PulsarOffloadError), (position, pattern)
            assert error.entry_id == 0


@pytest.mark.posix
def test_damage_takes_no_more_memory_than_a_read() -> None:
    """Not even without checksums, so that every size in an entry is taken as it stands."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        growth = executor.submit(memory_growth_bytes, [*_SMALL, "clients-cpp-avro"], 29).result()

    assert 0 < growth <= MAX_MEMORY_BYTES


# ----------------------------------------------------------------------------
# Any object


def _outcome(sound: Specimen, scan: Scan | None, damage: _Damage) -> pa.Table | PulsarOffloadError:
    """What a strict read of a damaged topic gives; without a scan, the topic is opened anew."""
    before = sound.trace.counts.requests
    outcome: pa.Table | PulsarOffloadError
    with sound.replaced(damage.name, damage.content):
        try:
            outcome = read(scan or sound.opened().scan)
        except PulsarOffloadError as error:
            outcome = error
    most = _MOST_REQUESTS_PER_LEDGER * len(sound.objects)
    assert sound.trace.counts.requests - before <= most, damage.what
    return outcome


def _columns_that_differ(rows: pa.Table, expected: pa.Table) -> set[str]:
    assert rows.schema == expected.schema
    if len(rows) != len(expected):
        return set(COLUMNS)
    return {name for name in COLUMNS if not rows[name].equals(expected[name])}


def _check_some_are_given(sound: Specimen, rows: pa.Table, what: str) -> pa.Int64Array:
    """Check that rows are among the sound ones, in their order; gives the numbers of those."""
    kept = sound.kept(rows)
    assert kept.null_count == 0, what
    numbers = kept.to_pylist()
    assert numbers == sorted(set(numbers)), what
    assert _columns_that_differ(rows, sound.rows.take(kept)) <= set(BROKER_COLUMNS), what
    return kept


# ----------------------------------------------------------------------------
# Data objects


def _check_flips_of_data(sound: Specimen, stride: int, *, whole: bool) -> None:
    """Flip each `stride`th byte; those that a checksum covers in each way only if `whole`."""
    strict, salvaging = sound.opened().scan, sound.opened(salvage=True).scan
    for name in sound.data_names:
        content = sound.objects[name]
        for region, position, pattern in _flips(content, stride, whole=whole):
            what = f"{name} byte {position} ^ {pattern:#x}, {region}"
            damage = _Damage(name, flipped(content, position, pattern), what)
            outcome = _outcome(sound, strict, damage)
            if isinstance(outcome, PulsarOffloadError):
                _check_error(outcome, region, damage)
                _check_salvage(sound, salvaging, region, damage)
            else:
                _check_rows(sound, outcome, region, damage)


def _flips(content: bytes, stride: int, *, whole: bool) -> Iterator[tuple[Region, int, int]]:
    """What a byte belongs to, its position, and the pattern to flip."""
    patterns = itertools.cycle(_PATTERNS)
    for region, position in _places(content, stride):
        is_border = position in {region.start, region.stop - 1}
        is_like_others = stride == 1 and region.part in _ALIKE and position % _ALIKE_STRIDE
        if is_like_others and not (is_border or whole):
            continue
        if whole or region.part is not Part.CHECKED:
            for pattern in _PATTERNS:
                yield region, position, pattern
        else:
            yield region, position, next(patterns)


def _places(content: bytes, stride: int) -> Iterator[tuple[Region, int]]:
    """Each `stride`th byte of an object, and what it belongs to."""
    for region in regions(content):
        first = -(-region.start // stride) * stride
        for position in range(first, region.stop, stride):
            yield region, position


def _check_error(error: PulsarOffloadError, region: Region, damage: _Damage) -> None:
    assert region.part not in {Part.BLOCK_FILL, Part.PADDING}, damage.what
    _check_is_located(error, damage)
    assert error.entry_id is not None, damage.what
    if region.part is Part.ENTRY_HEADER and region.entry_id is not None:
        # Where a length is wrong, the next entry is not where it must be.
        assert error.entry_id - region.entry_id in {0, 1}, damage.what
    elif region.entry_id is not None:
        assert error.entry_id == region.entry_id, damage.what


def _check_is_located(error: PulsarOffloadError, damage: _Damage) -> None:
    assert error.object_key == damage.name, damage.what
    assert error.ledger_id == ledger_id_of(damage.name), damage.what
    assert error.offset is not None, damage.what


def _check_rows(sound: Specimen, rows: pa.Table, region: Region, damage: _Damage) -> None:
    assert region.part in {Part.BLOCK_FILL, Part.PADDING, Part.BROKER_METADATA}, damage.what
    allowed = set(BROKER_COLUMNS) if region.part is Part.BROKER_METADATA else set()
    assert _columns_that_differ(rows, sound.rows) <= allowed, damage.what


def _check_salvage(sound: Specimen, scan: Scan, region: Region, damage: _Damage) -> None:
    """What is salvaged are right rows, and what is not is counted."""
    rows, metrics = sound.salvaged(scan, damage.name, damage.content)
    kept = _check_some_are_given(sound, rows, damage.what)
    assert metrics.lost, damage.what
    assert metrics.losses, damage.what
    is_inside = region.part in {Part.CHECKED, Part.BROKER_FRAME, Part.BROKER_METADATA}
    if is_inside and sound.topic not in _CROSSING:
        lost = pc.invert(pc.is_in(pa.array(range(len(sound.rows))), value_set=kept))
        entries = sound.rows.filter(lost)["__entry_id__"].unique().to_pylist()
        assert set(entries) <= {region.entry_id}, damage.what


def _lengths(content: bytes, stride: int, *, whole: bool) -> list[int]:
    """Each `stride`th length; instead of all, unless `whole`, those at borders and some."""
    if whole or stride > 1:
        return list(range(0, len(content), stride))
    borders = {
        border + near
        for region in regions(content)
        for border, near in itertools.product((region.start, region.stop), (-1, 0, 1))
    }
    return sorted({*range(0, len(content), _CUT_STRIDE), *borders} & {*range(len(content))})


def _check_cuts_of_data(sound: Specimen, stride: int, *, whole: bool) -> None:
    """Cut at lengths that `_lengths` gives, and at some before the topic is opened."""
    strict, salvaging = sound.opened().scan, sound.opened(salvage=True).scan
    for name in sound.data_names:
        content = sound.objects[name]
        for length in _lengths(content, stride, whole=whole):
            damage = _Damage(name, content[:length], f"{name} cut to {length} bytes")
            error = _outcome(sound, strict, damage)
            assert isinstance(error, TruncatedObjectError), damage.what
            _check_is_located(error, damage)
            rows, metrics = sound.salvaged(salvaging, name, damage.content)
            assert metrics.lost, damage.what
            _check_some_are_given(sound, rows, damage.what)
        for length in sorted({0, 1, len(content) // 2, len(content) - 1}):
            _check_cut_before_opening(
                sound, _Damage(name, content[:length], f"{name} cut to {length} bytes")
            )


def _check_cut_before_opening(sound: Specimen, damage: _Damage) -> None:
    """A listing tells that an object is too short: salvaging reads it as far as it goes."""
    error = _outcome(sound, None, damage)
    assert isinstance(error, TruncatedObjectError), damage.what
    _check_is_located(error, damage)
    with sound.replaced(damage.name, damage.content):
        dataset = sound.opened(salvage=True)
        with pytest.warns(IncompleteReadWarning):
            rows = dataset.to_table()
    assert dataset.metrics.lost[Unit.ENTRY, "TruncatedObjectError"] >= 1, damage.what
    _check_some_are_given(sound, rows, damage.what)


# ----------------------------------------------------------------------------
# Index objects


def _check_index_objects(sound: Specimen) -> None:
    for name in sound.index_names:
        content = sound.objects[name]
        for position, pattern in itertools.product(range(len(content)), _PATTERNS):
            what = f"{name} byte {position} ^ {pattern:#x}"
            _check_index(sound, _Damage(name, flipped(content, position, pattern), what))
        for length in range(len(content)):
            damage = _Damage(name, content[:length], f"{name} cut to {length} bytes")
            assert isinstance(_check_index(sound, damage), PulsarOffloadError), damage.what


def _check_index(sound: Specimen, damage: _Damage) -> pa.Table | PulsarOffloadError:
    outcome = _outcome(sound, None, damage)
    if isinstance(outcome, TopicNotFoundError):
        assert len(sound.index_names) == 1, damage.what
        assert damage.name in str(outcome) or _names_another_topic(sound, damage), damage.what
    elif isinstance(outcome, PulsarOffloadError):
        names = {damage.name, damage.name.removesuffix("-index")}
        assert outcome.object_key in names, damage.what
        assert outcome.ledger_id == ledger_id_of(damage.name), damage.what
    elif _names_another_topic(sound, damage):
        # Nothing in a folder tells that the ledger was this topic's.
        assert ledger_id_of(damage.name) not in outcome["__ledger_id__"].to_pylist(), damage.what
        _check_some_are_given(sound, outcome, damage.what)
    else:
        assert not _columns_that_differ(outcome, sound.rows), damage.what
    return outcome


def _names_another_topic(sound: Specimen, damage: _Damage) -> bool:
    """Whether an index object, sound as far as can be seen, names another managed ledger."""
    before, after = (
        read_index_block(each, object_key=damage.name).ledger_metadata.managed_ledger_name
        for each in (sound.objects[damage.name], damage.content)
    )
    return before != after
