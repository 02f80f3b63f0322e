"""Rows become Parquet files of the size that is wanted, whole or not at all, in any store."""

from __future__ import annotations

import io
import itertools
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arrow_io.errors import MissingObjectError, StorageError
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestTrace
from connector.tables.data_file import ColumnStats, DataFile
from connector.tables.file_writer import FileSettings, FileWriter
from connector.tables.transforms import Partitioning

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from connector.tables.evolution import TableKind
    from tests.support.s3_server import S3Server

_memory_folders = itertools.count()
SCHEMA = pa.schema([("n", pa.int64()), ("country", pa.string()), ("body", pa.binary())])


@pytest.fixture(params=["folder", "memory", "bucket"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """An empty place of each kind."""
    if request.param == "bucket":
        server: S3Server = request.getfixturevalue("s3_server")
        return Location(f"s3://{server.new_bucket()}/tables/t", server.storage_options)
    if request.param == "memory":
        return Location(f"memory://lake-files-{next(_memory_folders)}")
    return Location(str(tmp_path / "t"))


def settings_of(
    location: Location,
    *,
    schema: pa.Schema = SCHEMA,
    partition_by: Sequence[str] = (),
    kind: TableKind = "parquet",
    **options: Any,  # noqa: ANN401 - as they are called there
) -> FileSettings:
    """Settings with some options; the others are the default ones."""
    partitioning = Partitioning.parse(partition_by, schema)
    return FileSettings(location, "", schema, partitioning, kind, **options)


def batch_of(numbers: range, body_bytes: int = 3) -> pa.RecordBatch:
    """Rows with these numbers, spread over three countries and none."""
    countries = [[None, "DE", "a/b c", "FR"][n % 4] for n in numbers]
    bodies = [n.to_bytes(4, "big") * (body_bytes // 4 + 1) for n in numbers]
    return pa.record_batch([pa.array(numbers), countries, bodies], schema=SCHEMA)


def written(settings: FileSettings, batches: Sequence[pa.RecordBatch]) -> tuple[DataFile, ...]:
    """The files of some batches."""
    with FileWriter(settings) as writer:
        for each in batches:
            writer.write(each)
        return writer.finish()


def test_batches_without_rows_make_no_files(location: Location) -> None:
    """All rows of a batch may be dead letters, or change nothing."""
    assert written(settings_of(location), [batch_of(range(0))]) == ()
    files = written(settings_of(location), [batch_of(range(0)), batch_of(range(2))])
    assert [each.rows for each in files] == [2]


def table_of(location: Location, file: DataFile) -> pa.Table:
    """A file's rows, by a reader of its own."""
    data = location.read_object(file.path, max_bytes=1 << 30).data
    assert len(data) == file.size_bytes
    return pq.read_table(io.BytesIO(data))


def objects(location: Location) -> list[str]:
    """Names of all that lies at a location, folders below it included."""
    try:
        names = [each.name for each in location.list_objects()]
        for folder in location.list_folders():
            names += [f"{folder}/{name}" for name in objects(location.child(folder))]
    except MissingObjectError:
        return []
    return names


class TestFiles:
    """What is written."""

    def test_a_large_file_goes_in_parts(self, location: Location) -> None:
        """A file that is longer than a part arrives whole; no part is held longer than needed."""
        noise = [batch_of(range(start, start + 64), 1 << 18) for start in range(0, 128, 64)]
        settings = settings_of(location, row_group_bytes=1 << 20, compression="none")
        [file] = written(settings, noise)

        assert file.size_bytes > 32 << 20
        assert table_of(location, file).equals(pa.Table.from_batches(noise))
        assert objects(location) == [file.path]

    def test_a_file_ends_at_the_wanted_size(self, location: Location) -> None:
        """Behind each row group it is seen whether the file is long enough."""
        settings = settings_of(location, file_bytes=20_000, row_group_rows=100, compression="none")
        batches = [batch_of(range(start, start + 50), 100) for start in range(0, 2000, 50)]
        files = written(settings, batches)

        assert len(files) > 5
        assert all(20_000 <= each.size_bytes < 40_000 for each in files[:-1])
        tables = [table_of(location, each) for each in files]
        assert pa.concat_tables(tables).equals(pa.Table.from_batches(batches))

    def test_partitions_have_files_of_their_own(self, location: Location) -> None:
        """Each file has the rows of one partition, and says its values."""
        batches = [batch_of(range(start, start + 8)) for start in range(0, 80, 8)]
        files = written(settings_of(location, partition_by=["country"]), batches)

        assert sorted(each.partition for each in files if each.partition[0]) == [
            ("DE",),
            ("FR",),
            ("a/b c",),
        ]
        assert sum(each.rows for each in files) == 80
        for each in files:
            countries = set(table_of(location, each).column("country").to_pylist())
            assert countries == {each.partition[0]}
        assert {each.path.partition("/")[0] for each in files} == {
            "country-DE",
            "country-FR",
            "country-a_b_c",
            "country-__HIVE_DEFAULT_PARTITION__",
        }

    @pytest.mark.parametrize("limit", ["open_files", "waiting_bytes"])
    def test_many_partitions_are_written_in_little_memory(
        self, location: Location, limit: str
    ) -> None:
        """Few open files, or few bytes that wait, cost files or row groups, and no row."""
        least: dict[str, Any] = {limit: 2 if limit == "open_files" else 500}
        settings = settings_of(location, partition_by=["bucket(40, n)"], **least)
        batches = [batch_of(range(start, start + 200)) for start in range(0, 1000, 200)]
        files = written(settings, batches)

        numbers = [n for each in files for n in table_of(location, each).column("n").to_pylist()]
        assert sorted(numbers) == list(range(1000))

    @pytest.mark.parametrize(
        "columns",
        [["name"], ["name", "text"], ["name", "nested"], ["name", "list"]],
        ids=["key", "text", "struct", "list"],
    )
    def test_what_waits_is_all_that_is_held(self, location: Location, columns: list[str]) -> None:
        """A few rows of a rare partition do not keep the large batches that they came in."""
        rows = 1000
        body = pa.array([b"x" * 1000] * rows, pa.large_binary()).cast(pa.binary())
        all_columns = {
            "name": pa.array(["rare" if n == rows // 2 else "common" for n in range(rows)]),
            "body": body,
            "text": pa.array(["y" * 1000] * rows),
            "nested": pa.StructArray.from_arrays([body], ["bytes"]),
            "list": pa.array([[n] * 100 for n in range(rows)]),
        }
        batch = pa.record_batch({name: all_columns[name] for name in ["body", *columns]})
        settings = settings_of(
            location, schema=batch.schema, partition_by=["name"], row_group_bytes=2 << 20
        )
        before = pa.total_allocated_bytes()
        with FileWriter(settings) as writer:
            for _ in range(40):
                writer.write(batch)
                held = pa.total_allocated_bytes() - before
                assert held < writer._pending_bytes + 4 * batch.nbytes
            files = writer.finish()
        assert sum(each.rows for each in files) == 40 * rows

    def test_a_delta_table_has_partition_values_outside_its_files(self, location: Location) -> None:
        """Columns that are partition fields themselves are left out of Delta's files alone."""
        [delta] = {
            tuple(table_of(location, each).column_names)
            for each in written(
                settings_of(location, partition_by=["country"], kind="delta"), [batch_of(range(8))]
            )
        }
        assert delta == ("n", "body")


class TestStatistics:
    """What is said of a file's columns."""

    def test_bounds_enclose_every_value(self, location: Location) -> None:
        """Least and greatest values are those of all row groups together."""
        schema = pa.schema(
            [
                ("whole", pa.int32()),
                ("nested", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])),
                ("text", pa.string()),
                ("at", pa.timestamp("us", "UTC")),
                ("price", pa.decimal128(10, 2)),
                ("empty", pa.string()),
            ]
        )
        at = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
        rows = [
            {
                "whole": 3,
                "nested": {"a": 1, "b": ["x"]},
                "text": "m",
                "at": at,
                "price": Decimal("1.50"),
            },
            {"whole": None, "nested": None, "text": "z", "at": None, "price": Decimal("-2.25")},
            {"whole": -7, "nested": None, "text": "ä", "at": at, "price": None},
        ]
        batch = pa.RecordBatch.from_pylist(rows, schema)
        [file] = written(settings_of(location, schema=schema, row_group_rows=1), [batch])

        assert file.stats == {
            "whole": ColumnStats(1, -7, 3),
            "text": ColumnStats(0, "m", "ä"),
            "at": ColumnStats(1, at, at),
            "price": ColumnStats(1, Decimal("-2.25"), Decimal("1.50")),
            "empty": ColumnStats(3),
        }

    @pytest.mark.parametrize(
        ("value", "least", "greatest"),
        [
            ("a" * 64, "a" * 64, "a" * 64),
            ("a" * 65, "a" * 64, "a" * 63 + "b"),
            ("\U0010ffff" * 65, "\U0010ffff" * 64, None),
            ("a" + "\U0010ffff" * 70, "a" + "\U0010ffff" * 63, "b"),
            ("\ud7ff" * 65, "\ud7ff" * 64, "\ud7ff" * 63 + "\ue000"),
            (b"\xff" * 65, b"\xff" * 64, None),
            (b"a" * 65, b"a" * 64, b"a" * 63 + b"b"),
        ],
        ids=["short", "text", "last", "carry", "surrogates", "no-upper", "bytes"],
    )
    def test_long_bounds_are_cut_outwards(
        self, location: Location, value: str | bytes, least: object, greatest: object
    ) -> None:
        """A bound is short, and no value lies outside."""
        batch = pa.record_batch([[value]], ["x"])
        [file] = written(settings_of(location, schema=batch.schema), [batch])
        assert file.stats["x"] == ColumnStats(0, least, greatest)
        assert greatest is None or least <= value <= greatest  # type: ignore[operator]


class TestFailures:
    """What is left when a file cannot be written."""

    @pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt()], ids=["err", "int"])
    def test_an_error_removes_all_files(self, location: Location, error: BaseException) -> None:
        """Those that are complete, those that are open, and those that nothing was sent of."""
        settings = settings_of(location, partition_by=["country"], open_files=2, row_group_rows=2)

        def fail() -> None:
            with FileWriter(settings) as writer:
                for start in range(0, 80, 8):
                    writer.write(batch_of(range(start, start + 8)))
                assert writer._files
                raise error

        with pytest.raises(type(error)):
            fail()
        assert objects(location) == []

    def test_a_failure_of_any_request_leaves_nothing(self) -> None:
        """Whichever request of a large and a small file fails, no file is left."""
        for number in itertools.count():
            location = Location(f"memory://lake-failing-{number}", trace=_FailingTrace(number))
            settings = settings_of(
                location, partition_by=["bucket(2, n)"], row_group_rows=16, compression="none"
            )
            try:
                files = written(settings, [batch_of(range(n, n + 64), 1 << 18) for n in (0, 64)])
            except StorageError:
                assert objects(Location(location.url)) == []
            else:
                assert sorted(objects(Location(location.url))) == sorted(e.path for e in files)
                assert number > 5
                return


class _FailingTrace(RequestTrace):
    """Lets the request of one number fail, before it is sent."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._left = number

    def note_request(self, *args: object, **options: object) -> None:
        """Fail, or count."""
        self._left -= 1
        if self._left == -1:
            message = "no"
            raise StorageError(message)
        super().note_request(*args, **options)  # type: ignore[arg-type]


def test_which_columns_get_a_dictionary(tmp_path: Path) -> None:
    """Those whose values repeat, and all inside others; a name may have dots."""
    numbers = range(2000)
    columns = {
        "unique": list(numbers),
        "few": [n % 3 for n in numbers],
        "text.s": [f"text {n}" for n in numbers],
        "country": [["DE", None, "FR"][n % 3] for n in numbers],
        "time": [datetime(2026, 1, 1, tzinfo=UTC) + n * timedelta(milliseconds=1) for n in numbers],
        "nothing": pa.nulls(len(numbers), pa.string()),
        "orders": [[{"price": n / 7, "tags": {"a": "b"}}] for n in numbers],
    }
    type_ = pa.list_(pa.struct([("price", pa.float64()), ("tags", pa.map_("string", "string"))]))
    table = pa.table(columns | {"orders": pa.array(columns["orders"], type_)})
    settings = settings_of(Location(str(tmp_path)), schema=table.schema)

    [file] = written(settings, table.to_batches())

    footer = pq.read_metadata(tmp_path / file.path)
    group = footer.row_group(0)
    chunks = [group.column(n) for n in range(group.num_columns)]
    plain = {each.path_in_schema for each in chunks if "RLE_DICTIONARY" not in each.encodings}
    assert plain == {"unique", "text.s", "time"}
    assert table_of(settings.location, file).equals(table)
