"""A real browser without a window: what a page loads, says on its console, and looks like.

Chromium is steered through its DevTools pipe (`--remote-debugging-pipe`): JSON messages that end
with a NUL go in at its file descriptor 3 and come out at 4, so that no port is opened.
"""

from __future__ import annotations

import base64
import json
import os
import selectors
import shutil
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
_HANGS_AFTER_S: Final = 90.0
_FREE_DESCRIPTOR: Final = 10
_FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-pipe",
)


def find_browser() -> str | None:
    """The program: the one that the environment names as CHROMIUM, else one on the PATH."""
    named = os.environ.get("CHROMIUM")
    return named or next(filter(None, map(shutil.which, _PROGRAMS)), None)


class Page:
    """A page that has been loaded.

    Attributes:
        requests: URLs of everything that it asked for, itself first.
        messages: What was written to the console and the log, errors among them.
    """

    def __init__(self, devtools: _DevTools, session: str) -> None:
        self._devtools = devtools
        self._session = session
        self.requests: list[str] = []
        self.messages: list[str] = []

    def load(self, path: Path) -> None:
        """Load a file, in the place of the one before, and wait until it is loaded."""
        self._devtools.forget(self._session)
        self.requests.clear()
        self.messages.clear()
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=path.absolute().as_uri())
        self._devtools.read_until("Page.loadEventFired", self._session)
        # What the log has still to say is there before the answer is.
        self.evaluate("document.readyState")
        for event in self._devtools.events(self._session):
            parameters = event["params"]
            match event["method"]:
                case "Network.requestWillBeSent":
                    self.requests.append(parameters["request"]["url"])
                case "Log.entryAdded":
                    self.messages.append(parameters["entry"]["text"])
                case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                    self.messages.append(json.dumps(parameters))

    def show(self, *, width_px: int, scheme: str = "light", media: str = "screen") -> None:
        """Show it `light` or `dark`, in a window of this width, on the `screen` or as `print`."""
        size = {"width": width_px, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def evaluate(self, expression: str) -> Any:  # noqa: ANN401 - whatever JavaScript gives
        """Return the value of an expression of JavaScript in the page; of a promise, its result."""
        options = {"returnByValue": True, "awaitPromise": True}
        answer = self.call("Runtime.evaluate", expression=expression, **options)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """Write a picture of the whole page, PNG."""
        options = {"format": "png", "captureBeyondViewport": True}
        answer = self.call("Page.captureScreenshot", **options)
        path.write_bytes(base64.b64decode(answer["data"]))

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command of DevTools and wait for its answer."""
        return self._devtools.call(method, parameters, self._session)


class Browser:
    """A running browser."""

    def __init__(self, devtools: _DevTools) -> None:
        self._devtools = devtools

    def open(self, path: Path) -> Page:
        """Load a file as a page of its own."""
        target = self._devtools.call("Target.createTarget", {"url": "about:blank"})
        attached = self._devtools.call(
            "Target.attachToTarget", {"targetId": target["targetId"], "flatten": True}
        )
        page = Page(self._devtools, attached["sessionId"])
        page.load(path)
        return page


class _DevTools:
    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = answers
        self._rest = b""
        self._number = 0
        self._seen: list[dict[str, Any]] = []

    def call(
        self, method: str, parameters: dict[str, object], session: str | None = None
    ) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message: dict[str, object] = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def read_until(self, method: str, session: str) -> None:
        """Wait for an event."""
        while not any(event["method"] == method for event in self.events(session)):
            self._read()

    def events(self, session: str) -> list[dict[str, Any]]:
        return [event for event in self._seen if event.get("sessionId") == session]

    def forget(self, session: str) -> None:
        self._seen = [event for event in self._seen if event.get("sessionId") != session]

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + _HANGS_AFTER_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            while b"\0" not in self._rest:
                assert selector.select(deadline - time.monotonic()), "the browser hangs"
                data = os.read(self._answers, 1 << 20)
                assert data, "the browser ended"
                self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self._seen.append(message)
        return message


@contextmanager
def running_browser(program: str, profile: Path) -> Iterator[Browser]:
    """Start a browser, and end it.

    Args:
        program: Path of Chromium.
        profile: An empty folder for what it writes.
    """
    import fcntl  # noqa: PLC0415 - Windows lacks it

    commands, answers = os.pipe(), os.pipe()
    # Above 4, so that neither is overwritten by what the shell puts at 3 and 4.
    theirs = [
        fcntl.fcntl(each, fcntl.F_DUPFD, _FREE_DESCRIPTOR) for each in (commands[0], answers[1])
    ]
    shell = f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]}'
    arguments = ["bash", "-c", shell, "bash", program, *_FLAGS, f"--user-data-dir={profile}"]
    with subprocess.Popen(
        arguments, pass_fds=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        for each in (commands[0], answers[1], *theirs):
            os.close(each)
        devtools = _DevTools(commands[1], answers[0])
        try:
            yield Browser(devtools)
            devtools.call("Browser.close", {})
            process.wait(_HANGS_AFTER_S)
        finally:
            os.close(commands[1])
            os.close(answers[0])
            process.terminate()
