"""The end of topics that only their cluster has: read from its brokers, as if it were offloaded."""
