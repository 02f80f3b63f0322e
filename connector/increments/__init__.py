"""Incremental reads: what is new in topics since a recorded position."""
