"""A cluster's brokers, as Pulsar's own client reaches them (`pulsar-client`, the extra `live`).

A reader of the client's has no subscription, so a broker keeps nothing for it. But a reader of a
topic that is not there makes the topic: whoever calls this has to know that it is there.
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
"""Longer ones have no room in the client's options."""
_PATIENCE_MS: Final = 2000
"""How long a message is waited for where there may be none; whoever gets none asks otherwise."""
_SEEK_BACK_SECONDS: Final = (60, 3600)
_QUEUED_MESSAGES: Final = 1000
"""How many messages a broker sends ahead; the client's own default."""


class EntryId(NamedTuple):
    """Where an entry of a topic partition stands; ordered as the entries are."""

    ledger_id: int
    entry_id: int


class Place(NamedTuple):
    """Which entries a message takes: one, unless it has several chunks."""

    begin: EntryId
    end: EntryId
    """Inclusive; where the message stands."""


class ClientEntry(NamedTuple):
    """The messages of an entry, as a client gives them."""

    place: Place
    """Which entries they take."""
    members: list[tuple[int, _pulsar.Message]]
    """In the order of the reader, each behind its index in the batch; -1: it is not in a batch."""


BEGINNING: Final = EntryId(0, 0)
"""At or before the first entry of any topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions(ClusterAccess):
    """How brokers are reached.

    Raises:
        OptionError: A value is not allowed, or two exclude each other.
    """

    listener: str | None = None
    """Name of the advertised listener to use, of brokers that have several."""
    log_file: str | None = None
    """File to which the client writes what it warns of; by default nowhere."""


@dataclass(frozen=True, slots=True)
class Brokers:
    """Where the brokers of a cluster are, and how they let us in. Can be pickled.

    Attributes:
        url: URL of the service, `pulsar://host:6650` or `pulsar+ssl://host:6651`; several hosts
            may stand in it, separated by commas.
        options: How they are reached.
    """

    url: str
    options: LiveOptions

    @classmethod
    def from_options(cls, url: str, options: Mapping[str, object]) -> Brokers:
        """Take what a user gives.

        Raises:
            OptionError: The URL is not a broker's, or holds credentials; or an option is unknown,
                or its value is not allowed.
        """
        shown = redacted_urls(url)
        try:
            split = urlsplit(url)
        except ValueError:
            split = urlsplit("")
        if split.scheme not in _SCHEMES or not split.netloc:
            message = f"{shown!r} is not the URL of brokers, such as pulsar://localhost:6650"
            raise OptionError(message)
        if "@" in split.netloc:
            message = f"credentials in the URL {shown!r}: give them as options (token)"
            raise OptionError(message)
        access = read_access(LiveOptions, "live option", options)
        if access.timeout_s > _MAX_TIMEOUT_S:
            message = f"the live option timeout_s is at most {_MAX_TIMEOUT_S} seconds"
            raise OptionError(message)
        return cls(url.rstrip("/"), access)

    @contextmanager
    def connect(self) -> Iterator[Client]:
        """A client, which is closed at the end.

        Raises:
            OptionError: The library is not installed, or takes the URL for none; or a file of
                certificates, or the token, is not there.
        """
        client = Client(self)
        try:
            yield client
        finally:
            client.close()


class Client:
    """A client of some brokers; it connects when it is first asked for something.

    Args:
        brokers: The brokers.

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
            # Raised in here, it would have an error of the library with it.
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
            # By default it writes to the standard output, among our rows.
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
        """Close its connections."""
        # What could be lost by it was told before: this would hide that.
        with suppress(self._pulsar.PulsarException):
            self._client.close()

    def partitions(self, topic: TopicName) -> list[TopicName]:
        """The partitions of a topic; a topic that has none, or is not there, by itself.

        Raises:
            BrokerError: The brokers cannot be asked, or refuse.
        """
        with self.translate_errors(f"the partitions of {topic}"):
            names = self._client.get_topic_partitions(str(topic))
        return [TopicName.parse(each) for each in names]

    @contextmanager
    def open_reader(self, topic: TopicName, first: EntryId) -> Iterator[BrokerReader]:
        """A reader of a topic or partition; closed at the end.

        Args:
            topic: The topic; it has to be there.
            first: The first entry to be given (inclusive), or else the next one behind it.

        Raises:
            BrokerError: The brokers cannot be asked, or refuse.
        """
        start = self._pulsar.MessageId(topic.partition, first.ledger_id, first.entry_id, -1)
        with self._open_reader(topic, start) as reader:
            yield reader

    def last(self, topic: TopicName, first: EntryId) -> Place | None:
        """Where the last message of a topic or partition stands that it has to give.

        A client begins at the last entry, which gives no message if it is the last of several
        chunks, or says how a transaction ended. So if nothing comes, it begins ever earlier.

        Args:
            topic: The topic; it has to be there.
            first: Where to begin if nothing of the last hour comes.

        Returns:
            None: none was found. It may stand before the first entry.

        Raises:
            BrokerError: The brokers cannot be asked, or refuse.
        """
        latest = self._pulsar.MessageId.latest
        with self._open_reader(topic, latest) as reader:
            place = reader.newest_place(_PATIENCE_MS)
        for seconds in _SEEK_BACK_SECONDS:
            if place is None:
                with self._open_reader(topic, latest) as reader:
                    reader.seek_back(seconds)
                    place = reader.last_place(_PATIENCE_MS)
        if place is None:
            with self.open_reader(topic, first) as reader:
                place = reader.last_place(self._timeout_ms)
        return place

    def first(self, topic: TopicName) -> EntryId | None:
        """The first entry of a topic or partition with a message to give; None: it has none.

        Raises:
            BrokerError: The brokers cannot be asked, or refuse.
        """
        with self.open_reader(topic, BEGINNING) as reader:
            return place_of(next(reader.messages())).begin if reader.has_more() else None

    def create_producer(self, topic: TopicName, **settings: Any) -> pulsar.Producer:  # noqa: ANN401
        """A producer of a topic or partition.

        Args:
            topic: The topic; brokers may make it if it is not there.
            settings: Arguments of the library's `create_producer`.

        Raises:
            BrokerError: The brokers cannot be asked, or refuse; or a producer of the same name is
                connected.
        """
        with self.translate_errors(f"a producer of {topic}"):
            return self._client.create_producer(str(topic), **settings)

    def last_producer_name(self, topic: TopicName) -> str | None:
        """Who sent the last message of a topic or partition; None: it has no message to give.

        Raises:
            BrokerError: The brokers cannot be asked, or refuse.
        """
        with self._open_reader(topic, self._pulsar.MessageId.latest) as reader:
            return next(reader.messages()).producer_name() if reader.has_more() else None

    @contextmanager
    def _open_reader(self, topic: TopicName, start: pulsar.MessageId) -> Iterator[BrokerReader]:
        with self.translate_errors(f"a reader of {topic}"):
            reader = self._client.create_reader(
                str(topic),
                start,
                receiver_queue_size=_QUEUED_MESSAGES,
                start_message_id_inclusive=True,
                # What is encrypted is decrypted by us, who know the keys and tell what lacks.
                crypto_failure_action=self._pulsar.ConsumerCryptoFailureAction.CONSUME,
            )
        try:
            # What stands below the library's own reader gives more messages a second.
            yield BrokerReader(self, topic, reader._reader, self._timeout_ms)  # noqa: SLF001
        finally:
            with self.translate_errors(f"the end of a reader of {topic}"):
                reader.close()

    @contextmanager
    def translate_errors(self, request: str) -> Iterator[None]:
        """Make errors of the client ours."""
        try:
            yield
        except self._pulsar.PulsarException as error:
            text = redacted(str(error), {"token": self._token})
            message = f"{request}, asked of {redacted_urls(self._brokers.url)}: {text}"
            failure = BrokerError(message)
        else:
            return
        # Raised out here, it has no error of the library with it, whose frames have the token.
        raise failure


class BrokerReader:
    """Gives the messages of a topic or partition, in order.

    Messages in chunks come whole, in the place of their last chunk, if the reader began at or
    before their first chunk; markers, and messages of aborted transactions, do not come; and at an
    open transaction it ends until that has an outcome.
    """

    def __init__(
        self, client: Client, topic: TopicName, reader: _pulsar.Reader, timeout_ms: int
    ) -> None:
        self._client = client
        self._topic = topic
        self._reader = reader
        self._timeout_ms = timeout_ms

    def has_more(self) -> bool:
        """Whether there is a message.

        Raises:
            BrokerError: The broker cannot be asked.
        """
        with self._client.translate_errors(f"whether {self._topic} has more"):
            has_message: bool = self._reader.has_message_available()
        return has_message

    def messages(self) -> Iterator[_pulsar.Message]:
        """The next messages, without an end; waits until there is one.

        Raises:
            BrokerError: The broker cannot be asked, or there was none for too long.
        """
        read_next, timeout_ms = self._reader.read_next, self._timeout_ms
        with self._client.translate_errors(f"the next message of {self._topic}"):
            while True:
                yield read_next(timeout_ms)

    def next_soon(self) -> _pulsar.Message | None:
        """The next message; None if there is none soon, though one may be announced.

        Raises:
            BrokerError: The broker cannot be asked.
        """
        with self._client.translate_errors(f"the next message of {self._topic}"):
            try:
                return self._reader.read_next(_PATIENCE_MS)
            except self._client.timed_out:
                return None

    def newest_place(self, patience_ms: int) -> Place | None:
        """Where the last message of the next entry stands; None if there is none.

        If the reader began at the last entry of the topic, all that is behind came later: whoever
        waited for its end might never reach it.

        Args:
            patience_ms: See `last_place`.

        Raises:
            BrokerError: The broker cannot be asked.
        """
        return self._read_last_place(patience_ms, is_last_of_entry)

    def last_place(self, patience_ms: int) -> Place | None:
        """Where the last message from here on stands; None if there is none.

        Args:
            patience_ms: How long to wait for a message that is announced: it may be one whose
                first chunk lies before, or whose transaction is open.

        Raises:
            BrokerError: The broker cannot be asked.
        """
        return self._read_last_place(patience_ms, lambda _: False)

    def _read_last_place(
        self, patience_ms: int, is_enough: Callable[[_pulsar.Message], bool]
    ) -> Place | None:
        last = None
        while (last is None or not is_enough(last)) and self.has_more():
            with self._client.translate_errors(f"the last message of {self._topic}"):
                try:
                    last = self._reader.read_next(patience_ms)
                except self._client.timed_out:
                    break
        return None if last is None else place_of(last)

    def seek_back(self, seconds: int) -> None:
        """Go on with what was published about so long ago.

        Raises:
            BrokerError: The broker cannot be asked.
        """
        with self._client.translate_errors(f"an earlier message of {self._topic}"):
            self._reader.seek(int((time.time() - seconds) * 1000))


def place_of(message: _pulsar.Message) -> Place:
    """Which entries a message takes."""
    return _place_and_batch_size(message.message_id())[0]


def entry_of(message: _pulsar.Message) -> EntryId:
    """In which entry a message stands; if it has several chunks, its last one."""
    message_id = message.message_id()
    return EntryId(message_id.ledger_id(), message_id.entry_id())


def is_last_of_entry(message: _pulsar.Message) -> bool:
    """Whether no other message of its entry follows."""
    message_id = message.message_id()
    index: int = message_id.batch_index()
    return index < 0 or index + 1 >= _place_and_batch_size(message_id)[1]


def by_entry(messages: Iterable[_pulsar.Message]) -> Iterator[ClientEntry]:
    """Put messages together that stand in one entry.

    Args:
        messages: Messages in the order of a reader; it is asked for no more of them than an entry
            has.
    """
    place: Place | None = None
    members: list[tuple[int, _pulsar.Message]] = []
    size = 0
    for message in messages:
        message_id = message.message_id()
        if place is None or (message_id.ledger_id(), message_id.entry_id()) != place.end:
            if place is not None:
                yield ClientEntry(place, members)
            place, size = _place_and_batch_size(message_id)
            members = []
        index = message_id.batch_index()
        members.append((index, message))
        if index < 0 or index + 1 >= size:
            yield ClientEntry(place, members)
            place = None
    if place is not None:
        yield ClientEntry(place, members)


def _place_and_batch_size(message_id: _pulsar.MessageId) -> tuple[Place, int]:
    """Which entries a message takes, and how many messages its batch has; 0: it is in none."""
    end = EntryId(message_id.ledger_id(), message_id.entry_id())
    size, begin = ClientMessageId.parse(message_id.serialize())
    return Place(end if begin is None else EntryId(*begin), end), size
