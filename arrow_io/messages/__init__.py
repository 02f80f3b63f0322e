"""Messages: from the entries of a ledger to Arrow arrays, by the rules of Pulsar's client."""
