"""What a read met besides the rows it gave: counted, and told; or, by default, raised.

Nothing that should have become a row is left out without passing through `ReadReport.lose`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from arrow_io.wording import agreeing, counted

if TYPE_CHECKING:
    from arrow_io.errors import PulsarOffloadError

MAX_KEPT_LOSSES = 100


class Unit(StrEnum):
    """The smallest thing that could be told apart from the damage around it.

    A message whose `VALUE` is lost is given all the same, with a null value.
    """

    VALUE = "value"
    MESSAGE = "message"
    ENTRY = "entry"
    BLOCK = "block"
    LEDGER = "ledger"


@dataclass(slots=True)
class ReadReport:
    """Counts of one read. Reports of the parts of a read add up.

    Attributes:
        salvage: Whether damage is counted and passed over (`on_corruption="salvage"`) instead of
            raised.
        rows: Messages given.
        entries: Entries read.
        markers: Entries that hold a marker of the broker, which no client ever sees.
        aborted_messages: Messages of aborted transactions; a client never sees them either.
        open_messages: Messages of transactions without an outcome in what is offloaded; left out.
        open_transactions: How many such transactions.
        duplicate_chunks: Chunks that a producer sent twice.
        incomplete_messages: Chunked messages of which a chunk is not in what is offloaded; left
            out.
        unfinished_ledgers: Data objects without an index object, of this topic or of one that
            nothing tells: offloads under way or failed, of which there is no complete copy.
        pending_ledgers: Ledgers behind all that is offloaded, which are in BookKeeper only; known
            where there is metadata.
        pending_entries: How many entries they have, as far as that is known.
        substituted_ledgers: Ledgers that salvaging reads from another copy than the one that the
            metadata names, which cannot be read.
        unknown_topics: Topics that the metadata does not know; read as the bucket shows them.
        doubts: What the metadata of the topics leaves unsure, in words.
        unlisted_ledgers: Ledgers in the bucket that the metadata does not list, or not as
            offloaded, and retention does not explain; not read.
        replaced_texts: Keys, names of producers and clusters, names and values of properties, and
            STRING values with bytes that are no text (no UTF-8, or not of the character set that
            the schema names), given with U+FFFD in their place, as Pulsar's Java client does.
        lost: Things lost to damage, by unit and by the name of the error class.
        losses: What was wrong with the first `MAX_KEPT_LOSSES` of them, in words.
    """

    salvage: bool = False
    rows: int = 0
    entries: int = 0
    markers: int = 0
    aborted_messages: int = 0
    open_messages: int = 0
    open_transactions: int = 0
    duplicate_chunks: int = 0
    incomplete_messages: int = 0
    unfinished_ledgers: int = 0
    pending_ledgers: int = 0
    pending_entries: int = 0
    substituted_ledgers: int = 0
    unknown_topics: int = 0
    doubts: list[str] = field(default_factory=list)
    unlisted_ledgers: int = 0
    replaced_texts: int = 0
    lost: Counter[tuple[Unit, str]] = field(default_factory=Counter)
    losses: list[str] = field(default_factory=list)

    def lose(self, unit: Unit, error: PulsarOffloadError, *, count: int = 1) -> None:
        """Count `count` units as lost to `error`; raises `error` itself unless salvaging."""
        if not self.salvage:
            raise error
        self.lost[unit, type(error).__name__] += count
        if len(self.losses) < MAX_KEPT_LOSSES:
            self.losses.append(str(error))

    def add(self, other: ReadReport) -> Self:
        """Add the counts of another part of the same read."""
        for each in fields(self):
            if each.name in {"salvage", "losses"}:
                continue
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        self.losses.extend(other.losses[: MAX_KEPT_LOSSES - len(self.losses)])
        return self

    def notices(self) -> list[str]:
        """One sentence for each thing a reader of the rows must know of; empty if there is none."""
        said = []
        if self.open_messages:
            said.append(
                f"{counted(self.open_messages, 'message')} of"
                f" {counted(self.open_transactions, 'transaction')} without an outcome in the"
                f" offloaded ledgers {agreeing(self.open_messages, 'was', 'were')} left out"
            )
        if self.incomplete_messages:
            said.append(
                f"{counted(self.incomplete_messages, 'chunked message')}"
                f" {agreeing(self.incomplete_messages, 'was', 'were')} left out, because not all"
                f" {agreeing(self.incomplete_messages, 'its chunks', 'their chunks')} are in the"
                " offloaded ledgers"
            )
        if self.unfinished_ledgers:
            said.append(
                f"{counted(self.unfinished_ledgers, 'data object')}"
                f" {agreeing(self.unfinished_ledgers, 'has', 'have')} no index object:"
                f" {agreeing(self.unfinished_ledgers, 'a ledger', 'ledgers')} whose"
                " offload is under way or has failed"
            )
        if self.pending_ledgers:
            said.append(
                f"{counted(self.pending_ledgers, 'ledger')} behind those offloaded"
                f" {agreeing(self.pending_ledgers, 'is', 'are')} in BookKeeper only, and"
                f" {agreeing(self.pending_ledgers, 'was', 'were')} not read:"
                f" {counted(self.pending_entries, 'entry')}"
            )
        if self.substituted_ledgers:
            said.append(
                f"{counted(self.substituted_ledgers, 'ledger')}"
                f" {agreeing(self.substituted_ledgers, 'was', 'were')} read from other copies than"
                " those that the metadata names, which cannot be read"
            )
        if self.unknown_topics:
            said.append(
                f"the metadata does not know {self.unknown_topics} of the topics: what the bucket"
                " shows of them was read, and nothing tells whether it is all"
            )
        said.extend(self.doubts)
        if self.unlisted_ledgers:
            said.append(
                f"the metadata does not list {counted(self.unlisted_ledgers, 'ledger')} in the"
                f" bucket as offloaded, so {agreeing(self.unlisted_ledgers, 'it was', 'they were')}"
                " not read; it may be older"
            )
        if self.replaced_texts:
            texts = counted(self.replaced_texts, "text")
            said.append(f"{texts} had invalid bytes; U+FFFD replaces them")
        said.extend(f"{n} × {unit} lost: {reason}" for (unit, reason), n in self.lost.items())
        return said
