"""Objects swapped, replaced or rolled back give the right rows or an error, never other rows."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from arrow_io.errors import ObjectChangedError, PulsarOffloadError
from arrow_io.format.index_block import read_index_block
from arrow_io.ledgers.reader import OffloadedLedger
from arrow_io.read_metrics import ReadMetrics
from arrow_io.storage.trace import RequestTrace
from connector import open_catalog, open_topic
from connector.scan.execution import execute
from tests.support.buckets import TOPIC, object_name, offload_ledger
from tests.support.changing_buckets import Meddler, changing_bucket
from tests.support.entries import Framing, Message, encode_chunks, encode_entry

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from arrow_io.format.object_names import LedgerObjectName
    from connector import TopicDataset
    from tests.support.changing_buckets import ChangingBucket
    from tests.support.s3_server import S3Server

_OTHER: Final = "public/default/persistent/other"
_MANAGED_LEDGER: Final = "public/default/persistent/orders"
_LATER: Final = 1_700_000_000_000


@dataclass(frozen=True)
class Ledger:
    """A ledger and the objects that may come to lie where its own do."""

    name: LedgerObjectName
    managed_ledger: str
    values: tuple[bytes, ...]
    data: bytes
    index: bytes
    older: bytes
    """A data object of the same form with other values."""
    indexes: range | None
    """The broker's index of each entry; None: it counts nothing."""

    @property
    def form(self) -> object:
        """All that an index object knows of a data object."""
        index = read_index_block(self.index, object_key="")
        metadata = index.ledger_metadata
        return index.data_object_length_bytes, index.entry_table, metadata.length_bytes


@dataclass(frozen=True)
class Change:
    """What is done to a bucket: objects, with the managed ledger that their user metadata names."""

    kind: str
    first: Ledger
    second: Ledger

    def objects(self) -> list[tuple[str, bytes, str]]:
        """Name, bytes and managed ledger of what is written."""
        one, two = self.first, self.second
        data = [(one.name.data_name, two.data, two.managed_ledger)]
        back = [(two.name.data_name, one.data, one.managed_ledger)]
        indexes = [
            (one.name.index_name, two.index, two.managed_ledger),
            (two.name.index_name, one.index, one.managed_ledger),
        ]
        rolled = [(one.name.data_name, one.older, one.managed_ledger)]
        return {
            "replace data": data,
            "swap data": data + back,
            "swap indexes": indexes,
            "swap ledgers": data + back + indexes,
            "roll back": rolled,
        }[self.kind]

    def is_told_before(self, store: str, ledgers: Sequence[Ledger]) -> bool:
        """Whether something tells of it if it was done before the bucket was opened."""
        one, two = self.first, self.second
        if self.kind in {"roll back", "swap ledgers"}:
            return False
        if one.managed_ledger != two.managed_ledger:
            return store == "s3" or one.form != two.form
        return one.form != two.form or self._goes_back(ledgers)

    def _goes_back(self, ledgers: Sequence[Ledger]) -> bool:
        """Whether the indexes go back where no count begins anew, at 0."""
        written = {name: data for name, data, _ in self.objects()}
        lying = {each.data: each.indexes for each in ledgers}
        last = -1
        for each in ledgers:
            indexes = lying[written.get(each.name.data_name, each.data)]
            if each.managed_ledger == _MANAGED_LEDGER and indexes is not None:
                if 0 < indexes[0] <= last:
                    return True
                last = indexes[-1]
        return False


@st.composite
def _ledgers(draw: st.DrawFn, *, has_indexes: bool) -> list[Ledger]:
    """Ledgers of two topics, of few forms, the first two of them of one."""
    block_bytes = draw(st.sampled_from((140, 1 << 20)))
    next_index = dict.fromkeys((_MANAGED_LEDGER, _OTHER), draw(st.integers(0, 5)))
    ledgers = []
    for number in range(draw(st.integers(2, 4))):
        owner = _MANAGED_LEDGER if number < 2 else draw(st.sampled_from((_MANAGED_LEDGER, _OTHER)))
        lengths = draw(st.lists(st.sampled_from((60, 61)), min_size=1, max_size=3))
        first_index = next_index[owner] if has_indexes else None
        next_index[owner] += len(lengths)
        ledgers.append(_ledger(number, lengths, owner, first_index, block_bytes))
    return ledgers


def _ledger(
    number: int,
    lengths: Sequence[int],
    owner: str = _MANAGED_LEDGER,
    first_index: int | None = None,
    block_bytes: int = 1 << 20,
) -> Ledger:
    name = object_name(10 + number)
    words = [
        [
            f"{word} {number} {entry} ".encode().ljust(length, b".")
            for entry, length in enumerate(lengths)
        ]
        for word in ("value", "older")
    ]
    values, _ = words
    objects, older = (
        offload_ledger(
            name,
            [
                encode_entry([Message(payload=each)], batched=False, framing=_framing(at))
                for at, each in enumerate(payloads, first_index or 0)
            ]
            if first_index is not None
            else [encode_entry([Message(payload=each)], batched=False) for each in payloads],
            block_bytes=block_bytes,
            managed_ledger=owner,
        )
        for payloads in words
    )
    data_name, index_name = name.data_name, name.index_name
    return Ledger(
        name,
        owner,
        tuple(values),
        objects[data_name],
        objects[index_name],
        older[data_name],
        None if first_index is None else range(first_index, first_index + len(lengths)),
    )


def _framing(index: int) -> Framing:
    return Framing(broker_metadata=(_LATER, index))


@st.composite
def _changes(draw: st.DrawFn, ledgers: Sequence[Ledger]) -> Change:
    kinds = ("replace data", "swap data", "swap indexes", "swap ledgers", "roll back")
    first, second = draw(st.permutations(ledgers))[:2]
    assume(_MANAGED_LEDGER in (first.managed_ledger, second.managed_ledger))
    return Change(draw(st.sampled_from(kinds)), first, second)


def _opened(
    bucket: ChangingBucket,
    trace: RequestTrace | None = None,
    batch_rows: int = 1000,
    metadata: Path | None = None,
) -> TopicDataset:
    return open_topic(
        bucket.url,
        TOPIC,
        storage_options=bucket.storage_options,
        range_bytes=100,
        columns=["__value__"],
        batch_rows=batch_rows,
        metadata=metadata,
        trace=trace,
    )


def _fill(bucket: ChangingBucket, ledgers: Sequence[Ledger]) -> tuple[bytes, ...]:
    """Write all objects, and give the values of the topic."""
    for each in ledgers:
        bucket.write(each.name.data_name, each.data, each.managed_ledger)
        bucket.write(each.name.index_name, each.index, each.managed_ledger)
    ours = (each.values for each in ledgers if each.managed_ledger == _MANAGED_LEDGER)
    return tuple(value for values in ours for value in values)


def _values(dataset: TopicDataset) -> tuple[bytes, ...]:
    return tuple(dataset.to_table()["__value__"].to_pylist())


def _assert_right(
    store: str, s3_server: S3Server | None, data: st.DataObject, *, has_indexes: bool
) -> None:
    ledgers = data.draw(_ledgers(has_indexes=has_indexes))
    change = data.draw(_changes(ledgers))
    # Drawn before anything is requested: how many requests there are is not the strategy's.
    drawn = data.draw(st.integers(-2, 99), label="moment")
    with changing_bucket(store, s3_server) as bucket:
        values = _fill(bucket, ledgers)
        sound = RequestTrace()
        assert _values(_opened(bucket, sound)) == values
        count = sound.counts.range_requests
        moment = drawn if drawn < 0 else drawn % count

        def meddle() -> None:
            for name, content, managed_ledger in change.objects():
                bucket.write(name, content, managed_ledger)

        if moment == -2:
            assume(change.is_told_before(store, ledgers))
            meddle()
        try:
            dataset = _opened(bucket, Meddler(moment, meddle))
            if moment == -1:
                meddle()
            given = _values(dataset)
        except PulsarOffloadError:
            return
        assert given == values


@pytest.mark.parametrize("store", ["memory", "folder", "plain"])
@given(data=st.data(), has_indexes=st.booleans())
@settings(max_examples=100)
def test_changed_objects_give_right_rows_or_an_error(
    store: str, data: st.DataObject, *, has_indexes: bool
) -> None:
    """Before the bucket is opened, before it is read, and before each request for data."""
    _assert_right(store, None, data, has_indexes=has_indexes)


@pytest.mark.s3
@given(data=st.data(), has_indexes=st.booleans())
@settings(max_examples=15)
def test_changed_objects_of_s3_give_right_rows_or_an_error(
    s3_server: S3Server, data: st.DataObject, *, has_indexes: bool
) -> None:
    """As elsewhere, and topics are told apart too."""
    _assert_right("s3", s3_server, data, has_indexes=has_indexes)


_STORES: Final = [
    pytest.param("memory"),
    pytest.param("folder"),
    pytest.param("s3", marks=pytest.mark.s3),
]


@pytest.mark.parametrize("store", _STORES)
def test_object_replaced_at_any_request_is_named(store: str, s3_server: S3Server) -> None:
    """The error names it; not one row of the new version is given, nor is a request more sent."""
    ledger = _ledger(0, [60] * 8)
    with changing_bucket(store, s3_server) as bucket:
        values, sound = _fill(bucket, [ledger]), RequestTrace()
        assert _values(_opened(bucket, sound)) == values
        assert sound.counts.head_requests == 0
        for number in range(sound.counts.range_requests):
            _fill(bucket, [ledger])
            trace = Meddler(
                number,
                lambda: bucket.write(ledger.name.data_name, ledger.older, _MANAGED_LEDGER),
            )
            batches = _opened(bucket, trace, batch_rows=1).scanner().to_batches()
            given: list[bytes] = []
            with pytest.raises(ObjectChangedError) as caught:
                given.extend(v for batch in batches for v in batch["__value__"].to_pylist())

            assert caught.value.object_key == ledger.name.data_name
            assert given == list(values[: len(given)])
            assert trace.counts.range_requests <= sound.counts.range_requests
            assert trace.counts.head_requests == 0


@pytest.mark.parametrize("store", [*_STORES, "plain"])
@pytest.mark.parametrize("last", range(8))
def test_a_read_of_some_entries_is_of_one_version(
    store: str, last: int, s3_server: S3Server
) -> None:
    """It ends before the last range of the object: where nothing else tells, a HEAD does then."""
    ledger = _ledger(0, [60] * 8)
    with changing_bucket(store, s3_server) as bucket:
        _fill(bucket, [ledger])
        (sound,) = _opened(bucket).scan.topics[0].ledgers
        before = [each.data for each in sound.read_entries(0, last)]
        for number in range(4):
            _fill(bucket, [ledger])
            trace = Meddler(
                number,
                lambda: bucket.write(ledger.name.data_name, ledger.older, _MANAGED_LEDGER),
            )
            (listed,) = _opened(bucket, trace).scan.topics[0].ledgers
            try:
                given = [each.data for each in listed.read_entries(0, last)]
            except ObjectChangedError:
                continue
            assert given == before
            assert trace.counts.range_requests <= number


@pytest.mark.parametrize("store", [*_STORES, "plain"])
def test_a_catalog_snapshot_holds_the_versions_that_were_listed(
    store: str, s3_server: S3Server, tmp_path: Path
) -> None:
    """What was replaced since it was saved is an error, all else is read."""
    first, second, path = _ledger(0, [60] * 8), _ledger(1, [60]), tmp_path / "catalog.json.gz"
    with changing_bucket(store, s3_server) as bucket:
        values = _fill(bucket, [first, second])
        open_catalog(bucket.url, storage_options=bucket.storage_options).save(path)
        assert _values(_opened(bucket, metadata=path)) == values

        bucket.write(first.name.data_name, first.older, _MANAGED_LEDGER)

        with pytest.raises(ObjectChangedError, match=first.name.data_name):
            _values(_opened(bucket, metadata=path))


@pytest.mark.parametrize("store", _STORES)
def test_tasks_hold_the_version_that_was_listed(store: str, s3_server: S3Server) -> None:
    """Two tasks in two processes never read two versions, however long they wait."""
    ledger = _ledger(0, [60] * 8)
    with changing_bucket(store, s3_server) as bucket:
        _fill(bucket, [ledger])
        (task,) = _opened(bucket).scan.plan()
        salvaging = replace(task.read.options, salvage=True)
        task = replace(task, read=replace(task.read, options=salvaging))
        pickled = pickle.dumps(task)
        before = sum(batch.num_rows for batch in execute(pickle.loads(pickled), ReadMetrics()))

        bucket.write(ledger.name.data_name, ledger.older, _MANAGED_LEDGER)

        assert before == len(ledger.values)
        with pytest.raises(ObjectChangedError, match=ledger.name.data_name):
            list(execute(pickle.loads(pickled), ReadMetrics()))


@pytest.mark.parametrize("store", _STORES)
def test_tasks_hold_the_versions_of_the_ledgers_behind_them(
    store: str, s3_server: S3Server
) -> None:
    """A message that goes on in the next ledger gets no part of another version of that."""
    first, last = encode_chunks(Message(payload=b"abcd"), chunk_count=2, uuid="a")
    _, other = encode_chunks(Message(payload=b"abXY"), chunk_count=2, uuid="a")
    behind = object_name(1)
    objects = offload_ledger(object_name(0), [first]) | offload_ledger(behind, [last])
    newer = offload_ledger(behind, [other])[behind.data_name]
    with changing_bucket(store, s3_server) as bucket:
        for name, content in objects.items():
            bucket.write(name, content, _MANAGED_LEDGER)
        task, _ = _opened(bucket).scan.plan(1)
        (batch,) = execute(task, ReadMetrics())

        bucket.write(behind.data_name, newer, _MANAGED_LEDGER)

        assert batch["__value__"].to_pylist() == [b"abcd"]
        with pytest.raises(ObjectChangedError, match=behind.data_name):
            list(execute(task, ReadMetrics()))


@pytest.mark.parametrize("store", _STORES)
def test_ledger_that_is_not_listed_is_of_the_version_first_read(
    store: str, s3_server: S3Server
) -> None:
    """Where no listing tells the version, the first answer does."""
    ledger = _ledger(0, [60] * 8)
    with changing_bucket(store, s3_server) as bucket:
        _fill(bucket, [ledger])
        trace = Meddler(2, lambda: bucket.write(ledger.name.data_name, ledger.older, ""))
        listed = _opened(bucket, trace).scan.topics[0].ledgers[0]
        assert isinstance(listed, OffloadedLedger)
        # One request after the other, so that the first answer is of the first version.
        options = {**(listed.location.storage_options or {}), "max_connections": 1}
        location = replace(listed.location, storage_options=options)
        versions = replace(listed.versions, data=None)
        unlisted = replace(listed, location=location, versions=versions)

        with pytest.raises(ObjectChangedError, match=ledger.name.data_name):
            list(unlisted.read_entries(0, unlisted.last_entry_id))
