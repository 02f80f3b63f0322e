"""Topics in DuckDB: table functions in SQL that read them."""
