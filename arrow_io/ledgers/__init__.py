"""Offloaded ledgers: readers, writers and walks."""
