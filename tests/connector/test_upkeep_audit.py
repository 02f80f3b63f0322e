"""`connector.upkeep.audit.audit`: all that is wrong with a bucket is found, and nothing else."""

from __future__ import annotations

import gzip
import itertools
import json
import shutil
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.errors import StorageError
from connector import open_catalog
from connector.catalog.metadata.topic_metadata import LedgerInfo
from connector.catalog.snapshot.snapshot import begins_snapshot
from connector.upkeep.audit.audit import audit
from connector.upkeep.audit.cleaning import clean, plan_cleaning
from connector.upkeep.audit.findings import FINDING_SCHEMA, FindingKind, findings_table
from tests.support.admin_server import running_admin_server
from tests.support.bucket_faults import FAULTS, TARGETS, Found, copied
from tests.support.golden import GOLDEN, GOLDEN_SETS, golden_topic, golden_topics
from tests.support.owned_bucket import (
    LONG_AGO,
    OTHER_UUID,
    SINCE,
    SMALL,
    VALUE_FILE,
    OwnedBucket,
    gone,
    without_uuid,
)

if TYPE_CHECKING:
    from tests.support.bucket_faults import Fault, Target

CHUNKED = golden_topic("small-chunked")
TARGET = next(target for target in TARGETS if target.topic == CHUNKED)


@pytest.fixture
def bucket(tmp_path: Path) -> OwnedBucket:
    """A copy of the small golden set."""
    return OwnedBucket.copied(tmp_path)


def _found(bucket: OwnedBucket) -> set[Found]:
    findings = bucket.audited().findings
    found = {Found.of(each) for each in findings}
    assert len(found) == len(findings)
    return found


@pytest.mark.parametrize("set_name", GOLDEN_SETS)
def test_nothing_is_found_in_a_golden_bucket(set_name: str, tmp_path: Path) -> None:
    """With the metadata of its cluster: saved, live, or from a snapshot of either."""
    url, snapshot = str(GOLDEN / set_name / "objects"), tmp_path / "catalog.json.gz"
    with running_admin_server(set_name) as server:
        for metadata in (GOLDEN / set_name, server.url):
            catalog = open_catalog(url, metadata=metadata)
            found = audit(catalog, uploads=catalog.location.unfinished_uploads())
            assert (found.findings, found.has_metadata) == ((), True)
            catalog.save(snapshot)
            assert audit(open_catalog(url, metadata=snapshot)) == found


@pytest.mark.parametrize("set_name", GOLDEN_SETS)
def test_nothing_is_found_in_a_golden_bucket_alone(set_name: str) -> None:
    """A sound bucket shows nothing wrong by itself."""
    found = audit(open_catalog(str(GOLDEN / set_name / "objects")))
    assert (found.findings, found.has_metadata) == ((), False)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found(bucket: OwnedBucket, fault: Fault) -> None:
    """What is done to one ledger is found, and no other object is named."""
    assert _found(bucket) == set()
    expected = fault(bucket, TARGET)

    assert _found(bucket) == expected
    # In words, and as a table.
    findings = bucket.audited().findings
    assert all(each.text for each in findings)
    table = findings_table(findings)
    assert table.schema == FINDING_SCHEMA
    assert table["objects"].to_pylist() == [list(each.objects) for each in findings]


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_deletable_without_metadata(bucket: OwnedBucket, fault: Fault) -> None:
    """The bucket alone does not tell what is needed."""
    fault(bucket, TARGET)

    found = bucket.audited(metadata=None)

    assert not found.has_metadata
    assert not any(each.deletable for each in found.findings)


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_deletable_where_nothing_tells_the_cluster(
    bucket: OwnedBucket, fault: Fault
) -> None:
    """A folder does not, so whoever cleans it must say that one cluster wrote it."""
    expected = fault(bucket, TARGET)

    found = bucket.audited(is_one_cluster=False)

    assert {Found.of(each) for each in found.findings} == {
        replace(each, deletable=False) for each in expected
    }


def _damages() -> st.SearchStrategy[list[tuple[Target, Fault]]]:
    pairs = st.tuples(st.sampled_from(TARGETS), st.sampled_from(FAULTS))
    return st.lists(pairs, min_size=2, max_size=7, unique_by=lambda pair: pair[0].ledger.ledger_id)


@given(damages=_damages())
@settings(max_examples=25)
def test_all_damage_is_found_and_cleaning_costs_no_row(
    damages: list[tuple[Target, Fault]],
) -> None:
    """Several ledgers spoilt: it is found, nothing sound is named, and no row is lost."""
    with tempfile.TemporaryDirectory() as folder:
        bucket = OwnedBucket.copied(Path(folder))
        expected = _kept_with_losses([(target, fault(bucket, target)) for target, fault in damages])
        rows = bucket.rows()

        found = bucket.audited()

        assert {Found.of(each) for each in found.findings} == expected
        assert len(found.findings) == len(expected)
        plan = plan_cleaning(found, now=datetime.now(UTC), safety_age=timedelta(hours=1))
        cleaned = [each.finding for each in clean(bucket.catalog().location, plan)]
        assert {Found.of(each) for each in cleaned} == {e for e in expected if e.deletable}
        assert bucket.rows() == rows
        assert _found(bucket) == {each for each in expected if not each.deletable}


def _kept_with_losses(damages: list[tuple[Target, set[Found]]]) -> set[Found]:
    """What must be found; nothing of a topic with losses is deletable."""
    lossy = {target.topic for target, found in damages if any(each.is_loss for each in found)}
    return {
        replace(each, deletable=each.deletable and target.topic not in lossy)
        for target, found in damages
        for each in found
    }


def test_bookkeeper_copies_past_their_lag(bucket: OwnedBucket) -> None:
    """What BookKeeper should have deleted is named, ledger by ledger; no object is."""
    catalog = bucket.catalog()
    offloaded = [ledger for topic in catalog.topics() for ledger in catalog.ledgers(topic).ledgers]

    due = audit(catalog, deletion_lag=timedelta(hours=1)).findings

    assert sorted(each.ledger_id for each in offloaded) == sorted(
        each.ledger_id or 0 for each in due
    )
    assert {Found.of(each) for each in due} == {
        Found(FindingKind.BOOKKEEPER_COPY, each.ledger_id, ()) for each in offloaded
    }
    long = catalog.listed_at - datetime(2026, 11, 21, tzinfo=UTC)
    assert audit(catalog, deletion_lag=long).findings == ()
    assert audit(catalog, deletion_lag=timedelta.max).findings == ()
    assert audit(catalog).findings == ()


def test_deleted_bookkeeper_copies_are_not_named(bucket: OwnedBucket) -> None:
    """Nor is one whose offload was complete at a time that no calendar has."""

    def deleted(info: LedgerInfo) -> LedgerInfo:
        assert info.offload is not None
        return replace(info, offload=replace(info.offload, bookkeeper_deleted=True))

    def odd(info: LedgerInfo) -> LedgerInfo:
        assert info.offload is not None
        return replace(info, offload=replace(info.offload, timestamp_ms=2**63 - 1))

    bucket.change(CHUNKED.name, {14: deleted, 15: odd})

    due = audit(bucket.catalog(), deletion_lag=timedelta(hours=1)).findings

    chunked = {each.ledger_id for each in due if str(each.topic) == CHUNKED.name}
    assert chunked == set(range(16, 22))


@pytest.mark.parametrize(
    ("modified", "deletable"),
    [
        (LONG_AGO, True),
        (datetime(2026, 11, 21, 11, 48, tzinfo=UTC), True),
        # The metadata of the topic is of 12:49 at least; clocks may be an hour apart.
        (datetime(2026, 11, 21, 11, 50, tzinfo=UTC), False),
        (SINCE, False),
    ],
)
def test_objects_newer_than_the_metadata_are_kept(
    bucket: OwnedBucket, modified: datetime, *, deletable: bool
) -> None:
    """Saved metadata says nothing of what was written since; its own times tell its age."""
    bucket.copy_ledger(TARGET.ledger, modified=modified)

    (finding,) = bucket.audited().findings

    assert finding.modified == modified
    assert finding.deletable == deletable


def test_newer_of_both_objects_counts(bucket: OwnedBucket) -> None:
    """An index object that was just written makes the whole copy a new one."""
    name = bucket.copy_ledger(TARGET.ledger)
    bucket.age(name.index_name, SINCE)

    (finding,) = bucket.audited().findings

    assert (finding.modified, finding.deletable) == (SINCE, False)


def test_times_in_the_future_do_not_make_metadata_newer(bucket: OwnedBucket) -> None:
    """A broker whose clock is years ahead would let everything look old."""

    def ahead(info: LedgerInfo) -> LedgerInfo:
        return replace(info, timestamp_ms=32_503_680_000_000)

    bucket.copy_ledger(TARGET.ledger, modified=SINCE)
    bucket.change(CHUNKED.name, {15: ahead, 16: lambda info: replace(info, timestamp_ms=2**63 - 1)})

    (finding,) = bucket.audited().findings

    assert not finding.deletable


def test_live_metadata_is_newer_than_what_was_listed(bucket: OwnedBucket) -> None:
    """It is read behind the listing, so whatever it does not name was not needed then."""
    bucket.copy_ledger(TARGET.ledger, modified=SINCE)
    with running_admin_server(SMALL) as server:
        (live,) = bucket.audited(metadata=server.url).findings
    (saved,) = bucket.audited().findings

    assert (live.kind, live.deletable) == (FindingKind.DOUBLE, True)
    assert (saved.kind, saved.deletable) == (FindingKind.DOUBLE, False)


@pytest.mark.parametrize("shift", [0, 1_000])
def test_metadata_of_another_cluster_makes_nothing_deletable(
    bucket: OwnedBucket, shift: int
) -> None:
    """Where no ledger is there as the metadata says, it tells nothing of this bucket."""
    numbers = itertools.count(1)
    for topic in (each for each in golden_topics() if each.set_name == SMALL):
        known = bucket.known(topic.name)
        ledgers = []
        for info in known.ledgers:
            offload = info.offload and replace(info.offload, uuid=UUID(int=1_000 + next(numbers)))
            ledgers.append(replace(info, ledger_id=info.ledger_id + shift, offload=offload))
        bucket.tell(replace(known, ledgers=tuple(ledgers)))

    findings = bucket.audited().findings

    kinds = {FindingKind.MISSING, FindingKind.ORPHAN if shift else FindingKind.UNLISTED}
    assert {each.kind for each in findings} == kinds
    assert len(findings) == 2 * 29
    assert not any(each.deletable for each in findings)


def test_uploads_that_are_not_asked_for_are_foreign(bucket: OwnedBucket) -> None:
    """Every file of a folder is accounted for, whether uploads are looked at or not."""
    name = f"{OTHER_UUID}-ledger-14.0123456789abcdef.unfinished"
    bucket.write(name, b"")

    (finding,) = audit(bucket.catalog()).findings

    assert (finding.kind, finding.objects) == (FindingKind.FOREIGN, (name,))


def test_ledger_that_older_metadata_has_as_open_is_no_double(bucket: OwnedBucket) -> None:
    """Its only copy is newer than the metadata, so it is kept and nothing is lost by it."""
    last = CHUNKED.ledgers[-1]
    opened = {last.ledger_id: lambda info: LedgerInfo(ledger_id=info.ledger_id), 63: gone}
    bucket.change(CHUNKED.name, opened)

    (finding,) = bucket.audited().findings

    assert finding.kind == FindingKind.UNLISTED
    assert finding.objects == (last.index_object.name, last.data_object.name)
    assert (finding.is_loss, finding.deletable) == (False, False)
    assert finding.doubt is not None
    assert finding.doubt in finding.text


def test_ledgers_of_two_clusters_under_one_id_are_ambiguous(bucket: OwnedBucket) -> None:
    """Where no uuid is told, the newer one is not taken for the topic's without a word."""
    ledger = TARGET.ledger
    name = bucket.copy_ledger(ledger, modified=SINCE)
    bucket.change(CHUNKED.name, {ledger.ledger_id: without_uuid})
    assert [each.kind for each in bucket.audited().findings] == [FindingKind.DOUBLE]
    index = ledger.index_object.read_bytes()
    bookie = b"127.0.0.1:44861"
    assert bookie in index
    bucket.write(name.index_name, index.replace(bookie, b"127.0.0.1:44862"), SINCE)

    findings = bucket.audited().findings

    assert {each.kind for each in findings} == {FindingKind.AMBIGUOUS, FindingKind.UNLISTED}
    assert [each.is_loss for each in findings].count(True) == 1
    assert not any(each.deletable for each in findings)


def test_snapshot_in_the_bucket_is_no_foreign_object(bucket: OwnedBucket) -> None:
    """What was saved there is known by how it begins, not by its name alone."""
    bucket.catalog().save(bucket.objects / "catalog.json.gz")
    bucket.write("other.json.gz", gzip.compress(b'{"format":"pulsar-offload"}'))
    bucket.write("empty.json.gz", b"")
    bucket.write("text.json.gz", b'{"format":"pulsar-offload catalog"')

    findings = bucket.audited().findings

    assert {each.kind for each in findings} == {FindingKind.FOREIGN}
    names = [each.objects for each in findings]
    assert names == [("empty.json.gz",), ("other.json.gz",), ("text.json.gz",)]


def test_metadata_that_is_not_proven_whole_deletes_nothing(bucket: OwnedBucket) -> None:
    """A value alone may be a part of one; a second file that agrees proves it."""
    copied(bucket, TARGET)
    bucket.unprove(CHUNKED.name)
    (finding,) = bucket.audited().findings
    assert finding.doubt is not None
    assert finding.doubt.startswith("the metadata is not proven complete")

    info = "internal-info.json"
    shutil.copy(CHUNKED.folder / info, bucket.metadata / CHUNKED.folder.name / info)

    (finding,) = bucket.audited().findings
    assert finding.deletable


def test_ledgers_of_a_part_of_the_metadata_are_kept(bucket: OwnedBucket) -> None:
    """Wherever a value is cut, what it lost looks like an orphan, and is not deletable."""
    value = bucket.metadata / CHUNKED.folder.name / VALUE_FILE
    whole = value.read_bytes()
    bucket.unprove(CHUNKED.name)
    found = set()
    for length in range(0, len(whole), 41):
        value.write_bytes(whole[:length])
        findings = bucket.audited().findings
        assert not any(each.deletable for each in findings)
        found |= {each.kind for each in findings}
    assert FindingKind.ORPHAN in found


def test_deleted_topics_are_covered_where_the_bucket_is_of_one_live_cluster(
    bucket: OwnedBucket,
) -> None:
    """The cluster does not list the topic, and knows nothing of it when asked."""
    with running_admin_server(SMALL) as server:
        server.fails_unknown_info = True
        path = ("admin", "v2", "persistent", "public", "default")
        listed = json.loads(server.answers[path])
        server.answers[path] = json.dumps([e for e in listed if e != CHUNKED.name]).encode()
        for name in ("internal-info", "internalStats"):
            del server.answers[*path, "small-chunked", name]

        covered = bucket.audited(metadata=server.url).findings
        others = bucket.audited(metadata=server.url, is_one_cluster=False).findings

    assert [each.ledger_id for each in covered] == list(range(14, 22))
    assert {(each.kind, each.deletable) for each in covered} == {(FindingKind.ORPHAN, True)}
    assert {each.doubt for each in others} == {"the topic may be another cluster's"}


def test_object_that_may_not_be_read_is_foreign(
    bucket: OwnedBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object that is named as snapshots are, and refused, does not end the audit."""
    bucket.write("secret.json.gz", b"x")

    def refused(*_args: object, **_options: object) -> None:
        message = "403"
        raise StorageError(message)

    with monkeypatch.context() as patched:
        patched.setattr("arrow_io.storage.location.Location.read_range", refused)
        catalog = bucket.catalog()
        assert not begins_snapshot(catalog.location, "secret.json.gz")
