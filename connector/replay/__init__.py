"""Replay: what a bucket has of a topic is sent to a live topic, each message once."""
