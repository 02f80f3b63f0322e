"""`connector.upkeep.audit.audit`: findings say whole what they are about, in one order."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from arrow_io.errors import MissingObjectError
from arrow_io.format.object_names import LedgerObjectName
from arrow_io.storage.store_uploads import temporary_path
from connector.catalog.metadata.topic_metadata import LedgerInfo
from connector.catalog.unfinished_offloads import UnfinishedOffloads
from connector.inputs.times import time_of
from connector.inputs.topic_names import TopicName
from connector.upkeep.audit.audit import audit
from connector.upkeep.audit.findings import REPAIRABLE, Finding, FindingKind, findings_table
from tests.support.bucket_faults import (
    FAULTS,
    TARGETS,
    attached_under_another_name,
    copied,
    copied_since,
    data_left_of_another_attempt,
    extra_bytes,
    foreign_file,
    index_alone,
    index_removed,
    lost_from_the_list,
    never_offloaded,
    newer_than_the_metadata,
    replaced_by_another_attempt,
    streaming_object,
    trimmed,
    upload_left,
    upload_under_way,
)
from tests.support.golden import golden_topic
from tests.support.owned_bucket import LONG_AGO, OTHER_UUID, VALUE_FILE, OwnedBucket

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.bucket_faults import Fault

CHUNKED: Final = golden_topic("small-chunked")
TARGET: Final = next(target for target in TARGETS if target.topic == CHUNKED)
TOPIC: Final = TopicName.parse(CHUNKED.name)
_OF_NO_TOPIC: Final = {FindingKind.FOREIGN, FindingKind.STREAMING}


@pytest.fixture
def bucket(tmp_path: Path) -> OwnedBucket:
    """A copy of the small golden set."""
    return OwnedBucket.copied(tmp_path)


def _modified(bucket: OwnedBucket, names: tuple[str, ...]) -> datetime | None:
    times = [(bucket.objects / name).stat().st_mtime for name in names]
    return datetime.fromtimestamp(max(times), UTC) if times else None


def _size(bucket: OwnedBucket, names: tuple[str, ...]) -> int:
    return sum((bucket.objects / name).stat().st_size for name in names)


@pytest.mark.parametrize("has_metadata", [True, False])
@pytest.mark.parametrize("fault", FAULTS)
def test_finding_tells_topic_bytes_and_time_of_its_objects(
    bucket: OwnedBucket, fault: Fault, *, has_metadata: bool
) -> None:
    """As they lie in the folder, for whoever decides what to do with them."""
    fault(bucket, TARGET)
    metadata: dict[str, Any] = {} if has_metadata else {"metadata": None}

    for each in bucket.audited(**metadata).findings:
        if each.kind == FindingKind.UNFINISHED_UPLOAD:
            assert each.upload_id == "0123456789abcdef"
            aside = temporary_path(each.objects[0], each.upload_id)
            assert (each.stored_bytes, each.modified) == (0, _modified(bucket, (aside,)))
        elif each.kind == FindingKind.EXTRA_BYTES:
            assert (each.stored_bytes, each.modified) == (6, LONG_AGO)
            assert each.text.startswith("6 bytes after the end")
        else:
            assert each.stored_bytes == _size(bucket, each.objects)
            assert each.modified == _modified(bucket, each.objects)
        if has_metadata and fault.__name__ != "attached_under_another_name":
            assert str(each.topic) == ("None" if each.kind in _OF_NO_TOPIC else CHUNKED.name), (
                each.kind
            )


_SINCE: Final = "it may have been written after the metadata"
_ONLY: Final = "no copy that the metadata names can be read instead"
_NAMED: Final = "the metadata names it: complete"


@pytest.mark.parametrize(
    ("fault", "kind", "words", "doubt"),
    [
        (copied, FindingKind.DOUBLE, "an additional copy: the one with uuid", None),
        (copied_since, FindingKind.DOUBLE, "an additional copy: the one with uuid", _SINCE),
        (index_alone, FindingKind.INDEX_WITHOUT_DATA, "an index object without its data", None),
        (index_removed, FindingKind.DATA_WITHOUT_INDEX, "the data object exists, but its", _NAMED),
        (replaced_by_another_attempt, FindingKind.UNLISTED, "the metadata, which may be", _ONLY),
        (data_left_of_another_attempt, FindingKind.DATA_WITHOUT_INDEX, "the data object", _ONLY),
        (never_offloaded, FindingKind.UNLISTED, "the metadata says it is not offloaded", _ONLY),
        (trimmed, FindingKind.ORPHAN, "the topic no longer has the ledger", None),
        (newer_than_the_metadata, FindingKind.UNLISTED, "the ledger is newer than the", None),
        (attached_under_another_name, FindingKind.ORPHAN, "a ledger of a topic that", _NAMED),
        (upload_left, FindingKind.UNFINISHED_UPLOAD, "an upload that was neither", None),
        (upload_under_way, FindingKind.UNFINISHED_UPLOAD, "an upload that was neither", _SINCE),
        (extra_bytes, FindingKind.EXTRA_BYTES, "6 bytes after the end that the index object", None),
        (
            lost_from_the_list,
            FindingKind.UNLISTED,
            "the metadata has earlier and later ledgers",
            None,
        ),
        (
            foreign_file,
            FindingKind.FOREIGN,
            "Pulsar's offloaders do not use this object name",
            None,
        ),
        (streaming_object, FindingKind.STREAMING, "an object of streaming offload", None),
    ],
)
def test_finding_says_what_it_is_and_why_it_is_kept(
    bucket: OwnedBucket, fault: Fault, kind: FindingKind, words: str, doubt: str | None
) -> None:
    """The doubt stands at the end of the words, and by itself."""
    fault(bucket, TARGET)

    (finding,) = (each for each in bucket.audited().findings if each.kind == kind)

    assert finding.text.startswith(words)
    assert finding.doubt == doubt
    assert ("; kept, because" in finding.text) == (doubt is not None)
    assert finding.text.endswith(doubt or "")
    assert (REPAIRABLE in finding.text) == (fault is index_removed)


def test_what_belongs_to_no_topic_is_kept_where_there_is_metadata(bucket: OwnedBucket) -> None:
    """Nothing tells whose it is; without metadata nothing is asked."""
    name = LedgerObjectName(OTHER_UUID, 77_777).data_name
    bucket.write(name, b"cut off")
    bucket.write(temporary_path(name, "0123456789abcdef"), b"cut off")

    bucket.write("backup.tar.0123456789abcdef.unfinished", b"")

    with_metadata, alone = bucket.audited().findings, bucket.audited(metadata=None).findings

    told = "nothing names its topic"
    assert [(each.ledger_id, each.doubt) for each in with_metadata] == [
        (None, None),
        (77_777, told),
        (77_777, told),
    ]
    assert [(each.ledger_id, each.doubt) for each in alone] == [
        (None, None),
        (77_777, None),
        (77_777, None),
    ]


def test_ledger_that_two_topics_have_is_neithers_attempt(bucket: OwnedBucket) -> None:
    """Two clusters give out the same ids, so a data object and an upload belong to no topic."""
    other = bucket.known("small-encrypted")
    strange = LedgerInfo(ledger_id=TARGET.ledger.ledger_id, entries=0)
    bucket.tell(replace(other, ledgers=(strange, *other.ledgers)))
    bucket.write(TARGET.other.data_name, b"cut off")
    bucket.write(temporary_path(TARGET.other.data_name, "0123456789abcdef"), b"cut off")

    findings = bucket.audited().findings

    assert [(each.topic, each.doubt) for each in findings] == [
        (None, "nothing names its topic")
    ] * 2


def test_malformed_metadata_is_the_only_finding_of_a_topic(bucket: OwnedBucket) -> None:
    """What should be there is not known; the cause is told, and nothing of it is deletable."""
    copied(bucket, TARGET)
    (bucket.metadata / CHUNKED.folder.name / VALUE_FILE).write_bytes(b"cut")

    (finding,) = bucket.audited().findings

    assert (finding.kind, finding.topic, finding.is_loss) == (FindingKind.METADATA, TOPIC, True)
    assert "cannot be read: managed-ledger-info.bin" in finding.text


def test_index_object_that_is_cut_is_told_as_cut(bucket: OwnedBucket) -> None:
    """It tells no topic, so without metadata it is one that cannot be read."""
    index_name, _ = TARGET.names
    bucket.write(index_name, TARGET.ledger.index_object.read_bytes()[:-20])

    (finding,) = bucket.audited().findings
    (alone,) = bucket.audited(metadata=None).findings

    assert (finding.kind, alone.kind) == (FindingKind.SIZE_MISMATCH, FindingKind.FORMAT_MISMATCH)
    assert (finding.ledger_id, alone.ledger_id) == (14, 14)
    assert finding.topic == TOPIC
    assert finding.is_loss
    assert alone.is_loss


def test_finding_is_a_row_of_the_table() -> None:
    """Each value under its own name; of what belongs to no topic, none."""
    whole = Finding(
        kind=FindingKind.DOUBLE,
        text="a further copy",
        objects=("index", "data"),
        topic=TOPIC,
        ledger_id=7,
        stored_bytes=12,
        modified=LONG_AGO,
        deletable=True,
    )
    lost = Finding(kind=FindingKind.MISSING, text="gone", is_loss=True)

    table = findings_table([whole, lost])
    columns = ["kind", "topic", "ledger_id", "objects", "bytes", "modified", "is_loss", "deletable"]
    assert table.column_names == [*columns, "text"]
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        ("double", CHUNKED.name, 7, ["index", "data"], 12, LONG_AGO, False, True, "a further copy"),
        ("missing", None, None, [], 0, None, True, False, "gone"),
    ]


def test_findings_are_by_topic_and_ledger_and_what_has_no_topic_is_last(
    bucket: OwnedBucket,
) -> None:
    """So that two audits of one bucket tell the same, and a reader finds a topic at one place."""
    by_topic = sorted(TARGETS, key=lambda each: (each.topic.name, each.ledger.ledger_id))
    assert by_topic != sorted(TARGETS, key=lambda each: each.ledger.ledger_id)
    for target in reversed(by_topic):
        copied(bucket, target)
    bucket.write(LedgerObjectName(OTHER_UUID, 5).data_name, b"cut off")
    bucket.write(LedgerObjectName(OTHER_UUID, 0).data_name, b"cut off")
    foreign_file(bucket, TARGET)
    bucket.write("0-of-another-tool", b"")

    found = [(str(each.topic), each.ledger_id) for each in bucket.audited().findings]

    of_topics = [(each.topic.name, each.ledger.ledger_id) for each in by_topic]
    assert found == [*of_topics, ("None", None), ("None", None), ("None", 0), ("None", 5)]
    names = [each.objects for each in bucket.audited().findings if each.ledger_id is None]
    assert names == sorted(names)


def test_bookkeeper_copy_is_due_when_its_lag_has_passed(bucket: OwnedBucket) -> None:
    """Not before; the finding names the topic, the ledger and the time."""
    (info,) = (each for each in bucket.known(CHUNKED.name).ledgers if each.ledger_id == 17)
    assert info.offload is not None
    offloaded = time_of(info.offload.timestamp_ms or 0)
    assert offloaded is not None
    catalog = bucket.catalog()
    lag = catalog.listed_at - offloaded

    due = [each for each in audit(catalog, deletion_lag=lag).findings if each.ledger_id == 17]

    (finding,) = due
    assert finding.topic == TOPIC
    assert f"offloaded at {offloaded:%F %T} UTC" in finding.text
    later = audit(catalog, deletion_lag=lag + timedelta(microseconds=1)).findings
    assert 17 not in [each.ledger_id for each in later]


def test_bookkeeper_copy_of_which_nothing_tells_the_time_is_not_due(bucket: OwnedBucket) -> None:
    """Nor is it an error."""

    def untimed(info: LedgerInfo) -> LedgerInfo:
        assert info.offload is not None
        offload = replace(info.offload, timestamp_ms=None, bookkeeper_deleted=False)
        return replace(info, offload=offload)

    bucket.change(CHUNKED.name, {17: untimed})

    found = audit(bucket.catalog(), deletion_lag=timedelta(0)).findings

    assert 17 not in [each.ledger_id for each in found]


def test_data_deleted_since_the_listing_is_told_as_that(
    bucket: OwnedBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be asked of it any more, and nothing is wrong with it."""
    name = LedgerObjectName(OTHER_UUID, 17)
    bucket.write(name.data_name, b"cut off")

    def topic(*_args: object) -> TopicName:
        message = "gone"
        raise MissingObjectError(message)

    monkeypatch.setattr(UnfinishedOffloads, "topic", topic)

    (finding,) = bucket.audited().findings

    assert finding.text == "a data object that was deleted since the bucket was listed"
    assert (finding.objects, finding.ledger_id) == ((name.data_name,), 17)
    assert not finding.deletable


def _losses_alone(bucket: OwnedBucket) -> list[tuple[FindingKind, int | None]]:
    """Those that the bucket shows without metadata."""
    return [(each.kind, each.ledger_id) for each in bucket.audited(metadata=None).losses]


def test_data_without_index_is_a_loss_where_ledgers_are_behind_it(
    bucket: OwnedBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without metadata: the last may be under way, and of another attempt nothing is lost."""
    monkeypatch.setattr(
        UnfinishedOffloads, "topic", lambda _, name: TOPIC if name.ledger_id < 22 else None
    )
    unfinished = FindingKind.DATA_WITHOUT_INDEX
    bucket.write(LedgerObjectName(OTHER_UUID, 17).data_name, b"cut off")
    assert _losses_alone(bucket) == []
    bucket.delete(CHUNKED.ledgers[-1].index_object.name)
    assert _losses_alone(bucket) == []
    index_removed(bucket, TARGET)
    assert _losses_alone(bucket) == [(unfinished, TARGET.ledger.ledger_id)]
    others = [each for each in CHUNKED.ledgers[:-1] if each is not TARGET.ledger]
    for ledger in others:
        bucket.delete(ledger.data_object.name)
    alone = FindingKind.INDEX_WITHOUT_DATA
    assert _losses_alone(bucket) == [(alone, each.ledger_id) for each in others]
    for ledger in others:
        bucket.delete(ledger.index_object.name)
    assert _losses_alone(bucket) == []


def test_index_that_tells_no_topic_is_a_loss_without_metadata(bucket: OwnedBucket) -> None:
    """It may be any topic's; metadata would tell which ledger is lost."""
    damaged = LedgerObjectName(OTHER_UUID, 99_999)
    bucket.write(damaged.index_name, b"no index block")
    alone = FindingKind.INDEX_WITHOUT_DATA
    assert _losses_alone(bucket) == [(alone, 99_999)]
    bucket.write(damaged.data_name, b"no data")
    assert _losses_alone(bucket) == [(FindingKind.FORMAT_MISMATCH, 99_999)]

    (finding,) = bucket.audited().findings

    assert (finding.kind, finding.is_loss) == (FindingKind.FORMAT_MISMATCH, False)
    assert finding.objects == (damaged.index_name, damaged.data_name)
    assert finding.text
