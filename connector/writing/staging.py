"""Messages → entries → ledgers, of which the data objects are written: nobody reads them yet."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from arrow_io.messages.entry_writer import EntryWriter
from arrow_io.option_names import option_name
from arrow_io.wording import counted
from connector.catalog.schemas.answers import schemas_json
from connector.writing.ledger_filling import LedgerFiller, LedgerStager
from connector.writing.ledger_ids import LedgerIds
from connector.writing.message_router import MessageRouter
from connector.writing.message_rows import MessageRows
from connector.writing.staged_write import StagedWrite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connector.writing.beginning import WritePlan
    from connector.writing.ledger_ids import IdRange
    from connector.writing.write_target import WriteTarget


def stage(target: WriteTarget, plan: WritePlan, ids: IdRange, messages: object) -> StagedWrite:
    """Stage messages; if it fails, what was written is deleted, or noted on the error.

    Several processes can stage shares of one write at once.

    Args:
        target: What is written to.
        plan: The write.
        ids: The ids that this process may give.
        messages: The messages, as of `write_messages`.

    Raises:
        OptionError: A column or value is not usable; or a ledger id is taken, or not among `ids`.
        EntryTooLargeError: A message is longer than an entry, or an entry longer than a block, may
            be.
        StorageError: The store refused, or went on failing.
        Exception: What the messages raised.
    """
    stager = LedgerStager(target.offloader, LedgerIds(ids), plan.mark)
    try:
        return fill(target, plan, stager, messages)
    except BaseException as error:
        stager.undo(error)
        raise


def fill(
    target: WriteTarget, plan: WritePlan, stager: LedgerStager, messages: object
) -> StagedWrite:
    """Stage messages; as `stage`, but that who made the stager undoes what it has staged."""
    names, options = target.names, target.entry_options
    rows = MessageRows(plan.schema, publish_time_ms=plan.begun_ms).messages(messages)
    router = MessageRouter(len(names), batch_messages=options.batch_messages)
    writers = [EntryWriter(options) for _ in names]
    with ExitStack() as stack:
        fillers = [
            stack.enter_context(LedgerFiller(stager, each.managed_ledger_name, target.limits))
            for each in names
        ]
        for message in rows:
            number = router.route(message)
            for entry in writers[number].add(message):
                fillers[number].add(entry.data, publish_time_ms=entry.publish_time_ms)
        for writer, filler in zip(writers, fillers, strict=True):
            for entry in writer.flush():
                filler.add(entry.data, publish_time_ms=entry.publish_time_ms)
            filler.close_ledger()
    return StagedWrite(
        mark=plan.mark,
        begun_ms=plan.begun_ms,
        message_count=sum(writer.message_count for writer in writers),
        schemas=schemas_json(plan.schema, timestamp_ms=plan.begun_ms).encode(),
        ledgers=tuple(ledger for filler in fillers for ledger in filler.ledgers),
        # Where a broker goes on counting (ManagedLedgerInterceptorImpl).
        properties={
            name.managed_ledger_name: {"index": str(writer.last_index)}
            for name, writer in zip(names, writers, strict=True)
            if options.broker_metadata
        },
        warnings=(*stager.warnings, *_retimed(target, writers)),
    )


def _retimed(target: WriteTarget, writers: Sequence[EntryWriter]) -> list[str]:
    """Return a note on publish times that changed, unless an option says by how much they may."""
    count = sum(each.retimed_messages for each in writers)
    if not count or target.request.batch_delay_ms is not None:
        return []
    most_ms = max(each.retimed_ms for each in writers)
    note = (
        f"{counted(count, 'message')} took the publish time of the first in their batch, which is"
        f" up to {most_ms} ms away; {option_name('batch_delay_ms', 0)} keeps that of each"
    )
    return [note]
