"""Replay of offloaded topics to live topics, with each message sent exactly once."""
