"""How a sentence for people counts things, one or many; and what several sentences say alike."""

from __future__ import annotations

from typing import Final

OR_DELETION: Final = (
    ": it was lost, or the ledger is being deleted (open the topic again to see which)"
)
"""Ends the message about a ledger that lacks some of its objects.

Clusters delete objects one after the other. The bucket alone does not tell that from a loss.
"""


def counted(number: int, noun: str) -> str:
    """A number of things.

    Example:
        >>> counted(1, "range"), counted(2, "range"), counted(2, "entry")
        ('1 range', '2 ranges', '2 entries')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("ry") else f"{number} {noun}s"


def agreeing(number: int, one: str, many: str) -> str:
    """The word that agrees with a number of things: the first with one of them.

    Example:
        >>> agreeing(1, "was", "were"), agreeing(0, "was", "were")
        ('was', 'were')
    """
    return one if number == 1 else many
