"""Tests of what `make wheels` builds: its size, what it needs, and its first query."""
