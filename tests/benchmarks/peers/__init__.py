"""Our decoders beside the fastest of others: the same payloads in memory, to Arrow arrays."""
