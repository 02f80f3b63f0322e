"""`connector.upkeep.attachment`: what a cluster says decides what stands in a topic's way."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from arrow_io.errors import OptionError, StorageError
from arrow_io.messages.message_metadata import Message
from arrow_io.storage.location import Location
from connector import open_catalog, write_messages
from connector.catalog.metadata.admin_client import AdminApi
from connector.catalog.metadata.managed_ledger import (
    parse_managed_ledger_info,
    serialize_managed_ledger_info,
)
from connector.inputs.topic_names import TopicName
from connector.upkeep.attachment import Verdict, check_attachment
from tests.support.admin_server import Answer, running_admin_server
from tests.support.command_line import FOUND, USAGE, cells, lines_of, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from connector import Catalog
    from connector.upkeep.attachment import Attachment
    from tests.support.admin_server import AdminServer
    from tests.support.s3_server import S3Server

pytestmark = pytest.mark.s3

_V2: Final = ("admin", "v2")
_POLICIES: Final = (*_V2, "namespaces", "public", "default")
_CONFIGURATION: Final = (*_V2, "brokers", "configuration", "runtime")
_SCHEMA: Final = {
    "type": "JSON",
    "schema": {"type": "record", "name": "Sale", "fields": [{"name": "sku", "type": "string"}]},
}
_NOW_MS: Final = 1_800_000_000_000
_SETTINGS: Final = {
    "clusterName": "standalone",
    "managedLedgerOffloadDriver": "aws-s3",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
}


@pytest.fixture
def cluster() -> Iterator[AdminServer]:
    """A cluster with the topics of the small golden set, which keeps everything."""
    with running_admin_server("pulsar-4.0.7-small") as server:
        server.answers[_POLICIES] = b'{"replication_clusters": ["standalone"]}'
        _set(server, **_SETTINGS)
        yield server


def _set(server: AdminServer, **settings: str) -> None:
    server.answers[_CONFIGURATION] = json.dumps(settings).encode()


@pytest.fixture(scope="module")
def sales(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A topic of two partitions that nobody changes."""
    folder = tmp_path_factory.mktemp("written")
    written = Written(s3_server, f"s3://{s3_server.new_bucket()}", folder / "metadata")
    written.write()
    written.catalog = open_catalog(written.url, metadata=str(written.folder), **written.options)
    return written


@pytest.fixture
def written(s3_server: S3Server, tmp_path: Path) -> Written:
    """A topic that is yet to be written."""
    return Written(s3_server, f"s3://{s3_server.new_bucket()}", tmp_path / "metadata")


class Written:
    """A topic that is written, perhaps.

    Args:
        server: The store.
        url: The bucket.
        folder: For the metadata.
    """

    def __init__(self, server: S3Server, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.options: dict[str, Any] = {"storage_options": server.storage_options}
        self.catalog: Catalog | None = None

    def write(self, **options: Any) -> None:  # noqa: ANN401 - of `write_messages`
        """Write it."""
        given = {"cluster": "standalone", "first_ledger_id": 1, "partitions": 2, "schema": _SCHEMA}
        messages = [
            Message(payload=b'{"sku": "x"}', publish_time_ms=_NOW_MS - 60_000, key=str(number))
            for number in range(9)
        ]
        write_messages(
            self.url,
            "sales",
            messages,
            metadata_folder=str(self.folder),
            **self.options,
            **{**given, **options},
        )

    def checked(self, cluster: AdminServer) -> Attachment:
        """What stands in its way."""
        catalog = self.catalog
        if catalog is None:
            catalog = open_catalog(self.url, metadata=str(self.folder), **self.options)
        api = AdminApi.from_options(cluster.url, {})
        return check_attachment(catalog, "sales", api, now_ms=_NOW_MS)


def _verdicts(found: Attachment) -> dict[str, Verdict]:
    return {each.subject: each.verdict for each in found.checks}


def _wrong(found: Attachment) -> dict[str, Verdict]:
    return {what: each for what, each in _verdicts(found).items() if each is not Verdict.OK}


def test_a_topic_that_can_be_attached(sales: Written, cluster: AdminServer) -> None:
    """Every check is ok, and the steps name every value that is to be put."""
    found = sales.checked(cluster)

    assert set(_verdicts(found).values()) == {Verdict.OK}
    assert not found.has_problems
    steps = "\n".join(found.steps)
    place = "/admin/partitioned-topics/public/default/persistent/sales"
    assert f'create {place} with {{"partitions": 2}}' in steps
    for number in range(2):
        place = f"/managed-ledgers/public/default/persistent/sales-partition-{number}"
        assert f"create {place} with the managed-ledger-info.bin of " in steps
    (posted,) = (each for each in found.steps if each.startswith("post schema version 0: "))
    arguments = shlex.split(posted.removeprefix("post schema version 0: "))
    body = json.loads(arguments[arguments.index("-d") + 1])
    assert body["type"] == "JSON"
    assert json.loads(body["schema"])["name"] == "Sale"
    assert arguments[-1].endswith("/admin/v2/schemas/public/default/sales/schema")


def _with_topic(server: AdminServer) -> None:
    names = (*_V2, "persistent", "public", "default")
    listed = json.loads(server.answers[names])
    server.answers[names] = json.dumps([*listed, "persistent://public/default/sales"]).encode()
    info = next(each for path, each in server.answers.items() if path[-1] == "internal-info")
    server.answers[*names, "sales", "internal-info"] = info


def _with_partitions(server: AdminServer) -> None:
    path = (*_V2, "persistent", "public", "default", "sales", "partitions")
    server.answers[path] = b'{"partitions": 3}'


def _with_schema(server: AdminServer) -> None:
    answer = {"version": 0, "type": "STRING", "timestamp": 0, "data": "", "properties": {}}
    path = (*_V2, "schemas", "public", "default", "sales", "schemas")
    server.answers[path] = json.dumps({"getSchemaResponses": [answer]}).encode()


def _with_policies(**policies: object) -> Callable[[AdminServer], None]:
    def change(server: AdminServer) -> None:
        server.answers[_POLICIES] = json.dumps(policies).encode()

    return change


def _with_settings(**settings: str) -> Callable[[AdminServer], None]:
    return lambda server: _set(server, **{**_SETTINGS, **settings})


def _retention(minutes: object, megabytes: int = -1) -> Callable[[AdminServer], None]:
    times = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}
    return _with_policies(retention_policies=times)


def _without(*path: str) -> Callable[[AdminServer], None]:
    def change(server: AdminServer) -> None:
        server.answers.pop(path)

    return change


_NO_RETENTION: Final = {"retention": Verdict.UNKNOWN}


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (_with_topic, {"topic": Verdict.PROBLEM}),
        (_with_partitions, {"topic": Verdict.PROBLEM}),
        (_with_schema, {"schema": Verdict.PROBLEM}),
        (_with_settings(clusterName="west"), {"cluster": Verdict.PROBLEM}),
        (
            _with_settings(managedLedgerOffloadDriver="azureblob"),
            {"offload driver": Verdict.PROBLEM},
        ),
        (
            _with_policies(offload_policies={"managedLedgerOffloadDriver": "azureblob"}),
            {"offload driver": Verdict.PROBLEM},
        ),
        (_with_settings(defaultRetentionSizeInMB="0"), {"retention": Verdict.PROBLEM}),
        (_retention(0, 0), {"retention": Verdict.PROBLEM}),
        (_retention(0, -1), {"retention": Verdict.PROBLEM}),
        (_retention(-1, 0), {"retention": Verdict.PROBLEM}),
        (_retention(1, -1), {}),
        (_retention(60, 100), {}),
        (
            _without(*_CONFIGURATION),
            dict.fromkeys(("cluster", "offload driver", "retention"), Verdict.UNKNOWN),
        ),
        (_without(*_POLICIES), {"namespace": Verdict.PROBLEM}),
        (_without(*_V2, "tenants"), {"ledger ids": Verdict.UNKNOWN}),
        (_with_policies(retention_policies={"retentionTimeInMinutes": -1}), _NO_RETENTION),
        (_retention("soon"), _NO_RETENTION),
        (
            lambda server: server.script.append(Answer(403)),
            dict.fromkeys(("cluster", "offload driver", "retention"), Verdict.UNKNOWN),
        ),
    ],
)
def test_what_the_cluster_says_decides(
    sales: Written,
    cluster: AdminServer,
    change: Callable[[AdminServer], None],
    wrong: dict[str, Verdict],
) -> None:
    """Each thing is found by its check, and by no other."""
    change(cluster)
    assert _wrong(sales.checked(cluster)) == wrong


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"first_ledger_id": 8}, {"ledger ids": Verdict.PROBLEM}),
        ({"first_ledger_id": 1000}, {"next ledger id": Verdict.UNKNOWN}),
        ({"cluster": None}, {"cluster": Verdict.UNKNOWN}),
        ({"partitions": None, "schema": None}, {}),
    ],
    ids=["taken", "newer", "no cluster", "plain"],
)
def test_how_it_was_written_decides(
    written: Written, cluster: AdminServer, options: dict[str, Any], wrong: dict[str, Verdict]
) -> None:
    """Ids that another topic has lose messages; of others nothing may be known."""
    written.write(**options)
    assert _wrong(written.checked(cluster)) == wrong


def test_checks_say_what_they_go_by(sales: Written, written: Written, cluster: AdminServer) -> None:
    """In words, whatever they come to; and steps name the cluster's metadata store."""
    store = (*_V2, "brokers", "internal-configuration")
    cluster.answers[store] = b'{"metadataStoreUrl": "zk:one:2181"}'
    found = sales.checked(cluster)
    texts = {each.subject: each.text for each in found.checks}
    assert texts["cluster"] == "the objects name the cluster 'standalone'"
    assert texts["next ledger id"].endswith("has a higher id than all of these")
    assert found.steps[1].startswith("in zk:one:2181, create /admin/partitioned-topics/")
    written.write(first_ledger_id=1000)
    texts = {each.subject: each.text for each in written.checked(cluster).checks}
    assert "unknown whether BookKeeper has assigned the id 100" in texts["next ledger id"]


def test_objects_that_a_broker_would_not_find(written: Written, cluster: AdminServer) -> None:
    """Those below a prefix, those that are cut, and those that are gone."""
    written.url = f"{written.url}/prefix"
    written.write()
    assert _verdicts(written.checked(cluster))["bucket"] is Verdict.PROBLEM
    location = open_catalog(written.url, **written.options).location
    name = location.list_objects()[0].name
    data, metadata = (
        location.read_object(name, max_bytes=1 << 20).data,
        location.user_metadata(name),
    )
    location.write_object(name, data[:-1], user_metadata=metadata or {})
    assert _verdicts(written.checked(cluster))["ledgers"] is Verdict.PROBLEM
    location.delete_objects([name])
    assert _verdicts(written.checked(cluster))["ledgers"] is Verdict.PROBLEM


def test_objects_that_were_copied_elsewhere(
    sales: Written, written: Written, cluster: AdminServer
) -> None:
    """A broker goes by the bucket that the metadata names."""
    source = open_catalog(sales.url, **sales.options).location
    target = Location(written.url, sales.options["storage_options"])
    for each in source.list_objects():
        data = source.read_object(each.name, max_bytes=1 << 20).data
        target.write_object(each.name, data, user_metadata=source.user_metadata(each.name) or {})
    written.folder = sales.folder
    assert _wrong(written.checked(cluster)) == {"bucket": Verdict.PROBLEM}


def test_a_partition_that_is_not_there(written: Written, cluster: AdminServer) -> None:
    """A cluster would make an empty one in its place."""
    written.write()
    for path in (written.folder / "public__default__sales-partition-0").iterdir():
        path.unlink()
    catalog = open_catalog(written.url, **written.options)
    (lost,) = catalog.select("sales-partition-0")
    for ledger in lost.ledgers:
        catalog.location.delete_objects([ledger.name.index_name, ledger.name.data_name])
    assert _verdicts(written.checked(cluster))["partitions"] is Verdict.PROBLEM


def test_a_cluster_that_does_not_answer_is_an_error(sales: Written, cluster: AdminServer) -> None:
    """Nothing can be said then; and without what was written neither."""
    cluster.script.extend([Answer(403)] * 9)
    with pytest.raises(StorageError):
        sales.checked(cluster)
    api = AdminApi.from_options(cluster.url, {})
    with pytest.raises(OptionError, match="metadata that was written"):
        check_attachment(open_catalog(sales.url, **sales.options), "sales", api, now_ms=0)


def test_the_command(sales: Written, cluster: AdminServer) -> None:
    """It prints the checks and the steps, and its exit code says whether something is lost."""
    options = [
        f"--storage-option={key}={json.dumps(each) if isinstance(each, dict) else each}"
        for key, each in sales.options["storage_options"].items()
    ]
    given = (sales.url, "sales", "--metadata", str(sales.folder), "--to", cluster.url, *options)

    told = run("attach", *given, "--check").stdout

    assert {row[1] for row in cells(told)[1:]} == {"ok"}
    assert "\nstep 2: in the metadata store, create /admin/partitioned-topics/" in told
    rows = lines_of("attach", *given, "--check")
    assert [each["verdict"] for each in rows].count("to do") == 6
    _retention(0, 0)(cluster)
    run("attach", *given, "--check", ends=FOUND)
    assert "give --check to print the steps" in run("attach", *given, ends=USAGE).stderr


def test_ledgers_that_the_cluster_would_not_have(written: Written, cluster: AdminServer) -> None:
    """The metadata names all that there is, and all that it names is in the bucket."""
    written.write(partitions=None)
    file = next(written.folder.rglob("managed-ledger-info.bin"))
    whole = parse_managed_ledger_info(file.read_bytes(), TopicName.parse("sales"))
    *_, last = whole.ledgers
    file.with_name("manifest.json").unlink()  # it tells which bytes were written
    in_bookkeeper = replace(last, entries=3, size_bytes=90, timestamp_ms=_NOW_MS)
    for ledgers in ((*whole.ledgers[:-1], in_bookkeeper), (last,)):
        file.write_bytes(serialize_managed_ledger_info(replace(whole, ledgers=ledgers)))
        assert _wrong(written.checked(cluster)) == {"ledgers": Verdict.PROBLEM}
