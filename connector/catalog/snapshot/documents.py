"""JSON documents in one file, from which each is read without the others.

Each is a line, compressed by itself as a member of gzip, so that `zcat` shows all of them. The
first says how many bytes each other member has, and what checksum all of them have together.
"""

from __future__ import annotations

import json
import zlib
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from arrow_io.core.wording import counted
from arrow_io.errors import CorruptSnapshotError, FormatError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMAT = "pulsar-offload catalog"
VERSION = 5
"""Version 1 had neither cursors nor how far the metadata is proven; version 2 was one document;
version 3 had segments of streaming offload (PIP-76)."""
MAX_SNAPSHOT_BYTES = 256 << 20
"""Longest snapshot that is written, and longest document of one that is read, uncompressed
(inclusive): some hundred thousand ledgers."""
MAX_SNAPSHOT_VALUES = 16 << 20
"""Most values in them, about (inclusive): three bytes of text may take sixty of memory."""

_SHOWN_CHARACTERS = 200
_GZIP = 31
"""`wbits` of zlib for gzip's header and trailer."""


class DocumentWriter:
    """Packs documents, which take the places from 0 on."""

    def __init__(self) -> None:
        self._members: list[bytes] = []
        self._bytes = 0
        self._values = 0

    def add(self, document: object) -> int:
        """Add a document, and give its place."""
        self._members.append(self._member(document))
        return len(self._members) - 1

    def file(self, head: dict[str, Any]) -> bytes:
        """The file of the documents added until now.

        Args:
            head: What is read first, and always.

        Raises:
            OptionError: The file is larger than one that is read.
        """
        body = b"".join(self._members)
        first = self._member(
            {
                "format": FORMAT,
                "version": VERSION,
                "sizes": list(map(len, self._members)),
                "crc32": zlib.crc32(body),
                **head,
            }
        )
        for what, number, limit in (
            ("bytes", self._bytes, MAX_SNAPSHOT_BYTES),
            ("values", self._values, MAX_SNAPSHOT_VALUES),
        ):
            if number > limit:
                message = f"the catalog takes {number} {what}, and a snapshot has {limit} at most"
                raise OptionError(message)
        return first + body

    def _member(self, document: object) -> bytes:
        text = json.dumps(document, separators=(",", ":")).encode() + b"\n"
        self._bytes += len(text)
        self._values += _value_count(text)
        compressor = zlib.compressobj(wbits=_GZIP)
        return compressor.compress(text) + compressor.flush()


class Documents:
    """A file of documents, whose bytes are all checked at once; each is parsed when it is read.

    Args:
        data: The file.
        name: Its name, for errors.

    Raises:
        CorruptSnapshotError: It is not such a file, is damaged, or has another version.
    """

    def __init__(self, data: bytes, name: str) -> None:
        self.name = name
        with self.corruption_errors():
            text, size_bytes = _uncompressed(data)
            self.head: dict[str, Any] = json.loads(text)
            _check_version(self.head["format"], self.head["version"])
            body = memoryview(data)[size_bytes:]
            stops = list(accumulate(self.head["sizes"], initial=0))
            if min(self.head["sizes"], default=1) < 1 or stops[-1] != len(body):
                _corrupt(f"{counted(len(body), 'byte')} of documents, not {_shown(stops[-1])}")
            if zlib.crc32(body) != self.head["crc32"]:
                _corrupt("its bytes do not have their checksum")
            self._body, self._stops = body, stops

    def read(self, position: int) -> Any:  # noqa: ANN401 - whatever it is
        """Parse a document.

        Args:
            position: Its place.

        Raises:
            CorruptSnapshotError: It is not there, or not JSON within the bounds.
        """
        with self.corruption_errors():
            if not 0 <= position < len(self._stops) - 1:
                _corrupt(f"there is no document {_shown(position)}")
            member = self._body[self._stops[position] : self._stops[position + 1]]
            text, size_bytes = _uncompressed(member)
            if size_bytes != len(member):
                _corrupt(f"something follows document {position}")
            return json.loads(text)

    @contextmanager
    def corruption_errors(self) -> Iterator[None]:
        """Give one error for whatever is wrong with the file, and name it."""
        try:
            yield
        except CorruptSnapshotError as error:
            raise error.located(object_key=self.name) from None
        except (FormatError, OptionError, zlib.error, RecursionError) as error:
            message = f"it is not a snapshot of a catalog: {_shown(error)}"
            raise CorruptSnapshotError(message, object_key=self.name) from None
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            message = f"it is not a snapshot of a catalog: {type(error).__name__}: {_shown(error)}"
            raise CorruptSnapshotError(message, object_key=self.name) from None


def begins_file(data: bytes) -> bool:
    """Whether bytes are the first of a snapshot, of whatever version."""
    try:
        text = zlib.decompressobj(wbits=_GZIP).decompress(data, len(data))
    except zlib.error:
        return False
    return text.startswith(json.dumps({"format": FORMAT}, separators=(",", ":"))[:-1].encode())


def _check_version(format_name: object, version: object) -> None:
    if format_name != FORMAT:
        _corrupt(f"it is not a {FORMAT}: its format is {_shown(format_name)!r}")
    if version != VERSION:
        _corrupt(
            f"the snapshot has version {_shown(version)}, and this release reads version {VERSION}:"
            " save it anew with this release"
        )


def _uncompressed(data: bytes | memoryview) -> tuple[bytes, int]:
    """The first member of gzip in some bytes, uncompressed, and how many of them it takes."""
    decompressor = zlib.decompressobj(wbits=_GZIP)
    text = decompressor.decompress(data, MAX_SNAPSHOT_BYTES)
    if not decompressor.eof:
        _corrupt(f"it is cut, or longer than {MAX_SNAPSHOT_BYTES} bytes")
    if _value_count(text) > MAX_SNAPSHOT_VALUES:
        _corrupt(f"it has more than {MAX_SNAPSHOT_VALUES} values")
    return text, len(data) - len(decompressor.unused_data)


def _value_count(text: bytes) -> int:
    """About how many values JSON has, and no fewer, without reading it."""
    return 1 + sum(text.count(mark) for mark in (b",", b"[", b"{", b":"))


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _corrupt(message: str) -> None:
    raise CorruptSnapshotError(message)
