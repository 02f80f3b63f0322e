"""Everything that the web interface of a Spark application shows."""

from __future__ import annotations

import html
import json
import re
import urllib.request
from typing import Final
from urllib.error import HTTPError
from urllib.parse import urljoin

_LINK: Final = re.compile(r'href="(/[^"#]*)"')
_ACTIONS: Final = ("/kill/", "/static/", "threadDump", "heapHistogram", "/logPage")
_DETAILS: Final = "details=true&planDescription=true&length=1000"
_RESOURCES: Final = ("jobs", "stages", "allexecutors", "environment", f"sql?{_DETAILS}")


def read_web_interface(url: str) -> dict[str, bytes]:
    """Read every page that the first page leads to, and the resources of the REST interface.

    Args:
        url: The interface of one application.

    Returns:
        The bodies by path.
    """
    [application] = json.loads(_body(f"{url}/api/v1/applications"))
    resources = f"/api/v1/applications/{application['id']}"
    paths = ["/", *(f"{resources}/{each}" for each in _RESOURCES)]
    bodies: dict[str, bytes] = {}
    while paths:
        path = paths.pop()
        if path in bodies or any(each in path for each in _ACTIONS):
            continue
        bodies[path] = _body(urljoin(url, path))
        if not path.startswith(resources):
            paths += map(html.unescape, _LINK.findall(bodies[path].decode()))
    return bodies


def _body(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url) as response:  # noqa: S310 - on loopback
            body: bytes = response.read()
    except HTTPError as error:
        with error:
            return error.read()
    return body
