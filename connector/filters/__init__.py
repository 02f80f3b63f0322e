"""Conditions on rows: exact filters, and what statistics prove of them."""
