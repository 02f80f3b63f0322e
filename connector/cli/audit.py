"""The commands `audit`, `clean` and `report`."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
import typer

from arrow_io.core.wording import agreeing, counted
from arrow_io.errors import OptionError, StorageError
from arrow_io.storage.trace import RequestTrace
from connector.catalog.live_cluster import explain_missing_in_topic
from connector.catalog.snapshot.snapshot import is_snapshot
from connector.catalog.tables import counted_topics
from connector.cli.app import ExitCode, command
from connector.cli.options import AsJson, Place, Printing, Url, Verbose  # noqa: TC001 - typer reads annotations
from connector.cli.output import print_rows, print_table, progress, say, shows_each_ledger
from connector.cli.place import catalog_at, check_no_snapshot, note_empty_location
from connector.display.text import size_text
from connector.inputs.times import duration, time_of
from connector.inputs.topic_names import TopicName
from connector.report.render import render_report
from connector.statistics.store import open_statistics
from connector.upkeep.audit.audit import audit
from connector.upkeep.audit.cleaning import DEFAULT_SAFETY_AGE, clean, plan_cleaning
from connector.upkeep.audit.findings import Finding, FindingKind, findings_table
from connector.upkeep.verify.journal import VerificationJournal, VerifiedLedger
from connector.upkeep.verify.verification import verify

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta

    from arrow_io.storage.object_store import UnfinishedUpload
    from connector.catalog.catalog import Catalog
    from connector.catalog.topic_ledgers import TopicLedger
    from connector.cli.forms import Form
    from connector.options.topic_request import TopicRequest
    from connector.statistics.store import Statistics
    from connector.upkeep.audit.audit import Audit

_GOLDEN = "tests/data/golden/pulsar-4.0.7"
_OneCluster = Annotated[
    bool,
    typer.Option(
        "--one-cluster",
        help="Only the metadata's cluster uses the bucket. Topics that a live cluster does not"
        " know count as deleted. Without this option, objects that name no cluster are kept.",
    ),
]
_SHOWN = ("kind", "topic", "ledger_id", "objects", "bytes", "deletable", "text")


@command(f"--metadata {_GOLDEN}")
def audit_(
    url: Url,
    *,
    place: Place,
    one_cluster: _OneCluster = False,
    deletion_lag: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Also report ledgers that BookKeeper still has this long after their offload (4h)."
            " A note counts ledgers whose metadata does not tell.",
        ),
    ] = None,
    verify_: Annotated[
        bool,
        typer.Option("--verify", help="Read all data; check each checksum, entry id and count."),
    ] = False,
    journal: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File from which --verify resumes after an interruption."
        ),
    ] = None,
    statistics: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder or URL in which --verify stores statistics, as analyze does.",
        ),
    ] = None,
    verbose: Verbose = False,
    form: Printing,
) -> None:
    """Find missing, damaged and unneeded objects in a bucket.

    Exits with 5 if messages cannot be read, and with 7 if there are only other findings. Without
    --metadata, it finds only problems that are visible in the bucket itself.
    """
    for option, value in (("--journal", journal), ("--statistics", statistics)):
        if value is not None and not verify_:
            message = f"{option} requires --verify: give both or neither"
            raise OptionError(message)
    lag = None if deletion_lag is None else duration("--deletion-lag", deletion_lag)
    verification_journal = None if journal is None else VerificationJournal(journal)
    catalog, result, _ = _audit(url, place, is_one_cluster=one_cluster, lag=lag)
    findings = list(result.findings)
    if verify_:
        statistics_folder = None
        if statistics is not None:
            statistics_folder = open_statistics(statistics, catalog.location.storage_options)
        findings += _verify_ledgers(
            catalog,
            result.findings,
            verification_journal,
            statistics_folder,
            is_verbose=shows_each_ledger(verbose=verbose),
        )
    _print_findings(findings, form)
    if form == "table":
        typer.echo(_summary(catalog, findings, result))
    if any(each.is_loss for each in findings):
        raise typer.Exit(ExitCode.UNREADABLE)
    if findings:
        raise typer.Exit(ExitCode.FOUND)


@command(f"--metadata {_GOLDEN}", writes=True)
def clean_(
    url: Url,
    *,
    place: Place,
    one_cluster: _OneCluster = False,
    safety_age: Annotated[
        str, typer.Option(metavar="TIME", help="Age below which nothing is deleted (12h, 7d).")
    ] = f"{DEFAULT_SAFETY_AGE.days}d",
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete; without it, nothing is deleted.")
    ] = False,
    form: Printing,
) -> None:
    """Delete objects that nothing needs, according to the audit.

    These are orphans, doubles (additional copies of a ledger) and incomplete offloads.

    Prints the objects that it would delete, and why it keeps others. --yes deletes them.

    The metadata must be proven complete: by a live cluster, a manifest, or two files that agree.

    Objects are deleted only if they are older than the metadata and than the safety age.

    Objects of another cluster, and those that may be of one, are kept.

    Objects of a topic with losses are kept.
    """
    age = duration("--safety-age", safety_age)
    check_no_snapshot(place.metadata)
    catalog, result, _ = _audit(url, place, is_one_cluster=one_cluster)
    plan = plan_cleaning(result, now=datetime.now(UTC), safety_age=age)
    refusals = [each for each in plan if each.refusal is not None]
    deletions = [each.finding for each in plan if each.refusal is None]
    if yes:
        deletions = []
        for each in clean(catalog.location, plan):
            deletions.append(each.finding)
            say("deleted", ", ".join(each.finding.objects))
    _print_findings(deletions, form)
    for each in refusals:
        say("kept", f"{', '.join(each.finding.objects)}: {each.refusal}")
    if not one_cluster and any("another cluster's" in str(each.refusal) for each in refusals):
        say("note", "if only this cluster uses the bucket, give --one-cluster to delete these too")
    size = size_text(sum(each.stored_bytes for each in deletions))
    summary = f"{counted(sum(len(each.objects) for each in deletions), 'object')}, {size}"
    if form == "table":
        typer.echo(f"{summary} deleted" if yes else f"{summary} would be deleted by --yes")


@command(f"multi-ledger --output report.html --metadata {_GOLDEN}", writes=True)
def report(
    url: Url,
    topic: Annotated[
        str | None, typer.Argument(help="Name or glob. By default, the whole bucket.")
    ] = None,
    *,
    output: Annotated[
        Path, typer.Option(metavar="FILE", help="File for the page; it is replaced if it exists.")
    ],
    statistics: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Folder or URL of statistics (analyze), for publish times."
        ),
    ] = None,
    as_json: AsJson = False,
    place: Place,
    one_cluster: _OneCluster = False,
) -> None:
    """Write an HTML report on a topic or the whole bucket.

    It shows ledgers over time, their sizes and write rates, and the audit's findings. With
    --statistics, it also shows publish rates, and how many of the messages these cover. The page
    is one file that needs no network.
    """
    catalog, result, snapshot_statistics = _audit(url, place, is_one_cluster=one_cluster)
    statistics_url = snapshot_statistics if statistics is None else statistics
    metadata = None if place.metadata is None else str(place.metadata)
    with progress(catalog.location.trace):
        page = render_report(
            catalog, result, topic=topic, metadata=metadata, statistics=statistics_url
        ).encode()
    try:
        output.write_bytes(page)
    except OSError as error:
        message = f"the report cannot be written to {output}: {error.strerror}"
        raise OptionError(message) from None
    if as_json:
        typer.echo(json.dumps({"file": str(output), "bytes": len(page)}))
        return
    typer.echo(f"{size_text(len(page))} written to {output}")


def _audit(
    url: str, place: TopicRequest, *, is_one_cluster: bool, lag: timedelta | None = None
) -> tuple[Catalog, Audit, str | None]:
    """Compare the bucket's current objects with the metadata, and print what remains unsure.

    Also returns the URL of statistics, if the metadata is a catalog snapshot that records it.
    """
    trace = RequestTrace()
    catalog = catalog_at(url, replace(place, index_cache=False), trace=trace)
    metadata = place.metadata
    statistics = catalog.statistics
    if metadata is not None and is_snapshot(metadata):
        with progress(trace):
            catalog = catalog.relisted()
    uploads = _list_unfinished_uploads(catalog, trace)
    with progress(trace):
        result = audit(catalog, deletion_lag=lag, uploads=uploads, is_one_cluster=is_one_cluster)
    if catalog.source is None:
        say("note", "no metadata of the topics: missing ledgers cannot be found")
    else:
        for warning in catalog.source.warnings:
            say("note", warning)
    if result.streaming_ledgers:
        ledgers = counted(result.streaming_ledgers, "ledger")
        note = "the audit does not check whether their segments are needed, and clean keeps them"
        say("note", f"{ledgers} of streaming offload (PIP-76): {note}")
    if lag is not None:
        _note_unsure_copies(catalog)
    note_empty_location(catalog)
    return catalog, result, statistics


def _list_unfinished_uploads(catalog: Catalog, trace: RequestTrace) -> list[UnfinishedUpload]:
    try:
        with progress(trace):
            return catalog.location.unfinished_uploads()
    except StorageError as error:
        # Listing them needs a permission that readers of a bucket rarely have.
        say("note", f"unfinished uploads could not be listed: {error}")
        return []


def _note_unsure_copies(catalog: Catalog) -> None:
    unsure = sum(_is_unsure(ledger) for topic in catalog.every_ledger() for ledger in topic.states)
    if unsure:
        ledgers = counted(unsure, "offloaded ledger")
        missing = "whether BookKeeper still has a copy, or the time of the offload"
        say("note", f"the metadata of {ledgers} does not record {missing}")


def _is_unsure(ledger: TopicLedger) -> bool:
    """Return whether the metadata leaves open if a readable ledger's deletion lag has passed."""
    offload = ledger.info.offload if ledger.info else None
    if offload is None or offload.bookkeeper_deleted or not ledger.state.is_readable:
        return False
    no_time = offload.timestamp_ms is None or time_of(offload.timestamp_ms) is None
    return offload.bookkeeper_deleted is None or no_time


def _verify_ledgers(
    catalog: Catalog,
    findings: Sequence[Finding],
    journal: VerificationJournal | None,
    statistics: Statistics | None,
    *,
    is_verbose: bool,
) -> Iterable[Finding]:
    """Yield the findings of reading all data that are not among the audit's own.

    Print a line on stderr per ledger, or a summary.
    """
    topics = catalog.every_ledger()
    count = sum(len(each.ledgers) for each in topics)
    results: list[VerifiedLedger] = []

    def print_ledger(result: VerifiedLedger) -> None:
        state = counted(len(result.problems), "problem") if result.problems else "sound"
        entries = counted(result.entries, "entry")
        if is_verbose:
            say(
                "verified",
                f"{len(results) + 1} of {count}: {result.object}, {entries}, {state}",
                number=len(results) + 1,
                total=count,
                topic=result.topic,
                ledger_id=result.ledger_id,
                object=result.object,
                entries=result.entries,
                problems=len(result.problems),
            )

    explaining = partial(explain_missing_in_topic, catalog.cluster(topics))
    for result in verify(
        topics,
        journal=journal,
        statistics=statistics,
        progress=print_ledger,
        explaining=explaining,
    ):
        results.append(result)
        reported = [each.text for each in findings if each.ledger_id == result.ledger_id]
        for problem in result.problems:
            is_loss = problem not in result.broker_problems
            if not is_loss and any(problem in text for text in reported):
                continue
            yield Finding(
                kind=FindingKind.DAMAGE,
                text=problem,
                objects=tuple(result.object.split(", ")),
                topic=TopicName.parse(result.topic),
                ledger_id=result.ledger_id,
                stored_bytes=result.stored_bytes,
                is_loss=is_loss,
            )
    if not is_verbose:
        entries = counted(sum(each.entries for each in results), "entry")
        problems = counted(sum(len(each.problems) for each in results), "problem")
        say("verified", f"{counted(len(results), 'ledger')}, {entries}, {problems}")
    unchecked = sum(each.unchecked_entries for each in results)
    if unchecked:
        have = agreeing(unchecked, "has", "have")
        say("note", f"{counted(unchecked, 'entry')} {have} no checksum to compare")


def _print_findings(findings: list[Finding], form: Form) -> None:
    table = findings_table(findings)
    if form != "table":
        print_rows(table.schema, table.to_batches(), form)
        return
    table = table.select(_SHOWN)
    objects = pa.array([", ".join(names) for names in table["objects"].to_pylist()], pa.string())
    table = table.set_column(_SHOWN.index("objects"), "objects", objects)
    if table.num_rows:
        print_table(table.schema, table.to_batches())


def _summary(catalog: Catalog, findings: list[Finding], audit: Audit) -> str:
    ledgers = len(catalog.contents.copies) - audit.foreign_ledgers
    text = f"{counted_topics(catalog.topics())}, {counted(ledgers, 'ledger')}"
    if audit.foreign_ledgers:
        text += f" (and {audit.foreign_ledgers} of topics that Pulsar does not offload)"
    if not findings:
        return f"{text}: nothing found"
    wasted = size_text(sum(each.stored_bytes for each in findings if each.deletable))
    losses = sum(each.is_loss for each in findings)
    return (
        f"{text}: {counted(len(findings), 'finding')}, {losses} of them losses; {wasted} in objects"
        " that nothing needs"
    )
