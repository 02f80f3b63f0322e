"""Audit of a bucket: findings, and what may be deleted."""
