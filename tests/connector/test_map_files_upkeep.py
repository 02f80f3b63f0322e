"""Buckets with MapFiles in the hands of their owner: audit, cleaning, repair and verification."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from arrow_io.format.object_names import MapFileName
from connector import open_catalog
from connector.inputs.topic_names import TopicName
from connector.upkeep.audit.audit import audit
from connector.upkeep.audit.cleaning import clean, plan_cleaning
from connector.upkeep.audit.findings import FindingKind
from connector.upkeep.repair.repair import plan_repair, repair
from connector.upkeep.verify.verification import verify
from tests.support.command_line import FOUND, OK, UNREADABLE, lines_of, run
from tests.support.golden import GOLDEN, MAP_FILE_SETS, GoldenLedger, map_file_topics
from tests.support.owned_bucket import (
    LONG_AGO,
    OTHER_UUID,
    OwnedBucket,
    gone,
    not_offloaded,
    under_way,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from connector.upkeep.audit.findings import Finding

_SET = "filesystem-4.0.8-broker-record"
_TOPICS = [each for each in map_file_topics() if each.set_name == _SET]
(_TOPIC,) = (each for each in _TOPICS if each.name.endswith("r-multi-ledger"))


@pytest.fixture
def bucket(tmp_path: Path) -> OwnedBucket:
    """A copy of the set in records, with its metadata."""
    return OwnedBucket.copied(tmp_path, _SET)


def _name_of(ledger: GoldenLedger) -> MapFileName:
    return MapFileName(_TOPIC.managed_ledger, UUID(ledger.uuid), ledger.ledger_id)


def _name(ledger_id: int) -> MapFileName:
    return next(_name_of(each) for each in _TOPIC.ledgers if each.ledger_id == ledger_id)


def _files(bucket: OwnedBucket, folder: str = "") -> dict[str, bytes]:
    return {
        str(path.relative_to(bucket.objects)): path.read_bytes()
        for path in (bucket.objects / folder).rglob("*")
        if path.is_file()
    }


def _cut(bucket: OwnedBucket, name: MapFileName) -> None:
    """Leave what a full disk leaves of an offload that the broker calls complete."""
    data = (bucket.objects / name.data_name).read_bytes()
    bucket.write(name.data_name, data[: len(data) * 2 // 3])
    for each in (name.index_name, *name.checksum_names):
        bucket.write(each, b"")


def _copy(bucket: OwnedBucket, name: MapFileName, uuid: UUID = OTHER_UUID) -> MapFileName:
    """Copy a folder under another uuid."""
    copy = MapFileName(name.managed_ledger, uuid, name.ledger_id)
    shutil.copytree(bucket.objects / name.folder, bucket.objects / copy.folder)
    return copy


def _finding(bucket: OwnedBucket, kind: FindingKind) -> Finding:
    (finding,) = (each for each in bucket.audited().findings if each.kind is kind)
    return finding


# Audit


@pytest.mark.parametrize("set_name", MAP_FILE_SETS)
def test_golden_buckets_are_sound(set_name: str) -> None:
    """Neither with metadata nor without it does a bucket of a broker have a finding."""
    for metadata in (None, GOLDEN / set_name):
        catalog = open_catalog(str(GOLDEN / set_name / "objects"), metadata=metadata)
        assert audit(catalog).findings == ()
        for each in verify(catalog.every_ledger()):
            assert not each.problems


def test_empty_folders_are_normal(bucket: OwnedBucket) -> None:
    """Pulsar deletes the folder of a ledger, never that of its topic."""
    (bucket.objects / "public/default/persistent/deleted").mkdir()
    (bucket.objects / "public/empty/persistent").mkdir(parents=True)
    (bucket.objects / "tenant").mkdir()

    assert bucket.audited().findings == ()


def test_data_that_pulsar_lost_is_a_loss(bucket: OwnedBucket) -> None:
    """A broker on a full disk says that an offload is complete, and its end was never written."""
    name = _name(15)
    _cut(bucket, name)

    finding = _finding(bucket, FindingKind.SIZE_MISMATCH)

    assert (finding.ledger_id, finding.is_loss, finding.deletable) == (15, True, False)
    assert "the metadata says that the ledger is offloaded, but the" in finding.text
    assert name.data_name in finding.objects


@pytest.mark.parametrize("change", [under_way, not_offloaded])
def test_an_offload_in_progress_is_no_loss(
    bucket: OwnedBucket, change: Callable[..., object]
) -> None:
    """Its messages are still in BookKeeper; its folder is kept."""
    _cut(bucket, _name(22))
    bucket.change(_TOPIC.name, {22: change})  # type: ignore[dict-item]

    finding = _finding(bucket, FindingKind.UNFINISHED)

    assert (finding.ledger_id, finding.is_loss, finding.deletable) == (22, False, False)
    assert len(finding.objects) == 4


def test_without_metadata_an_unfinished_folder_is_reported(bucket: OwnedBucket) -> None:
    """It may be under way or lost: the text says how to find out."""
    _cut(bucket, _name(22))

    (finding,) = audit(open_catalog(str(bucket.objects))).findings

    assert (finding.kind, finding.ledger_id, finding.is_loss) == (FindingKind.UNFINISHED, 22, True)
    assert "open the topic with metadata" in finding.text


def test_a_failed_attempt_beside_the_complete_one(bucket: OwnedBucket) -> None:
    """What a killed broker left of an earlier attempt is not needed."""
    copy = _copy(bucket, _name(15))
    _cut(bucket, copy)

    finding = _finding(bucket, FindingKind.UNFINISHED)

    assert (finding.ledger_id, finding.is_loss, finding.deletable) == (15, False, True)
    assert {each.rpartition("/")[2] for each in finding.objects} == {
        "data", "index", ".data.crc", ".index.crc"
    }  # fmt: skip


@pytest.mark.parametrize(
    "damage",
    [b"", b"SEQ", b"SEQ\x06" + bytes(200), None],
    ids=["empty", "cut", "other", "checksum"],
)
def test_an_index_that_only_brokers_need(bucket: OwnedBucket, damage: bytes | None) -> None:
    """All messages can be read, by us alone: not a loss, but a finding that repair mends."""
    name, rows = _name(15), bucket.rows()
    if damage is None:
        bucket.write(name.checksum_names[0], b"crc\0\0\0\2\0" + bytes(4))
    else:
        bucket.write(name.index_name, damage)

    finding = _finding(bucket, FindingKind.FORMAT_MISMATCH)

    assert (finding.ledger_id, finding.is_loss, finding.deletable) == (15, False, False)
    assert "brokers cannot read the ledger" in finding.text
    assert "repair can rebuild the index" in finding.text
    assert bucket.rows() == rows


def test_objects_of_nobody(bucket: OwnedBucket) -> None:
    """Stray files, and checksums without their file, are foreign; none is deleted."""
    folder = "public/default/persistent/r-multi-ledger"
    strays = {
        f"{folder}/note.txt",
        f"{_name(15).folder}/data.bak",
        f"{folder}/99-{OTHER_UUID}/.data.crc",
        "public/default/persistent/loose",
    }
    (bucket.objects / folder / f"99-{OTHER_UUID}").mkdir()
    for each in strays:
        bucket.write(each, b"?")

    found = bucket.audited().findings

    assert {each.kind for each in found} == {FindingKind.FOREIGN}
    assert {name for each in found for name in each.objects} == strays
    assert not any(each.deletable for each in found)


# Cleaning


def _clean(bucket: OwnedBucket, safety_age: timedelta = timedelta(0)) -> set[str]:
    """Clean the bucket, and return the names of the deleted objects."""
    catalog = bucket.catalog()
    found = audit(catalog, is_one_cluster=True)
    plan = plan_cleaning(found, now=datetime.now(UTC), safety_age=safety_age)
    return {name for each in clean(catalog.location, plan) for name in each.finding.objects}


def test_an_orphan_is_deleted_with_its_folder(bucket: OwnedBucket) -> None:
    """The files of a trimmed ledger and its folder go; those of other ledgers and topics stay."""
    bucket.change(_TOPIC.name, {14: gone})
    before = _files(bucket)
    orphan = _files(bucket, _name(14).folder)
    assert len(orphan) == 4

    assert _clean(bucket) == orphan.keys()

    assert _files(bucket) == {name: data for name, data in before.items() if name not in orphan}
    assert not (bucket.objects / _name(14).folder).exists()
    assert (bucket.objects / _name(15).folder).exists()
    assert bucket.audited().findings == ()


def test_the_last_ledger_of_a_topic_leaves_its_folder(bucket: OwnedBucket) -> None:
    """As with Pulsar: the folder of the topic stays."""
    bucket.change(_TOPIC.name, {each.ledger_id: gone for each in _TOPIC.ledgers[:-1]})

    _clean(bucket)

    topic = bucket.objects / "public/default/persistent/r-multi-ledger"
    assert [each.name for each in topic.iterdir()] == [_name(22).folder.rpartition("/")[2]]


def test_a_folder_with_another_file_stays(bucket: OwnedBucket) -> None:
    """Only what the finding names is deleted."""
    bucket.change(_TOPIC.name, {14: gone})
    stray = f"{_name(14).folder}/note.txt"
    bucket.write(stray, b"?")

    _clean(bucket)

    assert _files(bucket, _name(14).folder) == {stray: b"?"}


def test_young_folders_stay(bucket: OwnedBucket) -> None:
    """One file of the folder that is young keeps all of it."""
    copy = _copy(bucket, _name(15))
    _cut(bucket, copy)
    bucket.write(copy.checksum_names[1], b"", datetime.now(UTC))

    assert _clean(bucket, safety_age=timedelta(days=1)) == set()
    assert len(_files(bucket, copy.folder)) == 4


def test_young_checksums_of_a_folder_without_index_stay(bucket: OwnedBucket) -> None:
    """A finding is as old as its newest file."""
    copy = _copy(bucket, _name(15))
    bucket.delete(copy.index_name, copy.checksum_names[0])
    bucket.write(copy.checksum_names[1], b"", datetime.now(UTC))

    assert _clean(bucket, safety_age=timedelta(days=1)) == set()

    bucket.age(copy.checksum_names[1], LONG_AGO)
    assert _clean(bucket, safety_age=timedelta(days=1)) == {copy.data_name, copy.checksum_names[1]}


def test_another_copy_stays_while_brokers_cannot_read_the_one_that_counts(
    bucket: OwnedBucket,
) -> None:
    """Something happened to the folder that counts, so the other is kept until it is repaired."""
    copy = _copy(bucket, _name(15))
    bucket.write(_name(15).index_name, b"")

    assert _clean(bucket) == set()
    assert "brokers cannot read" in str(_finding(bucket, FindingKind.DOUBLE).doubt)

    assert set(_repair(bucket)) == {None}
    assert _clean(bucket) == {copy.data_name, copy.index_name, *copy.checksum_names}


@pytest.mark.parametrize("deleted", range(4))
def test_a_run_that_is_killed_is_continued(
    bucket: OwnedBucket, deleted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is left of a folder, the next run deletes it."""
    copy = _copy(bucket, _name(15))
    unlinked: list[object] = []
    unlink = os.unlink

    def killed(path: str, *args: object, **options: object) -> None:
        if len(unlinked) == deleted:
            raise KeyboardInterrupt
        unlinked.append(path)
        unlink(path, *args, **options)  # type: ignore[arg-type]

    for name in ("unlink", "remove"):
        monkeypatch.setattr(os, name, killed)
    with pytest.raises(KeyboardInterrupt):
        _clean(bucket)
    monkeypatch.undo()
    assert len(_files(bucket, copy.folder)) == 4 - deleted
    assert (bucket.objects / copy.index_name).exists() == (deleted == 0)

    _clean(bucket)

    assert not (bucket.objects / copy.folder).exists()
    assert bucket.audited().findings == ()


# Repair


def _repair(bucket: OwnedBucket, *ledger_ids: int) -> list[str | None]:
    """Repair the bucket, and return why indexes were not written."""
    catalog = bucket.catalog()
    plan = plan_repair(catalog, ledger_ids, verify=True)
    return [each.refusal for each in repair(catalog.location, plan)]


@pytest.mark.parametrize("set_name", MAP_FILE_SETS)
@pytest.mark.parametrize("damage", ["lost", "empty", "marker", "checksum"])
def test_each_golden_index_is_rebuilt_as_it_was(
    set_name: str, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte, with its checksums; only a lost sync marker is random."""
    bucket = OwnedBucket.copied(tmp_path, set_name)
    before = _files(bucket)
    for name, data in before.items():
        is_index, is_checksum = name.endswith("/index"), name.endswith("/.index.crc")
        if damage == "lost" and (is_index or is_checksum):
            bucket.delete(name)
        elif is_index and damage in {"empty", "marker"}:
            # The header, whose last 16 bytes are the sync marker, is 137 bytes long.
            bucket.write(name, data[: {"empty": 0, "marker": 140}[damage]])
        elif is_checksum and damage == "checksum":
            bucket.write(name, b"crc\0\0\0\2\0" + bytes(4))
    if damage in {"lost", "empty"}:
        monkeypatch.setattr(os, "urandom", lambda count: b"m" * count)

    refusals = _repair(bucket)

    assert set(refusals) == {None}
    after = _files(bucket)
    assert after.keys() == before.keys()
    if damage in {"lost", "empty"}:
        indexes = [name for name in before if name.endswith("/index")]
        markers = {name: before[name][121:137] for name in indexes}
        assert {name: after[name].replace(b"m" * 16, markers[name]) for name in indexes} == {
            name: before[name] for name in indexes
        }
        assert all(after[each] == before[each] for each in before if each.endswith("data"))
    else:
        assert after == before
    assert bucket.audited().findings == ()
    assert _repair(bucket) == []


def test_a_run_that_is_killed_between_both_files(
    bucket: OwnedBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checksums are written first; without the index they are nothing, and are rewritten."""
    name, rows = _name(15), bucket.rows()
    bucket.delete(name.index_name, name.checksum_names[0])

    with monkeypatch.context() as patch:

        def killed(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr("connector.upkeep.repair.repair._write", killed)
        with pytest.raises(KeyboardInterrupt):
            _repair(bucket)
    assert (bucket.objects / name.checksum_names[0]).exists()
    assert not (bucket.objects / name.index_name).exists()

    assert _repair(bucket) == [None]
    assert bucket.audited().findings == ()
    assert bucket.rows() == rows


def test_a_folder_without_checksums_gets_none(bucket: OwnedBucket) -> None:
    """HDFS and object stores have no files of checksums."""
    name = _name(15)
    bucket.delete(name.index_name, *name.checksum_names)

    assert _repair(bucket) == [None]
    assert {each.rpartition("/")[2] for each in _files(bucket, name.folder)} == {"data", "index"}
    assert bucket.audited().findings == ()


@pytest.mark.parametrize("data_bytes", [0, 100, 300, 5000, -1])
def test_incomplete_data_is_refused(bucket: OwnedBucket, data_bytes: int) -> None:
    """No index is made that would make brokers believe in a whole ledger."""
    name = _name(15)
    bucket.write(name.data_name, (bucket.objects / name.data_name).read_bytes()[:data_bytes])
    bucket.delete(name.index_name)
    before = _files(bucket)

    (refusal,) = _repair(bucket)

    assert refusal is not None
    assert name.data_name in refusal
    assert _files(bucket) == before


@pytest.mark.parametrize("change", [under_way, not_offloaded, gone])
def test_an_offload_in_progress_is_left_alone(
    bucket: OwnedBucket, change: Callable[..., object]
) -> None:
    """A broker may be writing the folder."""
    _cut(bucket, _name(15))
    bucket.change(_TOPIC.name, {15: change})  # type: ignore[dict-item]
    before = _files(bucket)

    assert None not in _repair(bucket)
    assert _files(bucket) == before


def test_a_sound_index_is_compared_by_request(bucket: OwnedBucket) -> None:
    """A ledger that is named is compared even if nothing is wrong with it."""
    (refusal,) = _repair(bucket, 15)

    assert refusal == "the index object matches the data object"


# Verification


def test_verification_finds_damaged_files(bucket: OwnedBucket) -> None:
    """Entries have checksums of their own; the others are compared with the `.crc` files."""
    data = bytearray((bucket.objects / _name(15).data_name).read_bytes())
    data[len(data) // 2] ^= 1
    bucket.write(_name(15).data_name, bytes(data))
    bucket.write(_name(16).checksum_names[1], b"crc\0\0\0\2\0" + bytes(4))

    catalog = bucket.catalog()
    found = {
        each.ledger_id: [*each.problems]
        for each in verify([catalog.ledgers(TopicName.parse(_TOPIC.name))])
    }

    assert sorted(ledger_id for ledger_id, problems in found.items() if problems) == [15, 16]
    assert "differ from their CRC-32" in str(found[16])


# Commands


def test_commands_of_the_owner(bucket: OwnedBucket) -> None:
    """Audit, repair and clean print what they found and did, and exit accordingly."""
    arguments = str(bucket.objects), "--metadata", str(bucket.metadata)
    bucket.write(_name(15).index_name, b"")
    bucket.change(_TOPIC.name, {14: gone})

    found = {row["kind"]: row for row in lines_of("audit", *arguments, ends=FOUND)}
    assert set(found) == {"format mismatch", "orphan"}
    planned = run("repair", *arguments, ends=OK)
    assert "1 index object would be written by --yes" in planned.stdout
    (row,) = lines_of("repair", *arguments, "--yes")
    assert (row["ledger_id"], row["entries"], row["blocks"]) == (15, 40, 1)
    assert row["object"] == _name(15).index_name
    run("clean", *arguments, "--one-cluster", "--safety-age", "0d", "--yes", ends=OK)
    assert lines_of("audit", *arguments) == []
    _cut(bucket, _name(15))
    result = run("repair", *arguments, ends=UNREADABLE)
    assert f"kept: {_name(15).index_name}: " in result.stderr


def test_a_verifying_audit_tells_a_loss_from_what_brokers_lack(bucket: OwnedBucket) -> None:
    """Wrong checksum files are reported once each, and no message is lost by them."""
    arguments = str(bucket.objects), "--metadata", str(bucket.metadata), "--verify"
    bucket.write(_name(15).checksum_names[0], b"crc\0\0\0\2\0" + bytes(4))
    bucket.write(_name(16).checksum_names[1], b"crc\0\0\0\2\0" + bytes(4))

    found = lines_of("audit", *arguments, ends=FOUND)

    assert [(row["ledger_id"], row["is_loss"]) for row in found] == [(15, False), (16, False)]
    data = bytearray((bucket.objects / _name(17).data_name).read_bytes())
    data[len(data) // 2] ^= 1
    bucket.write(_name(17).data_name, bytes(data))
    losses = [row for row in lines_of("audit", *arguments, ends=UNREADABLE) if row["is_loss"]]
    assert {row["ledger_id"] for row in losses} == {17}


def test_listings_of_the_owner(bucket: OwnedBucket) -> None:
    """The commands that list blocks, objects and ledgers have each file and entry."""
    url, topic = str(bucket.objects), _TOPIC.name
    files = _files(bucket, "public/default/persistent/r-multi-ledger")

    blocks = lines_of("blocks", url, topic)
    objects = lines_of("objects", url, topic)
    ledgers = lines_of("ledgers", url, topic)

    assert sum(row["last_entry_id"] - row["first_entry_id"] + 1 for row in blocks) == sum(
        e.entry_count for e in _TOPIC.ledgers
    )
    assert sum(row["entries"] for row in ledgers) == sum(e.entry_count for e in _TOPIC.ledgers)
    names = {row["object"] for row in objects}
    assert names == files.keys()
