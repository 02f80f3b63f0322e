"""Offload and retention settings: which names and values are taken, and which are refused."""

from __future__ import annotations

import pytest

from arrow_io.errors import OptionError
from connector.upkeep.forecast.policy_settings import OffloadPolicy, parse_conf


@pytest.mark.parametrize(
    ("name", "value", "field", "number"),
    [
        ("managedLedgerOffloadAutoTriggerSizeThresholdBytes", "10G", "threshold_bytes", 10 << 30),
        ("managedLedgerOffloadThresholdInBytes", 0, "threshold_bytes", 0),
        ("managedLedgerOffloadThresholdInBytes", "7", "threshold_bytes", 7),
        ("managedLedgerOffloadThresholdInSeconds", "3d", "threshold_s", 259_200),
        ("managedLedgerOffloadThresholdInSeconds", "90", "threshold_s", 90),
        ("managedLedgerOffloadDeletionLagMs", "4h", "deletion_lag_ms", 14_400_000),
        ("managedLedgerOffloadDeletionLagInMillis", 14_400_000, "deletion_lag_ms", 14_400_000),
        ("defaultRetentionTimeInMinutes", "1w", "retention_minutes", 10_080),
        ("retentionTimeInMinutes", "60s", "retention_minutes", 1),
        ("retentionTimeInMinutes", "1Y", "retention_minutes", 525_600),
        ("defaultRetentionSizeInMB", "1t", "retention_mb", 1 << 20),
        ("retentionSizeInMB", "2048K", "retention_mb", 2),
        ("retentionSizeInMB", " 5 ", "retention_mb", 5),
        ("retentionSizeInMB", "-1", "retention_mb", -1),
        ("retentionSizeInMB", "-5M", "retention_mb", -1),
        ("retentionSizeInMB", None, "retention_mb", 0),
    ],
)
def test_names_and_values_of_pulsar_are_taken(
    name: str, value: object, field: str, number: int
) -> None:
    """Each name sets its number, in its own unit; only what is given differs from the default."""
    policy = OffloadPolicy.parse({name: value})

    assert policy == OffloadPolicy(**{field: number})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"managedLedgerOffloadBucket": "b"}, "retentionSizeInMB"),
        ({"retentionSizeInMB": "much"}, "number of MB of 2.20 bytes, .* k, m, g, t, not 'much'"),
        ({"retentionTimeInMinutes": "much"}, "number of minutes"),
        ({"managedLedgerOffloadThresholdInSeconds": "much"}, "number of seconds"),
        ({"managedLedgerOffloadDeletionLagMs": "much"}, "number of milliseconds"),
        ({"managedLedgerOffloadThresholdInBytes": "much"}, "number of bytes"),
        ({"retentionSizeInMB": "1500K"}, "'1500K': that is not a whole number of MB"),
        ({"retentionTimeInMinutes": "30s"}, "'30s': that is not a whole number of minutes"),
        ({"retentionSizeInMB": "3d"}, "k, m, g, t"),
        ({"retentionTimeInMinutes": "3g"}, "s, m, h, d, w, y"),
        ({"retentionSizeInMB": True}, "True"),
        ({"retentionSizeInMB": 1.5}, "1.5"),
        ({"managedLedgerOffloadThresholdInBytes": "9223372036854775808"}, "too large"),
        ({"managedLedgerOffloadThresholdInBytes": "9" * 5000}, "must be a whole number"),
        ({"managedLedgerOffloadDeletionLagMs": "9223372036854775807y"}, "too large"),
        ({"retentionSizeInMB": 1, "defaultRetentionSizeInMB": 2}, "the same setting"),
    ],
)
def test_other_names_and_values_are_refused(settings: dict[str, object], said: str) -> None:
    """What is no setting, or no whole number of its unit, is an error that says what is wrong."""
    with pytest.raises(OptionError, match=said):
        OffloadPolicy.parse(settings)


def test_two_names_of_a_setting_may_agree() -> None:
    """An old and a new name with the same value are one setting."""
    settings = {
        "managedLedgerOffloadDeletionLagMs": "4h",
        "managedLedgerOffloadDeletionLagInMillis": 14_400_000,
    }

    assert OffloadPolicy.parse(settings).deletion_lag_ms == 14_400_000


def test_what_is_given_replaces_the_base() -> None:
    """Settings on the command line go before those of a file, under whatever name."""
    base = OffloadPolicy.parse({"defaultRetentionSizeInMB": 1, "retentionTimeInMinutes": 2})

    assert OffloadPolicy.parse({"retentionSizeInMB": 3}, base) == OffloadPolicy(
        retention_mb=3, retention_minutes=2
    )


def test_conf_gives_the_settings_it_has() -> None:
    """Of a broker.conf, other keys, comments and keys without a value are passed over."""
    conf = """
# managedLedgerOffloadDeletionLagMs=1
managedLedgerOffloadDriver=aws-s3
  managedLedgerOffloadDeletionLagMs = 14400000
defaultRetentionSizeInMB=0
defaultRetentionSizeInMB=5
managedLedgerOffloadThresholdInSeconds=
no pair
"""

    assert parse_conf(conf) == {
        "managedLedgerOffloadDeletionLagMs": "14400000",
        "defaultRetentionSizeInMB": "5",
    }
