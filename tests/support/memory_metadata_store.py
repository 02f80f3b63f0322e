"""A metadata store in memory, which stands in for ZooKeeper or Oxia."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector.inputs.topic_names import TopicName
from tests.support.golden import golden_topics

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

VALUE_FILE = "value.bin"
"""The file with the value of a node that has children (`metadata-store` of golden sets)."""


class MemoryMetadataStore:
    """Nodes in a dict, which may change between two requests. Nodes above others are implied."""

    url = "memory-store://"

    def __init__(self, nodes: Mapping[str, bytes]) -> None:
        self.nodes = dict(nodes)
        self.requests: list[str] = []

    def get(self, path: str) -> bytes | None:
        """Return the value of a node; None if there is none."""
        self.requests.append(path)
        return self.nodes.get(path)

    def children(self, path: str) -> list[str]:
        """Return the names of a node's children, sorted."""
        self.requests.append(f"{path}/*")
        prefix = f"{path}/"
        below = (each.removeprefix(prefix) for each in self.nodes if each.startswith(prefix))
        return sorted({each.partition("/")[0] for each in below})


def golden_nodes(set_name: str) -> dict[str, bytes]:
    """Return the nodes that a cluster has of the topics of a golden set."""
    nodes = {}
    for topic in golden_topics():
        value = topic.folder / "managed-ledger-info.bin"
        if topic.set_name == set_name and value.exists():
            name = TopicName.parse(topic.name)
            nodes[f"/managed-ledgers/{name.managed_ledger_name}"] = value.read_bytes()
            if (topic.folder / "schemas-rest.json").exists():
                local_name = name.base.managed_ledger_name.rpartition("/")[2]
                nodes[f"/schemas/{name.full_namespace}/{local_name}"] = b"a locator"
    return nodes


def nodes_of_folder(folder: Path) -> dict[str, bytes]:
    """Return the values of nodes that were saved as files, by path."""
    nodes = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            node = file.parent if file.name == VALUE_FILE else file
            nodes[f"/{node.relative_to(folder).as_posix()}"] = file.read_bytes()
    return nodes
