"""The graph of a scalable topic: what clusters write is read, and anything else is an error."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import CorruptMetadataError
from connector.catalog.metadata.folder import MetadataFolder
from connector.catalog.metadata.scalable import (
    SCALABLE_FILE,
    namespace_path,
    node_path,
    parse_scalable_topic,
    read_scalable_topic,
    scalable_topic_json,
)
from connector.catalog.metadata.source import open_metadata_source
from connector.catalog.metadata.store_source import StoreSource
from connector.inputs.topic_names import TopicName
from tests.support.admin_server import running_admin_server
from tests.support.golden_scalable import (
    FOLDER,
    MIGRATED,
    NAMES,
    ODD,
    ORDERS,
    golden_scalable_topic,
    scalable_answers,
)
from tests.support.memory_metadata_store import MemoryMetadataStore, nodes_of_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Change = Callable[[dict[str, Any]], object]

TOPIC: Final = TopicName.parse(ORDERS)
LEGACY: Final = TopicName.parse(MIGRATED)


def _text(name: str) -> bytes:
    return (golden_scalable_topic(name).folder / SCALABLE_FILE).read_bytes()


def test_graph_of_splits_and_a_merge() -> None:
    """Ids, hashes, states, parents and children are those of the node."""
    graph = parse_scalable_topic(_text(ORDERS), TOPIC)
    assert [str(each.segment) for each in graph.nodes] == [
        "0000-ffff-0",
        "0000-7fff-1",
        "8000-ffff-2",
        "8000-bfff-3",
        "c000-ffff-4",
        "0000-bfff-5",
    ]
    assert [each.is_sealed for each in graph.nodes] == [True] * 4 + [False] * 2
    assert [each.parent_ids for each in graph.nodes] == [(), (0,), (0,), (2,), (2,), (1, 3)]
    assert [each.child_ids for each in graph.nodes] == [(1, 2), (5,), (3, 4), (5,), (), ()]
    assert graph.node(6) is None


def test_graph_of_a_migrated_topic() -> None:
    """Migrated partitions are segments that precede all others."""
    graph = parse_scalable_topic(_text(MIGRATED), LEGACY)
    assert list(map(str, graph.members)) == [
        "persistent://public/default/migrated-partition-0",
        "persistent://public/default/migrated-partition-1",
        "segment://public/default/migrated/0000-7fff-2",
        "segment://public/default/migrated/8000-ffff-3",
    ]


def test_topic_that_is_being_deleted_has_no_members() -> None:
    """A topic with the mark of deletion is gone."""
    value = json.loads(_text(ORDERS)) | {"deleted": True}
    assert not read_scalable_topic(value, TOPIC).members


def test_check_of_many_parents_takes_no_quadratic_time() -> None:
    """A topic that was migrated from thousands of partitions has as many parents per segment."""
    comparisons = 0

    class Id(int):
        __hash__ = int.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal comparisons
            comparisons += 1
            return int(self) == other

        def __lt__(self, other: int) -> bool:
            nonlocal comparisons
            comparisons += 1
            return int(self) < int(other)

    def count_comparisons(parents: int) -> int:
        nonlocal comparisons
        comparisons = 0
        ids = [Id(number) for number in range(parents + 1)]
        nodes = {
            str(number): {
                "segmentId": ids[number],
                "hashRange": {"start": 0, "end": 65535},
                "state": "SEALED",
                "parentIds": [] if number < parents else ids[:-1],
                "childIds": ids[-1:] if number < parents else [],
            }
            for number in range(parents + 1)
        }
        read_scalable_topic({"nextSegmentId": parents + 1, "segments": nodes}, TOPIC)
        return comparisons

    assert count_comparisons(8 * 60) < 2 * 8 * count_comparisons(60)


@pytest.mark.parametrize("name", NAMES)
def test_graph_comes_back(name: str) -> None:
    """What a catalog snapshot stores is the same graph."""
    graph = golden_scalable_topic(name).graph
    assert read_scalable_topic(scalable_topic_json(graph), TopicName.parse(name)) == graph


@pytest.mark.parametrize("name", NAMES)
def test_paths_are_those_of_the_metadata_store(name: str) -> None:
    """The nodes of the golden set are at the paths of their topics."""
    store = FOLDER / "metadata-store"
    topic = TopicName.parse(name)
    assert (store / node_path(topic)[1:] / "value.bin").read_bytes() == _text(name)
    assert node_path(topic).startswith(f"{namespace_path(topic.full_namespace)}/")
    for member in golden_scalable_topic(name).graph.members:
        assert (store / "managed-ledgers" / member.managed_ledger_name).is_dir()


def _segments(value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = value["segments"]
    return found


MALFORMED: Final[dict[str, tuple[Change, str]]] = {
    "no segments": (lambda value: value.pop("segments"), "is not a JSON object"),
    "a list of segments": (lambda value: value.update(segments=[]), "is not a JSON object"),
    "no next id": (lambda value: value.pop("nextSegmentId"), "nextSegmentId"),
    "next id is true": (lambda value: value.update(nextSegmentId=True), "nextSegmentId"),
    "next id is used": (lambda value: value.update(nextSegmentId=5), "has not assigned"),
    "deleted is text": (lambda value: value.update(deleted="no"), "neither true nor false"),
    "a segment is a number": (lambda value: _segments(value).update({"1": 1}), "JSON object"),
    "another id": (lambda value: _segments(value)["1"].update(segmentId=2), "has the id 2"),
    "an id with a zero": (
        lambda value: _segments(value).update({"01": _segments(value).pop("1")}),
        "has the id 1",
    ),
    "negative id": (lambda value: _segments(value)["1"].update(segmentId=-1), "segmentId"),
    "no hashes": (lambda value: _segments(value)["1"].pop("hashRange"), "hashRange"),
    "hash of 17 bits": (
        lambda value: _segments(value)["1"]["hashRange"].update(end=65536),
        "the field end",
    ),
    "reversed hashes": (
        lambda value: _segments(value)["1"]["hashRange"].update(start=40000),
        "end before they start",
    ),
    "unknown state": (lambda value: _segments(value)["1"].update(state="LOST"), "'LOST'"),
    "no state": (lambda value: _segments(value)["1"].pop("state"), "unknown state"),
    "unknown parent": (lambda value: _segments(value)["4"].update(parentIds=[9]), "topic lacks"),
    "unknown child": (lambda value: _segments(value)["5"].update(childIds=[9]), "topic lacks"),
    "parent is itself": (lambda value: _segments(value)["4"].update(parentIds=[4]), "greater ids"),
    "parent is younger": (lambda value: _segments(value)["0"].update(parentIds=[5]), "greater"),
    "a cycle": (lambda value: _segments(value)["5"].update(childIds=[1]), "greater ids"),
    "one-sided child": (lambda value: _segments(value)["3"].update(childIds=[4, 5]), "not know"),
    "one-sided parent": (lambda value: _segments(value)["4"].update(parentIds=[1, 2]), "not know"),
    "parent twice": (lambda value: _segments(value)["4"].update(parentIds=[2, 2]), "twice"),
    "parents are a number": (lambda value: _segments(value)["4"].update(parentIds=2), "a list"),
    "parent is text": (lambda value: _segments(value)["4"].update(parentIds=["2"]), "parentIds"),
    "legacy name of another topic": (
        lambda value: _segments(value)["0"].update(legacyTopicName="persistent://public/default/x"),
        "was not migrated from",
    ),
    "legacy name of a segment": (
        lambda value: _segments(value)["0"].update(
            legacyTopicName="segment://public/default/orders/0000-ffff-0"
        ),
        "was not migrated from",
    ),
    "legacy name is a number": (
        lambda value: _segments(value)["0"].update(legacyTopicName=7),
        "was not migrated from",
    ),
    "a partition twice": (
        lambda value: [
            _segments(value)[each].update(
                legacyTopicName="persistent://public/default/orders-partition-0"
            )
            for each in ("0", "1")
        ],
        "two segments represent one",
    ),
}


@pytest.mark.parametrize(("change", "said"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_graphs_are_errors(change: Change, said: str) -> None:
    """A graph that no cluster writes is refused, with what is wrong."""
    value = json.loads(_text(ORDERS))
    change(value)
    with pytest.raises(CorruptMetadataError, match=said):
        parse_scalable_topic(json.dumps(value).encode(), TOPIC)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "malformed JSON"),
        (b"[]", "not a JSON object"),
        (b'{"segments": {}, "segments": {}}', "name is repeated"),
        (b'{"segments": {"0": {"segmentId": 0}, "0": {"segmentId": 0}}}', "name is repeated"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"nextSegmentId": ' + b"9" * 5000 + b"}", "too many digits"),
        (b"\xff", "not UTF-8"),
        (b" " * ((32 << 20) + 1), "are allowed"),
    ],
    ids=["empty", "list", "names twice", "ids twice", "deep", "digits", "bytes", "long"],
)
def test_other_bytes_are_errors(data: bytes, said: str) -> None:
    """Whatever a store returns is refused with a typed error."""
    with pytest.raises(CorruptMetadataError, match=said):
        parse_scalable_topic(data, TOPIC)


@given(st.data())
def test_changed_values_are_read_or_refused(data: st.DataObject) -> None:
    """Any value in any place gives a graph that is one, or a typed error."""
    value = copy.deepcopy(json.loads(_text(ORDERS)))
    segment = _segments(value)[data.draw(st.sampled_from("012345"))]
    name = data.draw(st.sampled_from(sorted({*segment, "legacyTopicName"})))
    segment[name] = data.draw(
        st.none()
        | st.booleans()
        | st.integers(-1, 7)
        | st.text(max_size=3)
        | st.lists(st.integers(-1, 6), max_size=3)
        | st.just({"start": 0, "end": 1})
    )
    try:
        graph = read_scalable_topic(value, TOPIC)
    except CorruptMetadataError:
        return
    ids = [each.segment.id for each in graph.nodes]
    assert ids == sorted(set(ids))
    for node in graph.nodes:
        assert all(each in ids and each < node.segment.id for each in node.parent_ids)
        assert all(each in ids and each > node.segment.id for each in node.child_ids)


class TestFolder:
    """The graph and the ledgers of segments in saved files."""

    def test_topics_json(self) -> None:
        """The golden folder has all scalable topics, their ledgers and their schemas."""
        source = MetadataFolder(str(FOLDER))
        assert list(map(str, source.scalable_topics())) == sorted(NAMES)
        assert not source.scalable_topics(["other/namespace"])
        for name in NAMES:
            graph = source.scalable_topic(TopicName.parse(name))
            assert graph == golden_scalable_topic(name).graph
            for member in graph.members:
                metadata = source.topic_metadata(member)
                assert metadata is not None
                is_sealed = member.segment is None or any(
                    each.is_sealed for each in graph.nodes if each.segment == member.segment
                )
                assert (metadata.terminated_position is not None) == is_sealed
        assert source.schema_source(TOPIC) == source.schema_source(TOPIC.classic) is not None
        assert source.named_attempts(None, max_topics=0)
        assert not source.warnings

    def test_folders_by_tenant_and_namespace(self, tmp_path: Path) -> None:
        """Nested folders name the topic, and may have segments without ledgers."""
        place = tmp_path / "public" / "default" / "odd été:2026 v1"
        place.mkdir(parents=True)
        (place / SCALABLE_FILE).write_bytes(_text(ODD))
        source = MetadataFolder(str(tmp_path))
        assert list(map(str, source.scalable_topics())) == [ODD]
        topic = TopicName.parse(ODD)
        graph = source.scalable_topic(topic)
        assert graph == golden_scalable_topic(ODD).graph
        assert source.topic_metadata(graph.members[0]) is None
        assert not source.topics()

    def test_folder_by_name(self) -> None:
        """The user names the folder of a scalable topic."""
        folder = golden_scalable_topic(MIGRATED).folder
        source = open_metadata_source({MIGRATED: folder})
        graph = source.scalable_topic(LEGACY)
        assert graph is not None
        metadata = source.topic_metadata(graph.members[0])
        assert metadata is not None
        assert metadata.topic == graph.members[0]
        assert source.scalable_topic(TOPIC) is None


def test_admin_api() -> None:
    """The admin API lists scalable topics and gives their graphs, and no ledgers."""
    with running_admin_server() as server:
        server.answers.update(scalable_answers())
        source = open_metadata_source(server.url)
        assert list(map(str, source.scalable_topics())) == sorted(NAMES)
        for name in NAMES:
            topic = TopicName.parse(name)
            assert source.scalable_topic(topic) == golden_scalable_topic(name).graph
            count = len(server.paths)
            assert source.scalable_topic(topic)
            assert source.topic_metadata(golden_scalable_topic(name).graph.members[-1]) is None
            assert len(server.paths) == count
        assert source.scalable_topic(TopicName.parse("topic://public/default/none")) is None


def test_admin_api_of_an_older_cluster() -> None:
    """A cluster without scalable topics is asked for them once, whatever it has."""
    with running_admin_server("pulsar-4.0.7") as server:
        source = open_metadata_source(server.url)
        assert source.topics()
        assert not source.scalable_topics()
        asked = [each for each in server.paths if "/scalable/" in each]
        assert source.scalable_topic(TOPIC) is None
        assert not source.scalable_topics(["public/default"])
        assert [each for each in server.paths if "/scalable/" in each] == asked


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b'["persistent://public/default/x"]', "an answer about scalable topics"),
        (b'["topic://other/default/x"]', "an answer about scalable topics"),
        (b'["segment://public/default/x/0-1-2"]', "does not end with a segment"),
        (b"{}", "not a list of names"),
    ],
)
def test_wrong_lists_of_the_admin_api(answer: bytes, said: str) -> None:
    """A list that has other names than was asked for is an error."""
    with running_admin_server() as server:
        server.answers.update(scalable_answers())
        server.answers["admin", "v2", "scalable", "public", "default"] = answer
        with pytest.raises(CorruptMetadataError, match=said):
            open_metadata_source(server.url).scalable_topics(["public/default"])


class TestStore:
    """Scalable topics in the nodes of a metadata store."""

    NODES: Final = nodes_of_folder(FOLDER / "metadata-store")

    def test_golden_nodes(self) -> None:
        """Topics, graphs and ledgers are those of the folder that was saved with them."""
        source, folder = StoreSource(MemoryMetadataStore(self.NODES)), MetadataFolder(str(FOLDER))
        assert source.scalable_topics() == folder.scalable_topics()
        assert not source.scalable_topics(["public/other"])
        assert not source.scalable_topics(["public/cluster/default"])
        for topic in source.scalable_topics():
            graph = source.scalable_topic(topic)
            assert graph is not None
            assert graph == folder.scalable_topic(topic)
            for member in graph.members:
                saved, stored = folder.topic_metadata(member), source.topic_metadata(member)
                assert saved is not None
                assert stored is not None
                assert (saved.ledgers, saved.terminated_position) == (
                    stored.ledgers,
                    stored.terminated_position,
                )
        attempts = folder.named_attempts(None, max_topics=0)
        assert source.named_attempts(None, max_topics=100) == attempts
        assert source.named_attempts(None, max_topics=5) is None
        assert not source.warnings

    def test_other_nodes(self) -> None:
        """A name that no broker writes is left out with a warning; an empty node is no topic."""
        nodes = self.NODES | {
            "/topics/public/default/a b": b"{}",
            "/topics/public/default/a%2Fb": b"{}",
            "/topics/public/default/parent/controller": b"",
            "/topics/public/default/empty": b"",
            node_path(TOPIC): b"[]",
        }
        source = StoreSource(MemoryMetadataStore(nodes))
        names = {str(each) for each in source.scalable_topics()}
        assert names - set(NAMES) == {
            "topic://public/default/parent",
            "topic://public/default/empty",
        }
        assert len([each for each in source.warnings if "is left out" in each]) == 2
        assert source.scalable_topic(TopicName.parse("topic://public/default/empty")) is None
        assert source.scalable_topic(TopicName.parse("topic://public/default/parent")) is None
        with pytest.raises(CorruptMetadataError, match="not a JSON object") as error:
            source.scalable_topic(TOPIC)
        assert str(error.value.object_key).endswith(node_path(TOPIC))
        assert source.named_attempts(None, max_topics=100)
