"""Topics that are written offline to the bucket of a model, appended to, and saved."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from arrow_io.errors import OptionError
from arrow_io.messages.message_metadata import Message
from connector import write_messages
from tests.support.cluster_model import ModelLedger, ModelTopic, Owner
from tests.support.saved_metadata import SavedMetadata, model_time

if TYPE_CHECKING:
    from tests.support.cluster_model import ModelWorld

FOLDER: Final = "written"
"""Where, in the store of a model, the metadata of what is written offline lies."""

_numbers = itertools.count()


def write_offline(
    world: ModelWorld, owner: Owner, topic: str, count: int, *, append: bool, with_folder: bool
) -> bool:
    """Write messages, two a ledger.

    Args:
        world: The model.
        owner: Who writes, and needs what is written.
        topic: Name of the topic.
        count: How many messages.
        append: Whether the topic may be there.
        with_folder: Whether the metadata folder is given.

    Returns:
        Whether they were written; else they were refused.
    """
    rows = world.new_rows(count)
    messages = [Message(payload=row.encode(), publish_time_ms=world.now_ms) for row in rows]
    folder = f"{world.store.url}/{FOLDER}" if with_folder else None
    try:
        with model_time(world):
            written = write_messages(
                world.bucket.url,
                topic,
                messages,
                append=append,
                batch_messages=1,
                ledger_entries=2,
                cluster=owner.cluster,
                metadata_folder=folder,
            )
    except OptionError:
        return False
    known = owner.topics.setdefault(topic, ModelTopic(topic, []))
    left = iter(rows)
    for info in written.partitions[0].ledgers:
        offload = info.offload
        if offload is None or offload.uuid is None or info.entries is None:
            continue
        if any(name.uuid == offload.uuid for name in world.attempts):
            continue
        ledger = ModelLedger(
            owner,
            topic,
            info.ledger_id,
            world.now_ms,
            list(itertools.islice(left, info.entries)),
            closed_ms=world.now_ms,
            bookkeeper_deleted=True,
            is_recorded=with_folder,
        )
        world.truth |= dict.fromkeys(ledger.rows, ledger)
        known.ledgers.append(ledger)
        world.adopt(ledger, offload.uuid, world.now_ms)
    assert not list(left), "not all messages are in a ledger"
    return True


def has_metadata(world: ModelWorld) -> bool:
    """Whether there is a metadata folder."""
    return any(name.startswith(f"{FOLDER}/") for name in world.store.objects)


def save_folder(world: ModelWorld, owner: Owner) -> SavedMetadata:
    """Keep a copy of the metadata folder as it is now."""
    root = f"w{next(_numbers)}"
    for name, stored in list(world.store.objects.items()):
        if name.startswith(f"{FOLDER}/"):
            world.store.put(f"{root}{name.removeprefix(FOLDER)}", stored.data)
    known = {
        name: topic.known
        for name, topic in sorted(owner.topics.items())
        if any(ledger.is_recorded for ledger in topic.ledgers)
    }
    return SavedMetadata(owner, f"{world.store.url}/{root}", world.step, known)
