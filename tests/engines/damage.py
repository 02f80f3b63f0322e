"""A bucket whose only ledger has one entry, which is damaged."""

from __future__ import annotations

from tests.support.buckets import offload
from tests.support.entries import Message, encode_entry


def damaged_objects() -> dict[str, bytes]:
    """Return the objects of ledger 7, with a bit of its entry flipped."""
    entry = encode_entry([Message(payload=b"x" * 40)], batched=False)
    objects = offload([(7, [entry])])
    name = next(iter(objects))
    data = bytearray(objects[name])
    data[data.index(entry) + len(entry) - 1] ^= 1
    return objects | {name: bytes(data)}
