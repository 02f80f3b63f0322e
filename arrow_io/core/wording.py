"""Words for messages: singular or plural, and phrases that several messages share."""

from __future__ import annotations

from typing import Final

OR_DELETION: Final = (
    ": it was lost, or the ledger is being deleted (open the topic again to see which)"
)
"""End of the message about a ledger that lacks some of its objects.

Clusters delete a ledger's objects one after the other. The bucket alone cannot distinguish that
from a loss."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular or plural.

    Example:
        >>> counted(1, "range"), counted(2, "range"), counted(2, "entry")
        ('1 range', '2 ranges', '2 entries')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("ry") else f"{number} {noun}s"


def agreeing(number: int, one: str, many: str) -> str:
    """Return the word that agrees with a number: `one` for 1, else `many`.

    Example:
        >>> agreeing(1, "was", "were"), agreeing(0, "was", "were")
        ('was', 'were')
    """
    return one if number == 1 else many
