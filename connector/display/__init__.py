"""What is shown to users: text, HTML tables, warnings."""
