"""Which topics a bucket holds, and which ledgers make each of them."""
