"""A topic whose ledgers streaming offload wrote, in a bucket, with its metadata in a folder."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connector import open_catalog, open_topic
from connector.catalog.metadata.topic_metadata import LedgerInfo, TopicMetadata
from connector.inputs.topic_names import TopicName
from tests.support.buckets import TOPIC, memory_bucket
from tests.support.streaming import save_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from connector import Catalog
    from tests.support.buckets import MemoryBucket
    from tests.support.streaming import StreamedLedgers

NAME: Final = TopicName.parse(TOPIC)


def metadata_of(*infos: LedgerInfo) -> TopicMetadata:
    """Metadata of the topic, whose last ledger is open."""
    last = LedgerInfo(ledger_id=max(each.ledger_id for each in infos) + 1)
    return TopicMetadata(topic=NAME, ledgers=(*infos, last))


class Streamed:
    """A bucket in memory, with the metadata of the topic in a folder.

    Attributes:
        bucket: The bucket.
        folder: Where the metadata is.
        infos: What it says of ledgers.
    """

    def __init__(self, bucket: MemoryBucket, folder: Path, infos: Sequence[LedgerInfo]) -> None:
        self.bucket, self.folder = bucket, folder
        self.tell(*infos)

    def tell(self, *infos: LedgerInfo) -> None:
        """Let the metadata say this of the ledgers."""
        self.infos = infos
        save_metadata(self.folder, metadata_of(*infos))

    def catalog(self, **options: Any) -> Catalog:  # noqa: ANN401
        """The catalog, with the metadata."""
        metadata = {TOPIC: str(self.folder / "topic")}
        return open_catalog(self.bucket.url, metadata=metadata, **options)

    def read(self, catalog: Catalog | None = None, **options: Any) -> list[str]:  # noqa: ANN401
        """The payloads of the topic's messages."""
        catalog = catalog or self.catalog()
        opened = open_topic(
            self.bucket.url, TOPIC, catalog=catalog, columns=["__value__"], **options
        )
        return [each.decode() for each in opened.to_table()["__value__"].to_pylist()]


@contextmanager
def streamed(found: StreamedLedgers, more: dict[str, bytes] | None = None) -> Iterator[Streamed]:
    """A bucket with segments, and the metadata that names them."""
    with memory_bucket(found.objects | (more or {})) as bucket, tempfile.TemporaryDirectory() as to:
        yield Streamed(bucket, Path(to), list(found.infos.values()))
