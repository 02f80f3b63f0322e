"""Ledgers of Pulsar's filesystem driver: one Hadoop MapFile each."""
