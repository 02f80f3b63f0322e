"""A record batch is given as soon as its entries have the bytes that the user asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from hypothesis import given
from hypothesis import strategies as st

from arrow_io.read_metrics import ReadMetrics
from connector import open_topic
from connector.scan.execution import execute
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.builds import using_build
from tests.support.entries import Framing, Message, encode_entry

_LEDGER: Final = 5
_BARE: Final = Framing(checksum=False)


@dataclass(frozen=True)
class Written:
    """One entry.

    Attributes:
        members: Number of messages of the batch; 0: one that is not batched.
        payload_bytes: Length of each payload.
        codec: What the payloads are compressed with.
    """

    members: int
    payload_bytes: int
    codec: Literal["NONE", "LZ4"]

    @property
    def _messages(self) -> list[Message]:
        return [Message(payload=b"x" * self.payload_bytes)] * (self.members or 1)

    def encoded(self, framing: Framing) -> bytes:
        """The bytes of the entry."""
        return encode_entry(self._messages, batched=self.members > 0, framing=framing)

    def held_bytes(self, *, is_split: bool) -> int:
        """Bytes of the entry, and of what it has to be decompressed to, or is as it stands."""
        length = len(self.encoded(Framing(codec=self.codec)))
        if not is_split:
            return length
        if self.codec == "NONE":
            return 2 * length
        plain = self.encoded(_BARE)
        return length + len(plain) - 4 - int.from_bytes(plain[:4])


_ENTRIES: Final = st.builds(
    Written, st.integers(0, 4), st.sampled_from((1, 30, 400)), st.sampled_from(("NONE", "LZ4"))
)


def _entries_of_batches(
    entries: list[Written],
    columns: list[str],
    block_bytes: int,
    **options: Any,  # noqa: ANN401
) -> list[list[int]]:
    """Which entry each row of each record batch is of, where one task reads them all."""
    encoded = [each.encoded(Framing(codec=each.codec)) for each in entries]
    with memory_bucket(offload([(_LEDGER, encoded)], block_bytes=block_bytes)) as bucket:
        scan = open_topic(bucket.url, TOPIC, **options).scan.select(columns)
        (task,) = scan.plan()
        return [batch["__entry_id__"].to_pylist() for batch in execute(task, ReadMetrics())]


@given(
    entries=st.lists(_ENTRIES, min_size=1, max_size=12),
    batch_bytes=st.sampled_from((1, 100, 300, 1000, 3000)),
    range_bytes=st.sampled_from((100, 1 << 20)),
    block_bytes=st.sampled_from((700, 1 << 20)),
    is_split=st.booleans(),
    build=st.sampled_from(("compiled", "pure")),
)
def test_batch_takes_entries_until_it_has_the_bytes(
    *,
    entries: list[Written],
    batch_bytes: int,
    range_bytes: int,
    block_bytes: int,
    is_split: bool,
    build: str,
) -> None:
    """No batch takes an entry more, nor one less, whatever lies beside the entries."""
    columns = ["__entry_id__", *(["__value__"] if is_split else [])]
    held = [each.held_bytes(is_split=is_split) for each in entries]

    with using_build(build):
        batches = _entries_of_batches(
            entries, columns, block_bytes, batch_bytes=batch_bytes, range_bytes=range_bytes
        )

    rows = [number for number, each in enumerate(entries) for _ in range(each.members or 1)]
    assert [entry for batch in batches for entry in batch] == rows
    before: list[int] = []
    for batch in batches:
        taken = sorted(set(batch))
        # Of an entry that was parted, because a batch had all its rows, the first part is not here.
        whole = [entry for entry in taken if entry not in before]
        assert sum(held[entry] for entry in whole if entry != taken[-1]) < batch_bytes
        assert (
            batch is batches[-1]
            or sum(held[entry] for entry in taken) >= batch_bytes
            or (before and len(batch) == 2 * len(before))
        )
        before = batch
