"""A metadata folder tells its topic, and that its files are as they were written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arrow_io.errors import CorruptMetadataError, FormatError, OptionError
from connector.catalog.metadata.admin_answers import internal_info_json, internal_stats_json
from connector.catalog.metadata.folder import (
    INFO_FILE,
    SCHEMAS_FILE,
    STATS_FILE,
    VALUE_FILE,
    MetadataFolder,
)
from connector.catalog.metadata.managed_ledger import serialize_managed_ledger_info
from connector.catalog.metadata.manifest import MANIFEST_FILE, manifest_json, read_manifest
from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext, TopicMetadata
from connector.inputs.topic_names import TopicName
from tests.support.damage import flipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

TOPIC: Final = TopicName.parse("a/b/c__d")
METADATA: Final = TopicMetadata(
    topic=TOPIC,
    ledgers=tuple(
        LedgerInfo(
            ledger_id=number,
            entries=3,
            size_bytes=99,
            timestamp_ms=5,
            offload=OffloadContext(uuid=None, complete=True, bookkeeper_deleted=False),
        )
        for number in (7, 9, 40)
    ),
)
FILES: Final = {
    VALUE_FILE: serialize_managed_ledger_info(METADATA),
    INFO_FILE: internal_info_json(METADATA).encode(),
    STATS_FILE: internal_stats_json(METADATA).encode(),
    SCHEMAS_FILE: b'{"getSchemaResponses": [{"version": 0, "type": "STRING"}]}',
}
BARE: Final = {VALUE_FILE: FILES[VALUE_FILE]}
"""The file that a part of passes for, and that tells no topic."""


def save(folder: Path, files: Mapping[str, bytes], manifest: bytes | None = None) -> Path:
    """Write files into a folder, with their manifest or another."""
    folder.mkdir(parents=True, exist_ok=True)
    told = manifest_json(TOPIC, files) if manifest is None else manifest
    for name, data in {**files, MANIFEST_FILE: told}.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("files", [BARE, FILES], ids=["value", "all"])
@pytest.mark.parametrize("folder", ["a__b__c__d", "x", "a/b__c/d"])
def test_manifest_tells_the_topic_and_proves_it_whole(
    folder: str, files: Mapping[str, bytes], tmp_path: Path
) -> None:
    """Whatever the folder is called, and also where one file is all that there is."""
    save(tmp_path / folder, files)
    source = MetadataFolder(str(tmp_path))

    assert source.topics() == [TOPIC]
    metadata = source.topic_metadata(TOPIC)
    assert metadata == METADATA
    assert metadata.proven_to_ledger_id == 40
    assert source.warnings == []


def test_manifest_of_a_folder_that_is_given_itself(tmp_path: Path) -> None:
    """The one folder of a topic need not be named by the user."""
    assert MetadataFolder(str(save(tmp_path / "x", BARE))).topics() == [TOPIC]


def _proven(source: MetadataFolder) -> Iterable[TopicMetadata]:
    """What is proven; none if a typed error comes."""
    try:
        told = [source.topic_metadata(topic) for topic in source.topics()]
    except (FormatError, OptionError):
        return []
    return [each for each in told if each is not None and each.proven_to_ledger_id >= 0]


@pytest.mark.parametrize("files", [BARE, FILES], ids=["value", "all"])
@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_to_any_file_proves_nothing_else(
    files: Mapping[str, bytes], data: st.DataObject, tmp_path: Path
) -> None:
    """Each bit of each file, the manifest too, and each length: an error, or the same is proven."""
    folder = save(tmp_path / "x", files)
    name = data.draw(st.sampled_from([*files, MANIFEST_FILE]))
    whole = (folder / name).read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    bit = data.draw(st.none() | st.integers(0, 7))
    (folder / name).write_bytes(whole[:place] if bit is None else flipped(whole, place, 1 << bit))

    assert all(each == METADATA for each in _proven(MetadataFolder(str(tmp_path))))
    given_topic = MetadataFolder({str(TOPIC): folder})
    assert all(each == METADATA for each in _proven(given_topic))


def test_every_cut_of_a_bare_value_is_noticed(tmp_path: Path) -> None:
    """Without the manifest many a part of it parses, as a topic with fewer ledgers."""
    folder, value = save(tmp_path / "x", BARE), FILES[VALUE_FILE]
    parsed = 0
    for length in range(len(value)):
        (folder / VALUE_FILE).write_bytes(value[:length])
        with pytest.raises(CorruptMetadataError, match="truncated, damaged or replaced") as error:
            MetadataFolder({str(TOPIC): folder}).topic_metadata(TOPIC)
        assert str(error.value.object_key) == f"{folder}/{VALUE_FILE}"
        (folder / "bare").write_bytes(value[:length])
        try:
            told = MetadataFolder({str(TOPIC): folder / "bare"}).topic_metadata(TOPIC)
        except CorruptMetadataError:
            continue
        assert told is not None
        assert told.proven_to_ledger_id == -1
        parsed += len(told.ledgers) < len(METADATA.ledgers)
    assert parsed > 1


def test_files_that_the_manifest_lacks_are_refused(tmp_path: Path) -> None:
    """A file that was put beside the others may be of anything, but schemas may; none is gone."""
    folder = save(tmp_path / "x", BARE)
    (folder / INFO_FILE).write_bytes(FILES[INFO_FILE])
    with pytest.raises(CorruptMetadataError, match=f"{INFO_FILE} is not listed in"):
        MetadataFolder(str(tmp_path)).topic_metadata(TOPIC)
    save(folder, BARE)
    (folder / INFO_FILE).unlink()
    (folder / SCHEMAS_FILE).write_bytes(FILES[SCHEMAS_FILE])
    assert MetadataFolder(str(tmp_path)).schema_source(TOPIC) == FILES[SCHEMAS_FILE]
    save(folder, FILES)
    (folder / SCHEMAS_FILE).write_bytes(FILES[SCHEMAS_FILE][:-1])
    with pytest.raises(CorruptMetadataError, match="truncated, damaged or replaced"):
        MetadataFolder(str(tmp_path)).schema_source(TOPIC)
    (folder / SCHEMAS_FILE).unlink()
    with pytest.raises(CorruptMetadataError, match=f"{SCHEMAS_FILE}, which the manifest lists, is"):
        MetadataFolder(str(tmp_path)).topic_metadata(TOPIC)


@pytest.mark.parametrize("given_topic", ["other", None])
def test_names_that_disagree_prove_nothing(given_topic: str | None, tmp_path: Path) -> None:
    """The user's word counts, then the manifest's, and whoever reads by it hears of the other."""
    stats = internal_stats_json(TopicMetadata(topic=TopicName.parse("x"), ledgers=METADATA.ledgers))
    files = FILES if given_topic else {**FILES, STATS_FILE: stats.encode()}
    folder = save(tmp_path / "x", files)
    source = MetadataFolder({given_topic: folder} if given_topic else str(tmp_path))
    topic = TopicName.parse(given_topic) if given_topic else TOPIC

    assert source.topics() == [topic]
    metadata = source.topic_metadata(topic)

    assert metadata is not None
    assert metadata.proven_to_ledger_id == -1
    assert f"is used for {topic}, but belongs to " in source.warnings[0]


def test_damaged_manifest_is_an_error_of_its_topic_where_that_is_told(tmp_path: Path) -> None:
    """Other topics stay readable."""
    save(tmp_path / "bad", FILES, b"{}")
    other = TopicName.parse("other")
    save(tmp_path / "good", BARE, manifest_json(other, BARE))
    source = MetadataFolder(str(tmp_path))

    assert set(source.topics()) == {TOPIC, other}
    assert source.topic_metadata(other) is not None
    with pytest.raises(CorruptMetadataError, match="does not match its own checksum") as error:
        source.topic_metadata(TOPIC)
    assert str(error.value.object_key).endswith(MANIFEST_FILE)


def _resealed(**fields: Any) -> bytes:  # noqa: ANN401
    """A manifest that says anything, with a checksum that fits."""
    from connector.catalog.metadata.manifest import _checksum  # noqa: PLC0415

    return json.dumps(fields | {"sha256": _checksum(fields)}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"{",
        b'{"topic": "a", "files": {}, "sha256": ""}',
        _resealed(topic=5, files={}),
        _resealed(topic="a/b", files={}),
        _resealed(topic="a", files=[]),
        _resealed(topic="a", files={"f": 5}),
        _resealed(topic="a", files={"f": {"bytes": 5}}),
        _resealed(topic="a", files={"f": {"bytes": "5", "sha256": ""}}),
        _resealed(topic="a", files={"f": {"bytes": True, "sha256": ""}}),
        _resealed(topic="a", files={"f": {"bytes": 5, "sha256": 5}}),
        _resealed(topic="a", files={}, more=1),
    ],
    ids=range(12),
)
def test_manifests_that_are_none(data: bytes) -> None:
    """They are typed errors."""
    with pytest.raises(CorruptMetadataError):
        read_manifest(data)


@given(
    st.dictionaries(st.text(max_size=5), st.binary(max_size=9), max_size=4),
    st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=9),
)
def test_what_is_written_is_read(files: dict[str, bytes], local_name: str) -> None:
    """Any name of a topic, any names of files."""
    topic = TopicName("tenant", "ns", local_name)
    manifest = read_manifest(manifest_json(topic, files))

    assert manifest.topic == topic
    assert manifest.files.keys() == files.keys()
    for name, data in files.items():
        manifest.check(name, data)
