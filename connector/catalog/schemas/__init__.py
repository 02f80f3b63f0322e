"""Schemas of topics, in every form that Pulsar gives them."""
