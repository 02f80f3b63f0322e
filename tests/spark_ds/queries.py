"""Data frames of topics, and all that Spark shows of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame(spark: SparkSession, url: object, topic: str, **options: object) -> DataFrame:
    """A data frame of topics; an option's `__` stands for a dot."""
    reader = spark.read.format("pulsar_offload").option("url", str(url)).option("topic", topic)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), value)  # type: ignore[arg-type]
    return reader.load()


def said_of(frame: DataFrame) -> str:
    """All that Spark shows of a frame: its plans in every form, and what its web pages list."""
    execution = frame._jdf.queryExecution()
    gateway = frame.sparkSession._jvm
    assert gateway is not None
    modes = gateway.org.apache.spark.sql.execution.ExplainMode
    return "\n".join(
        (
            *(
                execution.explainString(modes.fromString(mode))
                for mode in ("simple", "extended", "codegen", "cost", "formatted")
            ),
            *(
                plan.toJSON()
                for plan in (
                    execution.logical(),
                    execution.analyzed(),
                    execution.optimizedPlan(),
                    execution.executedPlan(),
                )
            ),
            repr(frame),
        )
    )


def web_pages(spark: SparkSession) -> str:
    """What the SQL pages of Spark's web interface list, for all queries until now."""
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    shown = [executions.apply(number) for number in range(executions.size())]
    return "\n".join(
        f"{each.description()}\n{each.details()}\n{each.physicalPlanDescription()}"
        for each in shown
    )
