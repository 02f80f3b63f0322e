"""The commands that compare a bucket with what should be in it, tidy it up, and show it."""

from __future__ import annotations

import json
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
from connector.cli.place import catalog_at, check_no_snapshot, tell_place
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
    from collections.abc import Iterable
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
        help="The bucket is used by one cluster only, the metadata's. Topics that a live cluster"
        " does not know count as deleted. Otherwise an object that names no cluster is always"
        " kept.",
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
            help="Also name ledgers that BookKeeper still has this long after their offload (4h). A"
            " note says for how many ledgers the metadata leaves that open.",
        ),
    ] = None,
    verify_: Annotated[
        bool,
        typer.Option("--verify", help="Read everything: check each checksum, entry id and count."),
    ] = False,
    journal: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Remembers what --verify has read, so that it can go on later."
        ),
    ] = None,
    statistics: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Where --verify keeps what spares reading again, as analyze does.",
        ),
    ] = None,
    verbose: Verbose = False,
    form: Printing,
) -> None:
    """Find what the bucket should not have, and what it lacks.

    Ends with 5 if messages cannot be read, with 7 if all can and something else was found. Without
    --metadata, it finds only what the bucket alone shows.
    """
    for option, value in (("--journal", journal), ("--statistics", statistics)):
        if value is not None and not verify_:
            message = f"{option} is for --verify: give both, or neither"
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
    """Delete what the audit says nothing needs.

    That is orphans, doubles, and offloads that never completed.

    Prints what it would delete, and why it keeps the rest; --yes deletes.

    The metadata must be proven whole: by a live cluster, a manifest, or two files that agree.

    What is deleted is older than the metadata, and than the safety age.

    It is of the metadata's cluster, as far as that is known.

    Nothing is deleted of a topic that has losses.
    """
    age = duration("--safety-age", safety_age)
    check_no_snapshot(place.metadata)
    catalog, result, _ = _audit(url, place, is_one_cluster=one_cluster)
    plan = plan_cleaning(result, now=datetime.now(UTC), safety_age=age)
    refused = [each for each in plan if each.refusal is not None]
    deleted = [each.finding for each in plan if each.refusal is None]
    if yes:
        deleted = []
        for each in clean(catalog.location, plan):
            deleted.append(each.finding)
            say("deleted", ", ".join(each.finding.objects))
    _print_findings(deleted, form)
    for each in refused:
        say("kept", f"{', '.join(each.finding.objects)}: {each.refusal}")
    if not one_cluster and any("another cluster's" in str(each.refusal) for each in refused):
        say("note", "if this cluster alone uses the bucket, --one-cluster says so")
    size = size_text(sum(each.stored_bytes for each in deleted))
    summary = f"{counted(sum(len(each.objects) for each in deleted), 'object')}, {size}"
    if form == "table":
        typer.echo(f"{summary} deleted" if yes else f"{summary} would be deleted by --yes")


@command(f"multi-ledger --output report.html --metadata {_GOLDEN}", writes=True)
def report(
    url: Url,
    topic: Annotated[
        str | None, typer.Argument(help="Name or glob; the whole bucket if none.")
    ] = None,
    *,
    output: Annotated[
        Path, typer.Option(metavar="FILE", help="The page; replaces what was there.")
    ],
    statistics: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Folder or URL of statistics (analyze), for the publish times."
        ),
    ] = None,
    as_json: AsJson = False,
    place: Place,
    one_cluster: _OneCluster = False,
) -> None:
    """Show a topic, or the whole bucket, on one page of HTML.

    Ledgers over time, their sizes, how fast they were written, and what the audit finds. With
    --statistics, how fast messages were published, and how much is known of that. The page needs
    neither a network nor anything beside it.
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
        message = f"no page can be written to {output}: {error.strerror}"
        raise OptionError(message) from None
    if as_json:
        typer.echo(json.dumps({"file": str(output), "bytes": len(page)}))
        return
    typer.echo(f"{size_text(len(page))} written to {output}")


def _audit(
    url: str, place: TopicRequest, *, is_one_cluster: bool, lag: timedelta | None = None
) -> tuple[Catalog, Audit, str | None]:
    """Compare a bucket as it is now with the metadata, and say what that leaves unsure.

    Gives too where statistics are, if the metadata is a snapshot that remembers it.
    """
    trace = RequestTrace()
    catalog, metadata = catalog_at(url, place, trace=trace), place.metadata
    statistics = catalog.statistics
    if metadata is not None and is_snapshot(metadata):
        with progress(trace):
            catalog = catalog.relisted()
    uploads = _list_unfinished_uploads(catalog, trace)
    with progress(trace):
        result = audit(catalog, deletion_lag=lag, uploads=uploads, is_one_cluster=is_one_cluster)
    if catalog.source is None:
        say("note", "no metadata: what the topics should have is not known")
    else:
        for warning in catalog.source.warnings:
            say("note", warning)
    if result.streaming_ledgers:
        ledgers = counted(result.streaming_ledgers, "ledger")
        note = "whether their segments are needed is not checked, and clean keeps them"
        say("note", f"{ledgers} of streaming offload (PIP-76): {note}")
    if lag is not None:
        _note_unsure_copies(catalog)
    tell_place(catalog)
    return catalog, result, statistics


def _list_unfinished_uploads(catalog: Catalog, trace: RequestTrace) -> list[UnfinishedUpload]:
    """The uploads that are not complete; none, and a note, if the store does not list them."""
    try:
        with progress(trace):
            return catalog.location.unfinished_uploads()
    except StorageError as error:
        # To list them takes a right of its own, which readers of a bucket rarely have.
        say("note", f"unfinished uploads were not looked for: {error}")
        return []


def _note_unsure_copies(catalog: Catalog) -> None:
    unsure = sum(_is_unsure(ledger) for topic in catalog.every_ledger() for ledger in topic.states)
    if unsure:
        ledgers = counted(unsure, "offloaded ledger")
        missing = "whether BookKeeper still has a copy, or when the offload was"
        say("note", f"of {ledgers} the metadata does not say {missing}")


def _is_unsure(ledger: TopicLedger) -> bool:
    """Whether it is not known if the deletion lag of a ledger that can be read has passed."""
    offload = ledger.info.offload if ledger.info else None
    if offload is None or offload.bookkeeper_deleted or not ledger.state.is_readable:
        return False
    no_time = offload.timestamp_ms is None or time_of(offload.timestamp_ms) is None
    return offload.bookkeeper_deleted is None or no_time


def _verify_ledgers(
    catalog: Catalog,
    journal: VerificationJournal | None,
    statistics: Statistics | None,
    *,
    is_verbose: bool,
) -> Iterable[Finding]:
    """What reading everything finds, with a line on stderr for each ledger or for all."""
    topics = catalog.every_ledger()
    count = sum(len(each.ledgers) for each in topics)
    results: list[VerifiedLedger] = []

    def print_ledger(result: VerifiedLedger) -> None:
        state = counted(len(result.problems), "problem") if result.problems else "sound"
        entries = counted(result.entries, "entry")
        if is_verbose:
            say("verified", f"{len(results) + 1} of {count}: {result.object}, {entries}, {state}")

    explaining = partial(explain_missing_in_topic, catalog.cluster(topics))
    for result in verify(
        topics,
        journal=journal,
        statistics=statistics,
        progress=print_ledger,
        explaining=explaining,
    ):
        results.append(result)
        for problem in result.problems:
            yield Finding(
                kind=FindingKind.DAMAGE,
                text=problem,
                objects=tuple(result.object.split(", ")),
                topic=TopicName.parse(result.topic),
                ledger_id=result.ledger_id,
                stored_bytes=result.stored_bytes,
                is_loss=True,
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
    ledgers = len(catalog.contents.copies) - audit.segment_ledgers
    text = f"{counted_topics(catalog.topics())}, {counted(ledgers, 'ledger')}"
    if audit.segment_ledgers:
        text += f" (and {audit.segment_ledgers} of scalable topics, which cannot be read yet)"
    if not findings:
        return f"{text}: nothing found"
    wasted = size_text(sum(each.stored_bytes for each in findings if each.deletable))
    losses = sum(each.is_loss for each in findings)
    return (
        f"{text}: {counted(len(findings), 'finding')}, {losses} of them losses; {wasted} in objects"
        " that nothing needs"
    )
