"""A topic in DuckDB, Polars and pandas."""
