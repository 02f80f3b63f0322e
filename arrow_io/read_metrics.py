"""Read metrics: the counts of a read, sentences about its losses, and the rule for damage.

Data that should have become a row is left out only through `ReadMetrics.lose`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self

from arrow_io.core.wording import agreeing, counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arrow_io.errors import PulsarOffloadError

MAX_LOSSES = 100
"""Maximum length of `ReadMetrics.losses`."""


class Unit(StrEnum):
    """A loss by damage: the smallest unit that could be separated from intact data.

    A message whose `VALUE` is lost is still returned, with a null value.
    """

    VALUE = "value"
    MESSAGE = "message"
    ENTRY = "entry"
    BLOCK = "block"
    LEDGER = "ledger"


@dataclass(slots=True)
class ReadMetrics:
    """The counts of one read; the metrics of parts of a read can be added up.

    Attributes:
        rows: Messages returned.
        entries: Entries read.
        markers: Entries that hold a marker of the broker, which no client receives.
        aborted_messages: Messages of aborted transactions, which no client receives either.
        open_messages: Messages whose transaction has no outcome in the offloaded ledgers, or is
            open by the metadata of a segment; left out.
        open_transactions: Number of those transactions.
        unknown_messages: Messages of a segment whose transaction has no outcome in the metadata
            that is at hand; left out.
        unknown_transactions: Number of those transactions.
        duplicate_chunks: Chunks that a producer sent twice.
        incomplete_messages: Chunked messages with a chunk that is not in the offloaded ledgers;
            left out.
        awaited_messages: Those of the incomplete messages that only lack chunks at the end, which
            may still be offloaded.
        awaited_chunks: Number of chunks that the awaited messages lack.
        ended_beyond: Messages completed after the last offloaded entry: a broker returned their
            last chunk or the outcome of their transaction.
        doubts: Reasons why the rows may be wrong, as sentences.
        replaced_texts: Texts with invalid bytes, which U+FFFD replaces, as in Pulsar's Java client:
            keys, names of producers and clusters, names and values of properties, STRING values.
            Texts must be UTF-8, or in the character set that the schema names.
        lost: Number of units lost to damage, by unit and name of the error class.
        losses: Messages of the first `MAX_LOSSES` errors.
    """

    rows: int = 0
    entries: int = 0
    markers: int = 0
    aborted_messages: int = 0
    open_messages: int = 0
    open_transactions: int = 0
    unknown_messages: int = 0
    unknown_transactions: int = 0
    duplicate_chunks: int = 0
    incomplete_messages: int = 0
    awaited_messages: int = 0
    awaited_chunks: int = 0
    ended_beyond: int = 0
    doubts: list[str] = field(default_factory=list)
    replaced_texts: int = 0
    lost: Counter[tuple[Unit, str]] = field(default_factory=Counter)
    losses: list[str] = field(default_factory=list)

    @property
    def undecided_messages(self) -> int:
        """Messages that are left out because their transaction has no outcome yet."""
        return self.open_messages + self.unknown_messages

    @property
    def undecided_transactions(self) -> int:
        """Number of the transactions of `undecided_messages`."""
        return self.open_transactions + self.unknown_transactions

    def lose(
        self,
        unit: Unit,
        error: PulsarOffloadError,
        *,
        count: int = 1,
        additional_errors: Iterable[PulsarOffloadError] = (),
    ) -> None:
        """Count units as lost; see `Tally.lose`. Subclasses may record `additional_errors`."""
        del additional_errors
        self.lost[unit, type(error).__name__] += count
        if len(self.losses) < MAX_LOSSES:
            self.losses.append(str(error))

    def add(self, other: ReadMetrics) -> Self:
        """Add the counts of another part of the same read, and return these metrics."""
        kind: Any = type(other)
        names, get_values = _counts_of(kind)
        values = get_values(other)
        # The walk that finds the entries of a record batch usually counts nothing.
        if any(values):
            for name, value in zip(names, values, strict=True):
                if value and name != "losses":
                    setattr(self, name, getattr(self, name) + value)
            self.losses.extend(other.losses[: MAX_LOSSES - len(self.losses)])
        return self

    def drain(self) -> ReadMetrics:
        """Return the counts so far, and reset these metrics."""
        _, get_values = _counts_of(ReadMetrics)
        values = get_values(self)
        if not any(values):
            return ReadMetrics()
        counts = ReadMetrics(*values)
        ReadMetrics.__init__(self)
        return counts

    def value_metrics(self, first_metrics: ReadMetrics) -> ReadMetrics:
        """Return what this pass adds to a first pass over the same entries that decoded no values.

        Args:
            first_metrics: Metrics of the first pass.
        """
        return ReadMetrics(
            rows=self.rows,
            replaced_texts=self.replaced_texts,
            lost=Counter({key: n for key, n in self.lost.items() if key[0] is Unit.VALUE}),
            losses=[each for each in self.losses if each not in first_metrics.losses],
        )

    def waiting(self) -> list[str]:
        """Return a sentence about messages that a later read will return, or an empty list."""
        if not self.awaited_messages:
            return []
        sentence = (
            f"{counted(self.awaited_messages, 'chunked message')}"
            f" {agreeing(self.awaited_messages, 'is', 'are')} waiting for"
            f" {counted(self.awaited_chunks, 'chunk')} that"
            f" {agreeing(self.awaited_chunks, 'is', 'are')} not offloaded yet"
        )
        return [sentence]

    def dropped(self) -> dict[tuple[str, str], int]:
        """Return how much was left out that a consumer may receive, by unit and reason.

        A reason is `open_transaction`, `unknown_transaction`, `missing_chunks`, or the name of the
        error class of a loss.
        """
        counts: dict[tuple[str, str], int] = {
            ("message", "open_transaction"): self.open_messages,
            ("message", "unknown_transaction"): self.unknown_messages,
            ("message", "missing_chunks"): self.incomplete_messages,
        }
        counts |= {(str(unit), reason): number for (unit, reason), number in self.lost.items()}
        return {key: number for key, number in counts.items() if number}

    def notices(self) -> list[str]:
        """Return one sentence for each thing that a user of the rows must know."""
        sentences = []
        if self.open_messages:
            sentences.append(
                f"{counted(self.open_messages, 'message')} of"
                f" {counted(self.open_transactions, 'transaction')} without an outcome in the"
                f" offloaded ledgers {agreeing(self.open_messages, 'was', 'were')} left out"
            )
        if self.unknown_messages:
            sentences.append(
                f"{counted(self.unknown_messages, 'message')} of"
                f" {counted(self.unknown_transactions, 'transaction')}"
                f" {agreeing(self.unknown_messages, 'was', 'were')} left out: the outcome is only"
                " in the cluster's metadata store, and the metadata of this read lacks it"
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


@cache
def _counts_of(kind: type[Any]) -> tuple[list[str], attrgetter[tuple[Any, ...]]]:
    """Return the names of a class's fields, and a getter of all their values.

    A read drains and adds metrics for each record batch, while it holds Python's lock.
    """
    names = [each.name for each in fields(kind)]
    return names, attrgetter(*names)


@dataclass(frozen=True, slots=True)
class Tally:
    """The metrics that a read fills, and the rule for data that cannot be read.

    Attributes:
        metrics: The metrics to fill.
        salvage: Whether damage is counted and skipped (`on_corruption="salvage"`) instead of
            raised.
        keep_values: Whether values that cannot be decoded are counted, even if other damage is
            raised.
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
        """Count `count` units as lost to `error`, or raise it.

        Args:
            unit: Kind of the lost units.
            error: The reason, with the location of the first lost unit.
            count: Number of units lost.
            additional_errors: The errors of the other units, for metrics that record each.

        Raises:
            PulsarOffloadError: `error` itself, unless the read salvages.
        """
        if not (self.salvage or (self.keep_values and unit is Unit.VALUE)):
            raise error
        self.metrics.lose(unit, error, count=count, additional_errors=additional_errors)

    def uncounted(self) -> Tally:
        """Return a tally with the same rule for entries whose losses are counted elsewhere."""
        return replace(self, metrics=ReadMetrics())
