"""What the compiled modules of `messages` and `payloads` share, and the choice of their build."""
