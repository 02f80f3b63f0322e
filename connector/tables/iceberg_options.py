"""Options of an Iceberg table: those of its catalog, and those of the table itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyiceberg.table.metadata import SUPPORTED_TABLE_FORMAT_VERSION
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField
from pyiceberg.table.sorting import SortOrder as IcebergOrder
from pyiceberg.transforms import IdentityTransform

from arrow_io.errors import LakeTableError, OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.refs import SnapshotRef
    from pyiceberg.table.sorting import SortOrder

_DEFAULT_PROPERTY: Final = "table-default."
"""Prefix of a new table's properties among those of a catalog, as in Iceberg's own catalogs."""


@dataclass(frozen=True, slots=True)
class IcebergOptions:
    """Options of a table that its catalog does not know.

    Attributes:
        branch: The branch that copies and maintenance change. A copy creates it from the main
            branch.
        tag: Name of a tag that each commit which changes rows moves to its snapshot. Codes of
            `strftime` stand for the time of the commit in UTC: `copied-%Y-%m-%d` keeps a tag for
            each day.
        sort_by: Columns of a new table's sort order, ascending, with nulls last.
        properties: Properties of a new table.
    """

    branch: str = MAIN_BRANCH
    tag: str | None = None
    sort_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def tag_at(self, time: datetime) -> str | None:
        """Return the name of the tag of a commit at a time, with time zone."""
        return None if self.tag is None else time.astimezone(UTC).strftime(self.tag)


def split_options(texts: Mapping[str, str]) -> tuple[IcebergOptions, dict[str, str]]:
    """Split the options of a table from those of its catalog.

    The options of a table are `branch`, `tag`, `sort-order` (columns, joined by commas), and
    properties of a new table, with the prefix `table-default.`.

    Raises:
        OptionError: An option is empty, or is one of Delta tables, or PyIceberg cannot write tables
            of the format version.
    """
    catalog = dict(texts)
    properties = {
        name.removeprefix(_DEFAULT_PROPERTY): catalog.pop(name)
        for name in texts
        if name.startswith(_DEFAULT_PROPERTY)
    }
    for name in [*texts, *properties]:
        if name.startswith("delta."):
            message = (
                f"{name} is a property of Delta tables: those of a new Iceberg table have the"
                f" prefix {_DEFAULT_PROPERTY}"
            )
            raise OptionError(message)
    version = properties.get("format-version", "2")
    if version not in map(str, range(1, SUPPORTED_TABLE_FORMAT_VERSION + 1)):
        message = (
            f"a new Iceberg table cannot have the format version {version!r:.20}: PyIceberg writes"
            f" versions up to {SUPPORTED_TABLE_FORMAT_VERSION}"
        )
        raise OptionError(message)
    branch, tag = catalog.pop("branch", MAIN_BRANCH), catalog.pop("tag", None)
    columns = catalog.pop("sort-order", None)
    sort_by = () if columns is None else tuple(each.strip() for each in columns.split(","))
    if not branch or tag == "" or not all(sort_by):
        message = "branch, tag and sort-order of an Iceberg table cannot be empty: leave them out"
        raise OptionError(message)
    return IcebergOptions(branch, tag, sort_by, properties), catalog


def check_version(table: Table) -> None:
    """Raise `LakeTableError` if PyIceberg cannot write tables of a table's format version."""
    version = table.metadata.format_version
    if version > SUPPORTED_TABLE_FORMAT_VERSION:
        message = (
            f"the Iceberg table {'.'.join(table.name())} has format version {version}, and"
            f" PyIceberg writes versions up to {SUPPORTED_TABLE_FORMAT_VERSION}: copy to another"
            " table, or install a newer PyIceberg"
        )
        raise LakeTableError(message)


def check_branch(branch: str, table: str) -> None:
    """Raise `OptionError` if a table without rows cannot have a branch: all but the main one."""
    if branch != MAIN_BRANCH:
        message = (
            f"the Iceberg table {table} has no rows yet, so it cannot have the branch {branch}:"
            " leave out branch in the first copy"
        )
        raise OptionError(message)


def check_tag(tag: str, refs: Mapping[str, SnapshotRef]) -> None:
    """Raise `OptionError` if a tag has the name of one of a table's branches."""
    ref = refs.get(tag)
    if tag == MAIN_BRANCH or (ref is not None and ref.snapshot_ref_type is SnapshotRefType.BRANCH):
        message = f"{tag} is a branch of the Iceberg table: choose another name for the tag"
        raise OptionError(message)


def sort_order(columns: tuple[str, ...], schema: Schema) -> SortOrder:
    """Return the sort order of a new table with the columns of `schema`.

    Raises:
        OptionError: The table lacks a column, or its values have no order.
    """
    if not columns:
        return UNSORTED_SORT_ORDER
    top_level = {each.name: each for each in schema.fields}
    fields = []
    for name in columns:
        column = top_level.get(name)
        if column is None or not column.field_type.is_primitive:
            found = "no such column" if column is None else f"type {column.field_type}"
            message = f"an Iceberg table cannot be sorted by {name}: {found}"
            raise OptionError(message)
        fields.append(
            SortField(
                source_id=column.field_id,
                transform=IdentityTransform(),
                direction=SortDirection.ASC,
                null_order=NullOrder.NULLS_LAST,
            )
        )
    return IcebergOrder(*fields)


def sort_columns(table: Table) -> tuple[str, ...]:
    """Return the columns that a table is sorted by, up to the first that a copy cannot sort by.

    These are columns in ascending order, whose nulls are last.
    """
    names: list[str] = []
    schema = table.schema()
    top_level = {each.name for each in schema.fields}
    for each in table.sort_order().fields:
        name = schema.find_column_name(each.source_id)
        is_plain = isinstance(each.transform, IdentityTransform) and name in top_level
        order = (each.direction, each.null_order)
        if name is None or not is_plain or order != (SortDirection.ASC, NullOrder.NULLS_LAST):
            break
        names.append(name)
    return tuple(names)
