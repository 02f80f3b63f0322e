"""Nodes that were saved as files are those of the metadata store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from arrow_io.errors import CorruptMetadataError
from arrow_io.storage.location import Location
from connector.catalog.metadata import node_folder
from connector.catalog.metadata.node_folder import NODE_FOLDER, NodeFolder
from tests.support.buckets import memory_bucket
from tests.support.golden_scalable import FOLDER
from tests.support.memory_metadata_store import MemoryMetadataStore, nodes_of_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

NODES: Final = nodes_of_folder(FOLDER / NODE_FOLDER)


@pytest.fixture(params=["local", "object store"])
def folder(request: pytest.FixtureRequest) -> Iterator[NodeFolder]:
    """The golden nodes in files, or in objects of a bucket."""
    if request.param == "local":
        yield NodeFolder(Location(str(FOLDER / NODE_FOLDER)))
        return
    files = [each for each in (FOLDER / NODE_FOLDER).rglob("*") if each.is_file()]
    names = {str(each.relative_to(FOLDER)): each.read_bytes() for each in files}
    with memory_bucket(names) as bucket:
        yield NodeFolder(Location(f"{bucket.url}/{NODE_FOLDER}"))


def test_nodes_are_those_of_the_store(folder: NodeFolder) -> None:
    """Values of all nodes, names of the children of those that have some, and absent ones."""
    store = MemoryMetadataStore(NODES)
    parents = {path[:at] for path in NODES for at, each in enumerate(path) if each == "/"} - {""}

    assert len(NODES) > 30
    for path in {*NODES, *parents, "/absent", "/txn/id/absent", "/absent/absent"}:
        assert folder.get(path) == store.get(path), path
    for path in {*parents, "/absent", "/absent/absent"}:
        assert folder.children(path) == store.children(path), path
    assert folder.children("/") == ["managed-ledgers", "topics", "txn"]


def test_size_is_bounded(folder: NodeFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a long value nor many names are read into memory."""
    monkeypatch.setattr(node_folder, "MAX_METADATA_BYTES", 100)

    assert folder.get("/txn/id/0_10") is not None
    assert folder.children("/txn/id") == ["0_10"]
    with pytest.raises(CorruptMetadataError):
        folder.get("/topics/public/default/payments")
    with pytest.raises(CorruptMetadataError):
        folder.children("/txn/segment-state/aborted")


def test_url_names_the_folder(folder: NodeFolder) -> None:
    """Messages have it."""
    assert folder.url.endswith(NODE_FOLDER)
