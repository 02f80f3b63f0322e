"""Access to the objects of a bucket or folder: locations, requests, retries, ranges, uploads."""
