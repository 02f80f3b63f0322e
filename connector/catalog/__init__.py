"""Topics of a bucket and the ledgers of each topic."""
