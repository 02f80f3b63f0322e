"""Ledgers of streaming segments (PIP-76)."""
