"""How many orders are there in each status, and what are they worth? Updated as they are offloaded.

Run `spark-submit revenue_by_status.py URL FOLDER` each night, or as often as you like. Each run
reads the new ledgers. A batch writes its own sums below `FOLDER/sums`, and replaces those of an
earlier attempt at the same batch. So the total counts each order once, even if a run is killed.
"""

from __future__ import annotations

import sys
from functools import partial

from pyspark.sql import DataFrame, Row, SparkSession

SCHEMA = "tests/data/golden/pulsar-4.0.7/public__default__json-orders/schemas-rest.json"

SUMS_OF_A_BATCH = """
    SELECT status, count(*) AS orders, sum(total) AS revenue
    FROM {orders}
    WHERE orderId IS NOT NULL
    GROUP BY status
"""

REVENUE = """
    SELECT status, sum(orders) AS orders, round(sum(revenue), 2) AS revenue
    FROM {sums}
    GROUP BY status
    ORDER BY status NULLS LAST
"""


def keep_sums(orders: DataFrame, batch_id: int, folder: str) -> None:
    """Write the sums of one batch."""
    sums = orders.sparkSession.sql(SUMS_OF_A_BATCH, orders=orders)
    sums.coalesce(1).write.mode("overwrite").parquet(f"{folder}/sums/batch={batch_id}")


def revenue_by_status(spark: SparkSession, url: str, folder: str) -> list[Row]:
    """Read new orders, and return the answer for all orders read so far."""
    orders = (
        spark.readStream.format("pulsar_offload")
        .options(url=url, topic="json-orders", schema=SCHEMA, columns="orderId,status,total")
        .load()
    )
    query = (
        orders.writeStream.foreachBatch(partial(keep_sums, folder=folder))
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spark.sql(REVENUE, sums=spark.read.parquet(f"{folder}/sums")).collect()


if __name__ == "__main__":
    for row in revenue_by_status(SparkSession.builder.getOrCreate(), *sys.argv[1:3]):
        print(*row)
