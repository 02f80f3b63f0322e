"""The bytes of one offloaded ledger as PIP-17 lays them out, one file a structure."""
