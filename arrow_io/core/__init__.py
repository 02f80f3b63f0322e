"""Foundations of the readers: builds of the compiled core, threads, prefetch, memory, options."""
