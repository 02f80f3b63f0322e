"""Schemas of a topic → files for other tools: Avro schemas, protobuf descriptors, and all as JSON.

`schemas-rest.json` has all versions as the admin API gives them, so it can be given to `open_topic`
as `schema`. The others have one version each; types that need no definition have none of their own.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Final

from connector.catalog.schemas.answers import registered_versions, schemas_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema

ALL_VERSIONS_FILE: Final = "schemas-rest.json"


def schema_files(schema: TopicSchema) -> dict[str, bytes]:
    """The files of a topic's schemas, by name.

    Versions are named `v0.avsc` (AVRO and JSON) or `v0.desc` (a `FileDescriptorSet`); the two
    schemas of a KEY_VALUE `v0-key…` and `v0-value…`.

    Args:
        schema: The schemas.
    """
    files = {ALL_VERSIONS_FILE: f"{schemas_json(schema, timestamp_ms=0)}\n".encode()}
    for version, info in registered_versions(schema):
        for part, each in _parts(info):
            file = _file(each)
            if file is not None:
                ending, data = file
                files[f"v{version}{part}.{ending}"] = data
    return files


def _parts(info: SchemaInfo) -> Iterator[tuple[str, SchemaInfo]]:
    if info.type != "KEY_VALUE":
        yield "", info
        return
    for name, part in (("key", info.key), ("value", info.value)):
        if part is not None:
            yield f"-{name}", part


def _file(info: SchemaInfo) -> tuple[str, bytes] | None:
    """The ending of the name, and the bytes; None if there is no definition to be kept."""
    if info.type in {"AVRO", "JSON"}:
        definition = json.dumps(json.loads(info.data), indent=2, ensure_ascii=False)
        return "avsc", f"{definition}\n".encode()
    if info.type in {"PROTOBUF", "PROTOBUF_NATIVE"}:
        described = json.loads(info.data)
        if isinstance(described, dict) and "fileDescriptorSet" in described:
            return "desc", base64.b64decode(described["fileDescriptorSet"])
        return "avsc", info.data.encode()
    return None
