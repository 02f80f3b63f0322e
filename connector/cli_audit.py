"""The commands that compare a bucket with what should be in it, tidy it up, and show it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
import typer
from rich.filesize import decimal as size_text

from arrow_io.errors import OptionError
from arrow_io.storage.trace import RequestTrace
from connector.audit import Finding, FindingKind, audit, findings_table
from connector.catalog.catalog import open_catalog
from connector.catalog.snapshot import is_snapshot
from connector.cleaning import DEFAULT_SAFETY_AGE, clean, plan_cleaning
from connector.cli_app import ExitCode, command
from connector.cli_options import (
    AsJson,
    Buckets,
    Metadata,
    MetadataOptions,
    StorageOptions,
    Url,
    bucket_urls,
    metadata_options,
    storage_options,
)
from connector.cli_output import counted, print_json, print_table, progress, say
from connector.report import render_report
from connector.topic_name import TopicName
from connector.verification import VerificationJournal, VerifiedLedger, verify

if TYPE_CHECKING:
    from collections.abc import Iterable

    from connector.audit import Audit
    from connector.catalog.catalog import Catalog

_GOLDEN = "tests/data/golden/pulsar-4.0.7"
_DURATION = re.compile(r"(\d{1,9})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SHOWN = ("kind", "topic", "ledger_id", "objects", "bytes", "deletable", "text")


@command(f"--metadata {_GOLDEN}")
def audit_(
    url: Url,
    *,
    metadata: Metadata = None,
    metadata_option: MetadataOptions = None,
    bucket: Buckets = None,
    deletion_lag: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Also name ledgers that BookKeeper still has so long after their offload (4h).",
        ),
    ] = None,
    verify_: Annotated[
        bool,
        typer.Option("--verify", help="Read everything: check each checksum, entry id and count."),
    ] = False,
    journal: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Remembers what --verify read, to go on after a stop."),
    ] = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Tell what lies in the bucket that should not, and what does not that should.

    Ends with 5 if messages cannot be read, with 7 if all can and something else was found. Without
    --metadata only what the bucket alone shows is found.
    """
    if journal is not None and not verify_:
        message = "--journal is for --verify"
        raise OptionError(message)
    lag = None if deletion_lag is None else _duration("--deletion-lag", deletion_lag)
    catalog, found = _audit(url, storage_option, metadata, metadata_option, bucket, lag=lag)
    findings = list(found.findings)
    if verify_:
        findings += _verified(catalog, journal)
    _print_findings(findings, as_json=as_json)
    if not as_json:
        typer.echo(_summary(catalog, findings))
    if any(each.is_loss for each in findings):
        raise typer.Exit(ExitCode.UNREADABLE)
    if findings:
        raise typer.Exit(ExitCode.FOUND)


@command(f"--metadata {_GOLDEN}")
def clean_(
    url: Url,
    *,
    metadata: Metadata = None,
    metadata_option: MetadataOptions = None,
    bucket: Buckets = None,
    safety_age: Annotated[
        str, typer.Option(metavar="TIME", help="How old what is deleted must be (12h, 7d).")
    ] = f"{DEFAULT_SAFETY_AGE.days}d",
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete; else only tell what would be.")
    ] = False,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Delete what the audit says nothing needs: orphans, doubles, offloads that never completed.

    Only tells what it would do, unless --yes is given. Needs --metadata as it is now: what is not
    surely older than the metadata is kept, and so is what is younger than the safety age, another
    cluster's, or foreign.
    """
    age = _duration("--safety-age", safety_age)
    if metadata is not None and is_snapshot(metadata):
        message = "a snapshot does not tell what is in the bucket now: give the metadata itself"
        raise OptionError(message)
    catalog, found = _audit(url, storage_option, metadata, metadata_option, bucket)
    plan = plan_cleaning(found, now=datetime.now(UTC), safety_age=age)
    kept = [each for each in plan if each.refusal is not None]
    deleted = [each.finding for each in plan if each.refusal is None]
    if yes:
        deleted = []
        for each in clean(catalog.location, plan):
            deleted.append(each.finding)
            say("deleted", ", ".join(each.finding.objects))
    _print_findings(deleted, as_json=as_json)
    for each in kept:
        say("kept", f"{', '.join(each.finding.objects)}: {each.refusal}")
    size = size_text(sum(each.stored_bytes for each in deleted))
    what = f"{counted(sum(len(each.objects) for each in deleted), 'object')}, {size}"
    if not as_json:
        typer.echo(f"{what} deleted" if yes else f"{what} would be deleted by --yes")


@command(f"multi-ledger --output report.html --metadata {_GOLDEN}")
def report(
    url: Url,
    topic: Annotated[
        str | None, typer.Argument(help="Name or glob; the whole bucket if none.")
    ] = None,
    *,
    output: Annotated[
        Path, typer.Option(metavar="FILE", help="The page; replaces what was there.")
    ],
    metadata: Metadata = None,
    metadata_option: MetadataOptions = None,
    bucket: Buckets = None,
    storage_option: StorageOptions = None,
) -> None:
    """Show a topic, or the whole bucket, on one page of HTML.

    Ledgers over time, their sizes, how fast they were written, and what the audit finds. The page
    needs neither a network nor anything beside it.
    """
    catalog, found = _audit(url, storage_option, metadata, metadata_option, bucket)
    page = render_report(catalog, found, topic=topic, metadata=metadata).encode()
    try:
        output.write_bytes(page)
    except OSError as error:
        message = f"no page can be written to {output}: {error.strerror}"
        raise OptionError(message) from None
    typer.echo(f"{size_text(len(page))} written to {output}")


def _audit(
    url: str,
    storage_option: list[str] | None,
    metadata: str | None,
    metadata_option: list[str] | None,
    bucket: list[str] | None,
    *,
    lag: timedelta | None = None,
) -> tuple[Catalog, Audit]:
    trace = RequestTrace()
    with progress(trace):
        catalog = open_catalog(
            url,
            storage_options=storage_options(storage_option),
            metadata=metadata,
            metadata_options=metadata_options(metadata_option),
            buckets=bucket_urls(bucket),
            trace=trace,
        )
        uploads = catalog.location.unfinished_uploads(trace=trace)
        found = audit(catalog, deletion_lag=lag, uploads=uploads)
    if catalog.source is None:
        say("note", "no metadata: what the topics should have is not known")
    else:
        for warning in catalog.source.warnings:
            say("note", warning)
    return catalog, found


def _verified(catalog: Catalog, journal: Path | None) -> Iterable[Finding]:
    """What reading everything finds, with a line on stderr for each ledger that is done."""
    topics = [catalog.ledgers(topic) for topic in catalog.topics()]
    count = sum(len(each.ledgers) for each in topics)
    kept = None if journal is None else VerificationJournal(journal)
    results: list[VerifiedLedger] = []

    def tell(result: VerifiedLedger) -> None:
        state = f"{len(result.problems)} problems" if result.problems else "sound"
        entries = counted(result.entries, "entry").replace("entrys", "entries")
        say("verified", f"{len(results) + 1} of {count}: {result.object}, {entries}, {state}")

    for result in verify(topics, journal=kept, progress=tell):
        results.append(result)
        for problem in result.problems:
            yield Finding(
                kind=FindingKind.DAMAGE,
                text=problem,
                objects=(result.object,),
                topic=TopicName.parse(result.topic),
                ledger_id=result.ledger_id,
                stored_bytes=result.stored_bytes,
                is_loss=True,
            )
    unchecked = sum(each.unchecked_entries for each in results)
    if unchecked:
        say("note", f"{unchecked} entries have no checksum to compare")


def _print_findings(findings: list[Finding], *, as_json: bool) -> None:
    table = findings_table(findings)
    if as_json:
        print_json(table.to_batches())
        return
    table = table.select(_SHOWN)
    objects = pa.array([", ".join(names) for names in table["objects"].to_pylist()], pa.string())
    table = table.set_column(_SHOWN.index("objects"), "objects", objects)
    if table.num_rows:
        print_table(table.schema, table.to_batches())


def _summary(catalog: Catalog, findings: list[Finding]) -> str:
    contents = catalog.contents
    what = f"{counted(len(catalog.topics()), 'topic')}, {counted(len(contents.copies), 'ledger')}"
    if not findings:
        return f"{what}: nothing found"
    wasted = size_text(sum(each.stored_bytes for each in findings if each.deletable))
    losses = sum(each.is_loss for each in findings)
    return (
        f"{what}: {counted(len(findings), 'finding')}, {losses} of them losses; {wasted} in objects"
        " that nothing needs"
    )


def _duration(option: str, text: str) -> timedelta:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        message = f"{option} must be a number with s, m, h, d or w behind it, not {text!r}"
        raise OptionError(message)
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
