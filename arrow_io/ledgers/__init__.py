"""Offloaded ledgers: reading, writing and walking them."""
