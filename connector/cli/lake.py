"""The commands `lake maintain` and `lake reprocess`, for tables that copies write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import pyarrow as pa
import typer

from connector.cli.app import command, group
from connector.cli.options import AsJson, Decoding, key_values
from connector.cli.output import print_rows, say
from connector.inputs.times import duration
from connector.lake.maintenance import MaintenanceSettings, maintain_table
from connector.lake.reprocessing import reprocess_dead_letters
from connector.tables.evolution import TableKind

if TYPE_CHECKING:
    from connector.lake.reprocessing import ReprocessSummary

_DEFAULTS = MaintenanceSettings()
_SCHEMA = pa.schema(
    {"table": pa.string()}
    | dict.fromkeys(
        (
            "deleted_rows",
            "merged_files",
            "merged_bytes",
            "new_files",
            "expired_versions",
            "deleted_files",
        ),
        pa.int64(),
    )
)

_REPROCESSED_SCHEMA = pa.schema(
    {"table": pa.string()}
    | dict.fromkeys(("rows", "replaced", "superseded", "remaining", "commits"), pa.int64())
)

_Target: TypeAlias = Annotated[
    str, typer.Argument(help="Folder of the table; for Iceberg its name, namespace.table.")
]
_Format: TypeAlias = Annotated[TableKind, typer.Option("--format", help="Format of the table.")]
_TargetOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--target-option",
        metavar="KEY=VALUE",
        help="Option of the table's fsspec file system. May be repeated.",
    ),
]
_TableOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--table-option", metavar="KEY=VALUE", help="As for copy. May be repeated."),
]

lake = group("lake", "Maintain the tables that copies write, and their dead letters.")


@command("--yes", url="lake/orders", writes=True, parent=lake)
def maintain(
    target: _Target,
    *,
    format_: _Format = "delta",
    file_bytes: Annotated[
        int,
        typer.Option(min=1, help="Target size of files. Those below three quarters are merged."),
    ] = _DEFAULTS.file_bytes,
    min_files: Annotated[
        int,
        typer.Option(min=2, help="Number of small files of a partition that are merged."),
    ] = _DEFAULTS.min_files,
    sort_by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Sort the rows of each merged file by it. May be repeated. By default, as the"
            " table's own sort order says.",
        ),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Delete rows that were published longer ago (90d, 52w)."),
    ] = None,
    expire_after: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Age of snapshots and manifests that expire. Delta's log expires by the table's"
            " own delta.logRetentionDuration.",
        ),
    ] = f"{_DEFAULTS.expire_after.days}d",
    delete_after: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Age of files that no version needs, above which they are deleted. Must exceed"
            " the duration of each copy and query.",
        ),
    ] = f"{_DEFAULTS.delete_after.days}d",
    target_option: _TargetOptions = None,
    table_option: _TableOptions = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it; without it, only print what it would do.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Merge small files of a table, and delete what it no longer needs.

    The rows stay the same, except that --keep deletes old ones. The next copy continues where the
    last one ended. Copies and queries may run at the same time; if two runs rewrite the same files,
    one of them fails, and can be repeated.
    """
    summary = maintain_table(
        target,
        format=format_,
        target_options=key_values("--target-option", target_option) or None,
        table_options=key_values("--table-option", table_option) or None,
        settings=MaintenanceSettings(
            file_bytes=file_bytes,
            min_files=min_files,
            sort_by=tuple(sort_by or ()),
            keep=None if keep is None else duration("--keep", keep),
            expire_after=duration("--expire-after", expire_after),
            delete_after=duration("--delete-after", delete_after),
        ),
        dry_run=not yes,
    )
    row = {
        "table": summary.target,
        "deleted_rows": summary.deleted_rows,
        "merged_files": summary.merged_files,
        "merged_bytes": summary.merged_bytes,
        "new_files": summary.new_files,
        "expired_versions": summary.expired_versions,
        "deleted_files": len(summary.deleted_files),
    }
    batches = pa.Table.from_pylist([row], _SCHEMA).to_batches()
    print_rows(_SCHEMA, batches, "jsonl" if as_json else "table")
    if not yes:
        say("note", "nothing was changed: --yes does it")


@command("--schema schemas --dry-run", url="lake/orders", writes=True, parent=lake)
def reprocess(
    target: _Target,
    *,
    format_: _Format = "delta",
    insert_missing_keys: Annotated[
        bool,
        typer.Option(
            "--insert-missing-keys",
            help="For a table with the latest row of each key: insert a letter whose key has no"
            " row. The key may have been deleted after the letter. By default, the letter stays.",
        ),
    ] = False,
    target_option: _TargetOptions = None,
    table_option: _TableOptions = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count what can be decoded.")
    ] = False,
    request: Decoding,
    as_json: AsJson = False,
) -> None:
    """Decode dead letters of a table again, and move those that can be decoded into the table.

    The bucket is not read. Each letter becomes a row exactly once, and the others stay. Copies may
    run at the same time; if two runs change the same table, one of them fails, and can be repeated.
    """
    options = request.catalog_options() | request.reading_options()
    summary = reprocess_dead_letters(
        target,
        format=format_,
        insert_missing_keys=insert_missing_keys,
        target_options=key_values("--target-option", target_option) or None,
        table_options=key_values("--table-option", table_option) or None,
        dry_run=dry_run,
        **options,
    )
    _print_reprocessed(summary, as_json=as_json)


def _print_reprocessed(summary: ReprocessSummary, *, as_json: bool) -> None:
    for notice in summary.notices:
        say("note", notice)
    for reason, count in summary.remaining.most_common():
        say("remaining", f"{count}: {reason}", count=count, reason=reason)
    row = {
        "table": summary.target,
        "rows": summary.rows,
        "replaced": summary.replaced,
        "superseded": summary.superseded,
        "remaining": summary.remaining.total(),
        "commits": summary.commits,
    }
    batches = pa.Table.from_pylist([row], _REPROCESSED_SCHEMA).to_batches()
    print_rows(_REPROCESSED_SCHEMA, batches, "jsonl" if as_json else "table")
