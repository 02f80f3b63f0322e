"""The golden scalable topics, and the rows that Pulsar's client read of their offloaded ledgers."""

from __future__ import annotations

import functools
import gzip
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from arrow_io.core.lazy import cached_property
from connector.catalog.metadata.admin_answers import internal_info_json, internal_stats_json
from connector.catalog.metadata.folder import SCHEMAS_FILE, VALUE_FILE
from connector.catalog.metadata.managed_ledger import parse_managed_ledger_info
from connector.catalog.metadata.scalable import (
    LEGACY_FOLDER,
    SCALABLE_FILE,
    parse_scalable_topic,
)
from connector.inputs.topic_names import TopicName
from tests.support.expected import expected_golden_row
from tests.support.golden import GOLDEN, SCALABLE_SET, GoldenRow

if TYPE_CHECKING:
    from pathlib import Path

    from connector.catalog.metadata.scalable import ScalableTopic
    from tests.support.expected import Row

FOLDER: Final = GOLDEN / SCALABLE_SET
"""The set, which is a folder of metadata too."""
OBJECTS: Final = FOLDER / "objects"
ORDERS: Final = "topic://public/default/orders"
MIGRATED: Final = "topic://public/default/migrated"
PAYMENTS: Final = "topic://public/default/payments"
EXTERNAL: Final = "topic://public/default/external"
ODD: Final = "topic://public/default/odd été:2026 v1"
NAMES: Final = (ORDERS, MIGRATED, PAYMENTS, EXTERNAL, ODD)


@dataclass(frozen=True)
class GoldenScalableTopic:
    """One scalable topic of the golden set.

    Attributes:
        name: Its full name.
        folder: Folder with the client's rows and the metadata.
        graph: Its segments.
        offloaded: Ids of the offloaded ledgers of its segments.
    """

    name: str
    folder: Path
    graph: ScalableTopic
    offloaded: frozenset[int]

    @cached_property
    def rows(self) -> list[Row]:
        """The rows of offloaded ledgers in the client's order, with fingerprints for values."""
        with gzip.open(self.folder / "messages.jsonl.gz", "rt", encoding="utf-8") as lines:
            found: list[dict[str, Any]] = [json.loads(line) for line in lines]
        return [
            self._row(each)
            for each in found
            if "segment" not in each or each["ledger"] in self.offloaded
        ]

    def _row(self, row: dict[str, Any]) -> Row:
        number = row.get("segment")
        topic = self._legacy_topic(row) if number is None else self._segment(number)
        message: GoldenRow = {"null_value": False, **row}  # type: ignore[typeddict-item]
        expected = expected_golden_row(message, topic=str(topic), partition=topic.partition)
        return expected | {"__segment_id__": number}

    def _segment(self, number: int) -> TopicName:
        (found,) = (each for each in self.graph.members if each.segment_id == number)
        return found

    def _legacy_topic(self, row: dict[str, Any]) -> TopicName:
        return self._legacy_topics[row["ledger"]]

    @cached_property
    def _legacy_topics(self) -> dict[int, TopicName]:
        """The migrated partition of each ledger, by the names in the objects."""
        objects = json.loads((FOLDER / "objects.json").read_text(encoding="utf-8"))
        names = {
            int(name.split("-ledger-")[1].removesuffix("-index")): each["user_metadata"]
            for name, each in objects.items()
        }
        return {
            ledger_id: TopicName.from_managed_ledger_name(each["managedledgername"])
            for ledger_id, each in names.items()
        }


@functools.cache
def golden_scalable_topic(name: str) -> GoldenScalableTopic:
    """The scalable topic of this full name."""
    topics = json.loads((FOLDER / "topics.json").read_text(encoding="utf-8"))
    topic = topics[name]
    folder = FOLDER / topic["dir"]
    data = (folder / SCALABLE_FILE).read_bytes()
    offloaded = {
        ledger["ledger"]
        for segment in topic["segments"]
        for ledger in segment["ledgers"]
        if ledger["offloaded"]
    }
    graph = parse_scalable_topic(data, TopicName.parse(name))
    return GoldenScalableTopic(name, folder, graph, frozenset(offloaded))


def scalable_answers() -> dict[tuple[str, ...], bytes]:
    """What the admin API of the set's cluster answers, by the names in the path."""
    namespace = ("public", "default")
    answers: dict[tuple[str, ...], bytes] = {
        ("clusters",): b'["standalone"]',
        ("tenants",): b'["public"]',
        ("namespaces", "public"): b'["public/default"]',
        ("scalable", *namespace): json.dumps(NAMES).encode(),
    }
    legacy = []
    for name in NAMES:
        topic = golden_scalable_topic(name)
        local_name = TopicName.parse(name).local_name
        answers["scalable", *namespace, local_name] = (topic.folder / SCALABLE_FILE).read_bytes()
        schemas = topic.folder / SCHEMAS_FILE
        if schemas.exists():
            answers["schemas", *namespace, local_name, "schemas"] = schemas.read_bytes()
        legacy += [member for member in topic.graph.members if not member.is_scalable]
    for member in legacy:
        folder = FOLDER / "public__default__migrated" / f"{LEGACY_FOLDER}{member.local_name}"
        metadata = parse_managed_ledger_info((folder / VALUE_FILE).read_bytes(), member)
        path = ("persistent", *namespace, member.local_name)
        answers[*path, "internal-info"] = internal_info_json(metadata).encode()
        answers[*path, "internalStats"] = internal_stats_json(metadata).encode()
    answers["persistent", *namespace] = json.dumps(list(map(str, legacy))).encode()
    return {("admin", "v2", *path): answer for path, answer in answers.items()}
