"""A process that is killed at whatever step of an offload leaves no index object without data."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from arrow_io.errors import MissingObjectError
from arrow_io.format.object_names import parse_object_name
from connector import LedgerOffloader, open_catalog
from connector.upkeep.audit.audit import audit
from connector.upkeep.audit.findings import FindingKind
from tests.support.killed_offloads import OffloadToKill
from tests.support.offloads import (
    LEDGER_ID,
    NAME,
    UUID_1,
    UUID_2,
    entries_of,
    ledger_of,
    names,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.grids import Grid
    from tests.support.s3_server import S3Server

ENTRIES = [bytes([number]) * 200 for number in range(10)]
BLOCK_BYTES = 1000


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts may be small."""
    monkeypatch.setattr("connector.writing.offloader.MIN_STORE_BLOCK_BYTES", BLOCK_BYTES)
    monkeypatch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)


def check_what_is_left(offloader: LedgerOffloader) -> bool:
    """Check that nothing is half there, and that it is told apart; whether the ledger is there."""
    location = offloader.location
    try:
        ledger = offloader.read_offloaded(LEDGER_ID, UUID_1)
    except MissingObjectError:
        is_whole = False
        assert NAME.index_name not in names(location)
    else:
        is_whole = True
        assert entries_of(ledger) == ENTRIES
        data = location.find(NAME.data_name)
        assert data is not None
        assert data.size_bytes == ledger.index.data_object_length_bytes
    unfinished = {each.name for each in location.unfinished_uploads()}
    assert unfinished <= {NAME.data_name, NAME.index_name}
    for name in names(location):
        assert parse_object_name(name) is not None or name.startswith(tuple(unfinished))
    check_what_the_audit_says(offloader, is_whole=is_whole)
    return is_whole


def check_what_the_audit_says(offloader: LedgerOffloader, *, is_whole: bool) -> None:
    """Check that the audit names all that is left, for what it is, and nothing else."""
    location = offloader.location
    uploads = location.unfinished_uploads()
    if not names(location) and not uploads:
        return
    found = audit(
        open_catalog(location.url, storage_options=location.storage_options), uploads=uploads
    )
    told = {(each.kind, each.objects) for each in found.findings}
    expected = {(FindingKind.UNFINISHED_UPLOAD, (each.name,)) for each in uploads}
    if not is_whole and NAME.data_name in names(location):
        expected.add((FindingKind.DATA_WITHOUT_INDEX, (NAME.data_name,)))
    assert told == expected
    assert found.losses == ()


def check_retries(offloader: LedgerOffloader, *, is_whole: bool) -> None:
    """Check that the offload can be repeated, with another uuid and with its own."""
    offloader.offload(ledger_of(ENTRIES), UUID_2)
    if not is_whole:
        offloader.offload(ledger_of(ENTRIES), UUID_1)
    for uuid in (UUID_1, UUID_2):
        assert entries_of(offloader.read_offloaded(LEDGER_ID, uuid)) == ENTRIES
        offloader.delete_offloaded(LEDGER_ID, uuid)
    assert names(offloader.location) == []
    assert offloader.location.unfinished_uploads() == []


def kill_at_steps(
    first: OffloadToKill, urls: Iterator[str], grid: Grid
) -> dict[int, tuple[str, bool]]:
    """Kill an offload at its steps; returns each, and whether the ledger was whole then."""
    outcomes: dict[int, tuple[str, bool]] = {}
    steps = grid.steps()
    for step in steps:
        offload = OffloadToKill(
            next(urls), first.storage_options, first.block_bytes, first.entries, first.uuid
        )
        reached = offload.run_until(step)
        offloader = LedgerOffloader(
            offload.url, storage_options=offload.storage_options, block_bytes=BLOCK_BYTES
        )
        is_whole = check_what_is_left(offloader)
        if reached is None:
            assert is_whole
            steps.passed()
            continue
        outcomes[step] = reached, is_whole
        check_retries(offloader, is_whole=is_whole)
    assert max(outcomes) == steps.count
    return dict(sorted(outcomes.items()))


def test_in_a_folder(tmp_path: Path, *, grid: Grid) -> None:
    """A folder has the index object only from its rename on, and by then all of the data."""
    urls = (str(tmp_path / f"{number}" / "bucket") for number in itertools.count())
    outcomes = kill_at_steps(OffloadToKill("", {}, BLOCK_BYTES, ENTRIES, UUID_1), urls, grid)

    wholes = [is_whole for _, is_whole in outcomes.values()]
    assert wholes == sorted(wholes)
    assert not wholes[0]
    assert outcomes[max(outcomes)] == ("the end of the offload", True)
    if grid.is_whole:
        reached = [outcome for outcome, _ in outcomes.values()]
        assert reached.count("after part") == 3
        assert sum("os.rename" in outcome for outcome in reached) == 2


@pytest.mark.s3
def test_on_s3(s3_server: S3Server, *, grid: Grid) -> None:
    """A bucket has the index object only when its PUT is done, and by then all of the data."""
    urls = (f"s3://{s3_server.new_bucket()}" for _ in itertools.count())
    options = s3_server.storage_options
    outcomes = kill_at_steps(OffloadToKill("", options, BLOCK_BYTES, ENTRIES, UUID_1), urls, grid)

    data, index = NAME.data_name, NAME.index_name
    expected = [
        (f"before head of {index}", False),
        (f"before upload of {data}", False),
        *[(f"before part of {data}", False), ("after part", False)] * 3,
        (f"before head of {index}", False),
        (f"before upload of {data}", False),
        ("before list of ", False),
        (f"before head of {index}", False),
        (f"before put of {index}", False),
        ("after put", True),
        ("the end of the offload", True),
    ]
    assert outcomes == {step: expected[step - 1] for step in outcomes}
    assert max(outcomes) == len(expected)
