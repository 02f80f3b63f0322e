"""The entries of a golden topic, as the reference decoder takes them."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from tests.support.reference_ledger import read_entries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.golden import GoldenLedger, GoldenTopic

_MARKER_BYTES: Final = 16
_ESCAPE: Final = -1


def golden_entries(topic: GoldenTopic) -> list[tuple[int, list[bytes]]]:
    """Give `(ledger_id, entries)` of each offloaded ledger of a topic, in order."""
    return [(ledger.ledger_id, _entries(ledger)) for ledger in topic.ledgers]


def _entries(ledger: GoldenLedger) -> list[bytes]:
    if ledger.data_object.name != "data":
        return read_entries(ledger.data_object.read_bytes(), ledger.index_object.read_bytes())
    return map_file_entries(ledger.data_object.read_bytes())


def map_file_entries(data: bytes) -> list[bytes]:
    """Give the entries in the data file of a MapFile."""
    # Of each serialized value, the first four bytes are the length of the rest.
    _, *values = _values(_SequenceFile(data))
    return [value[4:] for value in values]


class _SequenceFile:
    """A file of Hadoop, read from start to end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 4  # `SEQ` and the version

    @property
    def is_at_end(self) -> bool:
        return self.position == len(self._data)

    def take(self, count: int) -> bytes:
        self.position += count
        return self._data[self.position - count : self.position]

    def number(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def vint(self) -> int:
        first = int.from_bytes(self.take(1), "big", signed=True)
        if first >= -112:
            return first
        assert first >= -120
        return int.from_bytes(self.take(-112 - first), "big")

    def text(self) -> bytes:
        return self.take(self.vint())


def _values(file: _SequenceFile) -> Iterator[bytes]:
    """Give the serialized values of all records."""
    file.text(), file.text()
    is_compressed, is_in_blocks = file.take(2)
    if is_compressed:
        file.text()
    assert file.number() == 0
    file.take(_MARKER_BYTES)
    while not file.is_at_end:
        length = file.number()
        if length == _ESCAPE:
            file.take(_MARKER_BYTES)
            if is_in_blocks:
                yield from _block_values(file)
            continue
        key_bytes = file.number()
        file.take(key_bytes)
        value = file.take(length - key_bytes)
        yield zlib.decompress(value) if is_compressed else value


def _block_values(file: _SequenceFile) -> Iterator[bytes]:
    count = file.vint()
    _, _, lengths, values = (zlib.decompress(file.text()) for _ in range(4))
    # `VInt`s have the form of a file of themselves.
    sizes, rest = _SequenceFile(b"SEQ\x06" + lengths), _SequenceFile(b"SEQ\x06" + values)
    for _ in range(count):
        yield rest.take(sizes.vint())
    assert sizes.is_at_end
    assert rest.is_at_end
