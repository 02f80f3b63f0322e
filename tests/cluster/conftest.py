"""Tests of clusters use the buckets and the session of the tests of Spark."""

from __future__ import annotations

from tests.spark_ds.conftest import small_bucket, spark, spark_environment, spark_log

__all__ = ["small_bucket", "spark", "spark_environment", "spark_log"]
