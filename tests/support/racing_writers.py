"""Threads that write an object at once, of which one may win."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arrow_io.storage.location import Location

WRITERS = 8


def winners_of(location: Location, name: str) -> list[bytes]:
    """What those wrote who were told that the name was free: threads that write it at once.

    Args:
        location: Where they write; it is connected already.
        name: Name of the object.
    """
    start = threading.Barrier(WRITERS)
    won: list[bytes] = []

    def write(data: bytes) -> None:
        start.wait()
        if location.write_new_object(name, data):
            won.append(data)

    threads = [threading.Thread(target=write, args=(b"%d" % n,)) for n in range(WRITERS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return won
