"""Which ledgers make a topic: whatever lies in the bucket, the sound copies are found."""

from __future__ import annotations

import os
import shutil
import warnings
from dataclasses import dataclass, replace
from pathlib import Path  # noqa: TC003 - pytest looks at annotations
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pytest

from arrow_io.errors import (
    CorruptIndexError,
    FormatError,
    IncompleteReadWarning,
    MissingObjectError,
    OptionError,
    PulsarOffloadError,
    TopicNotFoundError,
    TruncatedObjectError,
    UnknownFormatError,
)
from arrow_io.format.object_names import LedgerObjectName
from arrow_io.read_metrics import Unit
from arrow_io.storage.location import FolderListing, Location
from arrow_io.storage.object_store import ObjectContent, ObjectInfo
from arrow_io.storage.trace import RequestTrace
from connector import Catalog, open_catalog, open_topic
from connector.catalog.bucket import read_bucket
from tests.support.buckets import MANAGED_LEDGER, TOPIC, object_name, offload_ledger
from tests.support.entries import Message, encode_entry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from connector.display.topic_metrics import TopicMetrics
    from connector.options.topic_request import OnCorruption

_OTHER_TOPIC: Final = "persistent://public/default/payments"
_OTHER_LEDGER: Final = "public/default/persistent/payments"
_STREAMING_NAME: Final = "00000000-0000-0000-0000-0000000000ff"


@dataclass(frozen=True)
class Folder:
    """A bucket that is a folder, whose objects have the ages that a test gives them."""

    path: Path

    def offload(
        self,
        ledger_id: int,
        *values: str,
        age_s: int = 0,
        managed_ledger: str = MANAGED_LEDGER,
        name: LedgerObjectName | None = None,
    ) -> LedgerObjectName:
        """Write a ledger of unbatched messages; `age_s` is how long before the rest."""
        name = name or object_name(ledger_id)
        entries = [encode_entry([Message(payload=v.encode())], batched=False) for v in values]
        objects = offload_ledger(name, entries, managed_ledger=managed_ledger)
        for key, data in objects.items():
            self.write(key, data, age_s=age_s)
        return name

    def write(self, name: str, data: bytes, *, age_s: int = 0) -> None:
        """Write an object."""
        path = self.path / name
        path.write_bytes(data)
        time_s = 1_700_000_000 - age_s
        os.utime(path, (time_s, time_s))

    def spoil(self, name: str, stop: int) -> None:
        """Cut an object off, without changing its age."""
        path = self.path / name
        before = path.stat()
        path.write_bytes(path.read_bytes()[:stop])
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def read(
        self, topic: str = TOPIC, on_corruption: OnCorruption = "raise"
    ) -> tuple[list[str], TopicMetrics]:
        """The values of a topic."""
        dataset = open_topic(str(self.path), topic, on_corruption=on_corruption)
        with warnings.catch_warnings(action="ignore", category=IncompleteReadWarning):
            values = dataset.to_table(columns=["__value__"])["__value__"].to_pylist()
        return [value.decode() for value in values], dataset.metrics

    def values(self, topic: str = TOPIC) -> list[str]:
        """The values of a topic that is sound."""
        return self.read(topic)[0]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty bucket."""
    return Folder(tmp_path)


def test_ledgers_are_in_order_of_their_ids(folder: Folder) -> None:
    """Not of their names, nor of their ages: ledger 9 comes before ledger 10."""
    folder.offload(10, "c", age_s=50)
    folder.offload(9, "b")
    folder.offload(8, "a", age_s=10)

    assert folder.values() == ["a", "b", "c"]


@pytest.mark.parametrize("newest_first", [True, False])
def test_newest_copy_of_a_ledger_is_taken(folder: Folder, newest_first: bool) -> None:
    """An offload that was repeated leaves two copies; age decides, not the name."""
    ages = (0, 100) if newest_first else (100, 0)
    folder.offload(7, "first name", age_s=ages[0])
    folder.offload(7, "second name", age_s=ages[1])

    assert folder.values() == (["first name"] if newest_first else ["second name"])
    copies = open_catalog(str(folder.path)).contents.copies
    assert [copy.name.ledger_id for copy in copies] == [7, 7]
    newest, oldest = (copy.modified for copy in copies)
    assert newest is not None
    assert oldest is not None
    assert newest > oldest


def test_copies_of_the_same_age_are_told_apart_by_uuid(folder: Folder) -> None:
    """Two reads of one bucket never take different copies."""
    low, high = (LedgerObjectName(UUID(int=number), 7) for number in (1, 2))
    folder.offload(7, "high", name=high)
    folder.offload(7, "low", name=low)

    assert folder.values() == ["high"]


@pytest.mark.parametrize(
    ("which", "stop"), [("index_name", 40), ("index_name", 0), ("data_name", 140)]
)
def test_broken_newest_copy_gives_way_to_an_older_one(
    folder: Folder, which: str, stop: int
) -> None:
    """What was broken off is no reason to fail where another copy is whole."""
    folder.offload(7, "old", age_s=100)
    broken = folder.offload(7, "new")
    folder.spoil(getattr(broken, which), stop)

    values, metrics = folder.read(on_corruption="salvage")

    assert folder.values() == values == ["old"]
    assert not metrics.lost


def test_ledgers_of_a_text_are_refused(folder: Folder) -> None:
    """They looked like those of a topic that has none."""
    folder.offload(3, "one")

    with pytest.raises(OptionError, match="topic must be a TopicName, such as one of topics"):
        open_catalog(str(folder.path)).ledgers("orders")  # type: ignore[arg-type]


def test_ledgers_of_one_uuid_are_not_mixed_up(folder: Folder) -> None:
    """An object belongs to the ledger that its name says, whatever else has its uuid."""
    uuid = UUID(int=77)
    folder.offload(7, "a", name=LedgerObjectName(uuid, 7))
    folder.offload(8, "b", "c", name=LedgerObjectName(uuid, 8))
    lost = folder.offload(9, "d", name=LedgerObjectName(uuid, 9))
    (folder.path / lost.data_name).unlink()

    values, metrics = folder.read(on_corruption="salvage")

    assert values == ["a", "b", "c"]
    assert metrics.lost == {(Unit.LEDGER, "MissingObjectError"): 1}


def _assert_lost(
    folder: Folder, error: type[PulsarOffloadError], *, topics: Iterable[str] = (TOPIC,)
) -> PulsarOffloadError:
    """Strict reads of the topics fail, a salvaging one counts one ledger; gives the error."""
    for topic in topics:
        with pytest.raises(error) as caught:
            folder.read(topic)
        assert type(caught.value) is error
        values, metrics = folder.read(topic, on_corruption="salvage")
        assert values == ["sound"]
        assert metrics.lost == {(Unit.LEDGER, error.__name__): 1}
        assert metrics.losses == [str(caught.value)]
    return caught.value


def test_cut_data_object_is_an_error_of_its_topic_alone(folder: Folder) -> None:
    """Its index object tells which topic it belongs to; others are not touched."""
    folder.offload(6, "sound")
    name = folder.offload(7, "lost", "lost")
    folder.spoil(name.data_name, 150)
    folder.offload(8, "other", managed_ledger=_OTHER_LEDGER)

    with pytest.raises(TruncatedObjectError) as caught:
        folder.values()
    error = caught.value
    assert (error.object_key, error.ledger_id, error.offset) == (name.data_name, 7, 150)
    assert folder.values(_OTHER_TOPIC) == ["other"]


def test_cut_data_object_is_salvaged_up_to_the_cut(folder: Folder) -> None:
    """Salvaging gives every entry that is whole before the cut, and counts the others."""
    folder.offload(6, "sound")
    name = folder.offload(7, "first", "second", "third")
    whole = (folder.path / name.data_name).stat().st_size
    folder.spoil(name.data_name, whole - 1)

    values, metrics = folder.read(on_corruption="salvage")

    assert values == ["sound", "first", "second"]
    assert metrics.lost == {(Unit.ENTRY, "TruncatedObjectError"): 1}


@pytest.mark.parametrize("ledger_id", [5, 7])
def test_data_object_without_index_object_is_unfinished(folder: Folder, ledger_id: int) -> None:
    """An attempt that never completed is no ledger; as its topic is unknown, it is told."""
    folder.offload(6, "sound")
    name = folder.offload(ledger_id, "unfinished")
    (folder.path / name.index_name).unlink()

    values, metrics = folder.read()

    assert values == ["sound"]
    assert (metrics.unfinished_ledgers, metrics.lost) == (1, {})
    (unfinished,) = open_catalog(str(folder.path)).contents.unfinished
    assert unfinished.name == name
    with pytest.warns(IncompleteReadWarning, match="1 data object has no index object"):
        open_topic(str(folder.path), TOPIC).to_table()


def test_unfinished_offload_is_told_once_for_all_partitions(folder: Folder) -> None:
    """It may be of any of them, but of one only."""
    for number in range(3):
        managed_ledger = f"{MANAGED_LEDGER}-partition-{number}"
        folder.offload(number, str(number), managed_ledger=managed_ledger)
    (folder.path / folder.offload(7, "unfinished").index_name).unlink()

    values, metrics = folder.read()

    assert values == ["0", "1", "2"]
    assert metrics.unfinished_ledgers == 1


def test_failed_attempt_beside_a_complete_copy_is_not_told(folder: Folder) -> None:
    """The broker tried again, and nothing is missing."""
    folder.offload(6, "sound")
    failed = folder.offload(6, "failed")
    (folder.path / failed.index_name).unlink()

    assert folder.values() == ["sound"]
    with warnings.catch_warnings(action="error"):
        dataset = open_topic(str(folder.path), TOPIC, value="raw")
        assert dataset.count_rows() == 1
    assert dataset.metrics.unfinished_ledgers == 0


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", TruncatedObjectError),
        (b"\xde\x47\xde\x47" + bytes(40), CorruptIndexError),
        (b"\xde\xad\x12\x34" + bytes(40), UnknownFormatError),
        (b"what is this?", UnknownFormatError),
    ],
    ids=["empty", "zeroes", "draft", "foreign"],
)
def test_index_that_tells_no_topic_may_belong_to_any(
    folder: Folder, content: bytes, error: type[PulsarOffloadError]
) -> None:
    """Nothing is lost silently: whichever topic is read, rows of it may stand there."""
    folder.offload(6, "sound")
    folder.offload(8, "sound", managed_ledger=_OTHER_LEDGER)
    name = folder.offload(7, "lost")
    folder.write(name.index_name, content)

    caught = _assert_lost(folder, error, topics=[TOPIC, _OTHER_TOPIC])

    assert (caught.object_key, caught.ledger_id) == (name.index_name, 7)


def test_name_of_no_topic_is_an_error(folder: Folder) -> None:
    """A managed ledger that is no persistent topic's cannot be given to any topic."""
    folder.offload(6, "sound")
    name = folder.offload(7, "lost", managed_ledger="not a managed ledger")

    error = _assert_lost(folder, FormatError)

    assert (error.object_key, error.ledger_id) == (name.index_name, 7)
    assert "not a managed ledger" in str(error)


def test_a_segment_that_cannot_be_read_may_be_of_any_topic(folder: Folder) -> None:
    """Objects of PIP-76 may hold any topic's messages."""
    folder.offload(6, "sound")
    folder.write(f"{_STREAMING_NAME}-index", b"")

    error = _assert_lost(folder, TruncatedObjectError)

    assert error.object_key == f"{_STREAMING_NAME}-index"


def test_a_segment_without_an_index_object_is_under_way(folder: Folder) -> None:
    """The index object is written last, and what it will say is in BookKeeper until then."""
    folder.offload(6, "sound")
    folder.write(_STREAMING_NAME, b"")

    values, metrics = folder.read(TOPIC)

    assert values == ["sound"]
    assert metrics.unfinished_ledgers == 1


def test_foreign_objects_are_passed_over(folder: Folder) -> None:
    """What no offloader of Pulsar names so is not looked into; a folder is only listed."""
    name = folder.offload(6, "sound")
    for foreign in ("README", f"{name.data_name}.bak", f"{name.data_name}-index2", "-index"):
        folder.write(foreign, b"foreign")
    (folder.path / "below").mkdir()
    shutil.copy(folder.path / name.index_name, folder.path / "below" / name.index_name)
    trace = RequestTrace()

    catalog = open_catalog(str(folder.path), trace=trace)

    assert [copy.name for copy in catalog.contents.copies] == [name]
    assert (trace.counts.list_requests, trace.counts.index_requests) == (2, 1)
    assert folder.values() == ["sound"]


def test_empty_bucket_has_no_topics(folder: Folder) -> None:
    """It can be opened; a topic in it cannot."""
    catalog = open_catalog(str(folder.path))

    assert catalog.topics() == []
    with pytest.raises(
        TopicNotFoundError,
        match=rf"no offloaded topic .*orders', nor any other; there is nothing at {folder.path}$",
    ):
        catalog.select("orders")


def test_a_wrong_prefix_is_told_by_what_lies_there(folder: Folder) -> None:
    """The URL, and the objects and folders there, show that it is another level than was meant."""
    folder.path.joinpath("index.html").write_text("<html>")
    for number in range(7):
        folder.path.joinpath(f"tenant-{number}").mkdir()

    with pytest.raises(
        TopicNotFoundError,
        match=rf"; {folder.path} has no offloaded ledger, but 1 other object \(index.html\) and"
        r" 7 folders \(tenant-0, tenant-1, .*tenant-4, …\)$",
    ):
        open_catalog(str(folder.path)).select("orders")


def test_a_topic_that_is_not_there_is_told_with_the_url(folder: Folder) -> None:
    """Whoever has several buckets sees which one was searched."""
    folder.offload(3, "one")

    with pytest.raises(TopicNotFoundError, match=rf"; {folder.path} has 1 offloaded ledger$"):
        open_catalog(str(folder.path)).select("nothing")


def test_bucket_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """A folder that does not exist is not taken for an empty one."""
    with pytest.raises(MissingObjectError, match="no such folder or prefix"):
        open_catalog(str(tmp_path / "nothing"))


def test_topics_are_in_order_of_names_and_numbers(folder: Folder) -> None:
    """Partition 10 stands behind partition 9, and both behind what is before them by name."""
    names = ["b-partition-10", "b-partition-9", "c", "a", "b-partition-x"]
    for number, name in enumerate(names):
        folder.offload(number, name, managed_ledger=f"public/default/persistent/{name}")

    topics = open_catalog(str(folder.path)).topics()

    assert [topic.local_name for topic in topics] == [
        "a",
        "b-partition-9",
        "b-partition-10",
        "b-partition-x",
        "c",
    ]


def test_index_that_is_deleted_meanwhile_is_an_error(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing may name what is gone when it is read: that is a ledger lost, not the bucket."""
    folder.offload(6, "sound")
    gone = object_name(7)
    listed = Location.list_folder

    def list_more(location: Location) -> FolderListing:
        listing = listed(location)
        return replace(listing, objects=[*listing.objects, ObjectInfo(gone.index_name, 100, None)])

    monkeypatch.setattr(Location, "list_folder", list_more)

    error = _assert_lost(folder, MissingObjectError)

    assert error.object_key == gone.index_name


@pytest.mark.parametrize("data_too", [True, False])
def test_ledger_that_is_deleted_meanwhile_is_no_ledger(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, *, data_too: bool
) -> None:
    """A broker that trims one topic while a bucket is opened does not lock the others out."""
    folder.offload(6, "sound")
    gone = folder.offload(7, "gone", managed_ledger=_OTHER_LEDGER)
    read = Location.read_object

    def delete_first(
        location: Location,
        name: str,
        *args: Any,  # noqa: ANN401
        **options: Any,  # noqa: ANN401
    ) -> ObjectContent:
        for deleted in (gone.index_name, gone.data_name)[: 1 + data_too]:
            (folder.path / deleted).unlink(missing_ok=True)
        return read(location, name, *args, **options)

    monkeypatch.setattr(Location, "read_object", delete_first)

    catalog = open_catalog(str(folder.path))

    assert [copy.name.ledger_id for copy in catalog.contents.copies] == [6]
    dataset = open_topic(str(folder.path), TOPIC, catalog=catalog)
    assert dataset.head(1)["__value__"].to_pylist() == [b"sound"]
    # Nothing tells of which topic the data object is that still lies there.
    assert dataset.metrics.unfinished_ledgers == (not data_too)


def test_refreshed_catalog_reads_new_indexes_only(folder: Folder) -> None:
    """What has not changed, by time and size, is not read again; what is gone is forgotten."""
    kept, gone = folder.offload(6, "kept"), folder.offload(7, "gone")
    changed = folder.offload(8, "old", age_s=100)
    trace = RequestTrace(keep_records=True)
    catalog = open_catalog(str(folder.path), trace=trace)
    (folder.path / gone.data_name).unlink()
    (folder.path / gone.index_name).unlink()
    folder.offload(8, "changed", name=changed)
    new = folder.offload(9, "new")
    before = len(trace.records)

    after: Catalog = catalog.refreshed()

    assert {record.name for record in trace.records[before:]} == {
        "",
        changed.index_name,
        new.index_name,
    }
    assert [copy.name for copy in after.contents.copies] == [kept, changed, new]
    dataset = open_topic(str(folder.path), TOPIC, catalog=after)
    assert dataset.to_table()["__value__"].to_pylist() == [b"kept", b"changed", b"new"]


def test_broken_index_is_read_again(folder: Folder) -> None:
    """What could not be read may be there now: only sound copies are remembered."""
    name = folder.offload(6, "sound")
    whole = (folder.path / name.index_name).read_bytes()
    folder.spoil(name.index_name, 40)
    contents = read_bucket(Location(str(folder.path)))
    assert contents.copies[0].error is not None
    folder.write(name.index_name, whole)

    assert read_bucket(Location(str(folder.path)), previous=contents).copies[0].error is None
