"""The bytes of offloaded ledgers, as PIP-17 and PIP-76 define them; one module per structure."""
