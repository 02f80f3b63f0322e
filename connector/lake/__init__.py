"""Copies of topics to Delta, Iceberg and Parquet tables."""
