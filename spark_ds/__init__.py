"""Offloaded Pulsar topics as a Spark data source: `spark.read.format("pulsar_offload")`.

If the package is installed, Spark finds the source by itself (`spark_ds/autoload`). Otherwise:
`from spark_ds.datasource import PulsarOffloadDataSource`, then
`spark.dataSource.register(PulsarOffloadDataSource)`. Executors need the package too.
"""
