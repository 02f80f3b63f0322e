"""Source of a stream, and the reader for Spark 4.1, which lacks classes that streams need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_ds.spark_version import too_old_error
from spark_ds.tracebacks import hide_traceback

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector.increments.increment import Increments, Limits
    from connector.increments.progress import Progress

DEFAULT_BATCH_BYTES: Final = 16 << 30
"""Default limit of the data objects in a batch, in bytes. Each partition of a batch contains the
ledgers of its topics, about 130 bytes each, because partitions of a Spark stream cannot share
data. So a batch needs driver memory in proportion to its bytes times the topic's ledgers:
with this limit about 17 MB per thousand ledgers."""

STREAMS_SINCE: Final = (4, 2)
"""First release of Spark in which topics can be read as streams."""


@dataclass(frozen=True)
class StreamSource:
    """Source of a stream.

    Attributes:
        begin: Returns the progress with which a new query starts.
        limits: Limits of a batch, unless the trigger reads everything.
        task_bytes: Bytes of data objects that a task should read, approximately. None chooses by
            the size of the batch.
    """

    increments: Increments
    begin: Callable[[], Progress]
    limits: Limits
    task_bytes: int | None = None


class RefusedStream(DataSourceStreamReader):
    """A reader that raises when the stream starts: Spark hides earlier errors."""

    def initialOffset(self) -> NoReturn:  # noqa: N802 - the name is Spark's
        """Raise.

        Raises:
            OptionError: This Spark lacks classes that a Python streaming source needs.
        """
        self._refuse()

    def latestOffset(self, *_: object) -> NoReturn:  # noqa: N802
        """Raise like `initialOffset`: Spark 4.1 calls this first."""
        self._refuse()

    def read(self, partition: InputPartition) -> NoReturn:
        """Raise like `initialOffset`."""
        del partition
        self._refuse()

    def _refuse(self) -> NoReturn:
        with hide_traceback():
            raise too_old_error(STREAMS_SINCE, "reading a topic as a stream")
