"""Offloaded ledgers, from the bytes in a bucket to Arrow record batches."""
