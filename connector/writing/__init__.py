"""Messages → entries → ledgers → a topic that lies in a bucket as if offloaded."""
