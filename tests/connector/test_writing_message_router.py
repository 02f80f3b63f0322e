"""Messages go to the partitions that Pulsar's Java client sends them to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from arrow_io.messages.message_metadata import Message
from connector.inputs.topic_names import TopicName
from connector.writing.message_router import MessageRouter, java_string_hash
from tests.support.golden import golden_topics

if TYPE_CHECKING:
    from tests.support.golden import GoldenTopic

_PARTITIONS = [topic for topic in golden_topics() if TopicName.parse(topic.name).partition >= 0]


def _message(key: str | bytes | None) -> Message:
    return Message(payload=b"", publish_time_ms=0, key=key)


@pytest.mark.parametrize("topic", _PARTITIONS, ids=str)
def test_keys_go_where_the_java_client_sent_them(topic: GoldenTopic) -> None:
    """Every key of a golden partition is routed to this partition."""
    router = MessageRouter(3, batch_messages=1)

    routed = {router.route(_message(row["key"])) for row in topic.messages()}

    assert routed == {TopicName.parse(topic.name).partition}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("polygenelubricants", 0),
        ("Aa", 2112),
        ("BB", 2112),
        ("😀", 1_772_899),
        ("\ud800", 0xD800),
    ],
)
def test_hashes_are_those_of_java(text: str, expected: int) -> None:
    """`String.hashCode()` of the UTF-16 units, without its sign."""
    assert java_string_hash(text) == expected


def test_bytes_are_hashed_as_their_base64() -> None:
    """A client hashes what `getKey()` gives."""
    router = MessageRouter(1000, batch_messages=1)

    assert router.route(_message(b"\xff\x00")) == router.route(_message("/wA="))


def test_messages_without_key_go_round_by_the_batch() -> None:
    """Each partition in turn gets as many as a batch may have; those with keys do not count."""
    router = MessageRouter(3, batch_messages=2)
    keys = [None, None, "a", None, "b", None, None, None, None]

    routed = [router.route(_message(key)) for key in keys]

    without_key = [number for number, key in zip(routed, keys, strict=True) if key is None]
    assert without_key == [0, 0, 1, 1, 2, 2, 0]
