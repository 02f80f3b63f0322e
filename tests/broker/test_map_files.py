"""A broker with the filesystem driver: we read what it offloads, and it reads what we repair."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final, cast

import pytest

from arrow_io.format.object_names import MapFileName, parse_map_file_name
from connector import open_catalog, open_topic
from connector.inputs.topic_names import TopicName
from connector.upkeep.audit.audit import audit
from connector.upkeep.repair.repair import plan_repair, repair
from tests.broker.cluster import Cluster
from tests.broker.running_broker import MAX_LEDGER_ENTRIES, RunningBroker
from tests.support.golden_entries import map_file_entries

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from uuid import UUID

pytestmark = pytest.mark.broker

_TOPIC: Final = "folders"
_PAYLOADS: Final = [bytes([number]) * (40_000 * number) for number in range(3 * MAX_LEDGER_ENTRIES)]
_PROFILE: Final = """<configuration>
  <property><name>io.seqfile.compression.type</name><value>{compression}</value></property>
  <property><name>io.seqfile.compress.blocksize</name><value>100000</value></property>
</configuration>
"""


@pytest.fixture(scope="module", params=["BLOCK", "RECORD", "NONE"])
def folders(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, Path]]:
    """A cluster that offloaded a topic to a folder, and that folder."""
    base = tmp_path_factory.mktemp("base")
    profile = base.with_suffix(".xml")
    profile.write_text(_PROFILE.format(compression=request.param))
    settings = {
        "managedLedgerOffloadDriver": "filesystem",
        "fileSystemURI": f"file://{base}",
        "fileSystemProfilePath": profile,
    }
    folder = tmp_path_factory.mktemp("broker")
    broker = RunningBroker(folder, cluster.s3, "unused", settings)
    broker.start()
    try:
        running = Cluster(broker, cluster.s3, "unused", tmp_path_factory.mktemp("written"))
        running.produce(_TOPIC, _PAYLOADS)
        running.admin.offload(_TOPIC)
        yield running, base
        running.disconnect()
    finally:
        broker.stop()


def _names(base: Path) -> list[MapFileName]:
    """The folders of the topic's ledgers, in order."""
    data = base.glob("public/default/persistent/*/*/data")
    names = (parse_map_file_name(str(each.relative_to(base))) for each in data)
    return sorted((cast("MapFileName", each) for each in names), key=lambda each: each.ledger_id)


def test_what_a_broker_offloads_is_read(folders: tuple[Cluster, Path]) -> None:
    """Each message is a row, by what the admin API tells and without it; the bucket is sound."""
    cluster, base = folders
    for metadata in (cluster.broker.admin_url, None):
        dataset = open_topic(str(base), _TOPIC, metadata=metadata, value="raw")
        rows = dataset.to_table()["__value__"].to_pylist()
        assert len(_names(base)) == 3
        assert rows == _PAYLOADS
        assert audit(open_catalog(str(base), metadata=metadata)).losses == ()


@pytest.mark.parametrize("damage", ["lost", "empty"])
def test_pulsar_reads_with_the_repaired_index(folders: tuple[Cluster, Path], damage: str) -> None:
    """Its own reader returns each entry by the index that we rebuilt, in any order."""
    cluster, base = folders
    for name in _names(base):
        index, checksums = base / name.index_name, base / name.checksum_names[0]
        before = len(index.read_bytes())
        if damage == "lost":
            index.unlink()
            checksums.unlink()
        else:
            index.write_bytes(b"")
        catalog = open_catalog(str(base))

        (each,) = repair(catalog.location, plan_repair(catalog, verify=True))

        assert each.refusal is None
        assert len(index.read_bytes()) == before
        assert _read_by_pulsar(cluster, name) == [
            sha256(entry).hexdigest()
            for entry in map_file_entries((base / name.data_name).read_bytes())
        ]


def _read_by_pulsar(cluster: Cluster, name: MapFileName) -> list[str]:
    """The digests of a ledger's entries, as Pulsar reads them one by one from the last."""
    topic = TopicName.from_managed_ledger_name(name.managed_ledger)
    assert topic.managed_ledger_name == name.managed_ledger
    uuid: UUID = name.uuid
    order = ("open-offloaded", name.ledger_id, uuid, name.managed_ledger)
    last, _ = cluster.broker.order(*order)
    found: dict[int, str] = {}
    for entry_id in reversed(range(last + 1)):
        ((read_id, digest),) = cluster.broker.order("read-entries", entry_id, entry_id)
        found[read_id] = digest
    return [found[entry_id] for entry_id in range(last + 1)]
