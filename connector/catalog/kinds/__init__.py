"""The kinds of stored objects that hold ledgers, and the copies of ledgers read from them."""
