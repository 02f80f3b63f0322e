"""The id of a schema in an external registry, which metadata of an entry holds (PIP-420)."""

from __future__ import annotations

import pytest

from arrow_io.messages import layout
from arrow_io.messages.message_reader import MessageReader, Needs
from arrow_io.read_metrics import Tally
from tests.support.entries import Message, encode_entry
from tests.support.runs import entry_run, runs_of, schema_names

pytestmark = pytest.mark.usefixtures("build")


def test_spans_of_schema_ids() -> None:
    """Rows are split where the id changes, and nowhere else."""
    messages = [Message(payload=b"a"), Message(payload=b"b")]
    first, second = b"\xff\0\0\0\x2a", b"\xff\0\0\0\x2b"
    entries = [
        encode_entry(messages, batched=True, schema_id=first, schema_version=bytes(8)),
        encode_entry(messages, batched=True, schema_id=first),
        encode_entry(messages, batched=True),
        encode_entry(messages[:1], batched=False, schema_id=second),
        encode_entry(messages[:1], batched=False, schema_id=b""),
    ]

    (rows,) = MessageReader([entry_run(entries)], Needs(), Tally())

    assert schema_names(rows, layout.SCHEMA_ID) == [
        (0, 4, first),
        (4, 6, None),
        (6, 7, second),
        (7, 8, b""),
    ]
    assert schema_names(rows, layout.SCHEMA_VERSION) == [(0, 2, bytes(8)), (2, 8, None)]


def test_sources_of_several_runs() -> None:
    """Values that were copied into one buffer have one source, unless their schemas differ."""
    messages = [Message(payload=b"a"), Message(payload=b"b")]
    versions = [bytes(8), bytes(8), b"\1" * 8]
    entries = [encode_entry(messages, batched=True, schema_version=each) for each in versions]
    expected = [(0, 4, bytes(8)), (4, 6, b"\1" * 8)]

    for is_copied in (False, True):
        runs = runs_of(entries, length=1)
        (rows,) = MessageReader(runs, Needs(), Tally(), copy_values=is_copied)
        sources = rows.payload_sources(layout.SCHEMA_VERSION)

        separate = [(2 * n, 2 * n + 2, each) for n, each in enumerate(versions)]
        assert schema_names(rows, layout.SCHEMA_VERSION) == (expected if is_copied else separate)
        for each in sources:
            starts = [each.positions[row] >> 32 for row in range(each.start, each.stop)]
            assert [each.data[start] for start in starts] == list(b"ab" * (len(starts) // 2))
