"""A scan of topics: what to read, cut into tasks; and the rows of a task."""
