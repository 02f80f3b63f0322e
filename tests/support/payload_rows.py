"""Rows of messages with payloads of a schema, as the readers of typed columns get them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from arrow_io.columns import Origin, Projection
from arrow_io.messages.message_reader import MessageReader, Needs
from arrow_io.payloads.value_columns import ValueColumns
from arrow_io.read_metrics import Tally
from tests.support.entries import Framing, Message, encode_entry
from tests.support.golden_values import comparable
from tests.support.runs import entry_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.messages.message_columns import MessageColumns
    from arrow_io.payloads.schema_info import TopicSchema

NULL: Final = Message(null_value=True)


def version_bytes(number: int) -> bytes:
    """A schema version as `LongSchemaVersion` writes it."""
    return number.to_bytes(8, signed=True)


def rows_of(
    *groups: tuple[bytes | None, Sequence[Message]], compress: bool = False
) -> MessageColumns:
    """The rows of some batches.

    Args:
        groups: Each batch: the schema version of its entry, None for none; and its messages.
        compress: Whether each batch stands in a buffer of its own.
    """
    framing = Framing(codec="LZ4" if compress else "NONE")
    entries = []
    for version, messages in groups:
        if version is None:
            entries.append(encode_entry(messages, batched=True, framing=framing))
        else:
            entries.append(
                encode_entry(messages, batched=True, framing=framing, schema_version=version)
            )
    (rows,) = MessageReader([entry_run(entries)], Needs(), Tally())
    return rows


def messages(*payloads: bytes | None) -> list[Message]:
    """A message for each payload; None for a null value."""
    return [NULL if payload is None else Message(payload=payload) for payload in payloads]


def values_of(
    schema: TopicSchema,
    rows: MessageColumns,
    *,
    names: Sequence[str] | None = None,
    tally: Tally | None = None,
    **options: Any,  # noqa: ANN401 - those of ValueColumns
) -> dict[str, list[Any]]:
    """Typed columns of rows, by name, as `tests.support.golden_values` writes them.

    Args:
        schema: Their schemas.
        rows: The rows.
        names: Names of the columns; None: all.
        tally: Receives what is lost; None: a loss is an error.
        **options: Those of `ValueColumns`.
    """
    columns = ValueColumns(schema, **options)
    fields = {each.name: each for each in columns.fields}
    wanted = [fields[name] for name in (fields if names is None else names)]
    projection = Projection(tuple((each.name, each.name) for each in wanted), columns)
    assembly = projection.assembly(Origin())
    (batch,) = assembly.record_batches(rows, Tally() if tally is None else tally)
    batch.validate(full=True)
    assert batch.schema.types == [each.type for each in wanted]
    assert batch.num_rows == rows.count
    return {
        field.name: comparable(values) for field, values in zip(wanted, batch.columns, strict=True)
    }
