"""What a read does with damage: it ends the read, or it is counted and passed over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from arrow_io.read_report import ReadReport

if TYPE_CHECKING:
    from arrow_io.errors import PulsarOffloadError
    from arrow_io.read_report import Unit


@dataclass(frozen=True, slots=True)
class Tally:
    """The report that a read fills, and the rule for what cannot be read.

    Attributes:
        report: Receives the counts.
        salvage: Whether damage is counted and passed over (`on_corruption="salvage"`) instead of
            raised.
    """

    report: ReadReport = field(default_factory=ReadReport)
    salvage: bool = False

    def lose(self, unit: Unit, error: PulsarOffloadError, *, count: int = 1) -> None:
        """Count `count` units as lost to `error`.

        Raises:
            PulsarOffloadError: `error` itself, unless the read salvages.
        """
        if not self.salvage:
            raise error
        self.report.lose(unit, error, count=count)

    def uncounted(self) -> Tally:
        """The same rule for entries whose losses are counted by someone else."""
        return Tally(salvage=self.salvage)
