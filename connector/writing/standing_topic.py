"""A topic that is there already: whether, and how, more may be written to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrow_io.errors import OptionError
from arrow_io.option_names import option_name
from arrow_io.wording import counted
from connector.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from connector.catalog.ledger_copy import LedgerCopy
    from connector.catalog.metadata.topic_metadata import TopicMetadata


def check_new(topic: TopicName, copies: Iterable[LedgerCopy]) -> None:
    """Refuse a topic that has ledgers in the bucket.

    Args:
        topic: The topic.
        copies: What the bucket holds.

    Raises:
        OptionError: The topic itself, a partition of it, or what it is a partition of, has some.
    """
    for copy in copies:
        found = copy.topic
        if isinstance(found, TopicName) and (found in (topic, topic.base) or found.base == topic):
            message = (
                f"the bucket has ledgers of {found} already: give {option_name('append')} to write"
                " more, whose sequence ids and broker indexes start anew"
            )
            raise OptionError(message, ledger_id=copy.name.ledger_id)


def check_appendable(
    topic: TopicName,
    names: Sequence[TopicName],
    copies: Collection[LedgerCopy],
    metadata: Collection[TopicMetadata] | None,
) -> set[int]:
    """Check that what is appended fits what is there.

    Args:
        topic: The topic.
        names: The topic, or all of its partitions.
        copies: What the bucket holds.
        metadata: What stands in the metadata that is to be extended; None: none is written.

    Returns:
        Ids of the ledgers that the topic or its partitions have in the bucket.

    Raises:
        OptionError: The topic has another number of partitions; or there is metadata to be written,
            and it lacks ledgers that the bucket has.
    """
    owners = {copy.topic for copy in copies if isinstance(copy.topic, TopicName)}
    standing = {each.partition for each in owners if each.base == topic.base}
    check_partitions(topic, names, standing, "the bucket", is_whole=not metadata)
    ours = [copy for copy in copies if copy.topic in names]
    ids = {copy.name.ledger_id for copy in ours}
    if metadata is None:
        return ids
    known = {(each.topic, ledger.ledger_id) for each in metadata for ledger in each.ledgers[:-1]}
    for copy in ours:
        if (copy.topic, copy.name.ledger_id) not in known:
            message = (
                "the bucket has a ledger of the topic that the metadata folder does not know, so"
                " what is appended would hide it: give the folder that was written with it, or none"
            )
            raise OptionError(message, ledger_id=copy.name.ledger_id)
    return ids


def check_behind(first_ledger_id: int, standing: Collection[int]) -> None:
    """Refuse ledgers before those that a topic has: ids ascend with the order of messages.

    Args:
        first_ledger_id: The first id that was chosen for what is appended.
        standing: Ids of the ledgers that are there.

    Raises:
        OptionError: It is not greater than all of these.
    """
    greatest = max(standing, default=-1)
    if first_ledger_id <= greatest:
        message = (
            f"{option_name('first_ledger_id')} must be greater than {greatest}, the topic's last"
            " ledger: readers would get what is appended before what is there"
        )
        raise OptionError(message, ledger_id=first_ledger_id)


def check_partitions(
    topic: TopicName,
    names: Sequence[TopicName],
    standing: Collection[int],
    place: str,
    *,
    is_whole: bool,
) -> None:
    """Refuse another number of partitions than a topic has: keys would go to other ones.

    Args:
        topic: The topic that is appended to.
        names: The topic, or all the partitions that messages are to go to.
        standing: Numbers of the partitions that are there; -1: the topic has none.
        place: Where they were found, for messages.
        is_whole: Whether the topic has no further partition behind the greatest of `standing`.

    Raises:
        OptionError: It is another number.
    """
    if not standing:
        return
    count = max(standing) + 1
    if topic.partition >= 0:
        fits = -1 not in standing
    elif list(names) == [topic]:
        fits = count == 0
    else:
        fits = -1 not in standing and (count == len(names) or (not is_whole and count < len(names)))
    if not fits:
        has = "no partitions" if -1 in standing else counted(count, "partition")
        how = "append to it without partitions"
        if -1 not in standing:
            how = f"give {option_name('partitions', count)} to append to it"
        message = f"{topic.base} has {has} in {place}: {how}"
        raise OptionError(message)
