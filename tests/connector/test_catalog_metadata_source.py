"""The form of a source says how it is read."""

from __future__ import annotations

import sys
from typing import Any, Final

import pytest

from arrow_io.core.option_values import type_name
from arrow_io.errors import OptionError
from connector.catalog.metadata.admin_client import AdminApi
from connector.catalog.metadata.folder import MetadataFolder
from connector.catalog.metadata.source import open_metadata_source
from connector.catalog.metadata.store_source import StoreSource
from connector.inputs.topic_names import TopicName
from tests.support.admin_server import running_admin_server
from tests.support.golden import GOLDEN
from tests.support.s3_server import running_s3_server

TOPIC: Final = TopicName.parse("small-transactions")


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
        ("zk://a,b:2181/chroot", StoreSource),
        ("OXIA://host:6648", StoreSource),
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


@pytest.mark.parametrize(
    ("url", "library", "extra"),
    [("zk://host", "kazoo", "zookeeper"), ("oxia://host:6648", "grpc", "oxia")],
)
def test_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str, library: str, extra: str
) -> None:
    """The error says which extra to install."""
    for name in [each for each in sys.modules if each.split(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, f"connector.catalog.metadata.{extra}_store", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Without(library), *sys.meta_path])
    with pytest.raises(OptionError, match=rf"needs {library}: pip install .*\[{extra}\]"):
        open_metadata_source(url)


class _Without:
    """An importer that finds no module of a library."""

    def __init__(self, library: str) -> None:
        self.library = library

    def find_spec(self, name: str, *_: object) -> None:
        """Raise an error if the library is imported."""
        if name.split(".", maxsplit=1)[0] == self.library:
            raise ModuleNotFoundError(name=name)
