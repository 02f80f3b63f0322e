"""Saved files are found in folders, and it is known which topic each folder is of."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path  # noqa: TC003 - pytest looks at annotations
from typing import TYPE_CHECKING, Final

import fsspec
import pytest

from arrow_io.errors import (
    CorruptMetadataError,
    FormatError,
    MissingObjectError,
    OptionError,
    StorageError,
)
from connector.catalog.metadata import folder as metadata_folder
from connector.catalog.metadata.admin_answers import internal_info_json, internal_stats_json
from connector.catalog.metadata.folder import MetadataFolder
from connector.catalog.metadata.managed_ledger import serialize_managed_ledger_info
from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext, TopicMetadata
from connector.catalog.schemas.loading import load_schema
from connector.inputs.topic_names import TopicName
from tests.support.golden import GOLDEN, GOLDEN_SETS, GoldenTopic, golden_topic, golden_topics
from tests.support.s3_server import running_s3_server
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.storage.location import Location

TOPIC: Final = TopicName.parse("orders")
VALUE, INFO, STATS, SCHEMAS = (
    "managed-ledger-info.bin",
    "internal-info.json",
    "internal-stats.json",
    "schemas-rest.json",
)

_memory_folders = itertools.count()


def _of_set(set_name: str) -> list[GoldenTopic]:
    return [topic for topic in golden_topics() if topic.set_name == set_name]


def _metadata(topic: TopicName = TOPIC, ledger_id: int = 7) -> TopicMetadata:
    ledger = LedgerInfo(
        ledger_id=ledger_id,
        entries=3,
        size_bytes=99,
        timestamp_ms=5,
        offload=OffloadContext(uuid=None, complete=True, bookkeeper_deleted=False),
    )
    return TopicMetadata(topic=topic, ledgers=(ledger,))


def _save(folder: Path, metadata: TopicMetadata, *files: str) -> Path:
    """Write some of the files of a topic."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        VALUE: serialize_managed_ledger_info(metadata),
        INFO: internal_info_json(metadata).encode(),
        STATS: internal_stats_json(metadata).encode(),
    }
    for file in files:
        (folder / file).write_bytes(contents[file])
    return folder


def _check_golden(source: MetadataFolder, topics: Sequence[GoldenTopic]) -> None:
    """Ledgers, entries, sizes, flags, uuids and schemas must be those of the golden set."""
    assert {str(topic) for topic in source.topics()} == {topic.name for topic in topics}
    for topic in topics:
        metadata = source.topic_metadata(TopicName.parse(topic.name))
        listed = json.loads((GOLDEN / topic.set_name / "topics.json").read_text())[topic.name]
        assert metadata is not None
        assert [
            (each.ledger_id, each.entries or 0, each.size_bytes or 0, each.is_offloaded)
            for each in metadata.ledgers
        ] == [tuple(each.values()) for each in listed["ledgers"]]
        uuids = [str(each.offload.uuid) for each in metadata.ledgers if each.offload]
        assert uuids == [each.uuid for each in topic.ledgers]
        saved = topic.folder / SCHEMAS
        schemas = source.schema_source(metadata.topic)
        assert schemas == (saved.read_bytes() if saved.exists() else None)
    assert source.warnings == []


@pytest.mark.parametrize("set_name", GOLDEN_SETS)
def test_golden_folders_are_found_by_their_list(set_name: str) -> None:
    """The file beside the folders must tell all topics, those with odd names too."""
    _check_golden(MetadataFolder(str(GOLDEN / set_name)), _of_set(set_name))


@pytest.mark.parametrize("set_name", GOLDEN_SETS)
def test_golden_folders_are_found_without_their_list(set_name: str, tmp_path: Path) -> None:
    """The open ledger in the stats must tell the topic, whatever the folder is called."""
    for number, topic in enumerate(_of_set(set_name)):
        shutil.copytree(topic.folder, tmp_path / f"folder-{number}")

    _check_golden(MetadataFolder(str(tmp_path)), _of_set(set_name))


@pytest.mark.parametrize("place", ["memory", "bucket", "prefix"])
def test_folders_may_be_in_any_store(place: str) -> None:
    """Folders in memory and on S3 must be found as those on disk are."""
    topic = golden_topic("small-transactions")
    files = {f"some-folder/{path.name}": path.read_bytes() for path in topic.folder.iterdir()}
    if place == "memory":
        url = f"memory://metadata-{next(_memory_folders)}"
        file_system, root = fsspec.url_to_fs(url)
        for name, data in files.items():
            file_system.pipe_file(f"{root}/{name}", data)
        _check_golden(MetadataFolder(url), [topic])
        return
    with running_s3_server() as server:
        address = server.upload(files, prefix="a/b" * (place == "prefix"))
        _check_golden(MetadataFolder(address.url, address.storage_options), [topic])


@pytest.mark.parametrize("files", [(VALUE,), (INFO,), (STATS,), (VALUE, INFO, STATS)], ids=str)
def test_any_of_the_files_will_do(files: Sequence[str], tmp_path: Path) -> None:
    """One folder of a topic may be given, with whatever was saved."""
    folder = _save(tmp_path / "orders", _metadata(), *files)

    source = MetadataFolder({"orders": folder})

    assert source.topics() == [TOPIC]
    metadata = source.topic_metadata(TOPIC)
    assert metadata is not None
    (ledger,) = metadata.ledgers
    assert ledger.offload is not None
    # Only internal-info does not tell whether an offload is complete.
    complete = None if files == (INFO,) else True
    assert (ledger.ledger_id, ledger.entries, ledger.offload.complete) == (7, 3, complete)
    assert source.warnings == []


@pytest.mark.parametrize(
    ("folder", "topic"),
    [
        ("sales/eu/orders-partition-3", "persistent://sales/eu/orders-partition-3"),
        ("sales/eu/a__b__c", "persistent://sales/eu/a__b__c"),
        ("sales/cluster/eu/orders", "persistent://sales/cluster/eu/orders"),
    ],
)
def test_folder_names_tell_the_topic(folder: str, topic: str, tmp_path: Path) -> None:
    """Nested ones, where nothing else tells; by a name that was guessed nothing is deleted."""
    _save(tmp_path / folder, _metadata(), VALUE)

    source = MetadataFolder(str(tmp_path))
    assert list(map(str, source.topics())) == [topic]
    metadata = source.topic_metadata(TopicName.parse(topic))
    assert metadata is not None
    assert metadata.proven_to_ledger_id == -1


@pytest.mark.parametrize(
    "folder", ["orders", "sales__orders", "sales__eu__orders", "a__b__c__d", "a/b", "a/b__c__d"]
)
def test_folders_of_unknown_topics_are_refused(folder: str, tmp_path: Path) -> None:
    """A topic must not be guessed, nor one name be cut into three; the error says what to do."""
    _save(tmp_path / folder, _metadata(), VALUE)

    with pytest.raises(OptionError, match=r"nothing names the topic of .*: pass the folders"):
        MetadataFolder(str(tmp_path)).topics()


def test_stats_tell_more_than_folder_names(tmp_path: Path) -> None:
    """Names of folders are what users make them."""
    _save(tmp_path / "sales__eu__payments", _metadata(), STATS)

    assert MetadataFolder(str(tmp_path)).topics() == [TOPIC]


def test_the_users_word_counts_most_and_is_doubted(tmp_path: Path) -> None:
    """A folder given for another topic is taken for that one, and the user hears of it."""
    folder = _save(tmp_path / "public__default__orders", _metadata(), STATS, VALUE)
    given = TopicName.parse("payments")

    source = MetadataFolder({"payments": folder})

    metadata = source.topic_metadata(given)
    assert metadata is not None
    assert metadata.topic == given
    assert len(source.warnings) == 1
    assert f"used for {given}, but belongs to {TOPIC}" in source.warnings[0]
    assert source.topic_metadata(TOPIC) is None


def test_files_are_read_when_they_are_needed(tmp_path: Path) -> None:
    """To ask for one topic must not read the others, nor the same files again."""
    _save(tmp_path / "a", _metadata(TopicName.parse("a")), VALUE)
    listed = {"a": {"dir": "a"}, "b": {"dir": "b"}}
    (tmp_path / "topics.json").write_text(json.dumps(listed))
    source = MetadataFolder(str(tmp_path))

    metadata = source.topic_metadata(TopicName.parse("a"))
    shutil.rmtree(tmp_path / "a")

    assert metadata is not None
    assert source.topic_metadata(TopicName.parse("a")) is metadata


def test_malformed_files_are_errors_of_their_topic(tmp_path: Path) -> None:
    """Other topics stay readable; the error names the file, and comes again."""
    _save(tmp_path / "public/default/good", _metadata(TopicName.parse("good")), VALUE)
    bad = _save(tmp_path / "public/default/bad", _metadata(), VALUE)
    (bad / VALUE).write_bytes(b"\xff")
    source = MetadataFolder(str(tmp_path))

    assert [topic.local_name for topic in source.topics()] == ["bad", "good"]
    assert source.topic_metadata(TopicName.parse("good")) is not None
    for _ in range(2):
        with pytest.raises(CorruptMetadataError) as error:
            source.topic_metadata(TopicName.parse("bad"))
        assert str(error.value.object_key) == f"{bad}/{VALUE}"


@pytest.mark.parametrize("file", [VALUE, INFO, STATS])
def test_long_files_are_refused(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than the bound is read of any file."""
    _save(tmp_path / "public/default/orders", _metadata(), file)
    monkeypatch.setattr(metadata_folder, "MAX_METADATA_BYTES", 10)

    with pytest.raises(FormatError, match="10 bytes allowed"):
        MetadataFolder(str(tmp_path)).topic_metadata(TOPIC)


def test_managed_ledgers_of_no_topic_are_refused(tmp_path: Path) -> None:
    """A name in the stats that Pulsar gives no topic must be a typed error."""
    text = "LedgerMetadata{customMetadata={pulsar/managed-ledger=base64:YS9i}}"
    stats = {"ledgers": [{"ledgerId": 1, "metadata": text}]}
    (tmp_path / STATS).write_text(json.dumps(stats))

    with pytest.raises(FormatError, match="'a/b' is not the managed ledger"):
        MetadataFolder({"orders": tmp_path}).topic_metadata(TOPIC)


def test_two_folders_of_one_topic_are_refused(tmp_path: Path) -> None:
    """It must not be a matter of luck which one counts."""
    for folder in ("one", "two"):
        _save(tmp_path / folder, _metadata(), STATS)

    with pytest.raises(CorruptMetadataError, match=f"both belong to {TOPIC}"):
        MetadataFolder(str(tmp_path)).topics()


def test_two_paths_for_one_topic_are_refused(tmp_path: Path) -> None:
    """Short and full names are one topic."""
    with pytest.raises(OptionError, match="two paths"):
        MetadataFolder({"orders": tmp_path, str(TOPIC): tmp_path})


def test_answers_of_a_partitioned_topic_are_its_partitions(tmp_path: Path) -> None:
    """One folder may hold the answer for all partitions; the topic itself has no ledgers."""
    partitions = [TopicName.parse(f"orders-partition-{number}") for number in range(2)]
    answer = {
        "partitions": {
            str(each): json.loads(internal_info_json(_metadata(each, number)))
            for number, each in enumerate(partitions)
        }
    }
    folder = tmp_path / "public/default/orders"
    folder.mkdir(parents=True)
    (folder / INFO).write_text(json.dumps(answer))
    (folder / SCHEMAS).write_text('{"getSchemaResponses": [{"version": 0, "type": "STRING"}]}')

    for source in (MetadataFolder(str(tmp_path)), MetadataFolder({"orders": folder})):
        assert source.topics() == partitions
        metadata = source.topic_metadata(partitions[1])
        assert metadata is not None
        assert [each.ledger_id for each in metadata.ledgers] == [1]
        assert source.topic_metadata(TOPIC) is None
        schemas = source.schema_source(partitions[0])
        assert schemas is not None
        assert load_schema(schemas).reader.type == "STRING"


def test_schemas_of_one_partition_are_those_of_all(tmp_path: Path) -> None:
    """A schema belongs to the topic, so whichever folder has it will do."""
    for number in range(2):
        partition = TopicName.parse(f"orders-partition-{number}")
        _save(tmp_path / partition.local_name, _metadata(partition), STATS)
    answer = b'{"getSchemaResponses": [{"version": 0, "type": "STRING"}]}'
    (tmp_path / "orders-partition-1" / SCHEMAS).write_bytes(answer)
    source = MetadataFolder(str(tmp_path))

    for name in ("orders", "orders-partition-0", "orders-partition-1"):
        assert source.schema_source(TopicName.parse(name)) == answer
    assert source.schema_source(TopicName.parse("other")) is None


def test_empty_list_of_schemas_is_none(tmp_path: Path) -> None:
    """A topic whose schemas were deleted has none."""
    (tmp_path / SCHEMAS).write_text('{"getSchemaResponses": []}')

    assert MetadataFolder({"orders": tmp_path}).schema_source(TOPIC) is None


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"orders": "folder"}',
        '{"orders": {}}',
        '{"orders": {"dir": 7}}',
        '{"orders": {"dir": ""}}',
        '{"orders": {"dir": "../other"}}',
        '{"orders": {"dir": "/etc"}}',
        '{"orders": {"dir": "a/../b"}}',
    ],
)
def test_list_of_topics_leads_nowhere_else(text: str, tmp_path: Path) -> None:
    """Folders in it must be below the one given."""
    (tmp_path / "topics.json").write_text(text)

    with pytest.raises(CorruptMetadataError):
        MetadataFolder(str(tmp_path)).topics()


def test_folders_that_are_not_there_are_told(tmp_path: Path) -> None:
    """A typing error must not look like a topic without metadata."""
    (tmp_path / "empty").mkdir()
    for source, words in (
        (MetadataFolder(str(tmp_path / "no-such")), "no such folder"),
        (MetadataFolder({"orders": tmp_path / "no-such"}), "no such folder"),
        (MetadataFolder({"orders": tmp_path / "empty"}), "empty has no managed-ledger-info.bin"),
    ):
        with pytest.raises(MissingObjectError, match=words):
            source.topic_metadata(TOPIC)


def test_paths_without_metadata_never_pass_for_no_topics(tmp_path: Path) -> None:
    """Whoever gave a wrong path must hear of it before topics are read without their metadata."""
    empty, listed, no_such = (tmp_path / name for name in ("empty", "listed", "no-such"))
    empty.mkdir()
    listed.mkdir()
    (listed / "topics.json").write_text("{}")

    for source, words in (
        (str(empty), f"no metadata of any topic in {empty}"),
        (str(listed), f"no metadata of any topic in {listed}"),
        (
            {"orders": empty, "payments": no_such},
            f"neither {empty} nor another folder of the metadata has managed-ledger-info.bin",
        ),
    ):
        with pytest.raises(OptionError, match=words):
            MetadataFolder(source).topics()
    with pytest.raises(MissingObjectError, match="no such folder"):
        MetadataFolder(str(no_such)).topics()


def test_mapping_of_no_topic_is_refused() -> None:
    """Nothing was given, so nothing could be known."""
    with pytest.raises(OptionError, match="no topics"):
        MetadataFolder({})


def test_one_folder_of_several_may_be_missing(tmp_path: Path) -> None:
    """Its topic is listed, so that the error comes when it is asked for."""
    _save(tmp_path / "a", _metadata(TopicName.parse("a")), VALUE)
    source = MetadataFolder({"a": tmp_path / "a", "b": tmp_path / "b"})

    assert [topic.local_name for topic in source.topics()] == ["a", "b"]
    with pytest.raises(MissingObjectError, match="no such folder"):
        source.topic_metadata(TopicName.parse("b"))


@pytest.mark.parametrize("is_listed", [True, False])
def test_topics_of_some_namespaces(is_listed: bool, tmp_path: Path) -> None:
    """Only theirs are told; unknown namespaces have none."""
    names = ["a/b/one", "a/b/two-partition-1", "a/c/three", "persistent://a/cluster/b/four"]
    topics = [TopicName.parse(name) for name in names]
    for number, topic in enumerate(topics):
        _save(tmp_path / str(number), _metadata(topic), STATS)
    if is_listed:
        listed = {str(topic): {"dir": str(number)} for number, topic in enumerate(topics)}
        (tmp_path / "topics.json").write_text(json.dumps(listed))
    source = MetadataFolder(str(tmp_path))

    assert source.topics(["a/b"]) == topics[:2]
    assert source.topics({"a/cluster/b", "a/c", "x/y"}) == topics[2:]
    assert source.topics(["x/y"]) == source.topics([]) == []
    assert len(source.topics()) == 4


def test_folders_of_other_namespaces_are_not_read(tmp_path: Path) -> None:
    """Where the namespace is known beforehand, a fault elsewhere must not matter."""
    _save(tmp_path / "a", _metadata(), VALUE)
    bad = tmp_path / "file"
    bad.write_bytes(b"")
    source = MetadataFolder({"orders": tmp_path / "a", "x/y/z": bad / "below"})

    assert source.topics(["public/default"]) == [TOPIC]


def test_threads_share_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are looked for once, by whichever thread comes first."""
    _save(tmp_path / "public/default/orders", _metadata(), VALUE)
    searches: list[object] = []
    discovered = metadata_folder._discover
    barrier = threading.Barrier(4, timeout=PATIENCE_S)

    def search(root: Location) -> object:
        searches.append(root)
        return discovered(root)

    monkeypatch.setattr(metadata_folder, "_discover", search)
    source = MetadataFolder(str(tmp_path))

    def ask(_: int) -> TopicMetadata | None:
        barrier.wait()
        return source.topic_metadata(TOPIC)

    with ThreadPoolExecutor(4) as executor:
        answers = list(executor.map(ask, range(4)))

    assert answers == [_metadata()] * 4
    assert len(searches) == 1


def test_file_is_no_folder(tmp_path: Path) -> None:
    """A file given where a folder is asked for must be a typed error."""
    path = tmp_path / "file"
    path.write_bytes(b"")

    with pytest.raises(StorageError):
        MetadataFolder(str(path)).topics()


def test_too_many_folders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is none of metadata must not be walked through for ever."""
    monkeypatch.setattr(metadata_folder, "_MAX_FOLDERS", 3)
    for number in range(3):
        (tmp_path / str(number) / "below").mkdir(parents=True)
    with pytest.raises(OptionError, match="no metadata of any topic"):
        MetadataFolder(str(tmp_path)).topics()

    (tmp_path / "3").mkdir()

    with pytest.raises(OptionError, match="more than 3 folders"):
        MetadataFolder(str(tmp_path)).topics()


def test_folders_are_not_walked_deeper_than_names_go(tmp_path: Path) -> None:
    """Tenant, cluster, namespace and topic are the most there can be."""
    _save(tmp_path / "1/2/3/4/public__default__orders", _metadata(), VALUE)

    with pytest.raises(OptionError, match="no metadata of any topic"):
        MetadataFolder(str(tmp_path)).topics()


def test_storage_options_are_not_shown(tmp_path: Path) -> None:
    """Secrets among them must be in no error."""
    source = MetadataFolder(f"memory://no-such-{tmp_path.name}", {"secret_key": "hush-hush"})

    with pytest.raises(MissingObjectError) as error:
        source.topics()
    assert "hush-hush" not in f"{error.value!r}{error.value}"
