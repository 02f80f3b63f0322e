"""Top-level module by which Spark finds the source `pulsar_offload` without registration.

When a session first uses a Python data source, Spark looks for a class `DefaultSource` in all
modules named `pyspark_…`. An error here would break every Python data source, and a slow import
would delay them. So nothing of the project is imported until a topic is read or written.
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

# Without PySpark, or in a version without Python data sources, nothing looks for this class.
with suppress(ImportError):
    from pyspark.sql.datasource import DataSource

    class DefaultSource(DataSource):
        """Proxy of `spark_ds.datasource.PulsarOffloadDataSource`, which it imports on first use."""

        _source: DataSource | None = None

        @classmethod
        def name(cls) -> str:
            """Return the name for `format`."""
            return "pulsar_offload"

        def schema(self) -> StructType | str:
            """Return the columns of a frame without a user-defined schema."""
            return self._real().schema()

        def reader(self, schema: StructType) -> DataSourceReader:
            """Return a batch reader of the columns of `schema`."""
            return self._real().reader(schema)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            """Return a stream reader of the columns of `schema`."""
            return self._real().streamReader(schema)

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
            """Return a batch writer of the columns of `schema`."""
            return self._real().writer(schema, overwrite)

        def streamWriter(  # noqa: N802 - Spark's
            self,
            schema: StructType,
            overwrite: bool,  # noqa: FBT001
        ) -> DataSourceStreamWriter:
            """Return an object that begins or commits a batch of a stream to write."""
            return self._real().streamWriter(schema, overwrite)

        def __getstate__(self) -> dict[str, object]:
            """Include the real source, which thus knows that it was pickled."""
            self._real()
            return self.__dict__

        def _real(self) -> DataSource:
            # Stored and pickled, so that what `schema` has read is not read again.
            if self._source is None:
                from spark_ds.datasource import PulsarOffloadDataSource  # noqa: PLC0415 - see above

                self._source = PulsarOffloadDataSource(self.options)
            return self._source
