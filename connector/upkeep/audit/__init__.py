"""Audit of a bucket: findings, and which objects can be deleted."""
