"""Which topics a bucket holds, and of which ledgers they are made, found from the bucket alone."""
