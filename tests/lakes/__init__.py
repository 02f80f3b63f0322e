"""Tests that read tables of copies as other engines do; `make test-lakes` runs them."""
