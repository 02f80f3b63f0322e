"""Payload bytes → typed Arrow columns, by the schemas that Pulsar knows."""
