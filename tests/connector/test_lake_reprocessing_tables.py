"""Dead letters of tables of each sort: with keys of columns, nested columns, branches, segments."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any, Final

import deltalake
import pytest

from arrow_io.errors import OptionError, UnusedTableWarning
from arrow_io.storage.location import Location
from connector import copy_topics, open_topic, reprocess_dead_letters
from connector.tables.copied_rows import CopiedRows
from connector.tables.delta import DeltaTable
from connector.tables.table_kinds import open_table
from tests.support.buckets import TOPIC, MemoryBucket, memory_bucket
from tests.support.lake_copies import SCHEMA, write_topic
from tests.support.lake_kinds import read_back, table_in
from tests.support.lake_tables import table_of
from tests.support.latest_rows import catalog_options, copy_latest, write_keyed
from tests.support.scalable_model import KEYS, ScalableWorld
from tests.support.scalable_model import TOPIC as SCALABLE

if TYPE_CHECKING:
    from pathlib import Path


def _record(*fields: dict[str, object]) -> dict[str, str]:
    definition = {"type": "record", "name": "R", "fields": [*fields]}
    return {"type": "JSON", "schema": json.dumps(definition)}


def _field(name: str, *types: object) -> dict[str, object]:
    return {"name": name, "type": ["null", *types]}


def _json(**values: object) -> bytes:
    return json.dumps(values).encode()


_WHEN: Final = _field("when", {"type": "long", "logicalType": "timestamp-nanos"})


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_a_key_with_times(unit: str, bucket: MemoryBucket, tmp_path: Path) -> None:
    """Letters replace rows of their key, in whatever unit either has its times."""
    target = str(tmp_path / "t")
    values = [
        _json(when=7_000_000_000, n=1),
        _json(when=7_000_000_000, n="two"),
        _json(when=8_000_000_000, n="three"),
    ]
    write_keyed(bucket.url, [("k", each) for each in values])
    latest: dict[str, Any] = {"latest_per_key": True, "key_columns": ["when"]}
    schema = _record(_WHEN, _field("n", "long"))
    copy_topics(bucket.url, TOPIC, target, schema=schema, dead_letters=True, **latest)

    done = reprocess_dead_letters(target, schema=_record(_WHEN), time_unit=unit)

    assert (done.rows, done.replaced, done.remaining.total()) == (1, 1, 1)
    rows = table_of(DeltaTable(Location(target))).to_pylist()
    assert [(row["when"].timestamp(), row["n"]) for row in rows] == [(7, None)]


@pytest.mark.parametrize("is_wider", [True, False])
def test_fields_of_nested_columns(bucket: MemoryBucket, tmp_path: Path, *, is_wider: bool) -> None:
    """Rows of another schema may lack fields that the messages have: they are not served."""
    target = str(tmp_path / "t")
    narrow = [_field("a", "long")]
    fields = [
        _field("x", {"type": "record", "name": "X", "fields": inner})
        for inner in (narrow, [*narrow, _field("b", "long")])
    ]
    first, second = fields if is_wider else fields[::-1]
    write_keyed(
        bucket.url,
        [("k", _json(x={"a": 1, "b": 2}, n=1)), ("k", _json(x={"a": 3, "b": 4}, n="text"))],
    )
    numbers = _record(first, _field("n", "long"))
    copy_topics(bucket.url, TOPIC, target, format="parquet", schema=numbers, dead_letters=True)

    assert reprocess_dead_letters(target, format="parquet", schema=_record(second)).rows == 1

    lake: dict[str, Any] = {"lake": target, "lake_options": {"format": "parquet"}}
    joined = open_topic(bucket.url, TOPIC, schema=_record(fields[1]), **lake)
    with pytest.warns(UnusedTableWarning, match="column x is null"):
        rows = joined.to_table(["x"]).to_pylist()
    assert rows == [{"x": {"a": 1, "b": 2}}, {"x": {"a": 3, "b": 4}}]


def test_columns_that_letters_do_not_record(bucket: MemoryBucket, tmp_path: Path) -> None:
    """They are null in rows of letters even if they are requested, so they are not served."""
    target = str(tmp_path / "t")
    write_topic(bucket.url, range(20), with_odd=True)
    names = ["__ledger_id__", "__entry_id__", "__batch_index__", "__producer_name__", "__value__"]
    copy_topics(
        bucket.url,
        TOPIC,
        target,
        format="parquet",
        schema="INT64",
        dead_letters=True,
        columns=names,
    )

    reprocess_dead_letters(target, format="parquet", schema=SCHEMA, columns=[*names[:4], "number"])

    state = open_table("parquet", target, None, None).read_state()
    assert state is not None
    assert state.progress is not None
    facts = CopiedRows.from_progress(state.progress)
    assert facts is not None
    assert "__producer_name__" in facts.null_columns


@pytest.mark.parametrize("dry_run", [False, True])
def test_the_latest_rows_of_a_scalable_topic(tmp_path: Path, *, dry_run: bool) -> None:
    """Positions do not tell whether a letter is newer than a row of another segment."""
    with memory_bucket({}) as bucket:
        world = ScalableWorld(bucket, tmp_path / "metadata", Random(7), 2)
        world.publish([*KEYS])
        world.migrate()
        world.publish([*KEYS])
        world.offload_everything()
        options = {"metadata": world.save(), "columns": ["*"], "dead_letters": True}
        copy_latest(bucket.url, tmp_path, "delta", str(SCALABLE), **options)
    with pytest.raises(OptionError, match="segments of the scalable topic"):
        reprocess_dead_letters(str(tmp_path / "t"), value="raw", dry_run=dry_run)


def test_branches_have_no_dead_letters(bucket: MemoryBucket, tmp_path: Path) -> None:
    """All branches would share them, so one would take letters that another one lacks."""
    write_topic(bucket.url, range(20), with_odd=True)
    with table_in(tmp_path, "iceberg") as table:
        main: dict[str, Any] = {"format": "iceberg", "table_options": catalog_options(tmp_path)}
        audit = main | {"table_options": main["table_options"] | {"branch": "audit"}}
        copy_topics(bucket.url, TOPIC, "shop.t", schema="INT64", dead_letters=True, **main)
        for refused in (
            lambda: copy_topics(
                bucket.url, TOPIC, "shop.t", schema=SCHEMA, dead_letters=True, **audit
            ),
            lambda: reprocess_dead_letters("shop.t", schema=SCHEMA, **audit),
        ):
            with pytest.raises(OptionError, match="branch audit"):
                refused()
        done = reprocess_dead_letters("shop.t", schema=SCHEMA, **main)
        assert read_back(table).num_rows == done.rows


def test_a_read_of_a_table_that_was_restored(bucket: MemoryBucket, tmp_path: Path) -> None:
    """Its letters became rows that it no longer has, so all rows are decoded."""
    target = str(tmp_path / "t")
    write_topic(bucket.url, range(20))
    copy_topics(bucket.url, TOPIC, target, schema="INT64", dead_letters=True)
    assert reprocess_dead_letters(target, schema=SCHEMA).rows == 20
    deltalake.DeltaTable(target).restore(0)

    lake: dict[str, Any] = {"lake": target, "lake_options": {"format": "delta"}}
    joined = open_topic(bucket.url, TOPIC, schema=SCHEMA, **lake)
    with pytest.warns(UnusedTableWarning, match="dead letters are those of a later version"):
        assert joined.to_table(["__ledger_id__"]).num_rows == 20
