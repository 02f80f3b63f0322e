"""Values that users type: topic names, message ids, times, bounds, keys, access to a cluster."""
