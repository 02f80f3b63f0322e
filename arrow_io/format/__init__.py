"""The bytes of offloaded ledgers as PIP-17 and PIP-76 lay them out, one file a structure."""
