"""Write messages to a bucket as the offloaded ledgers of a topic."""
