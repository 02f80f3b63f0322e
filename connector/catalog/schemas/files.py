"""Schemas of a topic as files for other tools: Avro schemas, protobuf descriptors and JSON.

`schemas-rest.json` has all versions as the admin API returns them, so it can be passed to
`open_topic` as `schema`. The other files have one version each; types without a definition have no
file of their own.
"""

from __future__ import annotations

import base64
import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from arrow_io.errors import SchemaError
from arrow_io.payloads.json_schema import is_json_schema
from arrow_io.payloads.protobuf_schema import proto_files
from connector.catalog.schemas.answers import registered_versions, schemas_json
from connector.catalog.schemas.proto_text import proto_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema

ALL_VERSIONS_FILE: Final = "schemas-rest.json"
# Excludes `..` and everything that other file systems treat as a root or separator.
_PATH_PART: Final = re.compile(r"(?!\.{1,2}$)[\w.@+ -]+")


def schema_files(schema: TopicSchema) -> dict[str, bytes]:
    """Return the files of a topic's schemas, by name.

    Versions are named `v0.avsc` (AVRO and JSON), `v0.schema.json` (JSON with a JSON Schema) or
    `v0.desc` (a `FileDescriptorSet`), and the two schemas of a KEY_VALUE `v0-key…` and `v0-value…`.
    The `.proto` files of a descriptor are in a folder (`v0`) and import each other by their names
    in it.

    Raises:
        SchemaError: A definition cannot be read, or a protobuf file has a name that leads out of
            the folder.
    """
    files = {ALL_VERSIONS_FILE: f"{schemas_json(schema, timestamp_ms=0)}\n".encode()}
    for version, info in registered_versions(schema):
        for part, each in _parts(info):
            files |= {f"v{version}{part}{name}": data for name, data in _files(each)}
    return files


def _parts(info: SchemaInfo) -> Iterator[tuple[str, SchemaInfo]]:
    if info.type != "KEY_VALUE":
        yield "", info
        return
    for name, part in (("key", info.key), ("value", info.value)):
        if part is not None:
            yield f"-{name}", part


def _files(info: SchemaInfo) -> Iterator[tuple[str, bytes]]:
    """Yield suffixes of names and contents; none if the type has no definition."""
    if info.type in {"AVRO", "JSON"}:
        with _readable():
            definition = json.dumps(json.loads(info.data), indent=2, ensure_ascii=False).encode()
        is_avro = info.type == "AVRO" or not is_json_schema(info.data)
        yield ".avsc" if is_avro else ".schema.json", definition + b"\n"
    if info.type in {"PROTOBUF", "PROTOBUF_NATIVE"}:
        with _readable():
            described = json.loads(info.data)
        if not isinstance(described, dict) or "fileDescriptorSet" not in described:
            yield ".avsc", info.data.encode()
            return
        pool, files = proto_files(info.data)
        yield ".desc", base64.b64decode(described["fileDescriptorSet"])
        for file in files:
            yield f"/{_checked_name(file.name)}", proto_text(file, pool).encode()


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the schema is not JSON: {error}") from error


def _checked_name(name: str) -> str:
    if not all(_PATH_PART.fullmatch(part) for part in name.split("/")):
        raise SchemaError(f"a file of the schema has the unsafe name {name[:100]!r}")
    return name
