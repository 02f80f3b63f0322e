"""The admin API of a broker, as `pulsar-admin` asks it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from tests.support.waiting import wait_until

NAMESPACE: Final = "public/default"
"""Where all topics of these tests are."""

_REQUEST_SECONDS: Final = 30
_OFFLOAD_SECONDS: Final = 60

_SETTLED: Final = ("LedgerOpened", "Terminated")
"""States of a managed ledger that is neither closing a full ledger nor opening the next one."""


class AdminError(Exception):
    """The admin API refused.

    Args:
        status: HTTP's.
        text: What it said.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


@dataclass(frozen=True)
class AdminApi:
    """What the tests ask of it; topics are named without their namespace."""

    url: str

    def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401
        """Ask for anything.

        Args:
            method: HTTP's.
            path: Behind `/admin/v2/`.
            body: What is sent, as JSON; None: nothing.

        Raises:
            AdminError: It refused.
        """
        request = urllib.request.Request(  # noqa: S310 - loopback
            f"{self.url}/admin/v2/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=_REQUEST_SECONDS) as answer:  # noqa: S310
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise AdminError(error.code, error.read().decode(errors="replace")) from None
        return json.loads(text) if text else None

    def of_topic(self, method: str, topic: str, path: str, body: object = None) -> Any:  # noqa: ANN401
        """Ask about a topic.

        Raises:
            AdminError: It refused.
        """
        return self.ask(method, f"persistent/{NAMESPACE}/{quote(topic)}/{path}", body)

    def post_schema(self, topic: str, kind: str, definition: object) -> None:
        """Give a topic a schema.

        Args:
            topic: The topic.
            kind: `AVRO` or `JSON`.
            definition: The schema of Avro.
        """
        body = {"type": kind, "schema": json.dumps(definition), "properties": {}}
        self.ask("POST", f"schemas/{NAMESPACE}/{topic}/schema", body)

    def ledgers(self, topic: str) -> list[dict[str, Any]]:
        """Ledgers of a topic, as `internalStats` has them."""
        ledgers: list[dict[str, Any]] = self.of_topic("GET", topic, "internalStats")["ledgers"]
        return ledgers

    def offload(self, topic: str) -> None:
        """Have all ledgers of a topic offloaded, but for the one that is being written.

        A broker acknowledges the last entry of a full ledger before it opens the next one. Until
        then, the full ledger is the last one, which would stay behind.
        """
        wait_until(lambda: self._state(topic) in _SETTLED, _OFFLOAD_SECONDS)
        current = self.ledgers(topic)[-1]["ledgerId"]
        position = {"ledgerId": current, "entryId": 0, "partitionIndex": -1}
        self.of_topic("PUT", topic, "offload", position)

        def is_done() -> bool:
            status = self.of_topic("GET", topic, "offload")
            assert status["status"] != "ERROR", status
            return bool(status["status"] == "SUCCESS")

        wait_until(is_done, _OFFLOAD_SECONDS)

    def _state(self, topic: str) -> str:
        """Of `ManagedLedgerImpl.State`."""
        state: str = self.of_topic("GET", topic, "internalStats")["state"]
        return state
