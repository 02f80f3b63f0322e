"""Tables that change events are copied to have the rows of the database, or a row for each change.

A table that keeps the latest rows has what the database has, and a table of all rows has the list
of changes, whatever the changes are and wherever the runs end.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import deltalake
import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arrow_io.errors import (
    IncompleteReadWarning,
    OptionError,
    PayloadDecodeError,
    UnusedTableWarning,
)
from arrow_io.payloads.schema_info import TopicSchema
from connector import copy_topics, open_topic, write_messages
from connector.lake.copy_plan import CopySizes
from connector.lake.maintenance import MaintenanceSettings, maintain
from connector.tables import iceberg
from connector.tables.iceberg import IcebergTable
from tests.support.buckets import MemoryBucket
from tests.support.debezium import (
    KEY_SCHEMA,
    ROW_SCHEMA,
    Event,
    Form,
    envelope,
    envelope_schema,
    event_objects,
    json_events,
    key_value,
    recording,
)
from tests.support.lake_kinds import read_back, table_in
from tests.support.latest_rows import catalog_options
from tests.support.stopped_iceberg import Killed, WatchedCatalog, watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from connector.lake.table_copy import TableSummary
    from connector.tables.evolution import TableKind

KINDS: Final[tuple[TableKind, ...]] = ("delta", "iceberg")
SMALL: Final = CopySizes(task_bytes=1, commit_bytes=1, file_bytes=1)
_CUSTOMERS: Final = ("postgresql", "server.public.customers")
_ORDERS: Final = ("mariadb", "mysrv.shop.orders")

Change = tuple[str, int, str | None]
"""An operation, the id of its row and a name: `h` is a heartbeat, and `x` a tombstone."""
_CHANGES: Final = st.lists(
    st.tuples(
        st.sampled_from("crudht"), st.integers(0, 3), st.none() | st.sampled_from(["a", "é", ""])
    ),
    min_size=1,
    max_size=12,
)


class _Database:
    """A table of a database, and the change events that its changes have."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self.events: list[tuple[object, object]] = []
        self.log: list[tuple[str, int, str | None]] = []
        self.left_out = {"tombstones": 0, "truncations": 0, "notices": 0}

    def apply(self, change: Change) -> None:
        """Change the table."""
        op, id_, name = change
        before = self.rows.get(id_)
        if op in {"x", "h", "t"}:
            count = {"x": "tombstones", "h": "notices", "t": "truncations"}[op]
            self.left_out[count] += 1
            event = {"x": None, "h": {"ts_ms": 1}, "t": envelope("t", None, None)}[op]
            self.events.append((None if op == "t" else {"id": id_}, event))
            if op == "x":
                self.rows.pop(id_, None)
            return
        row = {"id": id_, "name": name, "tags": None if name is None else [name]}
        if op == "d":
            # As PostgreSQL logs it: of the rest of a row, nothing is known.
            before = before or {"id": id_, "name": None, "tags": None}
            self.rows.pop(id_, None)
            self.events.append(({"id": id_}, envelope("d", before, None)))
            self.log.append(("d", id_, before["name"]))
            return
        self.rows[id_] = row
        self.events.append(({"id": id_}, envelope(op, before, row)))
        self.log.append((op, id_, name))


@contextmanager
def _lake(kind: TableKind) -> Iterator[tuple[Any, Any]]:
    """A table, and a function that copies the topic of a bucket to it."""
    with tempfile.TemporaryDirectory() as name, table_in(Path(name), kind) as table:

        def copy(bucket: MemoryBucket, schema: TopicSchema, **options: Any) -> TableSummary:  # noqa: ANN401
            place: dict[str, Any] = {"target": f"{name}/t"}
            if kind == "iceberg":
                place = {"target": "shop.t", "table_options": catalog_options(Path(name))}
            [summary] = copy_topics(
                bucket.url,
                "orders",
                format=kind,
                schema=schema,
                unwrap="debezium",
                **(place | options),
            )
            return summary

        yield table, copy


def _rows(table: Any, *names: str) -> list[tuple[Any, ...]]:  # noqa: ANN401
    rows = read_back(table).to_pylist()
    rows.sort(key=lambda row: (row["__ledger_id__"], row["__entry_id__"]))
    return [tuple(row[name] for name in names) for row in rows]


def _encoded(events: Sequence[tuple[object, object]], form: Form) -> list[Event]:
    if form == "json":
        return json_events(events)
    return [Event(_avro(KEY_SCHEMA, key), _avro(envelope_schema(), value)) for key, value in events]


def _avro(schema: Any, value: object) -> bytes | None:  # noqa: ANN401 - JSON
    """A value as Confluent's converter writes it: a zero and the id of its schema come first."""
    if value is None:
        return None
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), value)
    return b"\0\0\0\0\1" + data.getvalue()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    runs=st.lists(_CHANGES, min_size=1, max_size=3),
    form=st.sampled_from(["json", "avro"]),
    separated=st.booleans(),
    sizes=st.sampled_from([SMALL, CopySizes()]),
    key_columns=st.sampled_from([None, ["id"], ["__key.id"], ["__key.id", "id"]]),
    latest=st.booleans(),
)
def test_any_changes(  # noqa: PLR0917 - Hypothesis names them
    kind: TableKind,
    runs: Sequence[Sequence[Change]],
    form: Form,
    separated: bool,
    sizes: CopySizes,
    key_columns: list[str] | None,
    latest: bool,
) -> None:
    """The latest rows are those of the database after each run; all rows are its log."""
    schema = TopicSchema(
        key_value(form, json.dumps(KEY_SCHEMA), json.dumps(envelope_schema()), separated=separated)
    )
    database, bucket, ledger_id = _Database(), MemoryBucket(), 1
    left_out = {"tombstones": 0, "truncations": 0, "notices": 0}
    with _lake(kind) as (table, copy):
        for changes in runs:
            first = len(database.events)
            for each in changes:
                # An Avro value that is no envelope is of another schema.
                # Debezium writes a tombstone only after a delete, and the row has the key of that.
                if form == "json" or each[0] != "h":
                    database.apply(each)
                    if each[0] == "d" and len(changes) > 3:
                        database.apply(("x", *each[1:]))
            events = _encoded(database.events[first:], form)
            if not events:
                continue
            bucket.put(event_objects(events, separated=separated, first_ledger_id=ledger_id))
            ledger_id += len(events)
            key = {"latest_per_key": True, "key_columns": key_columns} if latest else {}
            summary = copy(bucket, schema, sizes=sizes, **key)
            assert summary.keyless == 0
            for name in left_out:
                left_out[name] += getattr(summary.left_out, name)
            rows = read_back(table).to_pylist()
            if latest:
                assert sorted((r["id"], r["name"], r["tags"]) for r in rows) == sorted(
                    (r["id"], r["name"], r["tags"]) for r in database.rows.values()
                )
            else:
                assert _rows(table, "__op", "id", "name") == database.log
                assert all(r["__deleted"] == (r["__op"] == "d") for r in rows)
        is_in_row = key_columns is not None and "id" in key_columns
        wanted = database.left_out | ({"tombstones": 0} if latest and not is_in_row else {})
        assert left_out == wanted
    bucket.drop()


def _evolving(topic: tuple[str, str], form: Form) -> Iterator[tuple[list[Event], TopicSchema]]:
    """What a connector wrote with each version of the schema, and the schemas until then."""
    recorded = recording(*topic, form)
    for version, info in recorded.schema.versions:
        events = [each for each in recorded.events if each.version == version]
        yield events, TopicSchema(info, recorded.schema.versions[: version + 1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["json", "avro"])
def test_columns_that_the_database_adds(kind: TableKind, form: Form) -> None:
    """A new column of the database's table is one of the copy; older rows have null in it."""
    bucket = MemoryBucket()
    with _lake(kind) as (table, copy):
        for number, (events, schema) in enumerate(_evolving(_CUSTOMERS, form)):
            bucket.put(event_objects(events, first_ledger_id=1 + 10 * number))
            summary = copy(bucket, schema)
            assert ("email" in read_back(table).column_names) == (number > 0)
            # The first update leaves the value alone; the log of the last one has it.
            assert summary.left_out.unavailable_values == 1
        assert summary.left_out.truncations == 1
        assert any("1 truncation of the" in each for each in summary.notices)
        assert any("1 value is __debezium_unavailable_value" in each for each in summary.notices)
        assert any("1 tombstone left out" in each for each in summary.notices)
        assert _rows(table, "__op", "id", "name", "email") == [
            ("r", 1, "Ann", None),
            ("r", 2, "Bob", None),
            ("c", 3, "Cid", None),
            ("u", 1, "Anna", None),
            ("d", 2, "", None),
            ("c", 4, "Bob", None),
            ("d", 3, "", None),
            ("u", 1, "Anna", "anna@example.com"),
            ("u", 1, "Anne", "anna@example.com"),
            ("d", 4, "Bob", None),
            ("c", 5, "Eve", None),
            ("c", 6, "Fay", "fay@example.com"),
        ]
    bucket.drop()


@pytest.mark.parametrize("key_columns", [None, ["region", "number"], ["__key.number", "region"]])
@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_of_mariadb(kind: TableKind, key_columns: list[str] | None) -> None:
    """The latest rows are those that MariaDB has after the statements, keys changed among them."""
    bucket = MemoryBucket()
    with _lake(kind) as (table, copy):
        for number, (events, schema) in enumerate(_evolving(_ORDERS, "json")):
            bucket.put(event_objects(events, first_ledger_id=1 + 10 * number))
            copy(bucket, schema, latest_per_key=True, key_columns=key_columns)
        rows = sorted(read_back(table).to_pylist(), key=lambda row: (row["region"], row["number"]))
        names = ("region", "number", "state", "carrier", "__op", "__deleted")
        assert [tuple(row[name] for name in names) for row in rows] == [
            ("asia", 1, None, None, "c", False),
            ("eu", 1, "paid", "ship", "u", False),
            ("eu", 3, None, None, "c", False),
        ]
    bucket.drop()


def test_a_table_of_envelopes_has_no_rows_to_read(tmp_path: Path) -> None:
    """A column of an envelope is not the column of the row that has the same name."""
    row = {"type": "record", "name": "Value", "fields": [{"name": "op", "type": "string"}]}
    info = key_value("json", json.dumps(KEY_SCHEMA), json.dumps(envelope_schema(row)))
    bucket = MemoryBucket()
    bucket.put(event_objects(json_events([({"id": 1}, envelope("c", None, {"op": "own"}))])))
    topic: dict[str, Any] = {"url": bucket.url, "topic": "orders", "schema": TopicSchema(info)}
    target = str(tmp_path / "t")
    copy_topics(**topic, target=target)

    dataset = open_topic(**topic, unwrap="debezium", columns=["op"], lake=target)
    with pytest.warns(UnusedTableWarning, match="column op was copied with another"):
        assert dataset.to_table()["op"].to_pylist() == ["own"]
    bucket.drop()


_PAIR_SCHEMA: Final = {
    "type": "record",
    "name": "Pair",
    "fields": [{"name": each, "type": ["null", "string"]} for each in ("first", "second")],
}
_ROW: Final = {"id": 1, "name": "a", "tags": None}
_SOUND: Final = TopicSchema(
    key_value("json", json.dumps(KEY_SCHEMA), json.dumps(envelope_schema(ROW_SCHEMA)))
)


@pytest.mark.parametrize("latest", [True, False])
def test_values_that_are_no_envelopes(latest: bool) -> None:
    """One fails the copy, with its position; with dead letters, all of them go there."""
    events: list[tuple[object, object]] = [
        ({"id": 1}, envelope("c", None, _ROW)),
        ({"id": 1}, {"id": 1}),
        ({"id": 2}, envelope("u", None, None)),
    ]
    bucket = MemoryBucket()
    bucket.put(event_objects(json_events(events), ledger_events=1))
    with _lake("delta") as (table, copy):
        with pytest.raises(PayloadDecodeError, match="no envelope of Debezium") as caught:
            copy(bucket, _SOUND, latest_per_key=latest)
        assert (caught.value.ledger_id, caught.value.entry_id) == (2, 0)
        summary = copy(bucket, _SOUND, latest_per_key=latest, dead_letters=True)
        assert (summary.rows, summary.dead_letters) == (1, 2)
        assert summary.left_out.notices == 0
        assert _rows(table, "id", "__op") == [(1, "c")]
    bucket.drop()


def test_lost_values_change_nothing() -> None:
    """In salvage mode they are counted, and are neither rows nor tombstones."""
    events = [*json_events([({"id": 1}, envelope("c", None, _ROW))]), Event(b'{"id": 1}', b"{")]
    bucket = MemoryBucket()
    bucket.put(event_objects(events))
    with _lake("delta") as (table, copy):
        with pytest.warns(IncompleteReadWarning, match="1 × value lost"):
            summary = copy(bucket, _SOUND, latest_per_key=True, on_corruption="salvage")
        assert sum(summary.metrics.lost.values()) == 1
        assert (summary.rows, summary.left_out.notices) == (1, 0)
        assert _rows(table, "id", "__op") == [(1, "c")]
    bucket.drop()


@pytest.mark.parametrize("latest", [True, False])
def test_columns_are_as_asked_for(latest: bool) -> None:
    """What decides on rows is read in any case, and is in the table only if it is named."""
    row = _ROW | {"name": "b"}
    events = [
        ({"id": 1}, envelope("c", None, _ROW)),
        ({"id": 1}, envelope("u", _ROW, row)),
        ({"id": 2}, envelope("c", None, _ROW | {"id": 2})),
        ({"id": 2}, envelope("d", _ROW | {"id": 2}, None)),
        ({"id": 2}, None),
    ]
    bucket = MemoryBucket()
    bucket.put(event_objects(json_events(events)))
    with _lake("delta") as (table, copy):
        copy(bucket, _SOUND, latest_per_key=latest, columns=["__key__", "name"])
        rows = read_back(table)
        assert rows.column_names == ["__key__", "name"]
        assert sorted(rows["name"].to_pylist()) == (["b"] if latest else ["a", "a", "a", "b"])
    bucket.drop()


def test_killed_at_requests_of_iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that deletes and replaces is killed, and run again: the rows are the database's."""
    for stop in range(2, 100, 5):
        folder, bucket = tmp_path / str(stop), MemoryBucket()
        folder.mkdir()
        catalog = WatchedCatalog(folder)
        monkeypatch.setattr(iceberg, "load_catalog", lambda *_, at=catalog, **__: at)
        options: dict[str, Any] = {
            "format": "iceberg",
            "schema": _SOUND,
            "unwrap": "debezium",
            "latest_per_key": True,
        }
        rows = [_ROW | {"id": number} for number in range(3)]
        events = json_events(({"id": row["id"]}, envelope("c", None, row)) for row in rows)
        bucket.put(event_objects(events))
        copy_topics(bucket.url, "orders", "shop.t", **options)
        changes: list[tuple[object, object]] = [
            ({"id": 0}, envelope("d", rows[0], None)),
            ({"id": 1}, envelope("u", rows[1], rows[1] | {"name": "b"})),
        ]
        bucket.put(event_objects(json_events(changes), first_ledger_id=10))
        happened: list[int] = []

        def happen(number: int, stop: int = stop, happened: list[int] = happened) -> None:
            if number >= stop:
                happened.append(number)
                raise Killed

        with watched(happen), suppress(Killed):
            copy_topics(bucket.url, "orders", "shop.t", **options)
        copy_topics(bucket.url, "orders", "shop.t", **options)
        table = IcebergTable(catalog, "shop.t")
        assert sorted(_rows(table, "id", "name")) == [(1, "b"), (2, "a")]
        bucket.drop()
        catalog.close()
        if not happened:
            break
    assert stop > 8


def test_keys_with_any_texts(tmp_path: Path) -> None:
    """Two columns have the same text together only if each of them has."""
    schema = {"type": "JSON", "schema": json.dumps(_PAIR_SCHEMA)}
    pairs = [("a", "b:c"), ("a:b", "c"), ("1:a", ""), ("", "1:a"), ("a", "b:c"), (None, "a")]
    values = [json.dumps({"first": first, "second": second}).encode() for first, second in pairs]
    bucket = MemoryBucket()
    write_messages(bucket.url, "orders", pa.table({"__value__": pa.array(values, pa.binary())}))
    target = str(tmp_path / "t")
    options: dict[str, Any] = {"schema": schema, "latest_per_key": True}

    [summary] = copy_topics(
        bucket.url, "orders", target, key_columns=["first", "second"], **options
    )

    rows = deltalake.DeltaTable(target).to_pyarrow_table().to_pylist()
    assert sorted((row["first"], row["second"]) for row in rows) == sorted(set(pairs[:4]))
    assert summary.keyless == 1
    for key_columns in (None, ["first"]):
        with pytest.raises(OptionError, match="are identified by first, second"):
            copy_topics(bucket.url, "orders", target, key_columns=key_columns, **options)
    bucket.drop()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key_columns": ["id"], "latest_per_key": False}, "key_columns need latest_per_key"),
        ({"key_columns": "id"}, "must be a list of names"),
        ({"key_columns": []}, "must be a list of names"),
        ({"key_columns": ["number"]}, "columns must include number"),
        ({"key_columns": ["id", "tags"]}, "tags of type list.* cannot identify rows"),
    ],
)
def test_key_columns_that_are_refused(options: dict[str, Any], message: str) -> None:
    """The error names what is missing, and nothing is written."""
    bucket = MemoryBucket()
    bucket.put(event_objects(json_events([({"id": 1}, envelope("c", None, _ROW))])))
    with _lake("delta") as (table, copy):
        with pytest.raises(OptionError, match=message):
            copy(bucket, _SOUND, **({"latest_per_key": True} | options))
        assert table.read_state() is None
    bucket.drop()


@pytest.mark.parametrize("kind", KINDS)
def test_key_columns_are_those_of_the_table(kind: TableKind) -> None:
    """A copy by another key is refused, also after maintenance."""
    bucket = MemoryBucket()
    bucket.put(event_objects(json_events([({"id": 1}, envelope("c", None, _ROW))])))
    with _lake(kind) as (table, copy):
        copy(bucket, _SOUND, latest_per_key=True, key_columns=["id"])
        state = table.read_state()
        assert state is not None
        assert state.key_columns == ("id",)
        for key_columns in (None, ["__key.id"]):
            with pytest.raises(OptionError, match="are identified by id"):
                copy(bucket, _SOUND, latest_per_key=True, key_columns=key_columns)
        assert copy(bucket, _SOUND, latest_per_key=True, key_columns=["id"]).commits == 0
        bucket.put(
            event_objects(
                json_events([({"id": 2}, envelope("c", None, _ROW | {"id": 2}))]),
                first_ledger_id=5,
            )
        )
        copy(bucket, _SOUND, latest_per_key=True, key_columns=["id"])
        maintain(table, kind, MaintenanceSettings(), dt.datetime.now(dt.UTC))
        state = table.read_state()
        assert state is not None
        assert state.key_columns == ("id",)
    bucket.drop()


@pytest.mark.parametrize("kind", KINDS)
def test_files_with_other_numbers_are_not_read(
    kind: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the bounds of integers; those that a file has in common with the increment are read."""
    read: list[object] = []
    bucket = MemoryBucket()
    for number, ids in enumerate(([1, 2, 3], [10, 11], [20, 21, 30])):
        rows = [_ROW | {"id": each} for each in ids]
        events = json_events(({"id": row["id"]}, envelope("c", None, row)) for row in rows)
        bucket.put(event_objects(events, first_ledger_id=1 + number))
    options: dict[str, Any] = {"latest_per_key": True, "key_columns": ["id"]}
    with _lake(kind) as (table, copy):
        copy(bucket, _SOUND, sizes=SMALL, **options)
        file_reader = type(table).file_reader

        def count(own: Any, state: Any) -> Callable[..., Any]:  # noqa: ANN401
            def read_file(file: object, *columns: Any) -> object:  # noqa: ANN401
                read.append(file)
                return file_reader(own, state)(file, *columns)

            return read_file

        monkeypatch.setattr(type(table), "file_reader", count)
        changes: list[tuple[object, object]] = [
            ({"id": 11}, envelope("d", _ROW | {"id": 11}, None)),
            ({"id": 12}, envelope("c", None, _ROW | {"id": 12})),
        ]
        bucket.put(event_objects(json_events(changes), first_ledger_id=9))
        summary = copy(bucket, _SOUND, **options)
        assert (summary.rows, summary.replaced) == (1, 1)
        assert len({id(each) for each in read}) == 1
        assert sorted(_rows(table, "id")) == [(n,) for n in (1, 2, 3, 10, 12, 20, 21, 30)]
    bucket.drop()
