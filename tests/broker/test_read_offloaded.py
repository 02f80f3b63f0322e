"""Pulsar's own offloader reads the ledgers that we wrote."""

from __future__ import annotations

import random
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from uuid import UUID

import pytest

from arrow_io.ledgers.writer import new_ledger_metadata
from connector import LedgerOffloader, LedgerToOffload
from tests.broker.running_broker import BrokerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.broker.cluster import Cluster

pytestmark = pytest.mark.broker

BLOCK_BYTES: Final = 5 << 20
LONGEST_ENTRY_BYTES: Final = BLOCK_BYTES - 140
RUN_ENTRIES: Final = 100
SINGLE_READS: Final = 60


def random_entries(lengths: Sequence[int], count: int) -> list[bytes]:
    """Entries that no codec shortens, of lengths at random."""
    source = random.Random(len(lengths))
    return [source.randbytes(source.choice(lengths)) for _ in range(count)]


LEDGERS: Final = {
    "one-entry": [b"x"],
    "empty-entries": [b"", b"", b"x", b""],
    "one-block": random_entries([0, 1, 7, 100, 5_000], 400),
    "blocks": random_entries([0, 1, 7, 100, 5_000, 70_000], 500),
    "an-entry-a-block": random_entries([LONGEST_ENTRY_BYTES], 3),
}


class OffloadedByPulsar:
    """A ledger, as a broker's offloader gives it."""

    def __init__(self, cluster: Cluster, ledger_id: int, uuid: UUID) -> None:
        self._broker = cluster.broker
        self.last_entry_id, self.length_bytes = self._broker.order(
            "open-offloaded", ledger_id, uuid, "public/default/persistent/ledgers"
        )
        self._before = -1

    def read(self, first_entry_id: int, last_entry_id: int) -> list[tuple[int, str]]:
        """Ids of entries, both ends included, and the SHA-256 of each."""
        before, self._before = self._before, last_entry_id
        order = ("read-entries", first_entry_id, last_entry_id)
        try:
            read = self._broker.order(*order)
        except BrokerError as error:
            # Of any ledger, its own too: it reads on where the last read ended, and takes the end
            # of the data for a fault. A broker repeats the read, and so it goes well.
            is_known = before == self.last_entry_id - 1 and last_entry_id == self.last_entry_id
            if not (is_known and "EOFException" in str(error)):
                raise
            read = self._broker.order(*order)
        return [(entry_id, digest) for entry_id, digest in read]


@pytest.fixture(params=LEDGERS)
def entries(request: pytest.FixtureRequest) -> list[bytes]:
    """The entries of a ledger."""
    return LEDGERS[request.param]


@pytest.fixture
def ledger(cluster: Cluster, entries: list[bytes]) -> OffloadedByPulsar:
    """The ledger, offloaded by us and opened by Pulsar."""
    metadata = new_ledger_metadata(
        map(len, entries), managed_ledger="public/default/persistent/ledgers", ctime_ms=1
    )
    offloader = LedgerOffloader(
        cluster.url,
        storage_options=cluster.s3.storage_options,
        block_bytes=BLOCK_BYTES,
        cluster="standalone",
    )
    ledger_id = cluster.take_ledger_ids(1)
    uuid = UUID(int=ledger_id)
    offloader.offload(LedgerToOffload(ledger_id, metadata, entries), uuid)
    return OffloadedByPulsar(cluster, ledger_id, uuid)


def test_pulsars_offloader_reads_what_we_offloaded(
    ledger: OffloadedByPulsar, entries: list[bytes]
) -> None:
    """Every entry must be the one that was given: in order, backwards, at random."""
    numbered = [(entry_id, sha256(entry).hexdigest()) for entry_id, entry in enumerate(entries)]
    last = len(entries) - 1
    assert (ledger.last_entry_id, ledger.length_bytes) == (last, sum(map(len, entries)))

    for first in range(0, len(entries), RUN_ENTRIES):
        stop = min(first + RUN_ENTRIES, len(entries))
        assert ledger.read(first, stop - 1) == numbered[first:stop]

    for entry_id in range(last, -1, -max(1, len(entries) // SINGLE_READS)):
        assert ledger.read(entry_id, entry_id) == [numbered[entry_id]]

    source = random.Random(len(entries))
    for _ in range(SINGLE_READS):
        first = source.randint(0, last)
        stop = min(first + source.randint(1, 20), len(entries))
        assert ledger.read(first, stop - 1) == numbered[first:stop]


def test_pulsars_offloader_finds_the_end_of_what_we_offloaded(
    ledger: OffloadedByPulsar,
) -> None:
    """Behind the last entry there must be no other."""
    behind = ledger.last_entry_id + 1
    with pytest.raises(BrokerError, match="BKIncorrectParameterException"):
        ledger.read(behind, behind)
