"""`connector.upkeep.audit.audit` on S3: multipart uploads, and buckets of several clusters."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pytest

from arrow_io.format.index_block import (
    CLUSTER_NAME_KEY,
    FORMAT_VERSION,
    FORMAT_VERSION_KEY,
    MANAGED_LEDGER_NAME_KEY,
)
from arrow_io.format.object_names import LedgerObjectName
from arrow_io.storage.location import Location
from connector import open_catalog
from connector.upkeep.audit.audit import audit
from connector.upkeep.audit.cleaning import clean, plan_cleaning
from connector.upkeep.audit.findings import FindingKind
from tests.support.admin_server import AdminServer, running_admin_server
from tests.support.buckets import golden_objects
from tests.support.golden import GOLDEN, golden_topic
from tests.support.owned_bucket import OTHER_UUID, SMALL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from connector import Catalog
    from connector.upkeep.audit.audit import Audit
    from connector.upkeep.audit.cleaning import Deletion
    from connector.upkeep.audit.findings import Finding
    from tests.support.golden import GoldenLedger
    from tests.support.s3_server import S3Address, S3Server

pytestmark = pytest.mark.s3

CHUNKED: Final = golden_topic("small-chunked")
ENCRYPTED: Final = golden_topic("small-encrypted")
SAVED: Final = {topic.name: topic.folder for topic in (CHUNKED, ENCRYPTED)}
"""Saved metadata of the same topics."""
OWN: Final = "standalone"
"""The cluster that wrote the golden sets."""


@pytest.fixture(scope="module")
def admin() -> Iterator[AdminServer]:
    """The cluster, which knows now what it needs, and has some of the golden topics."""
    with running_admin_server(SMALL) as server:
        topics = json.dumps([CHUNKED.name, ENCRYPTED.name]).encode()
        server.answers["admin", "v2", "persistent", "public", "default"] = topics
        yield server


@dataclass(frozen=True)
class Bucket:
    """A golden bucket on S3, as its broker left it."""

    server: S3Server
    address: S3Address
    admin: AdminServer

    @property
    def name(self) -> str:
        """The bucket's name."""
        return self.address.url.removeprefix("s3://")

    @property
    def location(self) -> Location:
        """The bucket."""
        return Location(self.address.url, self.address.storage_options)

    def put(self, name: str, data: bytes, user_metadata: Mapping[str, str]) -> None:
        """Write an object."""
        self.server.client.put_object(
            Bucket=self.name, Key=name, Body=data, Metadata=dict(user_metadata)
        )

    def copy_ledger(
        self, ledger: GoldenLedger, cluster: str | None, name: LedgerObjectName | None = None
    ) -> LedgerObjectName:
        """Copy a ledger under another uuid, as a cluster would have written it."""
        name = name or LedgerObjectName(OTHER_UUID, ledger.ledger_id)
        metadata = _user_metadata(cluster)
        self.put(name.data_name, ledger.data_object.read_bytes(), metadata)
        self.put(name.index_name, ledger.index_object.read_bytes(), metadata)
        return name

    def begin_upload(self, name: str) -> str:
        """Begin a multipart upload, and write a part of it."""
        client, address = self.server.client, {"Bucket": self.name, "Key": name}
        upload_id: str = client.create_multipart_upload(**address)["UploadId"]
        client.upload_part(**address, UploadId=upload_id, PartNumber=1, Body=b"part")
        return upload_id

    def uploads(self) -> list[str]:
        """Ids of the uploads that are not complete."""
        answer = self.server.client.list_multipart_uploads(Bucket=self.name)
        return [each["UploadId"] for each in answer.get("Uploads", ())]

    def catalog(self, **options: Any) -> Catalog:  # noqa: ANN401 - those of open_catalog
        """The catalog, with the live metadata."""
        options = {"metadata": self.admin.url, **options}
        return open_catalog(
            self.address.url, storage_options=self.address.storage_options, **options
        )

    def audit(self, *, is_one_cluster: bool = False) -> Audit:
        """What an audit of the bucket and its uploads finds."""
        catalog = self.catalog()
        uploads = catalog.location.unfinished_uploads()
        return audit(catalog, uploads=uploads, is_one_cluster=is_one_cluster)

    def findings(self) -> Sequence[Finding]:
        """What it finds where nothing is known of the clusters."""
        return self.audit().findings

    def cleaned(self, safety_age: timedelta) -> list[Deletion]:
        """Clean the bucket."""
        plan = plan_cleaning(self.audit(), now=datetime.now(UTC), safety_age=safety_age)
        return list(clean(self.location, plan))


def _user_metadata(cluster: str | None) -> dict[str, str]:
    metadata = {
        FORMAT_VERSION_KEY: FORMAT_VERSION,
        MANAGED_LEDGER_NAME_KEY: CHUNKED.managed_ledger,
    }
    return metadata if cluster is None else metadata | {CLUSTER_NAME_KEY: cluster}


@pytest.fixture
def bucket(s3_server: S3Server, admin: AdminServer) -> Bucket:
    """The objects of these topics, as their broker left them."""
    described = json.loads((GOLDEN / SMALL / "objects.json").read_text())
    bucket = Bucket(s3_server, s3_server.upload({}), admin)
    for topic in (CHUNKED, ENCRYPTED):
        for name, data in golden_objects(topic).items():
            bucket.put(name, data, described[name]["user_metadata"])
    return bucket


def test_nothing_is_found_in_a_golden_bucket(bucket: Bucket) -> None:
    """As its broker left it, with live metadata."""
    assert bucket.findings() == ()


def test_open_upload_is_found_and_aborted(bucket: Bucket) -> None:
    """It takes space that no listing shows. The server says of any that it was begun in 2010."""
    name = LedgerObjectName(OTHER_UUID, CHUNKED.ledgers[0].ledger_id).data_name
    upload_id = bucket.begin_upload(name)

    (finding,) = bucket.findings()

    assert (finding.kind, finding.objects) == (FindingKind.UNFINISHED_UPLOAD, (name,))
    assert (finding.upload_id, finding.deletable) == (upload_id, True)
    assert str(finding.topic) == CHUNKED.name
    (done,) = bucket.cleaned(timedelta(days=7))
    assert done.finding.upload_id == upload_id
    assert bucket.uploads() == []
    assert bucket.findings() == ()


@pytest.mark.parametrize("metadata", ["live", "saved"])
def test_upload_that_was_just_begun_is_kept(bucket: Bucket, metadata: str) -> None:
    """It may be of a ledger that was closed since the metadata was saved; or is too young."""
    bucket.begin_upload(LedgerObjectName(OTHER_UUID, CHUNKED.ledgers[0].ledger_id).data_name)
    (upload,) = bucket.location.unfinished_uploads()
    now = datetime.now(UTC)
    catalog = bucket.catalog(**({"metadata": SAVED} if metadata == "saved" else {}))

    found = audit(catalog, uploads=[replace(upload, initiated=now - timedelta(hours=1))])

    (finding,) = found.findings
    assert finding.deletable == (metadata == "live")
    plan = plan_cleaning(found, now=now)
    assert all(each.refusal is not None for each in plan)
    assert list(clean(bucket.location, plan)) == []
    assert len(bucket.uploads()) == 1


def test_name_as_of_a_file_written_aside_is_foreign_on_s3(bucket: Bucket) -> None:
    """Only in a folder is it an upload, so here it is an object like any other."""
    name = f"{OTHER_UUID}-ledger-14.0123456789abcdef.unfinished"
    bucket.put(name, b"", {})

    (finding,) = bucket.findings()

    assert (finding.kind, finding.objects) == (FindingKind.FOREIGN, (name,))


@pytest.mark.parametrize(
    ("cluster", "is_one_cluster", "deletable", "told"),
    [
        (OWN, False, True, "counts"),
        ("other", False, False, "it is another cluster's"),
        ("other", True, False, "it is another cluster's"),
        (None, False, False, "nothing says which cluster wrote it"),
        (None, True, True, "counts"),
    ],
)
def test_copies_of_another_cluster_are_never_deletable(
    bucket: Bucket, cluster: str | None, told: str, *, is_one_cluster: bool, deletable: bool
) -> None:
    """Clusters that share a bucket may have topics of one name, and ledgers of one id."""
    bucket.copy_ledger(CHUNKED.ledgers[0], cluster)
    # And one that the topic does not have: older than its first, it could have been trimmed.
    stray = LedgerObjectName(UUID(int=8), 5)
    bucket.copy_ledger(CHUNKED.ledgers[0], cluster, stray)
    # And one of an offload that did not complete.
    unfinished = LedgerObjectName(UUID(int=9), CHUNKED.ledgers[1].ledger_id)
    bucket.put(unfinished.data_name, b"cut", _user_metadata(cluster))

    found = bucket.audit(is_one_cluster=is_one_cluster)

    findings = {each.kind: each for each in found.findings}
    assert set(findings) == {
        FindingKind.DOUBLE,
        FindingKind.ORPHAN,
        FindingKind.DATA_WITHOUT_INDEX,
    }
    assert {each.deletable for each in findings.values()} == {deletable}
    assert told in findings[FindingKind.DOUBLE].text
    plan = plan_cleaning(found, now=datetime.now(UTC), safety_age=timedelta(0))
    assert len(list(clean(bucket.location, plan))) == (3 if deletable else 0)


def test_topic_of_user_metadata_is_told_of_an_unfinished_offload(bucket: Bucket) -> None:
    """Not the one that has a ledger of that id, which may be another cluster's."""
    name = LedgerObjectName(OTHER_UUID, ENCRYPTED.ledgers[0].ledger_id)
    bucket.put(name.data_name, b"cut", _user_metadata(OWN))

    (finding,) = bucket.findings()

    assert str(finding.topic) == CHUNKED.name
    assert finding.kind == FindingKind.DATA_WITHOUT_INDEX


def test_unfinished_offload_that_is_deleted_meanwhile(bucket: Bucket) -> None:
    """A broker that tidies up while the bucket is looked at is no error."""
    name = LedgerObjectName(OTHER_UUID, CHUNKED.ledgers[0].ledger_id)
    copied = bucket.copy_ledger(CHUNKED.ledgers[1], OWN)
    bucket.put(name.data_name, b"cut", _user_metadata(OWN))
    catalog = bucket.catalog()
    for each in (name.data_name, copied.data_name, copied.index_name):
        bucket.server.client.delete_object(Bucket=bucket.name, Key=each)

    findings = {each.kind: each for each in audit(catalog).findings}

    assert "deleted since" in findings[FindingKind.DATA_WITHOUT_INDEX].text
    assert not findings[FindingKind.DATA_WITHOUT_INDEX].deletable
