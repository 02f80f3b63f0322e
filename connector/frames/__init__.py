"""Frames of pandas and Polars, made of Arrow tables and scans."""
