"""A live cluster is asked for what is needed, and for nothing that it should not be asked."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pytest

from arrow_io.errors import CorruptMetadataError, StorageError
from arrow_io.storage.attempts import RetryPolicy
from connector.catalog.metadata.admin_client import AdminApi
from connector.catalog.metadata.admin_connection import AdminConnection, AdminOptions
from connector.inputs.topic_names import TopicName
from tests.support.admin_server import (
    AdminServer,
    Answer,
    running_admin_server,
)
from tests.support.golden import GOLDEN, GOLDEN_SETS, golden_topic, golden_topics
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

SMALL: Final = "pulsar-4.0.7-small"
TOKEN: Final = "secret-token"  # noqa: S105 - invented
CLUSTERS: Final = "/admin/v2/clusters"
TENANTS: Final = "/admin/v2/tenants"


@pytest.fixture
def server() -> Iterator[AdminServer]:
    """A cluster with the topics of the small golden set, which asks for a token."""
    with running_admin_server(SMALL, token=TOKEN) as running:
        yield running


def _api(url: str, **options: object) -> AdminApi:
    return AdminApi.from_options(url, options)


def _impatient(server: AdminServer, token: str = TOKEN) -> AdminApi:
    """Asks at once what it asks again."""
    retry = RetryPolicy(sleep=lambda _: None)
    return AdminApi(AdminConnection(server.url, AdminOptions(token=token), retry))


@pytest.mark.parametrize("set_name", GOLDEN_SETS)
def test_golden_topics_are_as_the_cluster_has_them(set_name: str) -> None:
    """Ledgers, entries, sizes, flags, uuids and schemas must be those of the golden set."""
    topics = [topic for topic in golden_topics() if topic.set_name == set_name]
    listed = json.loads((GOLDEN / set_name / "topics.json").read_text())
    with running_admin_server(set_name, token=TOKEN) as server:
        api = _api(server.url, token=TOKEN)

        assert {str(topic) for topic in api.topics()} == set(listed)
        for topic in topics:
            metadata = api.topic_metadata(TopicName.parse(topic.name))
            assert metadata is not None
            assert [
                (each.ledger_id, each.entries or 0, each.size_bytes or 0, each.is_offloaded)
                for each in metadata.ledgers
            ] == [tuple(each.values()) for each in listed[topic.name]["ledgers"]]
            uuids = [str(each.offload.uuid) for each in metadata.ledgers if each.offload]
            assert uuids == [each.uuid for each in topic.ledgers]
            saved = topic.folder / "schemas-rest.json"
            assert api.schema_source(metadata.topic) == (
                saved.read_bytes() if saved.exists() else None
            )
        assert api.warnings == []


def test_only_what_is_asked_for_is_fetched(server: AdminServer) -> None:
    """One topic takes two requests, its schemas one; a second time they take none."""
    api = _api(server.url, token=TOKEN)
    topic = TopicName.parse("small-transactions")
    path = "/admin/v2/persistent/public/default/small-transactions"

    for _ in range(2):
        assert api.topic_metadata(topic) is not None
    assert server.paths == [f"{path}/internal-info", f"{path}/internalStats"]
    server.asked.clear()
    for _ in range(2):
        assert api.schema_source(topic) is not None
    assert server.paths == ["/admin/v2/schemas/public/default/small-transactions/schemas"]


def test_namespaces_that_are_given_are_all_that_is_listed(server: AdminServer) -> None:
    """Who may not list tenants can name namespaces."""
    server.answers["admin", "v2", "persistent", "other", "ns"] = b"[]"
    server.answers["admin", "persistent", "old", "cluster", "ns"] = (
        b'["persistent://old/cluster/ns/x"]'
    )
    api = _api(server.url, token=TOKEN, namespaces="public/default, other/ns,old/cluster/ns")

    assert len(api.topics()) == 10
    assert sorted(server.paths) == [
        "/admin/persistent/old/cluster/ns",
        "/admin/v2/persistent/other/ns",
        "/admin/v2/persistent/public/default",
    ]


def test_namespaces_that_are_asked_for_are_all_that_is_listed(server: AdminServer) -> None:
    """One topic takes no right but to its namespace; what the cluster does not know is empty."""
    api = _api(server.url, token=TOKEN)

    for _ in range(2):
        assert len(api.topics({"public/default", "other/ns"})) == 9
        assert api.topics(["other/ns"]) == api.topics([]) == []

    assert sorted(server.paths) == [
        CLUSTERS,
        "/admin/v2/persistent/other/ns",
        "/admin/v2/persistent/public/default",
    ]
    assert len(api.topics()) == 9


def test_named_namespace_that_is_not_there_is_told(server: AdminServer) -> None:
    """The option's namespaces are the user's word: a typing error must not look like no topics."""
    api = _api(server.url, token=TOKEN, namespaces="public/default,public/defualt")

    with pytest.raises(StorageError, match="has no namespace 'public/defualt'") as error:
        api.topics()
    assert server.url in str(error.value)
    with pytest.raises(StorageError, match="has no namespace 'public/defualt'"):
        api.topics(["public/defualt"])
    assert len(api.topics(["public/default"])) == 9


@pytest.mark.parametrize("path", ["", "/admin/v2", "/console"])
@pytest.mark.parametrize("options", [{}, {"namespaces": "public/default"}], ids=str)
def test_address_of_no_admin_api_never_passes_for_no_topics(
    path: str, options: dict[str, object]
) -> None:
    """Any web server answers 404 for what it does not know; only Pulsar's knows its clusters."""
    with running_admin_server(SMALL if path else None) as server:
        for ask in (
            AdminApi.topics,
            lambda api: api.topics(["public/default"]),
            lambda api: api.topic_metadata(TopicName.parse("small-transactions")),
            lambda api: api.schema_source(TopicName.parse("small-transactions")),
        ):
            api = _api(f"{server.url}{path}", token=TOKEN, **options)
            with pytest.raises(StorageError, match="no admin API of Pulsar answers at") as error:
                ask(api)
            assert f"at {server.url}{path}: HTTP 404 for /admin/v2/" in str(error.value)
            assert TOKEN not in str(error.value)


def test_cluster_without_list_of_tenants_is_told(server: AdminServer) -> None:
    """A gateway that gives only a part of the API must not look like a cluster without topics."""
    del server.answers["admin", "v2", "tenants"]

    with pytest.raises(StorageError, match=f"HTTP 404 for {TENANTS}"):
        _api(server.url, token=TOKEN).topics()


def test_topics_without_offloads_are_not_loaded(server: AdminServer) -> None:
    """Statistics make a broker load the topic, and have nothing to say where none was begun."""
    answer = {"ledgers": [{"ledgerId": 1, "entries": 2, "size": 3, "timestamp": 4}]}
    path = ("admin", "v2", "persistent", "public", "default", "busy")
    server.answers[*path, "internal-info"] = json.dumps(answer).encode()
    api = _api(server.url, token=TOKEN)

    metadata = api.topic_metadata(TopicName.parse("busy"))

    assert metadata is not None
    assert [(each.ledger_id, each.entries) for each in metadata.ledgers] == [(1, 2)]
    assert server.paths == ["/admin/v2/persistent/public/default/busy/internal-info"]


def test_threads_ask_for_the_same_once(server: AdminServer) -> None:
    """Answers are shared by all threads, and no request is sent twice."""
    api = _api(server.url, token=TOKEN)
    barrier = threading.Barrier(8, timeout=PATIENCE_S)
    name = TopicName.parse("small-transactions")

    def ask(_: int) -> tuple[object, ...]:
        barrier.wait()
        return api.topics(), api.topic_metadata(name), api.schema_source(name)

    with ThreadPoolExecutor(8) as executor:
        answers = list(executor.map(ask, range(8)))

    assert all(answer == answers[0] for answer in answers)
    assert len(server.paths) == len(set(server.paths)) == 6


def test_errors_are_not_kept(server: AdminServer) -> None:
    """What was refused once may be given the next time."""
    api = _api(server.url, token=TOKEN)
    server.script.append(Answer(403))
    with pytest.raises(StorageError, match="refuses"):
        api.topics()

    assert len(api.topics()) == 9


def test_schemas_are_asked_for_once_for_all_partitions(server: AdminServer) -> None:
    """A schema belongs to the topic, not to a partition."""
    api = _api(server.url, token=TOKEN)

    for number in range(3):
        api.schema_source(TopicName.parse(f"small-partitioned-partition-{number}"))

    assert server.paths == ["/admin/v2/schemas/public/default/small-partitioned/schemas"]


def test_unknown_topics_and_schemas_are_none(server: AdminServer) -> None:
    """404 is an answer, once it is clear that a cluster answers; no statistics are asked for."""
    api = _api(server.url, token=TOKEN)

    assert api.topic_metadata(TopicName.parse("other")) is None
    assert api.schema_source(TopicName.parse("other")) is None
    assert server.paths == [
        "/admin/v2/persistent/public/default/other/internal-info",
        CLUSTERS,
        "/admin/v2/schemas/public/default/other/schemas",
    ]


def test_topics_that_brokers_do_not_know_are_none(server: AdminServer) -> None:
    """They answer 500 to internal-info, but 404 to internalStats, which is not asked for again."""
    server.fails_unknown_info = True
    api = _api(server.url, token=TOKEN)

    assert len(api.topics(["public/default"])) == 9
    server.asked.clear()
    assert api.topic_metadata(TopicName.parse("other")) is None

    path = "/admin/v2/persistent/public/default/other"
    assert server.paths == [f"{path}/internalStats", CLUSTERS]


def test_topic_that_was_deleted_since_it_was_listed_is_none(server: AdminServer) -> None:
    """The list may be older than the answer, or none was asked for."""
    server.fails_unknown_info = True
    path = ("admin", "v2", "persistent", "public", "default", "small-chunked")
    for file in ("internal-info", "internalStats"):
        del server.answers[*path, file]

    assert _impatient(server).topic_metadata(TopicName.parse("small-chunked")) is None


def test_broker_that_fails_does_not_pass_for_one_that_knows_nothing(server: AdminServer) -> None:
    """Of a topic that it has statistics of, a failure is one; so it is if all fails."""
    server.fails_unknown_info = True
    path = ("admin", "v2", "persistent", "public", "default", "small-chunked")
    del server.answers[*path, "internal-info"]
    topic = TopicName.parse("small-chunked")

    with pytest.raises(StorageError, match=r"internal-info failed, .*: HTTP 500"):
        _impatient(server).topic_metadata(topic)
    server.answers[*path, "internalStats"] = b"<html>"
    with pytest.raises(StorageError, match=r"internal-info failed, .*: HTTP 500"):
        _impatient(server).topic_metadata(topic)
    with pytest.raises(StorageError, match=r"refuses .*internal-info"):
        _impatient(server, "wrong").topic_metadata(topic)


def test_topic_that_is_not_listed_is_asked_for(server: AdminServer) -> None:
    """Brokers leave system topics out of their lists."""
    server.answers["admin", "v2", "persistent", "public", "default"] = b"[]"
    api = _api(server.url, token=TOKEN)

    assert api.topics(["public/default"]) == []
    metadata = api.topic_metadata(TopicName.parse("small-chunked"))

    assert metadata is not None
    assert metadata.proven_to_ledger_id == metadata.last_ledger_id > 0


def test_empty_list_of_schemas_is_none(server: AdminServer) -> None:
    """A topic whose schemas were deleted has none."""
    server.script.append(Answer(200, b'{"getSchemaResponses": []}'))

    assert _api(server.url, token=TOKEN).schema_source(TopicName.parse("other")) is None


@pytest.mark.parametrize(
    ("topic", "path"),
    [
        (
            "acme-corp/sales.eu/orders-été:2026 %20 v1",
            "/admin/v2/persistent/acme-corp/sales.eu/orders-%C3%A9t%C3%A9%3A2026%20%2520%20v1",
        ),
        ("a/b/c?d#e+f", "/admin/v2/persistent/a/b/c%3Fd%23e%2Bf"),
        ("persistent://a/cluster/b/c/d", "/admin/persistent/a/cluster/b/c%2Fd"),
    ],
)
def test_topic_names_are_encoded_once(server: AdminServer, topic: str, path: str) -> None:
    """Odd characters must reach the broker as they are, names with a cluster by the old path."""
    _api(server.url, token=TOKEN).topic_metadata(TopicName.parse(topic))

    assert server.paths == [f"{path}/internal-info", CLUSTERS]


def test_url_may_have_a_path() -> None:
    """A gateway may give the API below a path of its own."""
    with running_admin_server() as server:
        server.answers["gate", "admin", "v2", "tenants"] = b"[]"

        assert _api(f"{server.url}/gate/").topics() == []


def test_answer_about_a_partitioned_topic_is_none_of_the_topic(server: AdminServer) -> None:
    """The topic has no ledgers itself, its partitions have."""
    server.script.append(Answer(200, b'{"version": 1, "partitions": {}}'))

    assert _api(server.url, token=TOKEN).topic_metadata(TopicName.parse("other")) is None


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[1]", b'["sink"', b'["a/b://c"]'])
def test_malformed_answers_are_typed_errors(server: AdminServer, body: bytes) -> None:
    """A login page of a proxy, or anything else that no broker sends; the URL is told."""
    api = _api(server.url, token=TOKEN, namespaces=["public/default"])
    server.script.append(Answer(200, body))

    with pytest.raises(CorruptMetadataError) as error:
        api.topics()
    if not body.startswith(b'["a'):
        assert f"{server.url}/admin/v2/persistent/public/default" in str(error.value)


def test_whoever_asks_again_has_an_answer_of_later(server: AdminServer) -> None:
    """An answer to another thread may be older: an object that it names may be deleted since."""
    api = _api(server.url, token=TOKEN)
    topic = TopicName.parse(golden_topic("small-chunked").name)
    api.topic_metadata(topic)
    count = 8
    begin = threading.Barrier(count)

    def ask(_: int) -> None:
        begin.wait(PATIENCE_S)
        api.topic_metadata(topic, again=True)

    with ThreadPoolExecutor(count) as executor:
        list(executor.map(ask, range(count)))

    assert sum(path.endswith("/internal-info") for path in server.paths) == 1 + count
