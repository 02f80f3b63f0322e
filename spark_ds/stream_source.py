"""What a stream reads, and what reads it on Spark 4.1, which lacks classes that streams need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_ds.sentence_first import sentence_first
from spark_ds.spark_version import too_old

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector.increments.increment import Increments, Limits
    from connector.increments.progress import Progress

DEFAULT_BATCH_BYTES: Final = 16 << 30
"""Most bytes of data objects in a batch, unless a limit is given.

Each partition of a batch carries the ledgers of its topics, about 130 bytes each, because Spark
gives a stream's partitions nothing in common. So what a batch takes of the driver grows with its
bytes times the ledgers of the topic: here to about 17 MB a thousand ledgers.
"""

STREAMS_SINCE: Final = (4, 2)
"""The first release of Spark that reads topics as streams."""


@dataclass(frozen=True)
class StreamSource:
    """What a stream reads.

    Attributes:
        increments: What is new in the topics.
        begin: Gives where a new query begins.
        limits: How much a batch has, unless the trigger asks for all.
        task_bytes: How many bytes of data objects a task should read, about; None to choose by the
            size of the batch.
    """

    increments: Increments
    begin: Callable[[], Progress]
    limits: Limits
    task_bytes: int | None = None


class RefusedStream(DataSourceStreamReader):
    """Raises as the stream starts: Spark hides what is raised before."""

    def initialOffset(self) -> NoReturn:  # noqa: N802 - the name is Spark's
        """Raise.

        Raises:
            OptionError: This Spark lacks what a stream of a source in Python needs.
        """
        self._refuse()

    def latestOffset(self, *_: object) -> NoReturn:  # noqa: N802
        """Raise, as `initialOffset`: Spark 4.1 asks for this first."""
        self._refuse()

    def read(self, partition: InputPartition) -> NoReturn:
        """Raise, as `initialOffset`."""
        del partition
        self._refuse()

    def _refuse(self) -> NoReturn:
        with sentence_first():
            raise too_old(STREAMS_SINCE, "reading a topic as a stream")
