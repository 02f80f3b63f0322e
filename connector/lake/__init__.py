"""Copies of topics as lake tables: files are written where they are decoded, and then committed."""
