"""What commands write to stderr for programs: events as JSON, and records of the logger."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
from datetime import datetime
from threading import Timer
from typing import TYPE_CHECKING, Any, Final

import pytest

from arrow_io.core import telemetry
from arrow_io.storage.trace import RequestKind, RequestTrace
from connector import open_topic
from connector.cli import event_lines
from connector.cli.output import progress, say
from connector.cli.program import COMMANDS
from tests.support.buckets import golden_objects
from tests.support.command_line import (
    INCOMPLETE,
    LEDGERS,
    NOT_FOUND,
    ORDERS,
    UNREADABLE,
    URL,
    USAGE,
    broken_orders,
    run,
)
from tests.support.faulty_storage import FaultScript, raising, s3_error
from tests.support.golden import GOLDEN

if TYPE_CHECKING:
    from pathlib import Path

_METADATA: Final = ("--metadata", str(GOLDEN / "pulsar-4.0.7"))


def _events(*arguments: str, ends: int = 0) -> list[dict[str, Any]]:
    """Run a command; every line of its stderr is an event, whose time is checked and left out."""
    result = run(*arguments, "--progress=json", ends=ends)
    events = [json.loads(line) for line in result.stderr.splitlines()]
    for each in events:
        assert datetime.fromisoformat(each.pop("time")).utcoffset() is not None
    return events


def _stored(folder: Path, objects: dict[str, bytes]) -> str:
    folder.mkdir(exist_ok=True)
    for name, data in objects.items():
        (folder / name).write_bytes(data)
    return str(folder)


def test_a_copy_is_a_stream_of_events(tmp_path: Path) -> None:
    """Each table, the progress at the end, and the sums; results stay on stdout."""
    target = str(tmp_path / "{topic}")
    events = _events("copy", URL, "int*", target, "--format", "parquet", *_METADATA)

    tables = [each for each in events if each["event"] == "table"]
    assert {each["topic"].rpartition("/")[2] for each in tables} == {
        "int8",
        "int16",
        "int32",
        "int64",
    }
    assert all(each["lag_bytes"] == 0 and each["commits"] == 1 for each in tables)
    *_, last, copied = events
    assert last["event"] == "progress"
    assert last["copied_bytes"] == last["total_bytes"] > 0
    assert last["requests"] > 0
    assert copied["event"] == "copied"
    assert copied["rows"] == sum(each["rows"] for each in tables)
    assert re.fullmatch(r"\d+ rows of .* of data objects, .* s", copied["text"])


def test_ledgers_are_events(tmp_path: Path) -> None:
    """Of statistics and of a check, one event each without --verbose."""
    bucket = _stored(tmp_path / "bucket", golden_objects(LEDGERS))
    analyzed = _events("analyze", bucket, "--statistics", str(tmp_path / "statistics"))
    verified = _events("audit", bucket, "--verify")

    ids = {each.ledger_id for each in LEDGERS.ledgers}
    for kind, events in (("analyzed", analyzed), ("verified", verified)):
        own = [each for each in events if each["event"] == kind]
        assert {each["ledger_id"] for each in own} == ids
        assert {each["topic"] for each in own} == {"persistent://public/default/multi-ledger"}
    assert [each["number"] for each in verified if each["event"] == "verified"] == list(
        range(1, len(ids) + 1)
    )


def test_an_error_has_its_class_code_and_place(tmp_path: Path) -> None:
    """A program need not parse a sentence."""
    bucket = _stored(tmp_path / "bucket", broken_orders())
    [error] = [
        each
        for each in _events("head", bucket, "json-orders", "-n", "400", ends=UNREADABLE)
        if each["event"] == "error"
    ]

    assert (error["error_type"], error["exit_code"]) == ("ChecksumError", UNREADABLE)
    assert error["object"] == ORDERS.ledgers[0].data_object.name
    assert error["ledger_id"] == ORDERS.ledgers[0].ledger_id
    assert error["entry_id"] >= 0
    assert "CRC32C" in error["text"]


def test_notes_of_an_error_belong_to_it(tmp_path: Path) -> None:
    """Tables that were not copied are named in the same event."""
    (tmp_path / "int32" / "_delta_log").mkdir(parents=True)
    arguments = ("int*", str(tmp_path / "{topic}"), "--format", "parquet", *_METADATA)
    *_, error = _events("copy", URL, *arguments, ends=USAGE)

    assert error["event"] == "error"
    assert [str(tmp_path / "int32") in note for note in error["notes"]] == [True]


def test_what_was_left_out_is_a_note() -> None:
    """And the exit code stays."""
    events = _events("head", URL, "transactions-open", "-n", "1000", ends=INCOMPLETE)

    assert any("without an outcome" in each["text"] for each in events if each["event"] == "note")


def test_without_the_option_lines_are_text() -> None:
    """The option applies to one command."""
    _events("head", URL, "no-such-topic", ends=NOT_FOUND)

    assert run("head", URL, "no-such-topic", ends=NOT_FOUND).stderr.startswith("error: ")


class _TimerThatFires(Timer):
    """Fires once when it is started, in the same thread; the next one never does."""

    fired = 0

    def start(self) -> None:
        """Call the function, the first time."""
        _TimerThatFires.fired += 1
        if _TimerThatFires.fired == 1:
            self.function()


def test_a_long_read_has_events_of_progress(capsys: pytest.CaptureFixture[str]) -> None:
    """Every few seconds, with the requests so far."""
    trace = RequestTrace()
    trace.note_request(RequestKind.LIST, "")
    _TimerThatFires.fired = 0

    with event_lines.as_json(is_requested=True), progress(trace, _TimerThatFires):
        pass

    [event] = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (event["event"], event["requests"], event["received_bytes"]) == ("progress", 1, 0)
    assert _TimerThatFires.fired == 2


def test_any_text_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Line ends and characters that no encoding has are escaped."""
    with event_lines.as_json(is_requested=True):
        say("note", "a\nb\ud800\x1b")

    [line] = capsys.readouterr().err.splitlines()
    assert json.loads(line)["text"] == "a\nb\ud800\x1b"


_IN_GROUPS: Final = {"schema": ["show"], "lake": ["maintain"]}


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_both_options(command: str) -> None:
    """Also those of groups."""
    words = [command, *_IN_GROUPS.get(command, ())]

    text = run(*words, "--help").stdout

    assert "--log-level" in text
    assert "--progress" in text


_INTERRUPTED: Final = """
import os, signal
from connector.cli import event_lines, interrupts
interrupts.end_at_interrupts()
with event_lines.as_json(is_requested=True), interrupts.cleaned_up():
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()
"""


def test_an_interrupt_is_an_event() -> None:
    """What is said while a command cleans up is JSON too."""
    ended = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=dict(os.environ),
    )

    assert ended.returncode == 128 + signal.SIGINT
    event = json.loads(ended.stderr.splitlines()[0])
    assert event["event"] == "note"
    assert event["text"].startswith("stopping after half-written objects are deleted")


def test_the_log_of_a_command(tmp_path: Path) -> None:
    """Plans and commits at level info, requests at level debug; as text or as events."""
    copy = ("copy", URL, "json-orders", "--format", "parquet", *_METADATA)
    plain = run(*copy, str(tmp_path / "a")).stderr
    info = run(*copy, str(tmp_path / "b"), "--log-level", "info").stderr
    events = _events(*copy, str(tmp_path / "c"), "--log-level=debug")

    assert not re.search("^(info|debug): ", plain, re.MULTILINE)
    topic = "persistent://public/default/json-orders"
    assert re.search(rf"^info: plan: topic={topic} data_bytes=\d+ ", info, re.MULTILINE)
    commit = rf"^info: commit: table={tmp_path}/b format=parquet files=1 rows=400 seconds=[\d.e-]+$"
    assert re.search(commit, info, re.MULTILINE)
    assert "debug: " not in info
    records = [each for each in events if each["event"] == "log"]
    requests = [each for each in records if each["operation"] == "request"]
    assert {each["level"] for each in requests} == {"debug"}
    data, *_ = (each for each in requests if each["kind"] == "range get")
    assert data["received_bytes"] == data["stop"] - data["start"]
    assert _log_is_as_before()


def _log_is_as_before() -> bool:
    """Whether the logger of this process is as a program finds it."""
    return telemetry.LOG.level == logging.NOTSET and len(telemetry.LOG.handlers) <= 1


def test_records_have_fields(caplog: pytest.LogCaptureFixture) -> None:
    """There is one logger; retries and what was left out are warnings."""
    caplog.set_level(logging.INFO)
    script = FaultScript({"a": b"data"}, [raising(s3_error(503, "SlowDown"))])
    script.location().read_range("a", 0, 4)
    with pytest.warns(match="without an outcome"):
        open_topic(URL, "transactions-open").to_table()

    records: list[Any] = [each for each in caplog.records if each.name == "pulsar_offload"]
    assert len(records) == len(caplog.records)
    by_event = {each.event: each for each in records}
    assert list(by_event) == ["retry", "open", "plan", "read", "dropped"]
    retry, dropped = by_event["retry"], by_event["dropped"]
    assert (retry.levelname, retry.kind, retry.status) == ("WARNING", "range get", 503)
    assert retry.getMessage() == ('retry: kind="range get" object=a status=503 reason=OSError')
    assert (dropped.levelname, dropped.unit) == ("WARNING", "message")
    assert dropped.reason == "open_transaction"
    assert by_event["read"].topic == "persistent://public/default/transactions-open"


def test_a_program_that_configures_no_logging_sees_nothing() -> None:
    """As with any library."""
    code = (
        "from arrow_io.core.telemetry import LOG\nLOG.warning('dropped')\n"
        "import logging; logging.getLogger('other').warning('seen')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stderr == "seen\n"
