"""Output for users: text, HTML tables, warnings."""
