"""Repair of missing and damaged index objects."""
