"""Names of partition folders, below a table's folder.

In a Delta table they are significant: Polars reads partition values from Hive-style folder names,
not from the log. In plain Parquet, transforms use Hive-style names too, because their values are
stored nowhere else. A source column is stored in the files, so its folder has a name that readers
do not parse.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pyarrow as pa

from arrow_io.errors import LakeTableError, OptionError

if TYPE_CHECKING:
    from connector.tables.evolution import TableKind
    from connector.tables.transforms import PartitionField, Partitioning

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_MAX_NAME_LENGTH: Final = 200
"""Maximum length of a folder name; a local disk allows 255 bytes."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.=-]")
"""Characters that a URL, a file system or a table format may escape."""


def check_partitioning(partitioning: Partitioning, schema: pa.Schema, kind: TableKind) -> None:
    """Check that a kind of table can be partitioned by some fields.

    Raises:
        OptionError: A Delta table would be partitioned by bytes, which its readers decode
            differently.
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
    """Return the folder of a partition: empty, or ends in `/`.

    Raises:
        LakeTableError: A partition value of a Delta table is too long for a name, or would be read
            as null.

    Example:
        >>> from connector.tables.transforms import PartitionField, Partitioning
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
    """Return a partition value as Delta's protocol writes it. It must not be null.

    Raises:
        LakeTableError: The value would be read as null.
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
    # Two values may share a folder: file names are unique.
    return _UNSAFE.sub("_", f"{field.name}{sign}{text}")[:_MAX_NAME_LENGTH]
