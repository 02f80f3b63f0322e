"""Repair of index objects."""
