"""What was sent and is not acknowledged: bounded, watched, stopped at the first failure."""

from __future__ import annotations

from threading import Thread

import pytest

from arrow_io.errors import BrokerError
from connector.replay.in_flight import InFlight


def test_what_is_acknowledged_is_finished() -> None:
    """In any order."""
    flying = InFlight(60)
    one, two = flying.add("one", 3, 10), flying.add("two", 4, 10)

    two(None)
    one(None)

    flying.finish()


def test_a_batch_waits_for_room() -> None:
    """It is begun once others are acknowledged, in another thread; a long one goes alone."""
    flying = InFlight(60)
    long = flying.add("long", 1, 1 << 40)
    begun: list[str] = []

    def send() -> None:
        flying.add("next", 1, 1)(None)
        begun.append("next")

    thread = Thread(target=send)
    thread.start()
    assert begun == []
    long(None)
    thread.join()

    flying.finish()
    assert begun == ["next"]


def test_silence_is_an_error() -> None:
    """Nothing is known of what was sent then."""
    flying = InFlight(0.001)
    flying.add("one", 3, 10)
    flying.add("two", 4, 10)

    with pytest.raises(BrokerError, match=r"for 0\.001 s; 7 messages may or may not be in"):
        flying.finish()


def test_the_first_failure_is_told() -> None:
    """With what was sent, and why it failed; nothing is sent behind it."""
    flying = InFlight(60)
    one, two = flying.add("the messages 1 to 3", 3, 10), flying.add("two", 4, 10)

    one("TopicTerminated")
    two("AlreadyClosed")

    for ask in (flying.finish, lambda: flying.add("three", 1, 1)):
        with pytest.raises(BrokerError, match=r"^the messages 1 to 3: TopicTerminated$"):
            ask()


def test_what_came_through_behind_a_failure_is_told() -> None:
    """Another run would leave out what failed, so it has to be known."""
    flying = InFlight(60)
    one, two = flying.add("one", 3, 10), flying.add("two", 4, 10)

    one("Checksum")
    two(None)

    with pytest.raises(BrokerError, match=r"one: Checksum; 4 messages .* are in the topic already"):
        flying.finish()


def test_a_failure_is_told_though_the_others_stay_silent() -> None:
    """It is not waited for them longer than for any."""
    flying = InFlight(0.001)
    one, _ = flying.add("one", 3, 10), flying.add("two", 4, 10)

    one("Checksum")

    with pytest.raises(BrokerError, match=r"^one: Checksum$"):
        flying.finish()
