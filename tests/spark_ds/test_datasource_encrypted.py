"""Encrypted topics in Spark: the keys reach the executors, and nothing that Spark shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from pyspark.errors import AnalysisException, PythonException

from tests.spark_ds.golden_rows import COLUMNS, golden_rows, table_rows
from tests.spark_ds.queries import frame, said_of, web_pages
from tests.support.encryption import KEY_FOLDER, key_pair
from tests.support.golden import golden_topic, golden_topics

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.golden import GoldenTopic

RSA_FILE: Final = KEY_FOLDER / "client-rsa-priv.pem"
RSA_PEM: Final = RSA_FILE.read_text("utf-8")
WRONG_PEM: Final = key_pair("P-256").pem().decode()
SECRETS: Final = [line[:24] for pem in (RSA_PEM, WRONG_PEM) for line in pem.splitlines()[1:-1]]
"""As many characters of each line as nothing else has by chance, should Spark cut lines."""


def secrets_in(text: str) -> list[str]:
    """What of the private keys a text shows."""
    return [secret for secret in SECRETS if secret in text]


@pytest.mark.spark
@pytest.mark.parametrize(
    "topic", [each for each in golden_topics() if "encrypted" in each.name], ids=str
)
def test_rows_are_those_of_pulsars_client(spark: SparkSession, topic: GoldenTopic) -> None:
    """A folder of keys on the driver opens each encrypted topic, a ledger a task."""
    columns = ",".join(COLUMNS)
    rows = frame(
        spark,
        topic.objects_folder,
        topic.name,
        decryption_keys=str(KEY_FOLDER),
        columns=columns,
        task_bytes="1",
    )

    assert table_rows(rows.toArrow()) == golden_rows([topic])


@pytest.mark.spark
def test_keys_are_never_shown(spark: SparkSession, spark_log: Path, bucket: str) -> None:
    """No key is in a plan, a web page, an error, or the log of any process; views included."""
    keys = {"secret__decryption_keys": RSA_PEM}
    encrypted = frame(spark, bucket, "encrypted", **keys)
    errors = []

    count = encrypted.select("__value__").dropna().count()
    encrypted.createOrReplaceTempView("encrypted")
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW more AS SELECT * FROM encrypted")
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW by_sql USING pulsar_offload OPTIONS"
        f" (url '{bucket}', topic 'encrypted', secret.decryption_keys '{RSA_PEM}')"
    )
    counts = [spark.table(view).count() for view in ("more", "by_sql")]
    for topic, option, text in (
        ("encrypted", "secret__decryption_keys", WRONG_PEM),
        ("encrypted", "secret__decryption_keys", RSA_PEM[:-60]),
        ("encrypted", "secret__decryption_keys", RSA_PEM[20:]),
        ("encrypted", "decryption_keys", RSA_PEM),
        ("encrypted", "decryption_keys", RSA_PEM[20:]),
        ("encrypted-2", "secret__decryption_keys", RSA_PEM),
    ):
        with pytest.raises((AnalysisException, PythonException)) as caught:
            frame(spark, bucket, topic, **{option: text}).count()
        errors.append(str(caught.value))

    assert [count, *counts] == [golden_topic("encrypted").message_count] * 3
    assert "DecryptionError" in errors[0]
    assert "DecryptionError" in spark_log.read_text(encoding="utf-8")
    for shown in (
        said_of(encrypted),
        said_of(spark.table("more")),
        said_of(spark.table("by_sql")),
        web_pages(spark),
        spark_log.read_text(encoding="utf-8"),
        *errors,
    ):
        assert not secrets_in(shown)
