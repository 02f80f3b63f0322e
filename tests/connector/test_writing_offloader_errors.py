"""What is not offloaded, and what is left when an offload fails: nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from arrow_io.errors import (
    EntryTooLargeError,
    MissingEntriesError,
    OptionError,
    StorageError,
)
from arrow_io.format.index_block import MANAGED_LEDGER_NAME_KEY
from arrow_io.format.ledger_metadata import LedgerState
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestTrace
from connector import LedgerOffloader, LedgerToOffload, open_topic
from tests.support.buckets import MANAGED_LEDGER, TOPIC
from tests.support.offloads import (
    ENTRIES,
    LEDGER_ID,
    NAME,
    UUID_1,
    entries_of,
    ledger_of,
    memory_offloader,
    metadata_of,
    names,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.s3_server import S3Server


class TestRefusals:
    """What is not offloaded, and leaves nothing."""

    @pytest.mark.parametrize(
        ("ledger", "error", "words"),
        [
            (ledger_of([b"x" * 200]), EntryTooLargeError, "200 bytes; blocks of 240"),
            (ledger_of([b"fits", b"x" * 200]), EntryTooLargeError, "200 bytes; blocks of 240"),
            (replace(ledger_of(ENTRIES), entries=[]), MissingEntriesError, "after 0 of 3"),
            (replace(ledger_of(ENTRIES), entries=ENTRIES[:2]), MissingEntriesError, "after 2 of 3"),
            (replace(ledger_of(ENTRIES), entries=[*ENTRIES, b""]), OptionError, "more or longer"),
            (
                LedgerToOffload(LEDGER_ID, replace(metadata_of(ENTRIES), last_entry_id=-1), []),
                OptionError,
                "an empty ledger",
            ),
            (
                LedgerToOffload(
                    LEDGER_ID, replace(metadata_of(ENTRIES), state=LedgerState.OPEN), ENTRIES
                ),
                OptionError,
                "not OPEN",
            ),
        ],
        ids=["large", "large-later", "none", "too-few", "too-many", "empty", "open"],
    )
    def test_ledgers(self, ledger: LedgerToOffload, error: type[Exception], words: str) -> None:
        """A ledger that cannot be offloaded whole is a typed error that names it."""
        offloader = memory_offloader(block_bytes=240)

        with pytest.raises(error, match=words) as raised:
            offloader.offload(ledger, UUID_1)

        assert getattr(raised.value, "ledger_id", None) == LEDGER_ID
        assert names(offloader.location) == []

    def test_an_impossible_ledger_id(self) -> None:
        """A ledger id that BookKeeper cannot have is refused."""
        with pytest.raises(OptionError, match="a ledger id is in"):
            memory_offloader().offload(replace(ledger_of(ENTRIES), ledger_id=-1), UUID_1)

    def test_a_uuid_of_an_offload_that_is_complete(self) -> None:
        """A complete copy is never overwritten: its readers would find another under its index."""
        offloader = memory_offloader()
        offloader.offload(ledger_of(ENTRIES), UUID_1)

        with pytest.raises(OptionError, match="offloaded with this uuid before") as raised:
            offloader.offload(ledger_of([b"other"]), UUID_1)

        assert raised.value.object_key == NAME.index_name
        assert entries_of(offloader.read_offloaded(LEDGER_ID, UUID_1)) == ENTRIES

    def test_small_blocks_in_object_stores(self) -> None:
        """A block size that brokers refuse in a bucket is refused; elsewhere it is not."""
        for url in ("s3://bucket", "S3A://bucket", "gs://bucket", "abfs://container"):
            with pytest.raises(OptionError, match="blocks of at least 5242880 bytes"):
                LedgerOffloader(url, block_bytes=(5 << 20) - 1)
            assert LedgerOffloader(url, block_bytes=5 << 20).block_bytes == 5 << 20
        assert memory_offloader(block_bytes=140).block_bytes == 140

    def test_more_blocks_than_parts(self) -> None:
        """A ledger that S3 would refuse after 10,000 parts is refused before the first."""
        metadata = replace(metadata_of(ENTRIES), length_bytes=10_001 * (5 << 20))
        trace = RequestTrace()
        offloader = LedgerOffloader("s3://bucket", block_bytes=5 << 20, trace=trace)

        with pytest.raises(OptionError, match="more than the 10000 blocks"):
            offloader.offload(LedgerToOffload(LEDGER_ID, metadata, ENTRIES), UUID_1)

        assert trace.counts.requests == 0

    @pytest.mark.parametrize(
        ("extra", "words"),
        [
            ({"Role": "data"}, "what the offloader sets: role"),
            ({"S3ManagedLedgerOffloaderFormatVersion": "2"}, "formatversion"),
            ({"ManagedLedgerName": "a/b/persistent/c"}, "'a/b/persistent/c', but the ledger's own"),
            ({"note": "naïve"}, "not usable as user metadata: 'note'"),
            ({"note": "two\nlines"}, "not usable as user metadata: 'note'"),
            ({"a note": "x"}, "not usable as user metadata: 'a note'"),
            ({"": "x"}, "not usable as user metadata: ''"),
        ],
    )
    def test_extra_metadata(self, extra: dict[str, str], words: str) -> None:
        """User metadata that contradicts what is always there, or is no header, is refused."""
        offloader = memory_offloader()

        with pytest.raises(OptionError, match=words):
            offloader.offload(ledger_of(ENTRIES), UUID_1, extra)

        assert names(offloader.location) == []

    def test_a_ledger_of_nothing(self) -> None:
        """A ledger that no managed ledger owns is refused; extra metadata can name the owner."""
        metadata = replace(metadata_of(ENTRIES), custom_metadata={})
        ledger = LedgerToOffload(LEDGER_ID, metadata, ENTRIES)
        offloader = memory_offloader()

        with pytest.raises(OptionError, match="give ManagedLedgerName as extra metadata"):
            offloader.offload(ledger, UUID_1)
        offloader.offload(ledger, UUID_1, {"ManagedLedgerName": MANAGED_LEDGER})

        assert entries_of(offloader.read_offloaded(LEDGER_ID, UUID_1)) == ENTRIES

    @pytest.mark.s3
    def test_extra_metadata_is_kept(self, s3_server: S3Server) -> None:
        """Whatever user metadata is given stands on both objects, under names in lower case."""
        metadata = replace(metadata_of(ENTRIES), custom_metadata={})
        offloader = LedgerOffloader(
            f"s3://{s3_server.new_bucket()}", storage_options=s3_server.storage_options
        )

        offloader.offload(
            LedgerToOffload(LEDGER_ID, metadata, ENTRIES),
            UUID_1,
            {"ManagedLedgerName": MANAGED_LEDGER, "Origin": "backup 7"},
        )

        for name in (NAME.data_name, NAME.index_name):
            found = offloader.location.user_metadata(name) or {}
            assert found[MANAGED_LEDGER_NAME_KEY] == MANAGED_LEDGER
            assert found["origin"] == "backup 7"
        options = offloader.location.storage_options
        assert open_topic(offloader.location.url, TOPIC, storage_options=options) is not None


class TestFailures:
    """What is left, and what is told, when an offload fails."""

    @pytest.mark.parametrize(
        "error", [RuntimeError("the source"), KeyboardInterrupt()], ids=["e", "i"]
    )
    @pytest.mark.parametrize("before", [0, 1, 3])
    def test_a_source_that_fails(self, error: BaseException, before: int) -> None:
        """The cause leaves as it is, and the bucket is as it was."""

        def entries() -> Iterator[bytes]:
            yield from ENTRIES[:before]
            raise error

        offloader = memory_offloader(block_bytes=250)
        ledger = replace(ledger_of(ENTRIES), entries=entries())

        with pytest.raises(type(error)) as raised:
            offloader.offload(ledger, UUID_1)

        assert raised.value is error
        assert names(offloader.location) == []

        offloader.offload(ledger_of(ENTRIES), UUID_1)

        assert entries_of(offloader.read_offloaded(LEDGER_ID, UUID_1)) == ENTRIES

    def test_an_interrupt_while_the_index_is_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An index object that is there when the interrupt comes goes before its data object."""
        write = Location.write_object

        def interrupted(location: Location, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
            write(location, *arguments, **options)
            raise KeyboardInterrupt

        monkeypatch.setattr(Location, "write_object", interrupted)
        offloader = memory_offloader()

        with pytest.raises(KeyboardInterrupt):
            offloader.offload(ledger_of(ENTRIES), UUID_1)

        assert names(offloader.location) == []

    def test_a_clean_up_that_fails_hides_no_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The cause leaves, with a note of what is left; data is kept as long as its index is."""
        monkeypatch.setattr(Location, "delete_objects", Mock(side_effect=StorageError("read only")))
        monkeypatch.setattr(Location, "write_object", Mock(side_effect=KeyboardInterrupt))
        offloader = memory_offloader()

        with pytest.raises(KeyboardInterrupt) as raised:
            offloader.offload(ledger_of(ENTRIES), UUID_1)

        assert raised.value.__notes__ == ["not all written objects could be deleted: read only"]
        assert names(offloader.location) == [NAME.data_name]

    def test_leftovers_that_cannot_be_looked_for_are_told(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """That a store lists no uploads to us makes an offload that is complete no failure."""
        monkeypatch.setattr(
            Location, "unfinished_uploads", Mock(side_effect=StorageError("access denied"))
        )
        offloader = memory_offloader()

        result = offloader.offload(ledger_of(ENTRIES), UUID_1)

        (warning,) = result.warnings
        assert "access denied" in warning
        assert entries_of(offloader.read_offloaded(LEDGER_ID, UUID_1)) == ENTRIES
        assert offloader.delete_offloaded(LEDGER_ID, UUID_1) == (warning,)
        assert names(offloader.location) == []

    def test_that_leftovers_were_not_looked_for_is_a_note(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What a failed offload published is deleted, whatever else the store refuses."""
        monkeypatch.setattr(
            Location, "unfinished_uploads", Mock(side_effect=StorageError("access denied"))
        )
        monkeypatch.setattr(Location, "write_object", Mock(side_effect=KeyboardInterrupt))
        offloader = memory_offloader()

        with pytest.raises(KeyboardInterrupt) as raised:
            offloader.offload(ledger_of(ENTRIES), UUID_1)

        (note,) = raised.value.__notes__
        assert "unfinished uploads could not be cleaned up: access denied" in note
        assert names(offloader.location) == []

    def test_no_secret_is_shown(self) -> None:
        """Neither the offloader nor what it gives shows what opens the bucket."""
        offloader = memory_offloader(storage_options={"password": "hunter2hunter2"})

        result = offloader.offload(ledger_of(ENTRIES), UUID_1)

        assert "hunter2" not in f"{offloader!r} {result!r} {vars(offloader)!r}"
