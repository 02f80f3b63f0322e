"""Copies of topics to lake tables, and the upkeep of these tables."""
