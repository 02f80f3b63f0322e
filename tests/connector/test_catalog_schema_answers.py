"""Schemas that are written as the admin API gives them are read as they were."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from connector.catalog.schemas.answers import registered_versions, schemas_json
from connector.catalog.schemas.loading import load_schema
from tests.support.golden import golden_topics

if TYPE_CHECKING:
    from tests.support.golden import GoldenTopic

_TOPICS = [topic for topic in golden_topics() if (topic.folder / "schemas-rest.json").exists()]
_A, _B = SchemaInfo("STRING"), SchemaInfo("INT32", properties=(("a", "b"),))


@pytest.mark.parametrize("topic", _TOPICS, ids=str)
def test_a_broker_s_answer_is_written_again(topic: GoldenTopic) -> None:
    """Types, definitions, properties and versions of every golden topic come back."""
    schema = load_schema(topic.folder / "schemas-rest.json")

    answer = schemas_json(schema, timestamp_ms=5)

    assert load_schema(answer) == schema
    assert load_schema(answer).versions == schema.versions
    assert [each["timestamp"] for each in json.loads(answer)["getSchemaResponses"]] == [5] * len(
        schema.versions
    )


@pytest.mark.parametrize(
    ("schema", "versions"),
    [
        (None, ()),
        (TopicSchema(_A), ((0, _A),)),
        (TopicSchema(_A, ((3, _A), (5, _B))), ((3, _A), (5, _B))),
        (TopicSchema(_A, ((3, _B),)), ((3, _B), (4, _A))),
        (TopicSchema(SchemaInfo("BYTES")), ()),
    ],
)
def test_a_reader_schema_is_a_version(
    schema: TopicSchema | None, versions: tuple[tuple[int, SchemaInfo], ...]
) -> None:
    """What messages are written by has a version, the next one if it is none of those known."""
    assert registered_versions(schema) == versions


@pytest.mark.parametrize("data", ['"long"', '["null","string"]', '{"type":"int"}'])
def test_a_part_of_a_key_value_may_be_any_definition(data: str) -> None:
    """Avro spells types as text, lists and objects."""
    part = SchemaInfo("AVRO", data)
    schema = TopicSchema(SchemaInfo("KEY_VALUE", key=_A, value=part))

    assert load_schema(schemas_json(schema, timestamp_ms=0)).reader == schema.reader


def test_a_topic_without_schema_has_an_empty_answer() -> None:
    """As a broker answers for such a topic."""
    assert schemas_json(None, timestamp_ms=0) == '{"getSchemaResponses": []}'
