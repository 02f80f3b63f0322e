"""Incremental reads: the rows of topics since a recorded position."""
