"""How a sentence for people counts things, one or many."""

from __future__ import annotations


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
