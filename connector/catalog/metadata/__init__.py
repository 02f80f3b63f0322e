"""What a cluster knows of its topics: read from its admin API, or from what was saved of it."""
