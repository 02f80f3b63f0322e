"""Ledgers are added to the metadata of a topic, which may be done again by whoever finds it undone.

What stands decides what is to be done: ledgers that the metadata has already are not added, and
files that are as they should be are not written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from connector.catalog.metadata.admin_answers import has_schemas, read_answer
from connector.catalog.metadata.folder import SCHEMAS_FILE, VALUE_FILE
from connector.catalog.metadata.managed_ledger import parse_managed_ledger_info
from connector.catalog.metadata.topic_metadata import LedgerInfo, in_order
from connector.catalog.schemas.loading import load_schema
from connector.writing.topic_files import files_of, write_files

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from arrow_io.storage.location import Location
    from connector.catalog.metadata.topic_metadata import TopicMetadata

_INDEX: Final = "index"
"""Property that says where a broker goes on counting messages (ManagedLedgerInterceptorImpl)."""


def extend_files(
    folder: Location, files: Mapping[str, bytes], added: TopicMetadata, schemas: bytes
) -> None:
    """Add ledgers to the files of a topic or partition.

    Args:
        folder: The folder of the files.
        files: What stands there, perhaps half-written by an earlier call.
        added: The ledgers; the last is open and empty.
        schemas: The answer of the admin API with the schemas that are to be there.

    Raises:
        CorruptMetadataError: What stands is malformed.
        StorageError: The store refused, or went on failing.
    """
    standing = parse_managed_ledger_info(files.get(VALUE_FILE, b""), added.topic)
    whole = _extended(standing, added) if standing.ledgers else added
    wanted = files_of(whole, _schemas(files, schemas))
    if wanted != files:
        write_files(folder, wanted)


def _schemas(files: Mapping[str, bytes], given: bytes) -> bytes:
    """The file of schemas: the one that stands there, unless there are others now."""
    standing = files.get(SCHEMAS_FILE)
    if standing is None:
        return given
    if not has_schemas(read_answer(given)):
        return standing
    is_same = (
        has_schemas(read_answer(standing))
        and load_schema(given).versions == load_schema(standing).versions
    )
    return standing if is_same else given


def _extended(standing: TopicMetadata, added: TopicMetadata) -> TopicMetadata:
    """The ledgers of both; of their open ledgers, which are empty, the one behind them all."""
    *ledgers, open_ledger = standing.ledgers
    *more, next_open = added.ledgers
    known = {each.ledger_id for each in ledgers}
    more = [each for each in more if each.ledger_id not in known]
    last_id = max(open_ledger.ledger_id, next_open.ledger_id)
    return replace(
        standing,
        ledgers=in_order((*ledgers, *more, LedgerInfo(ledger_id=last_id))),
        properties=_joined_properties(standing.properties, added.properties),
    )


def _joined_properties(standing: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    joined = {**standing, **added}
    indexes: Collection[int] = [int(each[_INDEX]) for each in (standing, added) if _INDEX in each]
    return {**joined, _INDEX: str(max(indexes))} if indexes else joined
