"""What users type: names of topics, message ids, times, bounds, keys."""
