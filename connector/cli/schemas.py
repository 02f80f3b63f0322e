"""The commands `schema show`, `schema export` and `schema save`."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Final

import pyarrow as pa
import typer

from arrow_io.core.wording import counted
from arrow_io.errors import OptionError, SchemaError
from arrow_io.payloads.schema_info import TopicSchema
from arrow_io.payloads.value_columns import ValueColumns
from arrow_io.storage.redaction import redacted_urls
from connector.catalog.schemas.answers import registered_versions
from connector.catalog.schemas.files import schema_files
from connector.cli.app import command, group
from connector.cli.options import AsJson, Place, Printing, Registry, Topic, Url  # noqa: TC001 - typer reads annotations
from connector.cli.output import print_rows
from connector.cli.place import catalog_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arrow_io.payloads.schema_info import SchemaInfo
    from connector.options.topic_request import TopicRequest

_SCHEMA: Final = pa.schema(
    {
        "version": pa.int64(),
        "type": pa.string(),
        "properties": pa.map_(pa.string(), pa.string()),
        "fields": pa.map_(pa.string(), pa.string()),
        "definition": pa.string(),
    }
)
_EXAMPLE: Final = "avro-evolved --metadata tests/data/golden/pulsar-4.0.7"

schema = group("schema", "Show the schemas of a topic, or write them as files.")


@command(_EXAMPLE, parent=schema)
def show(
    url: Url,
    topic: Topic,
    *,
    place: Place,
    form: Printing,
) -> None:
    """Show every version of a topic's schema.

    Fields are the columns of a value of this version, with their Arrow types.
    """
    rows = [_row(*each) for each in registered_versions(_read_schema(url, topic, place))]
    table = pa.Table.from_pylist(rows, _SCHEMA)
    print_rows(table.schema, table.to_batches(), form)


@command(f"{_EXAMPLE} --to schemas", parent=schema)
def export(
    url: Url,
    topic: Topic,
    *,
    to: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder for the files, which are replaced.")
    ],
    place: Place,
    as_json: AsJson = False,
) -> None:
    """Write every version of a topic's schema as files for other tools.

    The files are .avsc for Avro and JSON, .schema.json for a JSON Schema, and .desc (a
    FileDescriptorSet) with a folder of .proto files for protobuf. schemas-rest.json has all
    versions, and can be passed to --schema.
    """
    files = schema_files(_read_schema(url, topic, place))
    _write({to / name: data for name, data in files.items()})
    if as_json:
        typer.echo(json.dumps({"folder": str(to), "files": sorted(files)}))
        return
    typer.echo(f"{counted(len(files), 'file')} written to {to}")


@command("--to registry.json", url="confluent:http://localhost:8081#orders-value", parent=schema)
def save(
    registry: Annotated[
        str,
        typer.Argument(help="As the option --schema: confluent:URL, or confluent:URL#SUBJECT."),
    ],
    *,
    to: Annotated[Path, typer.Option(metavar="FILE", help="File to write, which is replaced.")],
    access: Registry,
) -> None:
    """Save the schemas of a Confluent schema registry, to read messages without it.

    The file has every version of the subject, or of all subjects, and the schemas that these refer
    to. It takes the place of the URL: --schema confluent:FILE#SUBJECT.
    """
    # Parsing schemas of a registry takes libraries that other commands do not need.
    from connector.catalog.registry.registry import RegistryPlace, saved_answers  # noqa: PLC0415

    place = RegistryPlace.parse(registry)
    if place is None:
        message = f"{redacted_urls(registry)!r} is not a registry: write confluent: before its URL"
        raise OptionError(message)
    answers = saved_answers(place.open(None, access.schema_options), place.subject)
    _write({to: answers})
    typer.echo(f"{counted(len(json.loads(answers)), 'schema')} written to {to}")


def _write(files: Mapping[Path, bytes]) -> None:
    """Write files, with their folders."""
    try:
        for path, data in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    except OSError as error:
        message = f"files cannot be written to {error.filename}: {error.strerror}"
        raise OptionError(message) from None


def _read_schema(url: str, topic: str, place: TopicRequest) -> TopicSchema:
    catalog = catalog_at(url, place)
    topic_schema = catalog.schema(each.topic for each in catalog.select(topic, salvage=True))
    if topic_schema is None:
        message = f"the schema of {topic} is unknown: give its cluster's --metadata, which has it"
        raise OptionError(message)
    return topic_schema


def _row(version: int, info: SchemaInfo) -> dict[str, object]:
    parts = [each for each in (info.key, info.value) if each is not None]
    definition = "\n".join(f"{each.type} {each.data}".rstrip() for each in parts)
    fields = None
    # Pulsar stores PROTOBUF schemas without their fields.
    with suppress(SchemaError):
        columns = ValueColumns(TopicSchema(info)).fields
        fields = [(each.name, str(each.type)) for each in columns]
    return {
        "version": version,
        "type": info.type,
        "properties": list(info.properties),
        "fields": fields,
        "definition": definition or info.data or None,
    }
