"""Folders of partitions, below a table's own.

Only Delta's have a meaning: Polars takes the values of partitions from them, as Hive wrote them,
and not from the log. Of plain files, those of transforms are named so too, because a reader has
their values from nowhere else; a column itself stands in the files, and needs no second reading of
a text.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pyarrow as pa

from arrow_io.errors import LakeTableError, OptionError

if TYPE_CHECKING:
    from connector.lake.evolution import TableKind
    from connector.lake.transforms import PartitionField, Partitioning

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_MAX_NAME_LENGTH: Final = 200
"""Of a folder; a local disk takes 255 bytes."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.=-]")
"""What a URL, a file system or a table format may spell in another way."""


def check_partitioning(partitioning: Partitioning, schema: pa.Schema, kind: TableKind) -> None:
    """Refuse what a kind of table cannot be partitioned by.

    Raises:
        OptionError: Readers of Delta do not agree on how bytes are written in its log.
    """
    for each in partitioning.fields:
        is_bytes = pa.types.is_binary(schema.field(each.source).type)
        if kind == "delta" and each.transform == "identity" and is_bytes:
            message = (
                f"a Delta table cannot be partitioned by {each}, whose values are bytes: partition"
                f" by bucket(16, {each.source})"
            )
            raise OptionError(message)


def partition_folder(
    partitioning: Partitioning, values: tuple[object, ...], kind: TableKind
) -> str:
    """The folder of a partition: empty, or ends in `/`.

    Raises:
        LakeTableError: A value of a partition of a Delta table is too long for a name, or would be
            read as null.

    Example:
        >>> from connector.lake.transforms import PartitionField, Partitioning
        >>> fields = Partitioning((PartitionField("at", "day"), PartitionField("x")))
        >>> partition_folder(fields, (20454, "a/b"), "parquet")
        'at_day=2026-01-01/x-a_b/'
        >>> partition_folder(fields, (20454, "a/b"), "delta")
        'at_day=2026-01-01/x=a%2Fb/'
    """
    pairs = zip(partitioning.fields, values, strict=True)
    names = [_hive_name(*each) if kind == "delta" else _plain_name(*each) for each in pairs]
    return "".join(f"{name}/" for name in names)


def delta_text(field: PartitionField, value: object) -> str:
    """A value as Delta's protocol writes those of partitions; not for null.

    Raises:
        LakeTableError: It would be read as null.
    """
    if field.transform == "identity" and isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    text = field.text(value)
    if text in {"", _NULL}:
        message = (
            f"a value of {field} is {text!r}, which in partitions of a Delta table means null:"
            f" partition by bucket(16, {field.source})"
        )
        raise LakeTableError(message)
    return text


def _hive_name(field: PartitionField, value: object) -> str:
    text = _NULL if value is None else quote(delta_text(field, value), safe="")
    name = f"{quote(field.name, safe='')}={text}"
    if len(name) > _MAX_NAME_LENGTH:
        message = (
            f"a value of {field} has {len(text)} characters, too many for the name of a folder:"
            f" partition by bucket(16, {field.source})"
        )
        raise LakeTableError(message)
    return name


def _plain_name(field: PartitionField, value: object) -> str:
    sign = "-" if field.transform == "identity" else "="
    text = _NULL if value is None else field.text(value)
    # Two values may share a folder: files are told apart by names that nothing else has.
    return _UNSAFE.sub("_", f"{field.name}{sign}{text}")[:_MAX_NAME_LENGTH]
