"""Verification of every byte, with a journal."""
