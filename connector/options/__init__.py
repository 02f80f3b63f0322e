"""What a topic is read by: one table of options, and how texts become their values."""
