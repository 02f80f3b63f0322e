"""Lake tables: their formats, files, commits and progress, and reads of their rows."""
