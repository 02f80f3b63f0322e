"""The command `replay`, as far as it goes without a broker; `tests/broker` has the rest."""

from __future__ import annotations

from typing import Any, Final

import pytest

from arrow_io.errors import OptionError
from connector import plan_replay, replay_topic
from connector.options.topic_request import FIXED_BY_REPLAY, OPTIONS
from tests.support.command_line import LEDGERS, NOT_FOUND, URL, USAGE, lines_of, run

NOWHERE: Final = "pulsar://localhost:1"


def test_a_plan_says_what_would_be_read() -> None:
    """Partition by partition; within bounds there is less, and no broker is asked."""
    arguments = ("replay", URL, "multi-ledger", "--dry-run")
    ids = [each.ledger_id for each in LEDGERS.ledgers]

    [whole] = lines_of(*arguments)
    [part] = lines_of(*arguments, "--start", f"{ids[1]}:0", "--end", f"{ids[2]}:0")
    partitions = lines_of("replay", URL, "partitioned", "--dry-run")

    assert (whole["topic"], whole["ledgers"]) == (LEDGERS.name, len(ids))
    assert part["ledgers"] == 1
    assert 0 < part["bytes"] < whole["bytes"]
    assert [each["topic"][-1] for each in partitions] == ["0", "1", "2"]
    assert "ledgers" in run(*arguments).stdout


def test_a_plan_tells_what_has_to_wait() -> None:
    """What stands behind an open transaction is not replayed, or it would be passed over."""
    result = run("replay", URL, "transactions-open", "--dry-run", "--json")

    assert '"behind_bytes": 0' not in result.stdout
    assert "its transaction has no outcome in the offloaded ledgers yet" in result.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--to is missing"),
        (["--to", "http://localhost"], "is not the URL of brokers"),
        (["--to", NOWHERE, "--rate", "0"], "rate must be a number of messages per second above 0"),
        (["--to", NOWHERE, "--carry", "__value__"], "carry must be a list of columns among"),
        (["--to", NOWHERE, "--replay-id", "a b"], "replay_id must be at most 200 letters"),
        (["--to", NOWHERE, "--to-topic", "a/b"], "is not 'name', 'tenant/namespace/name'"),
        (["--to", NOWHERE, "--to-option", "x=y"], "unknown live option 'x'"),
    ],
)
def test_wrong_options_are_refused(options: list[str], said: str) -> None:
    """Before a broker is asked for anything."""
    result = run("replay", URL, "json-orders", *options, ends=USAGE)

    assert said in " ".join(result.stderr.split())


def test_one_topic_is_replayed_at_a_time() -> None:
    """A pattern may select one; several would share the target."""
    assert run("replay", URL, "json-or*", "--dry-run").stdout

    result = run("replay", URL, "int*", "--dry-run", ends=USAGE)
    assert "one topic is replayed at a time, and 'int*' selects" in " ".join(result.stderr.split())
    run("replay", URL, "no-such", "--dry-run", ends=NOT_FOUND)


@pytest.mark.parametrize("name", FIXED_BY_REPLAY)
def test_options_that_decide_how_rows_look_are_refused(name: str) -> None:
    """A replay sends messages as they are."""
    with pytest.raises(OptionError, match=f"a replay has no option {name}"):
        plan_replay(URL, "json-orders", **{name: OPTIONS[name].default})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"by_key": "yes"}, "by_key must be true or false"),
        ({"keep_batches": 1}, "keep_batches must be true or false"),
        ({"compression": "brotli"}, "compression must be one of none, lz4"),
        ({"to_options": {"token": "a", "token_file": "b"}}, "both token and token_file"),
        ({"no_such": 1}, "there is no option 'no_such'"),
    ],
)
def test_wrong_options_of_python_are_refused(options: dict[str, Any], said: str) -> None:
    """Each is an OptionError that says what is allowed."""
    with pytest.raises(OptionError, match=said):
        replay_topic(URL, "json-orders", to=NOWHERE, **options)
    with pytest.raises(OptionError, match="one topic is replayed at a time: pass its name"):
        replay_topic(URL, ["json-orders"], to=NOWHERE)  # type: ignore[arg-type]
