"""Objects of a bucket or a folder: where they are, their bytes, and what each request cost."""
