"""Schemas of topics, in every form in which Pulsar writes them."""
