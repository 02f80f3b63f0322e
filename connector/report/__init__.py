"""HTML reports: a topic, or a whole bucket, on one page that needs no network."""
