"""Tests on catalogs: Iceberg's own REST server, which `make test-catalogs` downloads, and Glue."""
