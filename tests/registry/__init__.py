"""Tests on a real schema registry, Apicurio's, which `make test-registry` downloads."""
