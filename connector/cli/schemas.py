"""The command that shows the schemas of a topic, and writes them as files for other tools."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Final

import pyarrow as pa
import typer

from arrow_io.errors import OptionError
from arrow_io.wording import counted
from connector.catalog.schemas.answers import registered_versions
from connector.catalog.schemas.files import schema_files
from connector.cli.app import command
from connector.cli.options import AsJson, Place, Topic, Url  # noqa: TC001 - typer reads annotations
from connector.cli.output import print_rows
from connector.cli.place import catalog_at

if TYPE_CHECKING:
    from arrow_io.payloads.schema_info import SchemaInfo

_SCHEMA: Final = pa.schema(
    {
        "version": pa.int64(),
        "type": pa.string(),
        "properties": pa.map_(pa.string(), pa.string()),
        "definition": pa.string(),
    }
)


@command("avro-evolved --metadata tests/data/golden/pulsar-4.0.7")
def schema(
    url: Url,
    topic: Topic,
    *,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write them there: .avsc for Avro and JSON, .desc (a FileDescriptorSet) for"
            " protobuf, and all in schemas-rest.json, for --schema.",
        ),
    ] = None,
    place: Place,
    as_json: AsJson = False,
) -> None:
    """Show every version of a topic's schema.

    They are in the metadata: the bucket has none.
    """
    catalog = catalog_at(url, place)
    found = catalog.schema(each.topic for each in catalog.select(topic, salvage=True))
    if found is None:
        message = f"no schema of {topic} is known: the metadata of its cluster has it"
        raise OptionError(message)
    if export is not None:
        files = schema_files(found)
        try:
            export.mkdir(parents=True, exist_ok=True)
            for name, data in files.items():
                (export / name).write_bytes(data)
        except OSError as error:
            message = f"no files can be written to {export}: {error.strerror}"
            raise OptionError(message) from None
        typer.echo(f"{counted(len(files), 'file')} written to {export}")
        return
    rows = [_row(version, info) for version, info in registered_versions(found)]
    table = pa.Table.from_pylist(rows, _SCHEMA)
    print_rows(table.schema, table.to_batches(), as_json=as_json)


def _row(version: int, info: SchemaInfo) -> dict[str, object]:
    parts = [each for each in (info.key, info.value) if each is not None]
    definition = "\n".join(f"{each.type} {each.data}".rstrip() for each in parts)
    return {
        "version": version,
        "type": info.type,
        "properties": list(info.properties),
        "definition": definition or info.data or None,
    }
