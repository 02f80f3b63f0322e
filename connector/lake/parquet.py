"""A plain Parquet table: files, and numbered manifests that list them, one per commit.

`_pulsar_offload/manifest-<number>.json` lists the files that its commit added, and is written only
if the name is free. The last manifest also has the table's columns, partitioning and progress,
which are then removed from the one before it. The table's files are those that all manifests list
together. A file that no manifest lists was left by a run that was stopped, and may be deleted while
no copy runs.
"""

from __future__ import annotations

import base64
import re
from contextlib import suppress
from dataclasses import dataclass
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
from connector.lake.data_file import DataFile
from connector.lake.evolution import storable_schema, widen_schema
from connector.lake.state_file import STATE_FOLDER, check_members, decode_state, encode_state
from connector.lake.table import TableState
from connector.lake.transforms import Partitioning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from arrow_io.storage.location import Location
    from connector.lake.table import Commit

_MAX_MANIFEST_BYTES = 256 << 20
_NAME = re.compile(r"manifest-(\d{20})\.json")
_MEMBERS: Final[Mapping[str, type]] = MappingProxyType({"id": str, "summary": dict, "files": list})
_LAST_MEMBERS: Final[Mapping[str, type]] = MappingProxyType(
    {"progress": str, "partitioning": list, "arrow_schema": str}
)


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
        while number != (number := len(self._numbers())):
            manifest = self._manifest(number)
            if "progress" in manifest:
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
        return TableState(schema, partitioning, manifest["progress"], number)

    def commit(self, commit: Commit, state: TableState | None) -> None:
        """Write the next manifest; see `LakeTable`.

        Raises:
            ConcurrentCopyError: The manifest already exists.
        """
        number = 1 + (state.token if state and isinstance(state.token, int) else 0)
        manifest = {
            "id": uuid4().hex,  # so that no two runs write the same bytes
            "progress": commit.after,
            "partitioning": list(commit.partitioning.texts),
            "columns": {each.name: str(each.type) for each in commit.schema},
            "arrow_schema": base64.b64encode(commit.schema.serialize()).decode(),
            "summary": dict(commit.summary),
            "files": [_describe_file(each, commit.partitioning) for each in commit.files],
        }
        data = encode_state(number, manifest)
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
        for number in self._numbers():
            for each in self._manifest(number)["files"]:
                match each:
                    case {
                        "path": str(path),
                        "size_bytes": int(size_bytes),
                        "rows": int(rows),
                        "partition": dict(values),
                    }:
                        yield DataFile(path, size_bytes, rows, tuple(values.values()))
                    case _:
                        raise self._malformed_error(
                            number, ValueError(f"{each!r:.100} does not describe a file")
                        )

    def find_unnamed_files(self) -> list[str]:
        """Return the paths of Parquet files that no manifest lists, for `location.delete_objects`.

        They are leftovers, or files of a running copy.

        Raises:
            LakeTableError: A manifest is malformed.
        """
        # Listed before the manifests are read: files committed in between are not reported.
        names = (info.name for info in self.location.list_tree())
        paths = [name for name in names if name.endswith(".parquet")]
        named = {each.path for each in self.files()}
        return [each for each in paths if each not in named]

    @property
    def exists(self) -> bool:
        """Whether the folder has a manifest."""
        return bool(self._numbers())

    @property
    def _folder(self) -> Location:
        return self.location.child(STATE_FOLDER)

    def _numbers(self) -> list[int]:
        """Return the numbers of the manifests. They must be consecutive from 1 on."""
        try:
            infos = self._folder.list_objects()
        except MissingObjectError:
            return []
        matches = (_NAME.fullmatch(info.name) for info in infos)
        numbers = sorted(int(match[1]) for match in matches if match)
        for expected, number in enumerate(numbers, 1):
            if number != expected:
                name = _manifest_name(expected)
                message = (
                    f"{STATE_FOLDER}/{name} is missing at {self.location}, but later ones exist"
                )
                raise LakeTableError(message, object_key=name)
        return numbers

    def _manifest(self, number: int) -> dict[str, Any]:
        content = self._folder.read_object(_manifest_name(number), max_bytes=_MAX_MANIFEST_BYTES)
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
    }
