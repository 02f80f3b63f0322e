"""Classic topics in buckets that also have ledgers of scalable topics (Pulsar 5.0)."""

from __future__ import annotations

import json
import shutil
import warnings
from typing import TYPE_CHECKING, Final, Literal

import pytest

from arrow_io.errors import (
    IncompleteReadWarning,
    MissingObjectError,
    UndecodedValuesWarning,
)
from connector import open_catalog, open_topic
from connector.upkeep.audit.audit import audit
from connector.upkeep.audit.findings import FindingKind
from connector.upkeep.repair.repair import plan_repair
from tests.support.command_line import run
from tests.support.golden import GOLDEN, SCALABLE_SET, golden_topic, golden_topics

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCALABLE: Final = GOLDEN / SCALABLE_SET
OBJECTS: Final = SCALABLE / "objects"
ORDERS: Final = golden_topic("json-orders")
SEGMENT: Final = "segment://public/default/orders/0000-ffff-0"
LEGACY: Final = ("migrated-partition-0", "migrated-partition-1")


def _metadata_of_legacy() -> Mapping[str, Path]:
    folder = SCALABLE / "public__default__migrated"
    return {f"persistent://public/default/{name}": folder / f"legacy-{name}" for name in LEGACY}


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """One classic topic's ledgers, beside one ledger of a segment that has the id of none."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    for _, data, index in ORDERS.offloaded_objects():
        shutil.copy(data, folder)
        shutil.copy(index, folder)
    for path in OBJECTS.glob("*-ledger-17*"):
        shutil.copy(path, folder)
    return folder


@pytest.mark.parametrize("on_corruption", ["raise", "salvage"])
def test_classic_topic_is_read_beside_a_segment(
    mixed: Path, on_corruption: Literal["raise", "salvage"]
) -> None:
    """Without metadata, a classic topic is read whole, and nothing of it is called lost."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", IncompleteReadWarning)
        dataset = open_topic(str(mixed), "json-orders", value="raw", on_corruption=on_corruption)
        assert dataset.count_rows() == ORDERS.message_count
    assert not dataset.metrics.lost


def test_segments_are_listed_beside_topics(mixed: Path) -> None:
    """A catalog lists the classic topic, and the segment as a part of its scalable topic."""
    catalog = open_catalog(str(mixed))
    assert list(map(str, catalog.topics())) == [ORDERS.name, SEGMENT]
    assert not catalog.unattributed_errors()
    assert "topic://public/default/orders" in catalog._repr_html_()
    assert "2 topics" in repr(catalog)


@pytest.mark.parametrize("has_metadata", [True, False])
def test_nothing_is_deletable_among_segments(has_metadata: bool) -> None:
    """Metadata of classic topics alone shows of no segment that it is not needed."""
    for topic in {each.set_name: each for each in golden_topics()}.values():
        metadata = topic.folder.parent if has_metadata else None
        catalog = open_catalog(str(topic.objects_folder), metadata=metadata)
        found = audit(catalog, is_one_cluster=True)
        assert not found.losses
        assert {each.kind for each in found.findings} <= {FindingKind.ORPHAN}
        assert len(found.findings) == (28 if has_metadata else 0)
        for each in found.findings:
            assert str(each.topic).startswith("segment://")
            assert not each.deletable
            assert "does not name it yet" in str(each.doubt)


def test_audit_on_the_command_line_counts_segments(mixed: Path) -> None:
    """The summary counts a segment as a part of a topic."""
    result = run("audit", str(mixed))
    assert result.exit_code == 0
    assert result.stdout.endswith("2 topics with 1 segment, 2 ledgers: nothing found\n")


def test_damaged_index_object_of_a_segment_is_damage(mixed: Path) -> None:
    """A ledger of a segment that cannot be read is found, and can be repaired."""
    (index,) = mixed.glob("*-ledger-17-index")
    whole = index.read_bytes()
    index.write_bytes(whole[:4] + b"\0" * 4 + whole[8:])
    catalog = open_catalog(str(mixed))
    (finding,) = audit(catalog).findings
    assert finding.ledger_id == 17
    (repair,) = [each for each in plan_repair(catalog) if each.index is not None]
    assert str(repair.attempt.topic) == SEGMENT
    assert repair.index is not None
    assert repair.index.data == whole


def test_snapshot_keeps_segments(mixed: Path, tmp_path: Path) -> None:
    """A catalog that was saved gives the same topics, objects and audit."""
    path = str(tmp_path / "saved.json.gz")
    open_catalog(str(mixed)).save(path)
    saved = open_catalog(str(mixed), metadata=path)
    assert list(map(str, saved.topics())) == [ORDERS.name, SEGMENT]
    names = {str(each.topic) for each in saved.contents.copies}
    assert names == {ORDERS.name, SEGMENT}
    assert open_topic(str(mixed), "json-orders", catalog=saved, value="raw").count_rows()


@pytest.mark.parametrize("has_metadata", [True, False])
@pytest.mark.parametrize("is_saved", [True, False])
def test_migrated_topic_says_that_it_continues(
    tmp_path: Path, has_metadata: bool, is_saved: bool
) -> None:
    """Whoever reads a migrated topic is told that its history goes on in a scalable topic."""
    catalog = open_catalog(str(OBJECTS), metadata=_metadata_of_legacy() if has_metadata else None)
    if is_saved:
        path = str(tmp_path / "saved.json.gz")
        catalog.save(path)
        catalog = open_catalog(str(OBJECTS), metadata=path)
    dataset = open_topic(str(OBJECTS), "migrated", catalog=catalog, value="raw")
    notice = (
        r"scalable topic of Pulsar 5\.0, where its history continues: 3 ledgers of its segments"
    )
    with pytest.warns(IncompleteReadWarning, match=notice):
        assert dataset.to_table().num_rows == 130
    assert dataset.metrics.segment_ledgers == 3
    assert not dataset.metrics.lost


def test_topic_of_which_no_segment_is_there_says_nothing(tmp_path: Path) -> None:
    """A topic that was terminated, and not migrated, is read without a word."""
    objects = json.loads((SCALABLE / "objects.json").read_text())
    for name, each in objects.items():
        if "/persistent/" in each["user_metadata"]["managedledgername"]:
            shutil.copy(OBJECTS / name, tmp_path)
    dataset = open_topic(str(tmp_path), "migrated", value="raw", metadata=_metadata_of_legacy())
    with warnings.catch_warnings():
        warnings.simplefilter("error", IncompleteReadWarning)
        assert dataset.count_rows() == 130


def test_topics_json_may_list_scalable_topics(tmp_path: Path) -> None:
    """Classic topics are read although the folder of a scalable topic is missing."""
    listed = {"topic://public/default/orders": {"dir": "orders", "segments": []}}
    for name, folder in _metadata_of_legacy().items():
        shutil.copytree(folder, tmp_path / folder.name)
        listed[name] = {"dir": folder.name}
    (tmp_path / "topics.json").write_text(json.dumps(listed))
    catalog = open_catalog(str(OBJECTS), metadata=str(tmp_path))
    with pytest.warns(IncompleteReadWarning, match="where its history continues"):
        assert open_topic(str(OBJECTS), "migrated", catalog=catalog, value="raw").count_rows()
    with pytest.raises(MissingObjectError, match="no such folder"):
        open_topic(str(OBJECTS), "topic://public/default/orders", catalog=catalog)


def test_external_schema_gives_bytes(mixed: Path) -> None:
    """A schema that another registry has is no error: values are bytes, and that is said."""
    schema = {"version": 0, "type": "EXTERNAL", "data": "", "properties": {}}
    for source in (schema, {"getSchemaResponses": [schema]}, {**schema, "type": 22}):
        with pytest.warns(UndecodedValuesWarning, match="another registry"):
            dataset = open_topic(str(mixed), "json-orders", schema=source)
        assert dataset.to_table(columns=["__value__"]).num_rows == ORDERS.message_count
