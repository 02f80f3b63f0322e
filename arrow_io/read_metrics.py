"""What a read met besides its rows, counted and in words; and whether damage ends it.

Nothing that should have become a row is left out without passing through `ReadMetrics.lose`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from arrow_io.core.wording import agreeing, counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arrow_io.errors import PulsarOffloadError

MAX_LOSSES = 100


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
class ReadMetrics:
    """Counts of one read. Reports of the parts of a read add up.

    Attributes:
        rows: Messages given.
        entries: Entries read.
        markers: Entries that hold a marker of the broker, which no client ever sees.
        aborted_messages: Messages of aborted transactions; a client never sees them either.
        open_messages: Messages of transactions without an outcome in what is offloaded; left out.
        open_transactions: How many such transactions there are.
        duplicate_chunks: Chunks that a producer sent twice.
        incomplete_messages: Chunked messages with a chunk that is not in what is offloaded; left
            out.
        awaited_messages: Those of them whose first chunks are all there: the others may still be
            offloaded.
        awaited_chunks: How many chunks the awaited messages lack.
        ended_beyond: Messages that end behind what is offloaded: brokers told their last chunk, or
            the outcome of their transaction.
        doubts: Reasons why these may not be the right rows, in words.
        replaced_texts: Texts with invalid bytes, which were given with U+FFFD in their place, as
            Pulsar's Java client does: keys, names of producers and clusters, names and values of
            properties, and STRING values. Valid is UTF-8, or the character set that the schema
            names.
        lost: How many things were lost to damage, by unit and by the name of the error class.
        losses: What was wrong with the first `MAX_LOSSES` of them, in words.
    """

    rows: int = 0
    entries: int = 0
    markers: int = 0
    aborted_messages: int = 0
    open_messages: int = 0
    open_transactions: int = 0
    duplicate_chunks: int = 0
    incomplete_messages: int = 0
    awaited_messages: int = 0
    awaited_chunks: int = 0
    ended_beyond: int = 0
    doubts: list[str] = field(default_factory=list)
    replaced_texts: int = 0
    lost: Counter[tuple[Unit, str]] = field(default_factory=Counter)
    losses: list[str] = field(default_factory=list)

    def lose(
        self,
        unit: Unit,
        error: PulsarOffloadError,
        *,
        count: int = 1,
        additional_errors: Iterable[PulsarOffloadError] = (),
    ) -> None:
        """Count `count` units as lost to `error`.

        Args:
            unit: What is lost.
            error: Why, and where the first stands.
            count: How many are lost to it.
            additional_errors: The error for each of the others; not asked for here.
        """
        del additional_errors
        self.lost[unit, type(error).__name__] += count
        if len(self.losses) < MAX_LOSSES:
            self.losses.append(str(error))

    def add(self, other: ReadMetrics) -> Self:
        """Add the counts of another part of the same read; returns these metrics."""
        for each in fields(other):
            if each.name == "losses":
                continue
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        self.losses.extend(other.losses[: MAX_LOSSES - len(self.losses)])
        return self

    def drain(self) -> ReadMetrics:
        """What was counted until now, which is forgotten here."""
        counts, fresh = ReadMetrics(), ReadMetrics()
        for each in fields(ReadMetrics):
            setattr(counts, each.name, getattr(self, each.name))
            setattr(self, each.name, getattr(fresh, each.name))
        return counts

    def value_metrics(self, first_metrics: ReadMetrics) -> ReadMetrics:
        """What only a second reader met, who looked at the values too.

        Args:
            first_metrics: What the first one met.
        """
        return ReadMetrics(
            rows=self.rows,
            replaced_texts=self.replaced_texts,
            lost=Counter({key: n for key, n in self.lost.items() if key[0] is Unit.VALUE}),
            losses=[each for each in self.losses if each not in first_metrics.losses],
        )

    def waiting(self) -> list[str]:
        """Return a sentence for what a later read gives, when more is offloaded; or none."""
        if not self.awaited_messages:
            return []
        sentence = (
            f"{counted(self.awaited_messages, 'chunked message')}"
            f" {agreeing(self.awaited_messages, 'is', 'are')} waiting for"
            f" {counted(self.awaited_chunks, 'chunk')} that"
            f" {agreeing(self.awaited_chunks, 'is', 'are')} not offloaded yet"
        )
        return [sentence]

    def notices(self) -> list[str]:
        """One sentence for each thing that a reader of the rows must know; empty without any."""
        sentences = []
        if self.open_messages:
            sentences.append(
                f"{counted(self.open_messages, 'message')} of"
                f" {counted(self.open_transactions, 'transaction')} without an outcome in the"
                f" offloaded ledgers {agreeing(self.open_messages, 'was', 'were')} left out"
            )
        broken = self.incomplete_messages - self.awaited_messages
        if broken:
            sentences.append(
                f"{counted(broken, 'chunked message')} {agreeing(broken, 'was', 'were')} left out,"
                f" because not all {agreeing(broken, 'its chunks', 'their chunks')} are in the"
                " offloaded ledgers"
            )
        sentences.extend(self.doubts)
        if self.replaced_texts:
            texts = counted(self.replaced_texts, "text")
            sentences.append(f"{texts} had invalid bytes; U+FFFD replaces them")
        sentences.extend(f"{n} × {unit} lost: {reason}" for (unit, reason), n in self.lost.items())
        return sentences


@dataclass(frozen=True, slots=True)
class Tally:
    """The metrics that a read fills, and the rule for what cannot be read.

    Attributes:
        metrics: Receives the counts.
        salvage: Whether damage is counted and passed over (`on_corruption="salvage"`) instead of
            raised.
        keep_values: Whether values that cannot be decoded are counted, even if damage is raised.
    """

    metrics: ReadMetrics = field(default_factory=ReadMetrics)
    salvage: bool = False
    keep_values: bool = False

    def lose(
        self,
        unit: Unit,
        error: PulsarOffloadError,
        *,
        count: int = 1,
        additional_errors: Iterable[PulsarOffloadError] = (),
    ) -> None:
        """Count `count` units as lost to `error`.

        Args:
            unit: What is lost.
            error: Why, and where the first stands.
            count: How many are lost to it.
            additional_errors: The error for each of the others, for metrics that ask for them.

        Raises:
            PulsarOffloadError: `error` itself, unless the read salvages.
        """
        if not (self.salvage or (self.keep_values and unit is Unit.VALUE)):
            raise error
        self.metrics.lose(unit, error, count=count, additional_errors=additional_errors)

    def uncounted(self) -> Tally:
        """The same rule for entries whose losses are counted by someone else."""
        return replace(self, metrics=ReadMetrics())
