"""For the owner of a bucket: what lies in it, what it costs, what settings do to it."""
