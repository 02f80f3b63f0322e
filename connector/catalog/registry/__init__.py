"""Schemas of a registry outside Pulsar, with the REST API of Confluent's Schema Registry."""
