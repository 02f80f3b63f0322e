"""What is new in topics since a position: increments that together are one batch read."""
