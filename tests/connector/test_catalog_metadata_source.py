"""The form of a source says how it is read."""

from __future__ import annotations

from typing import Any, Final

import pytest

from arrow_io.core.option_values import type_name
from arrow_io.errors import OptionError
from connector.catalog.metadata.admin_client import AdminApi
from connector.catalog.metadata.folder import MetadataFolder
from connector.catalog.metadata.source import MetadataSource, open_metadata_source
from connector.inputs.topic_names import TopicName
from tests.support.admin_server import running_admin_server
from tests.support.golden import GOLDEN, GOLDEN_SETS, golden_topics
from tests.support.s3_server import running_s3_server

TOPIC: Final = TopicName.parse("small-transactions")


def _ledgers(source: MetadataSource) -> list[tuple[object, ...]]:
    """What any source must tell of any golden topic's closed ledgers."""
    return [
        (topic, each.ledger_id, each.entries, each.size_bytes, each.timestamp_ms, offload)
        for topic in source.topics()
        if (metadata := source.topic_metadata(topic)) is not None
        for each in metadata.ledgers
        if each.entries
        for offload in [each.offload and (each.offload.uuid, each.offload.complete)]
    ]


@pytest.mark.parametrize("set_name", GOLDEN_SETS)
def test_every_source_tells_the_same(set_name: str) -> None:
    """Folder, files by topic and live cluster must agree on every closed ledger of every topic."""
    topics = [topic for topic in golden_topics() if topic.set_name == set_name]
    folder = open_metadata_source(GOLDEN / set_name)
    values = open_metadata_source(
        {topic.name: topic.folder / "managed-ledger-info.bin" for topic in topics}
    )
    with running_admin_server(set_name) as server:
        api = open_metadata_source(server.url)
        expected = _ledgers(folder)

        assert len({topic for topic, *_ in expected}) == len(topics)
        assert _ledgers(values) == _ledgers(api) == expected
    # Only the metadata store's value tells the driver, so the folder must have read it too.
    metadata = folder.topic_metadata(TopicName.parse(topics[0].name))
    assert metadata is not None
    assert metadata.ledgers[0].offload is not None
    assert metadata.ledgers[0].offload.driver == "aws-s3"


def test_options_are_those_of_the_source() -> None:
    """A token goes to a cluster, storage options to a store."""
    with running_admin_server("pulsar-4.0.7-small", token="t") as server:
        assert open_metadata_source(server.url, options={"token": "t"}).topics()
    with running_s3_server() as s3_server:
        folder = GOLDEN / "pulsar-4.0.7-small" / "public__default__small-transactions"
        address = s3_server.upload(
            {f"a/{path.name}": path.read_bytes() for path in folder.iterdir()}
        )
        source = open_metadata_source(address.url, options=address.storage_options)
        assert source.topics() == [TOPIC]
    with pytest.raises(OptionError, match="unknown metadata option"):
        open_metadata_source("https://host", options={"key": "s3's"})


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("https://host:8443", AdminApi),
        ("HTTP://host", AdminApi),
        ("folder", MetadataFolder),
        ("s3://bucket/folder", MetadataFolder),
        ({"orders": "folder"}, MetadataFolder),
    ],
)
def test_form_of_the_source_decides(source: Any, kind: type) -> None:  # noqa: ANN401
    """Nothing is sent to find out what a source is."""
    assert isinstance(open_metadata_source(source), kind)


@pytest.mark.parametrize("source", [7, b"folder", None, ["folder"]])
def test_what_is_no_source_is_refused(source: Any) -> None:  # noqa: ANN401
    """Values of other types must be an error that names option and type."""
    with pytest.raises(OptionError, match=f"metadata must be .* not {type_name(source)}$"):
        open_metadata_source(source)


def test_topics_must_be_names() -> None:
    """A key that is no topic's name must be an error."""
    with pytest.raises(OptionError, match="non-persistent"):
        open_metadata_source({"non-persistent://a/b/c": "folder"})
