"""A cluster's record of its topics: from its admin API, or from saved files."""
