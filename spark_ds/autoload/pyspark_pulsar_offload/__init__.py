"""Makes Spark find the source `pulsar_offload` without registration.

Installed as a top-level module: when anybody first asks for a source written in Python, Spark looks
for a class `DefaultSource` in all modules named `pyspark_…`. An error here would break all such
sources for everybody, and a slow import would delay them; so nothing of the project is imported
until a topic is read or written.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

# Without PySpark, or with a version that knows no such sources, nobody looks for this one.
with suppress(ImportError):
    from pyspark.sql.datasource import DataSource

    class DefaultSource(DataSource):
        """Stands for `spark_ds.datasource.PulsarOffloadDataSource`, imported when it is needed."""

        _source: DataSource | None = None

        @classmethod
        def name(cls) -> str:
            """The name that `format` takes."""
            return "pulsar_offload"

        def schema(self) -> StructType | str:
            """The columns that are given unless the user names them by a schema."""
            return self._real().schema()

        def reader(self, schema: StructType) -> DataSourceReader:
            """A batch read of the columns of `schema`."""
            return self._real().reader(schema)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            """A stream of the columns of `schema`."""
            return self._real().streamReader(schema)

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
            """A batch write of the columns of `schema`."""
            return self._real().writer(schema, overwrite)

        def streamWriter(  # noqa: N802 - Spark's
            self,
            schema: StructType,
            overwrite: bool,  # noqa: FBT001
        ) -> DataSourceStreamWriter:
            """What begins, or ends, a batch of a stream that is written."""
            return self._real().streamWriter(schema, overwrite)

        def __getstate__(self) -> dict[str, object]:
            """Pickled with the real one, which knows then that it was sent."""
            self._real()
            return self.__dict__

        def _real(self) -> DataSource:
            # Kept, and pickled with the rest, so that what schema() read need not be read again.
            if self._source is None:
                from spark_ds.datasource import PulsarOffloadDataSource  # noqa: PLC0415 - see above

                self._source = PulsarOffloadDataSource(self.options)
            return self._source
