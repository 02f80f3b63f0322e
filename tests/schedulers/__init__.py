"""Tests of copies that schedulers start, which have an environment of their own."""
