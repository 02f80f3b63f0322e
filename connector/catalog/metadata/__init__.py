"""A cluster's record of its topics: from its admin API, its metadata store, or saved files."""
