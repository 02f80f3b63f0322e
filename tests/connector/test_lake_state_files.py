"""State files of tables, damaged in every way: a typed error that names the file, or no change."""

from __future__ import annotations

import json
import operator
import shutil
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from arrow_io.core.json_checksum import json_crc32
from arrow_io.errors import CorruptProgressError, LakeTableError, PulsarOffloadError
from arrow_io.storage.location import Location
from connector import copy_topics
from connector.increments.progress import Position, Progress, TopicProgress
from connector.inputs.topic_names import TopicName
from connector.tables.data_file import DataFile
from connector.tables.delta import DeltaTable
from connector.tables.parquet import ParquetTable
from connector.tables.table import Commit
from connector.tables.transforms import Partitioning
from tests.support.buckets import TOPIC, MemoryBucket
from tests.support.lake_copies import SCHEMA as VALUES
from tests.support.lake_copies import write_topic
from tests.support.lake_kinds import read_back, table_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from connector.tables.evolution import TableKind

Table = DeltaTable | ParquetTable

_SCHEMA: Final = pa.schema([("n", pa.int64()), ("country", pa.string())])
_REPLACEMENTS: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    1e999,
    1 << 80,
    "",
    "é",
    "country",
    "{}",
    [],
    [None],
    [7],
    ["country"],
    ["nothing"],
    {},
    {"n": None},
)


@pytest.fixture(params=["delta", "parquet"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    """A table of two commits, whose progress is that of a topic."""
    made: Table
    if request.param == "delta":
        made = DeltaTable(Location(str(tmp_path / "t")))
    else:
        made = ParquetTable(Location("memory://state-files/t"))
    before = None
    for number in (1, 2):
        standing = made.read_state()
        commit = Commit(
            (DataFile(f"country=DE/{number}.parquet", 7, number, ("DE",)),),
            _SCHEMA,
            Partitioning.parse(["country"], _SCHEMA),
            before,
            _progress(number).to_json(),
        )
        made.commit(commit, standing)
        before = commit.after
    yield made
    MemoryFileSystem.store.clear()


def _progress(number: int) -> Progress:
    topic = TopicName.parse("orders")
    return Progress({topic: TopicProgress(Position(number, 0), (0, 3), 0)})


def _state(table: Table) -> object:
    """All that the state files say of a table."""
    standing = table.read_state()
    assert standing is not None
    assert standing.progress is not None
    files = list(table.files()) if isinstance(table, ParquetTable) else None
    said = (standing.schema, standing.partitioning, standing.latest_per_key)
    return (*said, Progress.from_json(standing.progress), files)


def _state_files(table: Table) -> list[tuple[Location, str, bytes]]:
    """The files that say how a table stands; of Delta, the one that the newest commit names."""
    folder = table.location.child("_pulsar_offload")
    names = sorted(each.name for each in folder.list_objects())
    wanted = names if isinstance(table, ParquetTable) else names[-1:]
    return [(folder, each, folder.read_object(each, max_bytes=1 << 20).data) for each in wanted]


Place = tuple[Location, str, bytes]


def _read(table: Table, place: Place, damaged: bytes) -> object:
    """What a table is with a file that is damaged so; or the error that names the file."""
    folder, name, sound = place
    folder.write_object(name, damaged, user_metadata={})
    try:
        return _state(table)
    except (LakeTableError, CorruptProgressError) as error:
        is_named = name in str(error) or isinstance(error, CorruptProgressError)
        return error if is_named else f"{name} is not named: {error}"
    finally:
        folder.write_object(name, sound, user_metadata={})


def _is_refused(table: Table, place: Place, damaged: bytes) -> bool:
    return isinstance(_read(table, place, damaged), LakeTableError)


def test_every_byte_that_is_changed_is_noticed(table: Table) -> None:
    """Unless the file means the same, as with other white space."""
    expected = _state(table)
    for place in _state_files(table):
        data = place[2]
        for at in range(len(data)):
            damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            read = _read(table, place, damaged)
            assert isinstance(read, LakeTableError) or read == expected, damaged


def test_a_file_that_is_cut_anywhere_is_refused(table: Table) -> None:
    """At each of its lengths, and with something after its end."""
    for place in _state_files(table):
        data = place[2]
        for size in range(len(data)):
            assert _is_refused(table, place, data[:size]), size
        assert _is_refused(table, place, data + data)
        assert _is_refused(table, place, b"\0" * len(data))


@pytest.mark.parametrize("is_sealed", [False, True], ids=["unsealed", "sealed"])
def test_every_value_may_be_replaced(table: Table, *, is_sealed: bool) -> None:
    """By null, or anything of another type; even if the checksum is that of the new content.

    What has the right checksum and the right types is believed.
    """
    expected = _state(table)
    for place in _state_files(table):
        content = json.loads(place[2])
        for way in _ways(content):
            for value in _REPLACEMENTS:
                replaced = _replaced(content, way, value)
                if is_sealed and isinstance(replaced, dict) and way != ("crc32",):
                    replaced["crc32"] = json_crc32(_without_checksum(replaced))
                    read = _read(table, place, json.dumps(replaced).encode())
                    assert isinstance(read, tuple | PulsarOffloadError), (way, value, read)
                else:
                    read = _read(table, place, json.dumps(replaced).encode())
                    assert isinstance(read, LakeTableError) or read == expected, (way, value)


def _ways(value: object, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value in JSON, containers too."""
    yield way
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _ways(each, (*way, key))


def _replaced(content: object, way: tuple[Any, ...], value: object) -> Any:  # noqa: ANN401
    if not way:
        return value
    copied = json.loads(json.dumps(content))
    *path, last = way
    reduce(operator.getitem, path, copied)[last] = value
    return copied


def _without_checksum(content: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in content.items() if name != "crc32"}


def _of_another_number(content: dict[str, Any]) -> dict[str, Any]:
    body = _without_checksum(content) | {"number": content["number"] + 1}
    return body | {"crc32": json_crc32(body)}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_without_checksum, "it has no checksum"),
        (lambda content: content | {"format": 0}, "its checksum does not match its content"),
        (_of_another_number, "it is a copy of another file"),
    ],
    ids=["none", "wrong", "moved"],
)
def test_an_error_says_what_is_wrong(
    table: Table, change: Callable[[dict[str, Any]], dict[str, Any]], says: str
) -> None:
    """In one sentence that names the file."""
    folder, name, data = _state_files(table)[-1]
    folder.write_object(name, json.dumps(change(json.loads(data))).encode(), user_metadata={})

    with pytest.raises(LakeTableError, match=says) as raised:
        table.read_state()

    assert name in str(raised.value)


def test_a_manifest_that_is_missing_is_named(tmp_path: Path) -> None:
    """A table does not lose the files of a commit silently."""
    table = ParquetTable(Location(str(tmp_path)))
    for number in (1, 2, 3):
        standing = table.read_state()
        before = None if standing is None else standing.progress
        commit = Commit((), _SCHEMA, Partitioning(), before, str(number))
        table.commit(commit, standing)
    (tmp_path / "_pulsar_offload" / f"manifest-{2:020}.json").unlink()

    with pytest.raises(LakeTableError, match=f"manifest-{2:020}.json is missing"):
        list(table.files())
    with pytest.raises(LakeTableError, match=f"manifest-{2:020}.json is missing"):
        table.read_state()


@pytest.mark.parametrize("kind", ["delta", "parquet", "iceberg"])
def test_progress_that_was_changed_copies_no_row_twice(kind: TableKind, tmp_path: Path) -> None:
    """A copy that finds another progress than was written is refused, whoever keeps it."""
    bucket = MemoryBucket()
    write_topic(bucket.url, range(12))
    with table_in(tmp_path, kind) as table:
        target = {"iceberg": "shop.t"}.get(kind, str(tmp_path / "t"))
        options: dict[str, Any] = {}
        if kind == "iceberg":
            database = f"sqlite:///{tmp_path}/catalog.db"
            warehouse = tmp_path.absolute().as_uri()
            options = {"type": "sql", "uri": database, "warehouse": warehouse}
        given: dict[str, Any] = {"format": kind, "schema": VALUES, "table_options": options or None}
        copy_topics(bucket.url, TOPIC, target, **given)
        standing = table.read_state()
        assert standing is not None
        assert standing.progress is not None
        for old, new in (('"next":[2,0]', '"next":[0,0]'), ('"topics":{"', '"topics":{},"x":{"')):
            changed = standing.progress.replace(old, new)
            assert changed != standing.progress
            commit = Commit((), standing.schema, standing.partitioning, standing.progress, changed)
            table.commit(commit, standing)
            with pytest.raises(PulsarOffloadError, match="checksum"):
                copy_topics(bucket.url, TOPIC, target, **given)
            undone = table.read_state()
            assert undone is not None
            back = Commit((), standing.schema, standing.partitioning, changed, standing.progress)
            table.commit(back, undone)
            standing = table.read_state()
            assert standing is not None
            assert standing.progress is not None
        copy_topics(bucket.url, TOPIC, target, **given)
        assert read_back(table).num_rows == 12
    bucket.drop()


def _parquet_table(folder: Path, commits: int) -> ParquetTable:
    table = ParquetTable(Location(str(folder)))
    for number in range(1, commits + 1):
        standing = table.read_state()
        files = (DataFile(f"{number}.parquet", 7, number, ()),)
        before = None if standing is None else standing.progress
        table.commit(Commit(files, _SCHEMA, Partitioning(), before, "long " * number), standing)
    return table


def test_only_the_last_manifest_has_the_progress(tmp_path: Path) -> None:
    """It grows with the topic, and no table goes back to an earlier one."""
    table = _parquet_table(tmp_path, 4)
    paths = sorted((tmp_path / "_pulsar_offload").iterdir())

    assert ["long" in each.read_text() for each in paths] == [False, False, False, True]
    assert [each.path for each in table.files()] == [f"{number}.parquet" for number in range(1, 5)]
    standing = table.read_state()
    assert standing is not None
    assert standing.progress == "long " * 4


def test_a_commit_between_the_list_of_manifests_and_the_last_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is then as that commit left it."""
    table = _parquet_table(tmp_path, 2)
    other = _parquet_table(tmp_path / "other", 3)
    manifest = ParquetTable._manifest

    def overtaken(self: ParquetTable, number: int) -> dict[str, Any]:
        if number == 2:
            shutil.copytree(other.location.url, tmp_path, dirs_exist_ok=True)
        return manifest(self, number)

    monkeypatch.setattr(ParquetTable, "_manifest", overtaken)
    standing = table.read_state()

    assert standing is not None
    token = cast("Any", standing.token)
    assert (standing.progress, token.number) == ("long " * 3, 3)


def test_the_last_manifest_cannot_be_lost(tmp_path: Path) -> None:
    """The one before it does not say how far topics were copied, so a copy does not begin there."""
    table = _parquet_table(tmp_path, 3)
    (tmp_path / "_pulsar_offload" / f"manifest-{3:020}.json").unlink()

    with pytest.raises(LakeTableError, match=f"manifest-{2:020}.json .* is the last manifest"):
        table.read_state()


def test_a_commit_whose_answer_is_lost_while_another_run_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made: its files are in the table, and must not be deleted as those of a loser."""
    table = _parquet_table(tmp_path, 1)
    standing = table.read_state()
    assert standing is not None
    files = (DataFile("ours.parquet", 7, 1, ()),)
    write = Location.write_new_object

    def lost(location: Location, name: str, data: bytes) -> bool:
        assert write(location, name, data)
        with monkeypatch.context() as patches:
            patches.setattr(Location, "write_new_object", write)
            after = table.read_state()
            table.commit(Commit((), _SCHEMA, Partitioning(), "ours", "theirs"), after)
        return write(location, name, data)

    monkeypatch.setattr(Location, "write_new_object", lost)
    table.commit(Commit(files, _SCHEMA, Partitioning(), standing.progress, "ours"), standing)

    assert [each.path for each in table.files()] == ["1.parquet", "ours.parquet"]
