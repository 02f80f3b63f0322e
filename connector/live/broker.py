"""The brokers of a cluster, accessed with Pulsar's own client (`pulsar-client`, the extra `live`).

The client's readers have no subscription, so a broker stores nothing for them. But opening a reader
of a missing topic creates the topic: callers must know that it exists.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from arrow_io.core.extras import install_command
from arrow_io.errors import BrokerError, OptionError
from arrow_io.storage.hidden import shown_to_library
from arrow_io.storage.redaction import redacted, redacted_urls
from connector.inputs.cluster_access import ClusterAccess, read_access
from connector.inputs.message_ids import ClientMessageId
from connector.inputs.topic_names import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import _pulsar
    import pulsar

_SCHEMES: Final = ("pulsar", "pulsar+ssl")
_MAX_TIMEOUT_S: Final = 1_000_000
"""Upper limit of the client's options."""
_PATIENCE_MS: Final = 2000
"""How long to wait for a message that may not exist, before trying another way."""
_SEEK_BACK_SECONDS: Final = (60, 3600)
_QUEUED_MESSAGES: Final = 1000
"""How many messages a broker prefetches to the reader; the client's own default."""


class EntryId(NamedTuple):
    """The position of an entry in a topic partition; ordered like the entries."""

    ledger_id: int
    entry_id: int


class EntrySpan(NamedTuple):
    """The entries of a message: one, unless it is chunked."""

    begin: EntryId
    end: EntryId
    """Inclusive; the position of the message."""


class ClientEntry(NamedTuple):
    """The messages of an entry, as a client returns them."""

    span: EntrySpan
    """The entries of each message."""
    members: list[tuple[int, _pulsar.Message]]
    """In the order of the reader, each with its index in the batch; -1 if it is not batched."""


BEGINNING: Final = EntryId(0, 0)
"""At or before the first entry of any topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions(ClusterAccess):
    """Options of the connection to brokers.

    Raises:
        OptionError: A value is not allowed, or two exclude each other.
    """

    listener: str | None = None
    """Name of the advertised listener to use, if the brokers have several."""
    log_file: str | None = None
    """File for the client's warnings; by default they are discarded."""


@dataclass(frozen=True, slots=True)
class Brokers:
    """The address of a cluster's brokers, with access options. Can be pickled.

    `url` is `pulsar://host:6650` or `pulsar+ssl://host:6651`, and may contain several hosts,
    separated by commas.
    """

    url: str
    options: LiveOptions

    @classmethod
    def from_options(cls, url: str, options: Mapping[str, object]) -> Brokers:
        """Check a user's URL and options.

        Raises:
            OptionError: The URL is not a broker's, or contains credentials; or an option is
                unknown, or its value is not allowed.
        """
        url_text = redacted_urls(url)
        try:
            split = urlsplit(url)
        except ValueError:
            split = urlsplit("")
        if split.scheme not in _SCHEMES or not split.netloc:
            message = f"{url_text!r} is not the URL of brokers, such as pulsar://localhost:6650"
            raise OptionError(message)
        if "@" in split.netloc:
            message = f"credentials in the URL {url_text!r}: pass them as options (token)"
            raise OptionError(message)
        access = read_access(LiveOptions, "live option", options)
        if access.timeout_s > _MAX_TIMEOUT_S:
            message = f"the live option timeout_s is at most {_MAX_TIMEOUT_S} seconds"
            raise OptionError(message)
        return cls(url.rstrip("/"), access)

    @contextmanager
    def connect(self) -> Iterator[Client]:
        """Open a client, and close it at the end of the context.

        Raises:
            OptionError: The library is not installed, or finds no host in the URL; or a certificate
                or token file is missing.
        """
        client = Client(self)
        try:
            yield client
        finally:
            client.close()


class Client:
    """A client of some brokers; it connects at the first request.

    Raises:
        OptionError: See `Brokers.connect`.
    """

    def __init__(self, brokers: Brokers) -> None:
        try:
            import pulsar  # noqa: PLC0415 - an extra
        except ModuleNotFoundError:
            message = f"live reading needs Pulsar's client: {install_command('live')}"
            raise OptionError(message) from None
        self._pulsar = pulsar
        self.timed_out: type[Exception] = pulsar.Timeout
        self._brokers = brokers
        options = brokers.options
        for file in (options.ca_file, options.cert_file, options.key_file):
            if file is not None and not os.access(file, os.R_OK):
                message = f"the file {file} cannot be read"
                raise OptionError(message)
        self._token = options.current_token()
        self._timeout_ms = max(1, int(options.timeout_s * 1000))
        try:
            self._client = self._connect()
        except ValueError:
            message = f"Pulsar's client finds no hosts in {redacted_urls(brokers.url)!r}"
            # Raised below: in this block, the library's error would become its context.
            failure = OptionError(message)
        else:
            return
        raise failure

    def _connect(self) -> pulsar.Client:
        pulsar, options = self._pulsar, self._brokers.options
        level = pulsar.LoggerLevel.Warn
        return pulsar.Client(
            self._brokers.url,
            authentication=self._authentication(),
            operation_timeout_seconds=max(1, int(options.timeout_s)),
            connection_timeout_ms=self._timeout_ms,
            # By default it writes to the standard output, between the printed rows.
            logger=pulsar.FileLogger(level, options.log_file or os.devnull),
            use_tls=self._brokers.url.startswith("pulsar+ssl:"),
            tls_trust_certs_file_path=options.ca_file,
            tls_validate_hostname=options.verify_hostname,
            tls_certificate_file_path=options.cert_file,
            tls_private_key_file_path=options.key_file or options.cert_file,
            listener_name=options.listener,
        )

    def _authentication(self) -> pulsar.Authentication | None:
        options = self._brokers.options
        if self._token is not None:
            return self._pulsar.AuthenticationToken(shown_to_library(self._token))
        if options.cert_file is not None:
            key_file = options.key_file or options.cert_file
            return self._pulsar.AuthenticationTLS(options.cert_file, key_file)
        return None

    def close(self) -> None:
        """Close the connections."""
        # A failure here loses no message, and would hide an earlier error.
        with suppress(self._pulsar.PulsarException):
            self._client.close()

    def partitions(self, topic: TopicName) -> list[TopicName]:
        """Return the partitions of a topic; the topic itself if it has none or is missing.

        Raises:
            BrokerError: The brokers cannot be reached, or refuse.
        """
        with self.translate_errors(f"list the partitions of {topic}"):
            names = self._client.get_topic_partitions(str(topic))
        return [TopicName.parse(each) for each in names]

    @contextmanager
    def open_reader(self, topic: TopicName, first: EntryId) -> Iterator[BrokerReader]:
        """Open a reader of a topic that exists, and close it at the end of the context.

        It starts at the entry `first`, or if that is missing, at the next one.

        Raises:
            BrokerError: The brokers cannot be reached, or refuse.
        """
        start = self._pulsar.MessageId(topic.partition, first.ledger_id, first.entry_id, -1)
        with self._open_reader(topic, start) as reader:
            yield reader

    def find_last_message(self, topic: TopicName, first: EntryId) -> EntrySpan | None:
        """Find the last readable message of a topic or partition; return its entries, or None.

        A client starts at the last entry. That returns no message if it is the last of several
        chunks, or the marker of a transaction. If no message arrives, the search restarts a minute
        ago, an hour ago, and at `first`. The message may precede `first`.

        Raises:
            BrokerError: The brokers cannot be reached, or refuse.
        """
        latest = self._pulsar.MessageId.latest
        with self._open_reader(topic, latest) as reader:
            span = reader.newest_span(_PATIENCE_MS)
        for seconds in _SEEK_BACK_SECONDS:
            if span is None:
                with self._open_reader(topic, latest) as reader:
                    reader.seek_back(seconds)
                    span = reader.last_span(_PATIENCE_MS)
        if span is None:
            with self.open_reader(topic, first) as reader:
                span = reader.last_span(self._timeout_ms)
        return span

    def find_first_entry(self, topic: TopicName) -> EntryId | None:
        """Find the first entry of a topic with a readable message; None if there is none.

        Raises:
            BrokerError: The brokers cannot be reached, or refuse.
        """
        with self.open_reader(topic, BEGINNING) as reader:
            return entry_span(next(reader.messages())).begin if reader.has_more() else None

    def create_producer(self, topic: TopicName, **settings: Any) -> pulsar.Producer:  # noqa: ANN401
        """Create a producer of a topic or partition, which brokers may create if it is missing.

        `settings` are arguments of the library's `create_producer`.

        Raises:
            BrokerError: The brokers cannot be reached, or refuse; or a producer of the same name is
                connected.
        """
        with self.translate_errors(f"create a producer of {topic}"):
            return self._client.create_producer(str(topic), **settings)

    def last_producer_name(self, topic: TopicName) -> str | None:
        """Return the producer of a topic's last message; None if it has no readable message.

        Raises:
            BrokerError: The brokers cannot be reached, or refuse.
        """
        with self._open_reader(topic, self._pulsar.MessageId.latest) as reader:
            return next(reader.messages()).producer_name() if reader.has_more() else None

    @contextmanager
    def _open_reader(self, topic: TopicName, start: pulsar.MessageId) -> Iterator[BrokerReader]:
        with self.translate_errors(f"open a reader of {topic}"):
            reader = self._client.create_reader(
                str(topic),
                start,
                receiver_queue_size=_QUEUED_MESSAGES,
                start_message_id_inclusive=True,
                # Encrypted payloads are decrypted later, with better errors for missing keys.
                crypto_failure_action=self._pulsar.ConsumerCryptoFailureAction.CONSUME,
            )
        try:
            # The inner reader, below the library's Python wrapper, is faster.
            yield BrokerReader(self, topic, reader._reader, self._timeout_ms)  # noqa: SLF001
        finally:
            with self.translate_errors(f"close a reader of {topic}"):
                reader.close()

    @contextmanager
    def translate_errors(self, action: str) -> Iterator[None]:
        """Convert the library's errors to ours: "cannot <action> at …"."""
        try:
            yield
        except self._pulsar.PulsarException as error:
            text = redacted(str(error), {"token": self._token})
            message = f"cannot {action} at {redacted_urls(self._brokers.url)}: {text}"
            failure = BrokerError(message)
        else:
            return
        # Raised outside the except block: the frames of the library's error contain the token.
        raise failure


class BrokerReader:
    """Reads the messages of a topic or partition, in order.

    A chunked message arrives whole, at the position of its last chunk, if the reader started at or
    before its first chunk. Markers and messages of aborted transactions do not arrive. An open
    transaction ends the stream until it has an outcome.
    """

    def __init__(
        self, client: Client, topic: TopicName, reader: _pulsar.Reader, timeout_ms: int
    ) -> None:
        self._client = client
        self._topic = topic
        self._reader = reader
        self._timeout_ms = timeout_ms

    def has_more(self) -> bool:
        """Return whether there is another message.

        Raises:
            BrokerError: The broker cannot be reached.
        """
        with self._client.translate_errors(f"look for more messages of {self._topic}"):
            has_message: bool = self._reader.has_message_available()
        return has_message

    def messages(self) -> Iterator[_pulsar.Message]:
        """Yield the next messages without end; wait for each.

        Raises:
            BrokerError: The broker cannot be reached, or no message arrived in time.
        """
        read_next, timeout_ms = self._reader.read_next, self._timeout_ms
        with self._client.translate_errors(f"read the next message of {self._topic}"):
            while True:
                yield read_next(timeout_ms)

    def next_soon(self) -> _pulsar.Message | None:
        """Return the next message; None if none arrives soon, even if the broker announces one.

        Raises:
            BrokerError: The broker cannot be reached.
        """
        with self._client.translate_errors(f"read the next message of {self._topic}"):
            try:
                return self._reader.read_next(_PATIENCE_MS)
            except self._client.timed_out:
                return None

    def newest_span(self, patience_ms: int) -> EntrySpan | None:
        """Return the entries of the last message of the next entry; None if there is none.

        For a reader that started at the last entry: messages may keep arriving, so waiting for the
        last one might never stop.

        Raises:
            BrokerError: The broker cannot be reached.
        """
        return self._read_last_span(patience_ms, is_last_of_entry)

    def last_span(self, patience_ms: int) -> EntrySpan | None:
        """Return the entries of the last message from here; None if there is none.

        An announced message is awaited for `patience_ms`: its first chunk may be earlier, or its
        transaction may be open.

        Raises:
            BrokerError: The broker cannot be reached.
        """
        return self._read_last_span(patience_ms, lambda _: False)

    def _read_last_span(
        self, patience_ms: int, is_enough: Callable[[_pulsar.Message], bool]
    ) -> EntrySpan | None:
        last = None
        while (last is None or not is_enough(last)) and self.has_more():
            with self._client.translate_errors(f"read the last message of {self._topic}"):
                try:
                    last = self._reader.read_next(patience_ms)
                except self._client.timed_out:
                    break
        return None if last is None else entry_span(last)

    def seek_back(self, seconds: int) -> None:
        """Continue with the messages published about `seconds` ago.

        Raises:
            BrokerError: The broker cannot be reached.
        """
        with self._client.translate_errors(f"seek an earlier message of {self._topic}"):
            self._reader.seek(int((time.time() - seconds) * 1000))


def entry_span(message: _pulsar.Message) -> EntrySpan:
    """Return the entries of a message."""
    return _span_and_batch_size(message.message_id())[0]


def entry_of(message: _pulsar.Message) -> EntryId:
    """Return the entry of a message; of a chunked message, the entry of its last chunk."""
    message_id = message.message_id()
    return EntryId(message_id.ledger_id(), message_id.entry_id())


def is_last_of_entry(message: _pulsar.Message) -> bool:
    """Return whether a message is the last one of its entry."""
    message_id = message.message_id()
    index: int = message_id.batch_index()
    return index < 0 or index + 1 >= _span_and_batch_size(message_id)[1]


def group_by_entry(messages: Iterable[_pulsar.Message]) -> Iterator[ClientEntry]:
    """Group messages, in a reader's order, by their entry.

    An entry is yielded once its last message was read, before another one is.
    """
    span: EntrySpan | None = None
    members: list[tuple[int, _pulsar.Message]] = []
    size = 0
    for message in messages:
        message_id = message.message_id()
        if span is None or (message_id.ledger_id(), message_id.entry_id()) != span.end:
            if span is not None:
                yield ClientEntry(span, members)
            span, size = _span_and_batch_size(message_id)
            members = []
        index = message_id.batch_index()
        members.append((index, message))
        if index < 0 or index + 1 >= size:
            yield ClientEntry(span, members)
            span = None
    if span is not None:
        yield ClientEntry(span, members)


def _span_and_batch_size(message_id: _pulsar.MessageId) -> tuple[EntrySpan, int]:
    """Return the entries of a message, and the size of its batch; 0 if it is not batched."""
    end = EntryId(message_id.ledger_id(), message_id.entry_id())
    size, begin = ClientMessageId.parse(message_id.serialize())
    return EntrySpan(end if begin is None else EntryId(*begin), end), size
