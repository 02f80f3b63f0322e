"""What a read does with damage: it ends the read, or it is counted and passed over."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from arrow_io.read_metrics import ReadReport, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arrow_io.errors import PulsarOffloadError


@dataclass(frozen=True, slots=True)
class Tally:
    """The report that a read fills, and the rule for what cannot be read.

    Attributes:
        report: Receives the counts.
        salvage: Whether damage is counted and passed over (`on_corruption="salvage"`) instead of
            raised.
        keep_values: Whether values that cannot be decoded are counted, even if damage is raised.
    """

    report: ReadReport = field(default_factory=ReadReport)
    salvage: bool = False
    keep_values: bool = False

    def lose(
        self,
        unit: Unit,
        error: PulsarOffloadError,
        *,
        count: int = 1,
        further: Iterable[PulsarOffloadError] = (),
    ) -> None:
        """Count `count` units as lost to `error`.

        Args:
            unit: What is lost.
            error: Why, and where the first stands.
            count: How many are lost to it.
            further: The error for each of the others, for a report that asks for them.

        Raises:
            PulsarOffloadError: `error` itself, unless the read salvages.
        """
        if not (self.salvage or (self.keep_values and unit is Unit.VALUE)):
            raise error
        self.report.lose(unit, error, count=count, further=further)

    def uncounted(self) -> Tally:
        """The same rule for entries whose losses are counted by someone else."""
        return replace(self, report=ReadReport())
