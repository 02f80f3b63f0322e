"""JSON documents in one file, each of which can be read alone.

Each document is a line and a separate gzip member, so `zcat` shows all of them. The first document,
the head, has the size in bytes of each other member, and a checksum over all of them.
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
VERSION = 6
"""Version 1 had neither cursors nor `proven_to`; version 2 was one document; version 3 had segments
of streaming offload (PIP-76); version 5 had no scalable topics."""
MAX_SNAPSHOT_BYTES = 256 << 20
"""Maximum size of a snapshot that is written, and of one document that is read, uncompressed
(inclusive): some hundred thousand ledgers."""
MAX_SNAPSHOT_VALUES = 16 << 20
"""Approximate maximum number of values in them (inclusive): a value of three bytes of text may take
sixty bytes of memory."""

_SHOWN_CHARACTERS = 200
_GZIP = 31
"""`wbits` of zlib for gzip's header and trailer."""


class DocumentWriter:
    """A writer of documents; their positions are 0, 1, 2 and so on, without the head."""

    def __init__(self) -> None:
        self._members: list[bytes] = []
        self._bytes = 0
        self._values = 0

    def add(self, document: object) -> int:
        """Add a document and return its position."""
        self._members.append(self._member(document))
        return len(self._members) - 1

    def file(self, head: dict[str, Any]) -> bytes:
        """Return the file of the documents added so far; `head` has additional fields of the head.

        Raises:
            OptionError: The file is larger than readers allow.
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
                message = (
                    f"the catalog takes {number} {what}, but a snapshot may have at most {limit}"
                )
                raise OptionError(message)
        return first + body

    def _member(self, document: object) -> bytes:
        text = json.dumps(document, separators=(",", ":")).encode() + b"\n"
        self._bytes += len(text)
        self._values += _value_count(text)
        compressor = zlib.compressobj(wbits=_GZIP)
        return compressor.compress(text) + compressor.flush()


class Documents:
    """A file of documents. All bytes are checked at once; each document is parsed on demand.

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
                _raise_corrupt(
                    f"{counted(len(body), 'byte')} of documents, not {_shorten(stops[-1])}"
                )
            if zlib.crc32(body) != self.head["crc32"]:
                _raise_corrupt("its checksum does not match its bytes")
            self._body, self._stops = body, stops

    def read(self, position: int) -> Any:  # noqa: ANN401 - whatever it is
        """Parse the document at a position.

        Raises:
            CorruptSnapshotError: There is no such document, or it is not JSON within the limits.
        """
        with self.corruption_errors():
            if not 0 <= position < len(self._stops) - 1:
                _raise_corrupt(f"there is no document {_shorten(position)}")
            member = self._body[self._stops[position] : self._stops[position + 1]]
            text, size_bytes = _uncompressed(member)
            if size_bytes != len(member):
                _raise_corrupt(f"document {position} is followed by other bytes")
            return json.loads(text)

    @contextmanager
    def corruption_errors(self) -> Iterator[None]:
        """Turn every error of a malformed file into `CorruptSnapshotError` with its name."""
        try:
            yield
        except CorruptSnapshotError as error:
            raise error.located(object_key=self.name) from None
        except (FormatError, OptionError, zlib.error, RecursionError) as error:
            message = f"it is not a catalog snapshot: {_shorten(error)}"
            raise CorruptSnapshotError(message, object_key=self.name) from None
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            message = f"it is not a catalog snapshot: {type(error).__name__}: {_shorten(error)}"
            raise CorruptSnapshotError(message, object_key=self.name) from None


def begins_file(data: bytes) -> bool:
    """Return whether bytes are the start of a catalog snapshot of any version."""
    try:
        text = zlib.decompressobj(wbits=_GZIP).decompress(data, len(data))
    except zlib.error:
        return False
    return text.startswith(json.dumps({"format": FORMAT}, separators=(",", ":"))[:-1].encode())


def _check_version(format_name: object, version: object) -> None:
    if format_name != FORMAT:
        _raise_corrupt(f"it is not a {FORMAT}: its format is {_shorten(format_name)!r}")
    if version != VERSION:
        _raise_corrupt(
            f"the catalog snapshot has version {_shorten(version)}, but this release reads version"
            f" {VERSION}: save it again with this release"
        )


def _uncompressed(data: bytes | memoryview) -> tuple[bytes, int]:
    """Return the first gzip member of some bytes, uncompressed, and its compressed size."""
    decompressor = zlib.decompressobj(wbits=_GZIP)
    text = decompressor.decompress(data, MAX_SNAPSHOT_BYTES)
    if not decompressor.eof:
        _raise_corrupt(f"it is truncated, or longer than {MAX_SNAPSHOT_BYTES} bytes")
    if _value_count(text) > MAX_SNAPSHOT_VALUES:
        _raise_corrupt(f"it has more than {MAX_SNAPSHOT_VALUES} values")
    return text, len(data) - len(decompressor.unused_data)


def _value_count(text: bytes) -> int:
    """Return an upper bound on the number of values in JSON text, without parsing it."""
    return 1 + sum(text.count(mark) for mark in (b",", b"[", b"{", b":"))


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _raise_corrupt(message: str) -> None:
    raise CorruptSnapshotError(message)
