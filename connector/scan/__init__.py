"""Planning a scan of topics, splitting it into tasks, and reading the rows of a task."""
