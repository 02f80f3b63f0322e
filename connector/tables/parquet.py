"""A plain Parquet table: files, and numbered manifests that list them, one per commit.

`_pulsar_offload/manifest-<number>.json` lists the files that its commit added, and is written only
if the name is free. The last manifest also has the table's columns, partitioning and progress,
which are then removed from the one before it. A commit that removes files writes a *checkpoint*,
which lists all files of the table. The table's files are those of the last checkpoint and of the
later manifests; each manifest has the number of that checkpoint as `start`.

A file that no manifest lists was removed by a commit whose earlier manifests were deleted, or was
left by a run that was stopped. It may be deleted while no copy runs.
"""

from __future__ import annotations

import base64
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa

from arrow_io.errors import (
    ConcurrentCopyError,
    LakeTableError,
    MissingObjectError,
    PulsarOffloadError,
)
from connector.tables.data_file import DataFile
from connector.tables.evolution import fit_rows, storable_schema, widen_schema
from connector.tables.file_reader import read_rows
from connector.tables.file_writer import OWN_NAME
from connector.tables.nested_tables import nested_folders
from connector.tables.state_file import STATE_FOLDER, check_members, decode_state, encode_state
from connector.tables.table import TableFile, TableState
from connector.tables.transforms import Partitioning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import timedelta

    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectInfo
    from connector.tables.table import Commit, FileReader

_MAX_MANIFEST_BYTES = 256 << 20
_NAME = re.compile(r"manifest-(\d{20})\.json")
_MEMBERS: Final[Mapping[str, type]] = MappingProxyType(
    {"id": str, "start": int, "summary": dict, "files": list}
)
_LAST_MEMBERS: Final[Mapping[str, type]] = MappingProxyType(
    {"progress": str, "partitioning": list, "arrow_schema": str}
)


@dataclass(frozen=True, slots=True)
class _Token:
    """The last manifest that was read."""

    number: int
    start: int
    """Number of the checkpoint, or 1, where the table's files begin."""


@dataclass(frozen=True, slots=True)
class ParquetTable:
    """Parquet files in a folder, and the manifests that list them."""

    location: Location
    data_prefix: str = ""

    def storable(self, schema: pa.Schema, state: TableState | None) -> pa.Schema:
        """Return the columns that the table needs so that rows of a schema fit; see `LakeTable`."""
        storable = storable_schema(schema, "parquet")
        return storable if state is None else widen_schema(state.schema, storable, "parquet")

    def read_state(self) -> TableState | None:
        """Return the state that the last manifest describes, or None if there is no table yet.

        Raises:
            OptionError: The store is not known to reject the second of two writers of one object.
            LakeTableError: The folder has another kind of table, or the manifest is malformed.
        """
        self.location.check_writes_new_objects()
        number = 0
        while number != (number := max(numbers := self._numbers(), default=0)):
            manifest = self._manifest(number)
            if "progress" in manifest:
                self._check_complete(numbers, manifest)
                return self._state_from_manifest(number, manifest)
            # Another run wrote a later manifest after the listing: list again.
        if number:
            raise self._malformed_error(
                number, ValueError("it is the last manifest, and has no progress")
            )
        self._check_no_other_table()
        return None

    def _state_from_manifest(self, number: int, manifest: dict[str, Any]) -> TableState:
        try:
            check_members(manifest, _LAST_MEMBERS)
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(manifest["arrow_schema"])))
            partitioning = Partitioning.parse(manifest["partitioning"], schema)
        except (pa.ArrowException, OSError, ValueError, TypeError, AttributeError) as error:
            raise self._malformed_error(number, error) from None
        token = _Token(number, manifest["start"])
        return TableState(schema, partitioning, manifest["progress"], token)

    def commit(self, commit: Commit, state: TableState | None) -> None:
        """Write the next manifest; see `LakeTable`.

        Raises:
            ConcurrentCopyError: The manifest already exists, or the version that was read has
                expired.
        """
        token = _Token(0, 1) if state is None else state.token
        assert isinstance(token, _Token)  # noqa: S101 - what `read_state` returned
        number = token.number + 1
        files = [_describe_file(each, commit.partitioning) for each in commit.files]
        if commit.removed:
            removed = {each.token for each in commit.removed}
            current = (each for _, each in self._descriptions(token.start, token.number))
            files = [each for each in current if each["path"] not in removed] + files
        manifest = {
            "id": uuid4().hex,  # so that no two runs write the same bytes
            "start": number if commit.removed else token.start,
            "progress": commit.after,
            "partitioning": list(commit.partitioning.texts),
            "columns": {each.name: str(each.type) for each in commit.schema},
            "arrow_schema": base64.b64encode(commit.schema.serialize()).decode(),
            "summary": dict(commit.summary),
            "files": files,
        }
        data = encode_state(number, manifest)
        if token.number:
            # Once it has expired, later numbers are free again, and a manifest would leave a gap.
            self._manifest(token.number)
        is_new = self._folder.write_new_object(_manifest_name(number), data)
        # If the response was lost, the manifest may be ours, possibly shortened by a later run.
        if not is_new and self._manifest(number)["id"] != manifest["id"]:
            message = (
                f"another run copied to {self.location} at the same time and wrote manifest"
                f" {number}. Run again to continue from its progress"
            )
            raise ConcurrentCopyError(message, object_key=_manifest_name(number))
        # The commit was made, so a failure is ignored: no reader uses the rest of that manifest.
        with suppress(PulsarOffloadError):
            self._shorten(number - 1)

    def _shorten(self, number: int) -> None:
        """Remove from a manifest what only the last one needs: the progress may be large."""
        if number:
            manifest = self._manifest(number)
            data = encode_state(number, {name: manifest[name] for name in _MEMBERS})
            self._folder.write_object(_manifest_name(number), data, user_metadata={})

    def files(self) -> Iterator[DataFile]:
        """Iterate over the table's files, oldest first.

        They have no statistics, and their partition values are texts.

        Raises:
            LakeTableError: A manifest is malformed.
        """
        numbers = self._numbers()
        if not numbers:
            return
        manifest = self._manifest(numbers[-1])
        self._check_complete(numbers, manifest)
        for _, each in self._descriptions(manifest["start"], numbers[-1]):
            yield DataFile(
                each["path"], each["size_bytes"], each["rows"], tuple(each["partition"].values())
            )

    def _descriptions(self, first: int, last: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Iterate over the files that manifests list, with the number of the manifest.

        The first and last number are inclusive.
        """
        for number in range(first, last + 1):
            for each in self._manifest(number)["files"]:
                match each:
                    case {
                        "path": str(),
                        "size_bytes": int(),
                        "rows": int(),
                        "partition": dict(),
                    }:
                        yield number, each
                    case _:
                        raise self._malformed_error(
                            number, ValueError(f"{each!r:.100} does not describe a file")
                        )

    def data_files(self, state: TableState, columns: Sequence[str]) -> Iterator[TableFile]:
        """Iterate over the files of the manifest that `read_state` read; see `RewritableTable`.

        Manifests record bounds of times only. Partition values are texts.
        """
        token = state.token
        assert isinstance(token, _Token)  # noqa: S101 - what `read_state` returned
        names = [str(each) for each in state.partitioning.fields]
        for number, each in self._descriptions(token.start, token.number):
            if len(each["partition"]) != len(names):
                message = f"{each['path']!r:.100} has another partitioning than the table"
                raise self._malformed_error(number, ValueError(message))
            partition = dict(zip(names, each["partition"].values(), strict=True))
            try:
                times = {name: _read_times(each, name) for name in columns}
            except (ValueError, TypeError, AttributeError) as error:
                raise self._malformed_error(number, error) from None
            yield TableFile(
                each["path"],
                {name: (least, greatest) for name, (least, greatest, _) in times.items()},
                partition,
                each["size_bytes"],
                each["rows"],
                frozenset(name for name, (*_, nulls) in times.items() if nulls == 0),
                each["path"],
            )

    def file_reader(self, state: TableState) -> FileReader:
        """Return the reader of these files; see `RewritableTable`."""
        return partial(_read_file, self.location, state.schema)

    def find_unnamed_files(self) -> list[str]:
        """Return the paths of Parquet files that no manifest lists, for `location.delete_objects`.

        They are leftovers, or files of a running copy. Files that a checkpoint removed are listed
        by earlier manifests, until these are deleted.

        Raises:
            LakeTableError: A manifest is malformed.
        """
        # Listed before the manifests are read: files committed in between are not reported.
        return [each.name for each in self._unnamed_files()]

    def _unnamed_files(self) -> list[ObjectInfo]:
        infos = self.location.list_tree()
        # Those of other tables are not this table's, whatever their age.
        nested = nested_folders(each.name for each in infos)
        infos = [
            each
            for each in infos
            if each.name.endswith(".parquet") and not each.name.startswith(nested)
        ]
        numbers = self._numbers()
        if not numbers:
            return infos
        named = {each["path"] for _, each in self._descriptions(numbers[0], numbers[-1])}
        return [each for each in infos if each.name not in named]

    def expire_versions(self, now: datetime, age: timedelta, *, dry_run: bool) -> int:
        """Delete manifests that a checkpoint replaced; see `MaintainedTable`.

        If the store does not report times, all remain.
        """
        infos = self._list_manifests()
        old = [
            number
            for number, each in infos.items()
            if each.modified is not None and each.modified < now - age
        ]
        if not old:
            return 0
        # Versions before the checkpoint of this one were replaced earlier than it.
        start = self._manifest(max(old))["start"]
        expired = [number for number in sorted(infos) if number < start]
        if not dry_run:
            # In order, so that none is missing between others if the store fails.
            for number in expired:
                self._folder.delete_objects([_manifest_name(number)])
        return len(expired)

    def delete_unneeded(self, before: datetime, *, dry_run: bool) -> list[str]:
        """Delete files of copies that no manifest lists; see `MaintainedTable`.

        Files with other names may belong to another program.
        """
        names = [
            each.name
            for each in self._unnamed_files()
            if each.modified is not None
            and each.modified < before
            and OWN_NAME.fullmatch(each.name)
        ]
        if not dry_run:
            self.location.delete_objects(names)
        return names

    @property
    def exists(self) -> bool:
        """Whether the folder has a manifest."""
        return bool(self._numbers())

    @property
    def _folder(self) -> Location:
        return self.location.child(STATE_FOLDER)

    def _list_manifests(self) -> dict[int, ObjectInfo]:
        try:
            infos = self._folder.list_objects()
        except MissingObjectError:
            return {}
        matches = ((_NAME.fullmatch(info.name), info) for info in infos)
        return {int(match[1]): info for match, info in matches if match}

    def _numbers(self) -> list[int]:
        """Return the numbers of the manifests. They must be consecutive."""
        numbers = sorted(self._list_manifests())
        for expected, number in enumerate(numbers, min(numbers, default=1)):
            if number != expected:
                raise self._missing_error(expected)
        return numbers

    def _check_complete(self, numbers: Sequence[int], last: dict[str, Any]) -> None:
        """Raise `LakeTableError` unless the last manifest's checkpoint is among the manifests."""
        start = last["start"]
        if not 1 <= start <= numbers[-1]:
            message = f"its start is malformed: {start!r:.100}"
            raise self._malformed_error(numbers[-1], ValueError(message))
        if start < numbers[0]:
            raise self._missing_error(start)

    def _missing_error(self, number: int) -> LakeTableError:
        name = _manifest_name(number)
        message = f"{STATE_FOLDER}/{name} is missing at {self.location}, but later ones exist"
        return LakeTableError(message, object_key=name)

    def _manifest(self, number: int) -> dict[str, Any]:
        name = _manifest_name(number)
        try:
            content = self._folder.read_object(name, max_bytes=_MAX_MANIFEST_BYTES)
        except MissingObjectError:
            message = (
                f"{STATE_FOLDER}/{name} disappeared from the table at {self.location}, because"
                " another run replaced and expired it. Run again"
            )
            raise ConcurrentCopyError(message, object_key=name) from None
        try:
            return decode_state(content.data, number, _MEMBERS)
        except ValueError as error:
            raise self._malformed_error(number, error) from None

    def _check_no_other_table(self) -> None:
        try:
            folders = self.location.list_folders()
        except MissingObjectError:
            return
        if "_delta_log" in folders:
            message = (
                f"{self.location} is a Delta table: use format delta, or copy to another folder"
            )
            raise LakeTableError(message)

    def _malformed_error(self, number: int, error: Exception) -> LakeTableError:
        name = _manifest_name(number)
        message = f"{STATE_FOLDER}/{name} of the table at {self.location} cannot be read: {error}"
        return LakeTableError(message, object_key=name)


def _read_file(
    location: Location, schema: pa.Schema, file: TableFile, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a file. Columns that were added after it was written are null."""
    path = file.token
    assert isinstance(path, str)  # noqa: S101 - what `data_files` returned
    if columns is not None:
        schema = pa.schema([schema.field(each) for each in columns])
    for batch in read_rows(location, path, file.size_bytes, columns):
        yield fit_rows(batch, schema, "parquet")


def _manifest_name(number: int) -> str:
    return f"manifest-{number:020}.json"


def _describe_file(file: DataFile, partitioning: Partitioning) -> dict[str, object]:
    pairs = zip(partitioning.fields, file.partition, strict=True)
    return {
        "path": file.path,
        "size_bytes": file.size_bytes,
        "rows": file.rows,
        "partition": {
            each.name: None if value is None else each.text(value) for each, value in pairs
        },
        "times": {
            name: [each.least.isoformat(), each.greatest.isoformat(), each.nulls]
            for name, each in file.stats.items()
            if isinstance(each.least, datetime) and isinstance(each.greatest, datetime)
        },
    }


def _read_times(
    description: dict[str, Any], column: str
) -> tuple[datetime | None, datetime | None, int | None]:
    """Return the recorded minimum and maximum of a column of times, and its number of nulls.

    Raises:
        ValueError: A time is malformed.
        TypeError: A value has another type.
        AttributeError: There is another value in the place of the columns.
    """
    recorded = description.get("times", {}).get(column)
    if recorded is None:
        return None, None, None
    least, greatest, nulls = recorded
    return datetime.fromisoformat(least), datetime.fromisoformat(greatest), nulls
