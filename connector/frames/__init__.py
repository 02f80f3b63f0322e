"""Frames of pandas and Polars from Arrow tables and scans."""
