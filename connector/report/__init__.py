"""A topic, or a bucket, on one page of HTML that needs no network."""
