"""Topics, ledgers and cursors of a metadata store, whichever store it is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from arrow_io.errors import CorruptMetadataError, StorageError, UndecodedValuesWarning
from connector import open_catalog, open_topic
from connector.catalog.metadata.folder import MetadataFolder
from connector.catalog.metadata.managed_ledger import (
    parse_managed_cursor_info,
    serialize_managed_ledger_info,
)
from connector.catalog.metadata.source import open_metadata_source
from connector.catalog.metadata.store_source import StoreSource
from connector.inputs.topic_names import TopicName
from tests.support.codecs import CODECS, compressed_managed_ledger
from tests.support.golden import GOLDEN, GOLDEN_SETS, SCALABLE_SET, golden_topics
from tests.support.memory_metadata_store import (
    MemoryMetadataStore,
    golden_nodes,
    nodes_of_folder,
)
from tests.support.oxia_server import running_oxia_server
from tests.support.pulsar_proto import varint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL: Final = "pulsar-4.0.7-small"
OBJECTS: Final = str(GOLDEN / SMALL / "objects")
TOPIC: Final = TopicName.parse("small-transactions")
PATH: Final = f"/managed-ledgers/{TOPIC.managed_ledger_name}"


def _source(nodes: dict[str, bytes] | None = None) -> StoreSource:
    return StoreSource(MemoryMetadataStore(golden_nodes(SMALL) | (nodes or {})))


def _signed(number: int) -> bytes:
    return varint(number % (1 << 64))


def _cursor(ledger_id: int, position: tuple[int, int] | None) -> bytes:
    """Return a ManagedCursorInfo: fields 1 to 3, and field 6, the time of its last use."""
    data = b"\x08" + _signed(ledger_id)
    if position is not None:
        data += b"\x10" + _signed(position[0]) + b"\x18" + _signed(position[1])
    return data + b"\x30" + varint(1_795_000_000_000)


@pytest.mark.parametrize("set_name", GOLDEN_SETS)
def test_topics_are_those_of_the_golden_set(set_name: str) -> None:
    """Names and ledgers must be those of a folder with the same values."""
    source = StoreSource(MemoryMetadataStore(golden_nodes(set_name)))
    values = {
        topic.name: topic.folder / "managed-ledger-info.bin"
        for topic in golden_topics()
        if topic.set_name == set_name
    }
    folder = MetadataFolder(values)
    listed = json.loads((GOLDEN / set_name / "topics.json").read_text())

    assert {str(topic) for topic in source.topics()} == set(listed)
    for topic in source.topics():
        assert source.topic_metadata(topic) == folder.topic_metadata(topic)
    attempts = source.named_attempts(None, max_topics=1_000)
    assert attempts == folder.named_attempts(None, max_topics=0)
    assert source.warnings == []


def test_list_of_ledgers_is_proven() -> None:
    """A value comes whole, so no ledger of it may be missing."""
    metadata = _source().topic_metadata(TOPIC)
    assert metadata is not None
    assert metadata.proven_to_ledger_id == metadata.last_ledger_id >= 0


class TestNamespaces:
    """Which nodes are topics."""

    def test_other_domains_are_no_topics(self) -> None:
        """Segments of scalable topics are below their own domain."""
        source = _source({"/managed-ledgers/public/default/segment/orders/0000-ffff-0": b""})
        assert source.topics() == _source().topics()

    def test_topics_of_every_namespace(self) -> None:
        """Names with a cluster, system topics and encoded names are listed."""
        names = (
            "pulsar/system/persistent/__transaction_log_0",
            "acme/west/eu/persistent/orders",
            "acme/eu/persistent/orders-partition-1",
            "acme/eu/persistent/orders-partition-0",
            "acme/eu/persistent/a%3Ab+c%C3%A9",
        )
        source = StoreSource(
            MemoryMetadataStore({f"/managed-ledgers/{name}": b"" for name in names})
        )
        assert [str(topic) for topic in source.topics()] == [
            "persistent://acme/eu/a:b cé",
            "persistent://acme/eu/orders-partition-0",
            "persistent://acme/eu/orders-partition-1",
            "persistent://acme/west/eu/orders",
            "persistent://pulsar/system/__transaction_log_0",
        ]
        assert source.topics(["acme/west/eu"]) == [TopicName("acme", "eu", "orders", "west")]
        assert source.topics(["none/none"]) == []

    def test_strange_names_are_counted(self) -> None:
        """A node whose name no topic has is left out, with a warning."""
        source = _source({"/managed-ledgers/public/default/persistent/a%2fb": b""})
        assert source.topics() == _source().topics()
        [warning] = source.warnings
        assert "a%2fb" in warning
        assert "left out" in warning

    def test_store_of_something_else(self) -> None:
        """A store without managed ledgers is no cluster's, whatever is requested."""
        source = StoreSource(MemoryMetadataStore({"/other": b""}))
        for request in (
            source.topics,
            lambda: source.topics(["public/default"]),
            lambda: source.topic_metadata(TOPIC),
            lambda: source.named_attempts(None, max_topics=1),
        ):
            with pytest.raises(StorageError, match="no managed ledgers in memory-store://"):
                request()


class TestTopics:
    """The nodes of one topic."""

    def test_answers_are_cached_until_requested_again(self) -> None:
        """A topic is read once, and a live source is read anew."""
        store = MemoryMetadataStore(golden_nodes(SMALL))
        source = StoreSource(store)
        first = source.topic_metadata(TOPIC)
        requests = len(store.requests)
        assert source.topic_metadata(TOPIC) is first
        assert len(store.requests) == requests

        store.nodes[PATH] = b""
        assert source.topic_metadata(TOPIC) is first
        newer = source.topic_metadata(TOPIC, again=True)
        assert newer is not None
        assert newer.ledgers == ()
        del store.nodes[PATH]
        assert source.topic_metadata(TOPIC, again=True) is None

    @pytest.mark.parametrize("codec", CODECS)
    def test_compressed_values(self, codec: str) -> None:
        """A compressed list of ledgers is the same list."""
        value = golden_nodes(SMALL)[PATH]
        source = _source({PATH: compressed_managed_ledger(codec, value)})  # type: ignore[arg-type]
        assert source.topic_metadata(TOPIC) == _source().topic_metadata(TOPIC)

    def test_malformed_value(self) -> None:
        """The error names the node."""
        with pytest.raises(CorruptMetadataError) as caught:
            _source({PATH: b"\xff"}).topic_metadata(TOPIC)
        assert caught.value.object_key == f"memory-store://{PATH}"

    def test_malformed_values_name_no_attempts(self) -> None:
        """A topic that cannot be read adds no attempt, and the others do."""
        attempts = _source().named_attempts(None, max_topics=100)
        damaged = _source({PATH: b"\xff"}).named_attempts(None, max_topics=100)
        assert attempts is not None
        assert damaged is not None
        assert set(damaged) < set(attempts)
        assert _source().named_attempts(None, max_topics=1) is None


class TestCursors:
    """Positions of subscriptions."""

    @pytest.mark.parametrize(
        ("data", "position"),
        [
            (_cursor(-1, (17, 5)), (17, 5)),
            (_cursor(-1, (17, -1)), (17, -1)),
            (_cursor(-1, (-1, -1)), (-1, -1)),
            (compressed_managed_ledger("ZSTD", _cursor(-1, (17, 5))), (17, 5)),
            (_cursor(99, (17, 5)), None),
            (_cursor(99, None), None),
            (_cursor(-1, None), None),
        ],
    )
    def test_position(self, data: bytes, position: tuple[int, int] | None) -> None:
        """Only a cursor that is not open has its position in the store."""
        assert parse_managed_cursor_info(data) == position

    @pytest.mark.parametrize(
        "data", [b"", b"\x10\x01", b"\xff", _cursor(-1, (1, -2)), _cursor(-1, (1, 5))[:-1]]
    )
    def test_malformed_position(self, data: bytes) -> None:
        """Missing fields, impossible positions and truncated values are errors."""
        with pytest.raises(CorruptMetadataError):
            parse_managed_cursor_info(data)

    def test_cursors_of_a_topic(self) -> None:
        """Positions are read by name, open cursors are counted, and malformed ones reported."""
        plain = _source().topic_metadata(TOPIC)
        source = _source(
            {
                f"{PATH}/a%3Ab": _cursor(-1, (17, 5)),
                f"{PATH}/open": _cursor(99, None),
                f"{PATH}/open2": _cursor(99, (17, 1)),
                f"{PATH}/damaged": b"\xff",
            }
        )
        assert plain is not None
        assert source.topic_metadata(TOPIC) == replace(plain, cursors={"a%3Ab": (17, 5)})
        damaged, lacking = source.warnings
        assert f"the position of subscription damaged of {TOPIC} is not used" in damaged
        assert "lacks the positions of 2 open subscriptions" in lacking

    def test_subscription_that_vanishes(self) -> None:
        """A cursor that is deleted between two requests is no cursor of the topic."""

        class Vanishing(MemoryMetadataStore):
            def children(self, path: str) -> list[str]:
                names = super().children(path)
                self.nodes.pop(f"{PATH}/sub", None)
                return names

        nodes = golden_nodes(SMALL) | {f"{PATH}/sub": _cursor(-1, (17, 5))}
        source = StoreSource(Vanishing(nodes))
        assert source.topic_metadata(TOPIC) == _source().topic_metadata(TOPIC)
        assert source.warnings == []

    def test_topic_that_vanishes(self) -> None:
        """A topic that is deleted after it was listed is unknown."""
        store = MemoryMetadataStore(golden_nodes(SMALL))
        source = StoreSource(store)
        assert TOPIC in source.topics()
        del store.nodes[PATH]
        assert source.topic_metadata(TOPIC) is None


@pytest.fixture
def url() -> Iterator[str]:
    """The URL of a store with the topics of the small golden set."""
    with running_oxia_server(golden_nodes(SMALL)) as server:
        yield server.url


class TestReads:
    """What users notice of the source."""

    def test_schemas_are_elsewhere(self, url: str) -> None:
        """Values stay bytes, with a warning that names the reason; a given schema decodes them."""
        source = open_metadata_source(url)
        topic = TopicName.parse("small-avro-evolved")
        assert source.schema_source(topic) is None
        assert not source.knows_schemas
        assert source.warnings == [
            "the metadata store lacks the schemas of 1 topic: brokers write them to BookKeeper"
        ]
        with pytest.warns(UndecodedValuesWarning, match="which brokers write to BookKeeper"):
            open_topic(OBJECTS, "small-avro-evolved", metadata=url)

    def test_snapshot_from_a_store(self, url: str, tmp_path: Path) -> None:
        """A saved snapshot has all that the values of the store have, and its warnings."""
        file = str(tmp_path / "snapshot.json.gz")
        catalog = open_catalog(OBJECTS, metadata=url)
        catalog.save(file)
        saved = open_catalog(OBJECTS, metadata=file)
        assert saved.topics() == catalog.topics()
        nodes = golden_nodes(SMALL)
        for topic in saved.every_ledger():
            assert topic.metadata is not None
            value = nodes[f"/managed-ledgers/{topic.topic.managed_ledger_name}"]
            assert serialize_managed_ledger_info(topic.metadata) == value
        assert saved.source is not None
        assert any("lacks the schemas of" in warning for warning in saved.source.warnings)


def test_nodes_of_scalable_topics_are_no_obstacle() -> None:
    """A store of Pulsar 5.0 lists the persistent topics, and their compressed ledgers."""
    migrated = GOLDEN / SCALABLE_SET / "public__default__migrated"
    nodes = {
        f"/managed-ledgers/public/default/persistent/migrated-partition-{number}": (
            migrated / f"legacy-migrated-partition-{number}" / "managed-ledger-info.bin"
        ).read_bytes()
        for number in (0, 1)
    }
    segment = "/managed-ledgers/public/default/segment/migrated/0000-7fff-2"
    source = StoreSource(MemoryMetadataStore(nodes | {segment: b""}))
    topics = source.topics()
    assert [str(topic) for topic in topics] == [
        f"persistent://public/default/migrated-partition-{number}" for number in (0, 1)
    ]
    assert all(each.ledgers for each in map(source.topic_metadata, topics) if each is not None)


class TestScalableTopics:
    """A store has the graph of segments, and their ledgers."""

    def test_graphs_and_ledgers_are_those_of_the_folder(self) -> None:
        """Segments, their ledgers and the outcomes of their transactions are the same."""
        folder = GOLDEN / SCALABLE_SET
        source = StoreSource(MemoryMetadataStore(nodes_of_folder(folder / "metadata-store")))
        saved = MetadataFolder(str(folder))

        assert source.scalable_topics() == saved.scalable_topics() != []
        assert source.scalable_topics(["public/default"]) == source.scalable_topics()
        assert source.scalable_topics(["none/none"]) == []
        assert source.scalable_topics(["acme/west/eu"]) == []
        for topic in source.scalable_topics():
            graph = source.scalable_topic(topic)
            assert graph is not None
            assert graph == saved.scalable_topic(topic)
            for member in graph.members:
                assert source.topic_metadata(member) == saved.topic_metadata(member)
        assert source.scalable_topic(TopicName.parse("topic://public/default/none")) is None

    def test_namespaces_with_segments_alone_are_found(self) -> None:
        """A namespace need not have persistent topics."""
        nodes = {"/managed-ledgers/a/b/segment/x/0000-ffff-0": b"", "/topics/a/b/x": b"{}"}
        source = StoreSource(MemoryMetadataStore(nodes))

        assert [str(each) for each in source.scalable_topics()] == ["topic://a/b/x"]
        assert source.topics() == []

    @pytest.mark.parametrize("name", ["a b", "a%2fb", "%2F", "~"])
    def test_strange_names_are_counted(self, name: str) -> None:
        """A node whose name no topic has is left out, with a warning."""
        nodes = {"/managed-ledgers/a/b/segment/x/0000-ffff-0": b"", f"/topics/a/b/{name}": b"{}"}
        source = StoreSource(MemoryMetadataStore(nodes))

        assert source.scalable_topics() == []
        assert len(source.warnings) == 1

    def test_malformed_graph_is_named(self) -> None:
        """The error has the path of the node."""
        source = _source({"/topics/public/default/x": b"{"})

        with pytest.raises(CorruptMetadataError) as caught:
            source.scalable_topic(TopicName.parse("topic://public/default/x"))
        assert caught.value.object_key == "memory-store:///topics/public/default/x"
