"""The list of all kinds of objects that hold ledgers: add a new kind to `KINDS`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from arrow_io.errors import CorruptIndexError
from connector.catalog.kinds.map_file_copy import MapFiles
from connector.catalog.kinds.offloaded_copy import OffloadedObjects
from connector.catalog.kinds.segment_copies import StreamedSegments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.format.object_names import PairName
    from connector.catalog.kinds.ledger_copy import LedgerCopy
    from connector.catalog.kinds.object_kind import NamedObject, ObjectKind
    from connector.catalog.metadata.topic_metadata import LedgerInfo
    from connector.inputs.topic_names import TopicName

KINDS: Final[tuple[ObjectKind[Any, Any], ...]] = (
    OffloadedObjects(),
    MapFiles(),
    StreamedSegments(),
)
"""The most frequent kind comes first."""


def parse_name(object_name: str) -> NamedObject | None:
    """Parse the name of an object, relative to the bucket's URL; None if no kind has it."""
    for kind in KINDS:
        found: NamedObject | None = kind.parse(object_name)
        if found is not None:
            return found
    return None


def kind_of(name: PairName) -> ObjectKind[Any, Any]:
    """Return the kind of a pair of objects."""
    return next(kind for kind in KINDS if kind.name_type is type(name))


def named_pairs(topic: TopicName, info: LedgerInfo) -> list[PairName]:
    """Return the names of the pairs that metadata names for a ledger.

    If the metadata does not record the driver, there may be names of several kinds.
    """
    driver = info.offload.driver if info.offload else None
    kinds = [kind for kind in KINDS if kind.driver is None or driver in {None, "", kind.driver}]
    own_kinds = [kind for kind in kinds if driver and kind.driver == driver]
    return [name for kind in own_kinds or kinds for name in kind.named_pairs(topic, info)]


def unattributed_error(copy: LedgerCopy) -> CorruptIndexError:
    """Return the error for a share of a ledger whose topic nothing names."""
    kind = kind_of(copy.pairs[0].name)
    message = (
        f"nothing names the topic of the {kind.unit}: {kind.title} records it only in the cluster's"
        " metadata"
    )
    return CorruptIndexError(
        message, object_key=copy.name.index_name, ledger_id=copy.name.ledger_id
    )


def join_shares(copies: Sequence[LedgerCopy], info: LedgerInfo | None = None) -> list[LedgerCopy]:
    """Join the shares of one ledger that belong together; see `ObjectKind.join_shares`.

    Copies that do not share their objects come first.
    """
    found = [each for each in copies if not each.is_shared]
    shares = [each for each in copies if each.is_shared]
    for kind in KINDS if shares else ():
        kind_shares = [each for each in shares if kind_of(each.pairs[0].name) is kind]
        found += kind.join_shares(kind_shares, info) if kind_shares else ()
    return found
