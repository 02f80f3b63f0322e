"""What a write has decided is done, as often as anyone likes: index objects, then metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector.writing.extended_metadata import extend_files
from connector.writing.topic_files import files_in, folder_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arrow_io.storage.location import Location
    from connector.offloader import LedgerOffloader
    from connector.writing.decision import Decision


def carry_out(
    decision: Decision,
    bucket: LedgerOffloader,
    root: Location | None,
    before: Mapping[str, Mapping[str, bytes]] | None = None,
) -> None:
    """Publish the ledgers of a decision, unless that is known to be done.

    Args:
        decision: The decision.
        bucket: Where the ledgers are.
        root: Where the folders of the metadata are; None: no metadata is written.
        before: What stands there, by the name of the folder and of the file; None: it is read.

    Raises:
        CorruptMetadataError: The metadata that stands is malformed.
        StorageError: The store refused, or went on failing; whoever calls again goes on.
    """
    if decision.partitions is None:
        return
    for index in decision.indexes:
        bucket.publish(index)
    if root is None:
        return
    for added in decision.partitions:
        name = folder_name(added.topic)
        folder = root.child(name)
        files = files_in(folder) if before is None else before[name]
        extend_files(folder, files, added, decision.schemas)
