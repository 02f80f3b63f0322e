"""Offload and retention settings, parsed from broker.conf or from namespace policies.

The names are those of Pulsar's ServiceConfiguration (broker.conf), OffloadPoliciesImpl
(`pulsar-admin namespaces get-offload-policies`) and RetentionPolicies (`… get-retention`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Self

from arrow_io.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MB_BYTES = 1 << 20
_MAX_INT64 = 2**63 - 1
_VALUE = re.compile(r"(-?\d{1,19})([A-Za-z]?)")
# Pulsar's SizeUnit and RelativeTimeUtil; longer units have no letter.
_SIZE_BYTES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DAY_MS = 86_400_000
_TIME_MS = {
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": _DAY_MS,
    "w": 7 * _DAY_MS,
    "y": 365 * _DAY_MS,
}


class _Setting(NamedTuple):
    """A field of `OffloadPolicy` that settings set, and the units of their values.

    Attributes:
        units: Suffixes that a text may have, in bytes or ms.
        own_unit: The unit of a number without a suffix, in bytes or ms.
    """

    field: str
    units: Mapping[str, int]
    own_unit: int
    own_unit_name: str


_THRESHOLD_BYTES = _Setting("threshold_bytes", _SIZE_BYTES, 1, "bytes")
_THRESHOLD_S = _Setting("threshold_s", _TIME_MS, _TIME_MS["s"], "seconds")
_DELETION_LAG = _Setting("deletion_lag_ms", _TIME_MS, 1, "milliseconds")
_RETENTION_TIME = _Setting("retention_minutes", _TIME_MS, _TIME_MS["m"], "minutes")
_RETENTION_SIZE = _Setting("retention_mb", _SIZE_BYTES, _MB_BYTES, "MB of 2^20 bytes")
_SETTINGS = {
    "managedLedgerOffloadAutoTriggerSizeThresholdBytes": _THRESHOLD_BYTES,
    "managedLedgerOffloadThresholdInBytes": _THRESHOLD_BYTES,
    "managedLedgerOffloadThresholdInSeconds": _THRESHOLD_S,
    "managedLedgerOffloadDeletionLagMs": _DELETION_LAG,
    "managedLedgerOffloadDeletionLagInMillis": _DELETION_LAG,
    "defaultRetentionTimeInMinutes": _RETENTION_TIME,
    "retentionTimeInMinutes": _RETENTION_TIME,
    "defaultRetentionSizeInMB": _RETENTION_SIZE,
    "retentionSizeInMB": _RETENTION_SIZE,
}
SETTING_NAMES = tuple(_SETTINGS)
_WITH_DEFAULTS = (
    "managedLedgerOffloadDeletionLagMs",
    "defaultRetentionTimeInMinutes",
    "defaultRetentionSizeInMB",
)
"""Names of the settings whose default has an effect."""
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadPolicy:
    """When ledgers are offloaded, deleted from BookKeeper, and trimmed; -1 means never.

    The defaults are those of a broker (ServiceConfiguration): a deletion lag of 4 hours, and no
    retention. So a retention time has no effect unless a retention size is set too.
    """

    threshold_bytes: int = -1
    """Size of the topic's newest ledgers that are not offloaded; 0: each ledger is, once closed."""
    threshold_s: int = -1
    """Time from closing a ledger to its offload, in s."""
    deletion_lag_ms: int = 14_400_000
    """Time from a ledger's offload to the deletion of BookKeeper's copy, in ms."""
    retention_minutes: int = 0
    """How long a consumed ledger is kept after it was closed, in minutes."""
    retention_mb: int = 0
    """Size of the topic's newest ledgers that are kept although consumed, in 2^20 bytes."""

    @classmethod
    def parse(cls, settings: Mapping[str, object], base: Self | None = None) -> Self:
        """Parse settings.

        Args:
            settings: Numbers or texts by name. A number without a suffix is in the unit of the
                name. Sizes may end in k, m, g or t (powers of 1024), times in s, m, h, d, w or y,
                in either case. None is ignored.
            base: The policy to take other settings from.

        Raises:
            OptionError: A name is unknown, a value is malformed or not a whole number of the
                setting's unit, or two names set one field to different values.

        Example:
            >>> OffloadPolicy.parse({"managedLedgerOffloadDeletionLagMs": "4h"}).deletion_lag_ms
            14400000
        """
        numbers: dict[str, tuple[str, int]] = {}
        for name, value in settings.items():
            setting = _SETTINGS.get(name)
            if setting is None:
                message = f"unknown offload or retention setting {name!r}; allowed are: "
                raise OptionError(message + ", ".join(SETTING_NAMES))
            if value is None:
                continue
            number = _number(name, setting, value)
            other, before = numbers.setdefault(setting.field, (name, number))
            if before != number:
                message = f"{other} and {name} are the same setting, with different values"
                raise OptionError(message)
        return replace(base or cls(), **{field: number for field, (_, number) in numbers.items()})


def _number(name: str, setting: _Setting, value: object) -> int:
    """Return a value in the setting's unit; -1 for all negative values."""
    text = str(value) if type(value) is int else value
    match = _VALUE.fullmatch(text.strip()) if isinstance(text, str) else None
    unit = match[2].lower() if match else ""
    if match is None or (unit and unit not in setting.units):
        units = ", ".join(setting.units)
        message = (
            f"{name} must be a whole number of {setting.own_unit_name}, or one with a unit of"
            f" {units}, not {_value_text(value)}"
        )
        raise OptionError(message)
    if int(match[1]) < 0:
        return -1
    number, rest = divmod(
        int(match[1]) * (setting.units[unit] if unit else setting.own_unit), setting.own_unit
    )
    if rest or number > _MAX_INT64:
        message = (
            f"{name} cannot be {_value_text(value)}: that is not a whole number of"
            f" {setting.own_unit_name}, or too large"
        )
        raise OptionError(message)
    return number


def _value_text(value: object) -> str:
    return repr(value)[:_SHOWN_CHARACTERS]


def broker_defaults(names: Iterable[str]) -> dict[str, int]:
    """Return the broker's defaults of settings that have an effect and are not among `names`.

    Example:
        >>> broker_defaults(["retentionTimeInMinutes", "managedLedgerOffloadDeletionLagMs"])
        {'defaultRetentionSizeInMB': 0}
    """
    fields = {_SETTINGS[name].field for name in names}
    defaults = OffloadPolicy()
    return {
        name: getattr(defaults, _SETTINGS[name].field)
        for name in _WITH_DEFAULTS
        if _SETTINGS[name].field not in fields
    }


def parse_conf(text: str) -> dict[str, str]:
    """Return the offload and retention settings of a broker.conf; ignore all others.

    The file has `name=value` lines, and comments that start with `#`. The last line of a name
    counts.
    """
    settings = {}
    for line in text.splitlines():
        name, is_pair, value = line.strip().partition("=")
        if is_pair and name.strip() in _SETTINGS and value.strip():
            settings[name.strip()] = value.strip()
    return settings
