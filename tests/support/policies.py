"""Policies of one setting alone."""

from __future__ import annotations

from connector.upkeep.forecast.policy_settings import OffloadPolicy


def only(**settings: int) -> OffloadPolicy:
    """A policy that does nothing but what is given, where a broker has defaults."""
    never = {"deletion_lag_ms": -1, "retention_minutes": -1, "retention_mb": -1}
    return OffloadPolicy(**never | settings)
