"""What `readStream` gets until topics can be read as streams: a sentence that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

from arrow_io.errors import OptionError
from spark_ds.sentence_first import sentence_first

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition


class RefusingStreamReader(DataSourceStreamReader):
    """Refuses as soon as Spark asks where the stream begins.

    To refuse to make a reader at all would be hidden by an error of Spark's own, which then misses
    the reader.
    """

    def initialOffset(self) -> NoReturn:  # noqa: N802 - the name is Spark's
        """Refuse.

        Raises:
            OptionError: Always.
        """
        with sentence_first():
            raise OptionError(_NOT_YET)

    def read(self, partition: InputPartition) -> NoReturn:
        """Refuse.

        Raises:
            OptionError: Always.
        """
        del partition
        raise OptionError(_NOT_YET)


_NOT_YET = (
    "pulsar_offload cannot be read as a stream yet: use spark.read, with start and end for a part"
    " of a topic"
)
