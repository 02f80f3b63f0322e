"""A streaming table of orders, each once."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

BUCKET = os.environ["ORDERS_BUCKET"]
SCHEMA = os.environ["ORDERS_SCHEMA"]


@dp.table
def orders() -> DataFrame:
    """Read the orders that were offloaded since the last run."""
    spark = SparkSession.active()
    source = spark.readStream.format("pulsar_offload").options(topic="json-orders", schema=SCHEMA)
    return source.option("columns", "__publish_time__,orderId,status,total").load(BUCKET)
