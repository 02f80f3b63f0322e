"""A table replaces the bucket only for columns that have the same meaning in both."""

from __future__ import annotations

import itertools
import json
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pytest

from arrow_io.core.json_checksum import json_crc32
from arrow_io.errors import CorruptProgressError, LakeTableError, UnusedTableWarning
from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from connector import copy_topics, open_topic, reprocess_dead_letters
from connector.tables.copied_rows import ColumnForm, CopiedRows
from tests.support.debezium import Event, event_objects

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.buckets import MemoryBucket

_RECORD: Final = {
    "type": "record",
    "name": "Pair",
    "fields": [{"name": each, "type": ["null", "string"]} for each in ("value", "__topic")],
}
_SCHEMAS: Final = {
    "bytes": SchemaInfo("KEY_VALUE", key=SchemaInfo("STRING", ""), value=SchemaInfo("BYTES", "")),
    "record": SchemaInfo(
        "KEY_VALUE", key=SchemaInfo("STRING", ""), value=SchemaInfo("JSON", json.dumps(_RECORD))
    ),
}
_FORMS: Final[list[dict[str, Any]]] = [
    {"naming": naming, "value": value}
    for naming, value in itertools.product(("pulsar-sql", "pulsar-spark"), ("flat", "raw"))
]


@pytest.mark.parametrize("schema", _SCHEMAS)
@pytest.mark.parametrize("copied", _FORMS, ids=str)
def test_a_name_has_another_meaning(
    schema: str, copied: dict[str, Any], bucket: MemoryBucket, tmp_path: Path
) -> None:
    """Each column has the values of the bucket, and a table of the same form is used."""
    value = b'{"value": "v", "__topic": "t"}'
    bucket.put(event_objects([Event(b"key", value)], separated=False))
    topic: dict[str, Any] = {"url": bucket.url, "topic": "orders"}
    topic["schema"] = TopicSchema(_SCHEMAS[schema])
    target = str(tmp_path / "t")
    copy_topics(**topic, target=target, **copied)
    for form in _FORMS:
        plain = open_topic(**topic, **form)
        for name in plain.schema.names:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UnusedTableWarning)
                rows = open_topic(**topic, **form, columns=[name], lake=target).to_table()
            assert rows.equals(plain.to_table(columns=[name])), (form, name)
            if form == copied and name in {"value", "__value__", "__key", "__key_2", "__topic"}:
                assert not caught


@pytest.mark.parametrize("copied", _FORMS, ids=str)
@pytest.mark.parametrize("decoded", _FORMS, ids=str)
def test_letters_of_another_form(
    copied: dict[str, Any], decoded: dict[str, Any], bucket: MemoryBucket, tmp_path: Path
) -> None:
    """Rows that were dead letters have the form of their own options and schema."""
    values = [b'{"value": "v", "__topic": "t"}', b'{"value": "w"']
    bucket.put(event_objects([Event(b"key", each) for each in values], separated=False))
    topic: dict[str, Any] = {"url": bucket.url, "topic": "orders"}
    schema, target = TopicSchema(_SCHEMAS["record"]), str(tmp_path / "t")
    copy_topics(**topic, target=target, dead_letters=True, schema=schema, **copied)
    text = SchemaInfo("KEY_VALUE", key=SchemaInfo("STRING", ""), value=SchemaInfo("STRING", ""))
    raw = TopicSchema(text)
    # A table refuses text in a column of bytes.
    with suppress(LakeTableError):
        reprocess_dead_letters(target, schema=raw, **decoded)
    for form in _FORMS:
        options = {**topic, **form, "schema": raw}
        plain = open_topic(**options)
        for name in plain.schema.names:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                wanted = plain.to_table(columns=[name])
                rows = open_topic(**options, columns=[name], lake=target).to_table()
            both = [sorted(map(str, each.column(0).to_pylist())) for each in (rows, wanted)]
            assert both[0] == both[1], (form, name)


def test_forms_that_are_malformed() -> None:
    """They are read as they were recorded; missing or malformed ones are an error."""
    rows = CopiedRows(forms=frozenset({ColumnForm("pulsar-sql", "flat")}))
    progress = rows.add_to("{}")
    assert CopiedRows.from_progress(progress) == rows
    changes: tuple[object, ...] = (None, [["pulsar-sql"]], {})
    for forms in changes:
        facts = json.loads(progress)["rows"]
        del facts["crc32"], facts["forms"]
        if forms is not None:
            facts["forms"] = forms
        text = json.dumps({"rows": {**facts, "crc32": json_crc32(facts)}})
        with pytest.raises(CorruptProgressError, match="facts about its rows are malformed"):
            CopiedRows.from_progress(text)
