"""Messages as a replay sends them: what they are made of, where they go, and how fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from arrow_io.errors import OptionError, UnknownSchemaVersionError
from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from connector import Message, open_topic, write_messages
from connector.inputs.topic_names import TopicName
from connector.replay.outgoing import (
    CARRYABLE_COLUMNS,
    check_carried,
    count_base64_keys,
    outgoing_messages,
    property_name,
    sent_columns,
)
from connector.replay.pace import Pace
from connector.replay.producer_schemas import ProducerSchemas
from connector.replay.routes import Routes, choose_partition
from connector.writing.message_router import java_string_hash

if TYPE_CHECKING:
    from pathlib import Path

TIME_MS: Final = 1_750_000_000_123
MESSAGES: Final = (
    Message(payload=b"one", publish_time_ms=TIME_MS, key="k", properties=(("a", "b"), ("c", ""))),
    Message(payload=None, publish_time_ms=TIME_MS, key=b"\xff\0", ordering_key=b"\xfe"),
    Message(payload=b"", publish_time_ms=TIME_MS, key="", event_time_ms=1_234_567_890_123),
)


def sent(folder: Path, *carried: str) -> list[Any]:
    """What is sent of `MESSAGES`, without the places."""
    write_messages(str(folder), "sent", MESSAGES)
    dataset = open_topic(str(folder), "sent", value="raw", columns=sent_columns(carried))
    [batch] = dataset.to_batches()
    assert count_base64_keys(batch) == 1
    return [message[1:] for message in outgoing_messages(batch, carried)]


def test_messages_are_sent_as_they_are(tmp_path: Path) -> None:
    """Null and empty values, keys and ordering keys stay apart."""
    assert sent(tmp_path) == [
        (7, None, b"one", "k", None, [("a", "b"), ("c", "")], 0),
        (5, None, None, "/wA=", b"\xfe", [], 0),
        (0, None, b"", "", None, [], 1_234_567_890_123),
    ]


def test_columns_are_carried_behind_own_properties(tmp_path: Path) -> None:
    """A time is ms, and what a message does not have it does not carry."""
    carried = ("__publish_time__", "__sequence_id__", "__txn_id__", "__topic__")

    rows = sent(tmp_path, *carried)

    both = [
        [
            ("pulsar-offload.publish-time", str(TIME_MS)),
            ("pulsar-offload.sequence-id", str(number)),
            ("pulsar-offload.topic", "persistent://public/default/sent"),
        ]
        for number in range(3)
    ]
    assert [each[5] for each in rows] == [[("a", "b"), ("c", ""), *both[0]], *both[1:]]


def test_every_column_that_is_carried_has_a_name_of_its_own() -> None:
    """Names are those of the columns, with hyphens."""
    assert len({property_name(each) for each in CARRYABLE_COLUMNS}) == len(CARRYABLE_COLUMNS)
    assert property_name("__txn_id__") == "pulsar-offload.txn-id"


@pytest.mark.parametrize("wrong", ["__topic__", ["__value__"], ["x"]])
def test_what_cannot_be_carried_is_refused(wrong: Any) -> None:  # noqa: ANN401
    """A text is no list, and what a message has already is not carried."""
    with pytest.raises(OptionError, match="carry must be a list of columns among __"):
        check_carried(wrong)


def test_columns_are_carried_once() -> None:
    """However often they are named."""
    assert check_carried(["__topic__", "__txn_id__", "__topic__"]) == ("__topic__", "__txn_id__")


# Where they go


def _partitions(count: int) -> list[TopicName]:
    return [TopicName.parse(f"target-partition-{number}") for number in range(count)]


def test_partitions_are_kept() -> None:
    """Each goes to that of its number, and a topic without to one without."""
    own = Routes(_partitions(3), by_key=False)
    whole = Routes([TopicName.parse("target")], by_key=False)

    assert own.targets_for(TopicName.parse("source-partition-2")) == _partitions(3)[2:]
    assert whole.targets_for(TopicName.parse("source")) == [TopicName.parse("target")]


@pytest.mark.parametrize(
    ("targets", "source", "said"),
    [
        (_partitions(3), "source-partition-3", "is partition 3, but .* has 3 partitions"),
        (_partitions(3), "source", "has none, but .* has 3 partitions"),
        ([TopicName.parse("target")], "source-partition-0", "has no partitions"),
    ],
)
def test_partitions_that_are_not_there_are_refused(
    targets: list[TopicName], source: str, said: str
) -> None:
    """No message is put somewhere else; keys may choose if that is asked for."""
    with pytest.raises(OptionError, match=said):
        Routes(targets, by_key=False).targets_for(TopicName.parse(source))
    assert Routes(targets, by_key=True).targets_for(TopicName.parse(source)) == targets


def test_keys_choose_as_in_java_and_the_others_are_spread_by_entry() -> None:
    """The place of a message decides, so another run chooses the same."""

    def chosen(entry: int, key: str | None) -> int:
        return choose_partition((entry << 16 | 5, 0, None, b"", key, None, (), 0), 3)

    assert [chosen(9, f"key-{n}") for n in range(9)] == [
        java_string_hash(f"key-{n}") % 3 for n in range(9)
    ]
    assert [chosen(entry, None) for entry in range(4)] == [0, 1, 2, 0]


# By which schema

OLD: Final = SchemaInfo("AVRO", '"long"')
NEW: Final = SchemaInfo("AVRO", '"string"')


def test_each_version_has_its_schema() -> None:
    """A message without a version has the reader's; all have it if no version is known."""
    known = ProducerSchemas(TopicSchema(NEW, ((0, OLD), (4, NEW))))
    unversioned = ProducerSchemas(TopicSchema(NEW))

    assert [known.schema_for_version(each) for each in (0, 4, None)] == [OLD, NEW, NEW]
    assert (known.first, unversioned.first, ProducerSchemas(None).first) == (OLD, NEW, None)
    assert [unversioned.schema_for_version(each) for each in (7, None)] == [NEW, NEW]
    assert ProducerSchemas(None).schema_for_version(3) is None
    with pytest.raises(UnknownSchemaVersionError, match=r"version 2; .* versions 0, 4"):
        known.schema_for_version(2)


def test_schemas_that_the_client_cannot_register_are_told() -> None:
    """Once each, whatever the versions."""
    pair = SchemaInfo("KEY_VALUE", key=OLD, value=NEW)
    info = ProducerSchemas(TopicSchema(SchemaInfo("INSTANT"), ((0, pair), (1, pair), (2, OLD))))

    assert [each.partition(":")[0].split()[-1] for each in info.notices()] == [
        "INSTANT",
        "KEY_VALUE",
    ]


# How fast


class _Clock:
    """Passes only while somebody sleeps, or when it is told."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_a_rate_is_kept_evenly() -> None:
    """Each batch waits for those before it; what was late is not made up for."""
    clock = _Clock()
    pace = Pace(50, clock, clock.sleep)

    for messages in (5, 10, 5):
        pace.wait(messages)
    clock.now += 10
    pace.wait(5)
    pace.wait(5)

    assert clock.slept == pytest.approx([0.1, 0.2, 0.1])
    assert [pace.max_batch_messages(most) for most in (1000, 3)] == [5, 3]
    assert Pace(0.5).max_batch_messages(1000) == 1


def test_no_rate_waits_for_nothing() -> None:
    """Batches are as long as they may be."""
    clock = _Clock()
    pace = Pace(None, clock, clock.sleep)

    pace.wait(10**9)

    assert clock.slept == []
    assert pace.max_batch_messages(1000) == 1000


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), "5", True])
def test_rates_that_are_none_are_refused(rate: Any) -> None:  # noqa: ANN401
    """A rate is a number above 0."""
    with pytest.raises(OptionError, match="rate must be a number of messages per second above 0"):
        Pace(rate)
