"""Verification of whole ledgers, with a journal to resume from."""
