"""Metadata that is extended: of what may be, by which schemas, and after a failure as before."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from arrow_io.errors import CorruptMetadataError, OptionError, StorageError
from arrow_io.messages.message_metadata import Message
from arrow_io.storage.location import Location
from connector import open_catalog, open_topic, write_messages
from connector.writing.topic_files import METADATA_FILES
from tests.support.appended_topics import files_below, keyed_rows, payloads_of
from tests.support.buckets import TOPIC, MemoryBucket
from tests.support.golden import golden_topic
from tests.support.offloads import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_TABLE = pa.table({"__value__": [b"one", b"two"]})
_MORE = pa.table({"__value__": [b"three", b"four"]})


class TestWhatWasNotWrittenHere:
    """Only what `write` made is extended: a cluster's metadata knows more than that."""

    @pytest.mark.parametrize("file", METADATA_FILES)
    def test_a_file_that_differs_is_refused(
        self, bucket: MemoryBucket, tmp_path: Path, file: str
    ) -> None:
        """Any other file, or one that is gone, would lose something."""
        write_messages(bucket.url, TOPIC, _TABLE, metadata_folder=tmp_path)
        (path,) = tmp_path.rglob(file)
        content = path.read_bytes()
        for changed in (None, content + b" " if file.endswith("json") else b""):
            if changed is None:
                path.unlink()
            else:
                path.write_bytes(changed)
            there = names(Location(bucket.url))

            with pytest.raises(OptionError, match="write did not make"):
                write_messages(bucket.url, TOPIC, _MORE, append=True, metadata_folder=tmp_path)

            assert names(Location(bucket.url)) == there
            path.write_bytes(content)

    def test_that_of_a_cluster_is_refused(self, bucket: MemoryBucket, tmp_path: Path) -> None:
        """A broker's own answers and value are not written over."""
        folder = tmp_path / "public__default__orders"
        shutil.copytree(
            golden_topic("json-orders").folder.parent / "public__default__json-orders",
            folder,
        )
        before = files_below(tmp_path)

        with pytest.raises(OptionError, match="write did not make"):
            write_messages(bucket.url, TOPIC, _TABLE, append=True, metadata_folder=tmp_path)

        assert files_below(tmp_path) == before

    def test_one_that_is_malformed_is_named(self, bucket: MemoryBucket, tmp_path: Path) -> None:
        """The error names the file."""
        write_messages(bucket.url, TOPIC, _TABLE, metadata_folder=tmp_path)
        (path,) = tmp_path.rglob("managed-ledger-info.bin")
        path.write_bytes(b"\xff" * 20)

        with pytest.raises(CorruptMetadataError, match=r"managed-ledger-info\.bin"):
            write_messages(bucket.url, TOPIC, _TABLE, append=True, metadata_folder=tmp_path)


class TestSchemas:
    """A version of the schema stays what it is."""

    _SALE = '{"type":"record","name":"Sale","fields":[{"name":"sku","type":"string"}]}'
    _WIDER = (
        '{"type":"record","name":"Sale","fields":[{"name":"sku","type":"string"},'
        '{"name":"count","type":["null","int"]}]}'
    )

    def _write(self, url: str, folder: Path, schema: object, *, append: bool = True) -> None:
        write_messages(
            url, TOPIC, pa.table({"sku": ["x"]}), schema=schema, append=append,  # type: ignore[arg-type]
            metadata_folder=folder,
        )  # fmt: skip

    def _versions(self, url: str, folder: Path) -> list[int]:
        catalog = open_catalog(url, metadata=str(folder))
        dataset = open_topic(url, TOPIC, columns=["__schema_version__", "sku"], catalog=catalog)
        assert set(dataset.to_table()["sku"].to_pylist()) == {"x"}
        versions: list[int] = dataset.to_table()["__schema_version__"].to_pylist()
        return versions

    def test_the_same_schema_is_the_same_version(
        self, bucket: MemoryBucket, tmp_path: Path
    ) -> None:
        """Nothing is registered anew, and the file stays."""
        schema = {"type": "JSON", "schema": self._SALE}
        self._write(bucket.url, tmp_path, schema, append=False)
        (file,) = tmp_path.rglob("schemas-rest.json")
        before = file.read_bytes()

        self._write(bucket.url, tmp_path, schema)

        assert file.read_bytes() == before
        assert self._versions(bucket.url, tmp_path) == [0, 0]

    def test_another_schema_is_the_next_version(self, bucket: MemoryBucket, tmp_path: Path) -> None:
        """Messages are read by the version that they were written with."""
        for number, data in enumerate((self._SALE, self._WIDER, self._SALE)):
            schema = {"type": "JSON", "schema": data}
            self._write(bucket.url, tmp_path, schema, append=number > 0)

        assert self._versions(bucket.url, tmp_path) == [0, 1, 0]

    def test_another_schema_of_the_same_version_is_refused(
        self, bucket: MemoryBucket, tmp_path: Path
    ) -> None:
        """It would have old messages read by it."""
        self._write(bucket.url, tmp_path, {"type": "JSON", "schema": self._SALE}, append=False)
        other = {"version": 0, "type": "JSON", "schema": self._WIDER}
        there = names(Location(bucket.url))

        with pytest.raises(OptionError, match="version 0"):
            self._write(bucket.url, tmp_path, other)

        assert names(Location(bucket.url)) == there

    def test_no_schema_leaves_those_that_are_there(
        self, bucket: MemoryBucket, tmp_path: Path
    ) -> None:
        """Payloads that are encoded already may be appended without it."""
        self._write(bucket.url, tmp_path, {"type": "JSON", "schema": self._SALE}, append=False)

        table = pa.table({"__value__": ['{"sku":"x"}']})
        write_messages(bucket.url, TOPIC, table, append=True, metadata_folder=tmp_path)

        assert self._versions(bucket.url, tmp_path) == [0, None]


class TestFailure:
    """The metadata is extended whole, or stays as it was."""

    @pytest.mark.parametrize("number", range(10))
    def test_a_fault_at_each_write_restores_it(
        self, bucket: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        """Whichever file cannot be written, every file and object is as it was before."""
        write_messages(
            bucket.url, TOPIC, keyed_rows(range(9)), partitions=2, metadata_folder=tmp_path
        )
        before, there = files_below(tmp_path), names(Location(bucket.url))
        write = Location.write_object
        written: list[str] = []

        def failing(location: Location, name: str, *args: Any, **options: Any) -> None:  # noqa: ANN401
            if name in METADATA_FILES:
                if len(written) == number:
                    written.append("it failed")
                    message = "the disk is full"
                    raise StorageError(message)
                written.append(name)
            write(location, name, *args, **options)

        monkeypatch.setattr(Location, "write_object", failing)

        with pytest.raises(StorageError, match="disk is full") as raised:
            write_messages(
                bucket.url, TOPIC, keyed_rows(range(9)), partitions=2, append=True,
                metadata_folder=tmp_path,
            )  # fmt: skip

        assert getattr(raised.value, "__notes__", []) == []
        assert (files_below(tmp_path), names(Location(bucket.url))) == (before, there)

    @pytest.mark.filterwarnings("ignore")
    def test_a_kill_at_any_moment_loses_nothing_that_stood(
        self, bucket: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After each single write, a reader gets at least what was there before."""
        folder = tmp_path / "metadata"
        write_messages(
            bucket.url, TOPIC, keyed_rows(range(9)), partitions=2, metadata_folder=folder
        )
        read: list[set[bytes]] = []

        def watched(method: Callable[..., None]) -> Callable[..., None]:
            def watching(location: Location, *args: Any, **options: Any) -> None:  # noqa: ANN401
                method(location, *args, **options)
                if str(folder) in location.url:
                    shutil.copytree(folder, tmp_path / "copy")
                    read.append(set(payloads_of(bucket.url, tmp_path / "copy")))
                    shutil.rmtree(tmp_path / "copy")

            return watching

        for name in ("write_object", "delete_objects"):
            monkeypatch.setattr(Location, name, watched(getattr(Location, name)))

        write_messages(
            bucket.url, TOPIC, keyed_rows(range(9, 30)), partitions=2, append=True,
            metadata_folder=folder,
        )  # fmt: skip

        assert len(read) == 2 * 6 + 2
        assert all(each >= {str(number).encode() for number in range(9)} for each in read)
        assert read[-1] == {str(number).encode() for number in range(30)}

    def test_what_others_wrote_meanwhile_stays(self, bucket: MemoryBucket, tmp_path: Path) -> None:
        """Of two that extend it at once, the one that ends later is undone."""
        write_messages(bucket.url, TOPIC, _TABLE, metadata_folder=tmp_path)

        def rows() -> Iterator[Message]:
            yield Message(payload=b"A", publish_time_ms=0)
            write_messages(
                bucket.url, TOPIC, _MORE, append=True, metadata_folder=tmp_path, first_ledger_id=50
            )

        with pytest.raises(OptionError, match="changed in the meantime"):
            write_messages(bucket.url, TOPIC, rows(), append=True, metadata_folder=tmp_path)

        assert payloads_of(bucket.url, tmp_path) == [b"one", b"two", b"three", b"four"]

    def test_what_cannot_be_restored_is_told(
        self, bucket: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each file that stays changed is named, and the others are restored."""
        write_messages(bucket.url, TOPIC, _TABLE, metadata_folder=tmp_path)
        before = files_below(tmp_path)
        there = payloads_of(bucket.url, tmp_path)
        write = Location.write_object
        tried: list[str] = []

        def failing(location: Location, name: str, *args: Any, **options: Any) -> None:  # noqa: ANN401
            tried.append(name)
            # One write, and the restoring of what was written before.
            again = name == "managed-ledger-info.bin" and tried.count(name) == 2
            if again or (name == "internal-info.json" and tried.count(name) == 1):
                message = "the disk is full"
                raise StorageError(message)
            write(location, name, *args, **options)

        monkeypatch.setattr(Location, "write_object", failing)

        with pytest.raises(StorageError, match="disk is full") as raised:
            write_messages(bucket.url, TOPIC, _MORE, append=True, metadata_folder=tmp_path)

        (note,) = raised.value.__notes__
        assert "managed-ledger-info.bin could not be restored" in note
        changed = {name for name, data in files_below(tmp_path).items() if data != before.get(name)}
        assert changed == {
            "public__default__orders/managed-ledger-info.bin",
            "public__default__orders.unfinished.json",
        }
        monkeypatch.undo()
        write_messages(bucket.url, TOPIC, _MORE, append=True, metadata_folder=tmp_path)
        assert payloads_of(bucket.url, tmp_path) == [*there, b"three", b"four"]


@pytest.mark.parametrize("where", ["bucket", "metadata", "both"])
def test_a_failure_leaves_no_empty_folder(tmp_path: Path, where: str) -> None:
    """Folders that writing made are removed with what was in them; older ones stay."""
    bucket, folder = tmp_path / "a" / "bucket", tmp_path / "b" / "metadata"
    if where != "bucket":
        bucket.mkdir(parents=True)
    if where != "metadata":
        folder.mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))

    def rows() -> Iterator[Message]:
        yield Message(payload=b"A", publish_time_ms=0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_messages(str(bucket), TOPIC, rows(), metadata_folder=folder)

    assert sorted(tmp_path.rglob("*")) == before


def test_a_failure_of_the_metadata_leaves_no_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor when the ledgers were complete, in a bucket given as a URL."""
    write = Location.write_object

    def failing(location: Location, name: str, *args: Any, **options: Any) -> None:  # noqa: ANN401
        if name == "internal-info.json":
            raise KeyboardInterrupt
        write(location, name, *args, **options)

    monkeypatch.setattr(Location, "write_object", failing)

    with pytest.raises(KeyboardInterrupt):
        write_messages(
            f"file://{tmp_path}/bucket", TOPIC, _TABLE, metadata_folder=tmp_path / "metadata"
        )

    assert list(tmp_path.iterdir()) == []
