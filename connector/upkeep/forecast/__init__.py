"""Forecasts of the cost of reads, and of the effects of offload and retention policies."""
