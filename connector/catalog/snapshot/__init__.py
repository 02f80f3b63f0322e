"""The catalog snapshot: a catalog saved as one object."""
