"""The table of read options, and the conversion of texts to their values."""
