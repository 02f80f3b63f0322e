"""Parsers of one schema in any of its forms, to `SchemaInfo`.

The forms are JSON of the admin API (`GetSchemaResponse`, the CLI's `schemas get`), SchemaInfo
objects, Avro schemas, and serialized protobuf `FileDescriptorSet`s. The result is the schema with
its version. A definition must be JSON, or describe the message that it names. It is normalized, so
that equal schemas are equal whatever their form. Names of schemas are dropped: not all forms have
them, and they do not affect decoding.

Every error is an `OptionError` that quotes at most a few words of the source.
"""

from __future__ import annotations

import base64
import json
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from arrow_io.core.wording import counted
from arrow_io.errors import OptionError
from arrow_io.payloads.schema_info import SCHEMA_TYPES, SchemaInfo

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

MAX_SCHEMA_BYTES: Final = 16 << 20
"""Maximum length of one schema's definition, in bytes of its JSON text in UTF-8."""

MAX_SOURCE_BYTES: Final = 64 << 20
"""Maximum length of a file or text with schemas, in bytes."""

ALL_VERSIONS: Final = "getSchemaResponses"
"""Field of the admin API's answer that lists the schemas of all versions."""

CLIENT_MODES: Final = frozenset(
    {"AUTO", "AUTO_CONSUME", "AUTO_PRODUCE", "AUTO_PRODUCE_BYTES", "AUTO_PUBLISH"}
)
"""Names of schema types with which clients request the topic's own schema; never stored."""

DEFINED_TYPES: Final = frozenset({"AVRO", "JSON", "KEY_VALUE", "PROTOBUF", "PROTOBUF_NATIVE"})
"""Schema types that need a definition."""

BARE_TYPES: Final = tuple(sorted(set(SCHEMA_TYPES) - DEFINED_TYPES - {"NONE", "EXTERNAL"}))
"""Schema types that need no definition."""

_CLIENT_MODE_NUMBERS: Final = frozenset({-2, -3, -4, 21})
_NAME_OF_NUMBER: Final = {number: name for name, number in SCHEMA_TYPES.items()}

_AVRO_COMPLEX: Final = frozenset({"array", "enum", "error", "fixed", "map", "record"})
_AVRO_PRIMITIVES: Final = frozenset(
    {"boolean", "bytes", "double", "float", "int", "long", "null", "string"}
)

_CLI_FIELD: Final = "schemaInfo"
_DATA_FIELDS: Final = ("data", "schema", "schema_base64")
_DESCRIPTOR_FIELD: Final = "fileDescriptorSet"
_KV_ENCODING: Final = "kv.encoding.type"
_KV_PROPERTY: Final = re.compile(r"kv\.encoding\.type|(?:key|value)\.schema\..*", re.DOTALL)
_LONG_STOP: Final = 1 << 63
_INT_BYTES: Final = 4
_MAX_NAMES: Final = 20
_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = 100


@contextmanager
def error_prefix(what: str) -> Iterator[None]:
    """Prefix the message of an OptionError with its subject."""
    try:
        yield
    except OptionError as error:
        message = f"{what}: {error.message}"
        raise OptionError(message) from None


def parse_json(text: str | bytes, *, allow_repeated_names: bool = True) -> object:
    """Parse JSON text; if a name is repeated in an object, its last value counts.

    Raises:
        OptionError: It is longer than `MAX_SOURCE_BYTES`, not UTF-8, or not JSON; or a name is
            repeated and that is not allowed. The message has the position of the error, and nothing
            of the text.
    """
    if len(text) > MAX_SOURCE_BYTES:
        message = f"longer than the {MAX_SOURCE_BYTES} bytes allowed"
        raise OptionError(message)
    try:
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        pairs_hook = None if allow_repeated_names else _object_with_unique_names
        value: object = json.loads(decoded, object_pairs_hook=pairs_hook)
    except UnicodeDecodeError as error:
        message = f"not UTF-8 at byte {error.start}"
    except json.JSONDecodeError as error:
        message = f"malformed JSON at line {error.lineno}, column {error.colno}: {error.msg}"
    except OptionError as error:
        message = error.message
    except ValueError:
        message = "malformed JSON: a number has too many digits"
    except RecursionError:
        message = "malformed JSON: nested too deeply"
    else:
        return value
    raise OptionError(message)


def _object_with_unique_names(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        message = "malformed JSON: a name is repeated in an object"
        raise OptionError(message)
    return fields


def holds_schemas(value: object) -> bool:
    """Return whether parsed JSON has one of the forms, or is a list of them.

    It distinguishes schemas from other files of a folder, such as a topic's statistics. The schemas
    may still be malformed.
    """
    if isinstance(value, list):
        return any(isinstance(each, Mapping) and holds_schemas(each) for each in value)
    if not isinstance(value, Mapping):
        return False
    if ALL_VERSIONS in value or _CLI_FIELD in value or _is_avro(value):
        return True
    return "type" in value and (_has_data(value) or value["type"] in SCHEMA_TYPES)


def versioned_schema(value: Mapping[str, object]) -> tuple[int | None, SchemaInfo]:
    """Parse one schema from a JSON object of any of the forms.

    Returns its version in Pulsar's schema registry, None if the form has none; and the schema.

    Raises:
        OptionError: The object is not a schema; or the schema is malformed, of an unknown type, or
            too long.
    """
    if _is_avro(value):
        return None, SchemaInfo("AVRO", _json_text(value))
    version = value.get("version")
    fields = value.get(_CLI_FIELD, value)
    if not isinstance(fields, Mapping) or "type" not in fields:
        message = f"not a schema: an object without type, {ALL_VERSIONS} or {_CLI_FIELD}.type"
        raise OptionError(message)
    if version is not None and (
        isinstance(version, bool) or not isinstance(version, int) or not 0 <= version < _LONG_STOP
    ):
        message = f"{_SHORT.repr(version)} is not a version of Pulsar's schema registry"
        raise OptionError(message)
    with error_prefix("its schema" if version is None else f"its version {version}"):
        raw_properties = fields.get("properties")
        properties = _text_by_name({} if raw_properties is None else raw_properties, "properties")
        return version, _schema_info(type_name(fields["type"]), _data(fields), properties)


def type_name(value: object) -> str:
    """Return Pulsar's name of a schema type from its name or number; `BYTES` for `NONE`.

    Raises:
        OptionError: The type is unknown, or a client mode (Pulsar's `AUTO_CONSUME`, …).
    """
    name = ""
    if isinstance(value, str):
        name = value.strip().upper()
    elif isinstance(value, int) and not isinstance(value, bool):
        name = "AUTO" if value in _CLIENT_MODE_NUMBERS else _NAME_OF_NUMBER.get(value, "")
    if name in CLIENT_MODES:
        message = f"{value!r} is a mode of Pulsar's clients: give the topic's own schema"
        raise OptionError(message)
    if name not in SCHEMA_TYPES:
        message = f"unknown schema type {_SHORT.repr(value)}; known are {', '.join(SCHEMA_TYPES)}"
        raise OptionError(message)
    return "BYTES" if name == "NONE" else name


def descriptor_schema(data: bytes, root_message: str | None) -> SchemaInfo | None:
    """Create a PROTOBUF_NATIVE schema (Pulsar's `ProtobufNativeSchemaData`) from a descriptor set.

    Args:
        data: A serialized `FileDescriptorSet`.
        root_message: Full name of the message; by default the only one at the top level of the
            set's last file.

    Returns:
        The schema; None if `data` is not a descriptor set, or an empty one.

    Raises:
        OptionError: The set lacks a file that it imports, or the message is missing or ambiguous.
    """
    files = _descriptor_files(data)
    if not files:
        return None
    imported = {name for file in files for name in file.dependency}
    missing = {
        name
        for name in imported - {file.name for file in files}
        # The protobuf library contains Google's own files.
        if not name.startswith("google/protobuf/")
    }
    if missing:
        message = (
            f"the descriptor set lacks {_list_names(missing)}: write it with --include_imports"
        )
        raise OptionError(message)
    if root_message is None:
        names = _top_messages(files[-1:])
        if len(names) != 1:
            message = f"name the message after a #; the descriptor set has {_list_names(names)}"
            raise OptionError(message)
        root_message = names[0]
    root_message = root_message.removeprefix(".")
    root_file = next((file for file in files if _defines(file, root_message)), None)
    if root_file is None:
        message = (
            f"no message {_SHORT.repr(root_message)} in the descriptor set; it has"
            f" {_list_names(_top_messages(files))}"
        )
        raise OptionError(message)
    described = {
        _DESCRIPTOR_FIELD: base64.b64encode(data).decode("ascii"),
        "rootMessageTypeName": root_message,
        "rootFileDescriptorName": root_file.name,
    }
    return SchemaInfo("PROTOBUF_NATIVE", _json_text(described))


def _descriptor_files(data: bytes) -> list[FileDescriptorProto]:
    try:
        return list(FileDescriptorSet.FromString(data).file)
    except DecodeError:
        return []


def _top_messages(files: Iterable[FileDescriptorProto]) -> list[str]:
    return [
        f"{file.package}.{message.name}".removeprefix(".")
        for file in files
        for message in file.message_type
    ]


def _defines(file: FileDescriptorProto, name: str) -> bool:
    """Return whether a file defines a message of this full name, nested or not."""
    package = f"{file.package}." if file.package else ""
    level = file.message_type
    for part in name.removeprefix(package).split("."):
        found = next((message for message in level if message.name == part), None)
        if found is None:
            return False
        level = found.nested_type
    return name.startswith(package)


def _is_avro(value: Mapping[str, object]) -> bool:
    """Return whether an object is an Avro schema. A SchemaInfo has data besides its type."""
    avro_type = value.get("type")
    if not isinstance(avro_type, str):
        return isinstance(avro_type, Mapping | list)
    return avro_type in _AVRO_COMPLEX or (avro_type in _AVRO_PRIMITIVES and not _has_data(value))


def _has_data(value: Mapping[str, object]) -> bool:
    return any(field in value for field in _DATA_FIELDS)


def _data(fields: Mapping[str, object]) -> object:
    if fields.get("schema_base64") is not None:
        return _base64_bytes(fields["schema_base64"], "schema_base64")
    data = fields.get("data")
    return fields.get("schema") if data is None else data


def _base64_bytes(encoded: object, name: str) -> bytes:
    if not isinstance(encoded, str):
        message = f"{name} is missing or not text"
        raise OptionError(message)
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError:
        message = f"{name} is malformed Base64"
        raise OptionError(message) from None


def _text_by_name(value: object, name: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        message = f"{name} are not an object"
        raise OptionError(message)
    for each, text in value.items():
        if not isinstance(each, str) or not isinstance(text, str):
            message = f"{name}: the value of {_SHORT.repr(each)} is not text"
            raise OptionError(message)
        _utf8(each + text)
    return dict(value)


def _schema_info(name: str, data: object, properties: Mapping[str, str]) -> SchemaInfo:
    if name == "KEY_VALUE":
        return _key_value_schema(data, properties)
    text = _definition(name, data) if name in DEFINED_TYPES else ""
    return SchemaInfo(name, text, tuple(sorted(properties.items())))


def _definition(name: str, data: object) -> str:
    """Return the normalized definition of an AVRO, JSON or protobuf schema as JSON text."""
    if data is None or (isinstance(data, str | bytes) and not data.strip()):
        message = f"{name} without a definition"
        raise OptionError(message)
    value = parse_json(data) if isinstance(data, str | bytes) else data
    described = isinstance(value, Mapping) and _DESCRIPTOR_FIELD in value
    if name == "PROTOBUF_NATIVE" or (name == "PROTOBUF" and described):
        return _descriptor_text(value)
    return _json_text(value)


def _descriptor_text(value: object) -> str:
    if not isinstance(value, Mapping):
        message = f"the definition is not an object with {_DESCRIPTOR_FIELD}"
        raise OptionError(message)
    root_message = value.get("rootMessageTypeName")
    if root_message is not None and not isinstance(root_message, str):
        message = "rootMessageTypeName is not text"
        raise OptionError(message)
    schema = descriptor_schema(
        _base64_bytes(value.get(_DESCRIPTOR_FIELD), _DESCRIPTOR_FIELD), root_message
    )
    if schema is None:
        message = f"{_DESCRIPTOR_FIELD} is malformed or empty"
        raise OptionError(message)
    return schema.data


def _json_text(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        message = "the definition cannot be written as JSON"
        raise OptionError(message) from None
    if len(_utf8(text)) > MAX_SCHEMA_BYTES:
        message = f"the definition is longer than the {MAX_SCHEMA_BYTES} bytes allowed"
        raise OptionError(message)
    return text


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        message = "a text has half a surrogate pair, which UTF-8 cannot encode"
        raise OptionError(message) from None


def _key_value_schema(data: object, properties: Mapping[str, str]) -> SchemaInfo:
    encoding = properties.get(_KV_ENCODING) or "INLINE"
    if encoding not in {"INLINE", "SEPARATED"}:
        message = f"{_KV_ENCODING} {_SHORT.repr(encoding)} is neither INLINE nor SEPARATED"
        raise OptionError(message)
    key_data, value_data = _key_and_value(data)
    own_properties = (
        (name, text) for name, text in properties.items() if not _KV_PROPERTY.fullmatch(name)
    )
    return SchemaInfo(
        "KEY_VALUE",
        properties=tuple(sorted(own_properties)),
        key=_part("key", key_data, properties),
        value=_part("value", value_data, properties),
        is_separated=encoding == "SEPARATED",
    )


def _part(part: str, data: object, properties: Mapping[str, str]) -> SchemaInfo:
    with error_prefix(part):
        name = type_name(properties.get(f"{part}.schema.type") or "BYTES")
        if name == "KEY_VALUE":
            message = "a KEY_VALUE schema cannot be part of another KEY_VALUE schema"
            raise OptionError(message)
        text = properties.get(f"{part}.schema.properties")
        return _schema_info(
            name, data, _text_by_name(parse_json(text) if text else {}, "properties")
        )


def _key_and_value(data: object) -> tuple[object, object]:
    """Return definitions of key and value, from JSON or the binary form of Pulsar's `KeyValue`."""
    if isinstance(data, str | bytes):
        encoded = _utf8(data) if isinstance(data, str) else data
        # As the first byte of the binary form, a brace would mean a key of 2 GB.
        if not encoded.lstrip().startswith(b"{"):
            return _binary_key_and_value(encoded)
        data = parse_json(encoded)
    if data is None:
        return None, None
    if not isinstance(data, Mapping):
        message = "the data is not an object with key and value"
        raise OptionError(message)
    return data.get("key"), data.get("value")


def _binary_key_and_value(data: bytes) -> tuple[bytes, bytes]:
    if not data:
        return b"", b""
    key, rest = _read_sized(data)
    value, rest = _read_sized(rest)
    if rest:
        message = f"{counted(len(rest), 'byte')} after the definitions of key and value"
        raise OptionError(message)
    return key, value


def _read_sized(data: bytes) -> tuple[bytes, bytes]:
    """Return the bytes after a length (−1 encodes null), and the remaining bytes."""
    length = max(int.from_bytes(data[:_INT_BYTES], signed=True), 0)
    if len(data) < _INT_BYTES or length > len(data) - _INT_BYTES:
        message = "the data is neither JSON nor two sequences of a length and as many bytes"
        raise OptionError(message)
    stop = _INT_BYTES + length
    return data[_INT_BYTES:stop], data[stop:]


def _list_names(names: Collection[str]) -> str:
    shown = ", ".join(map(_SHORT.repr, islice(names, _MAX_NAMES)))
    hidden_count = len(names) - _MAX_NAMES
    return f"{shown} and {hidden_count} more" if hidden_count > 0 else shown or "none"
