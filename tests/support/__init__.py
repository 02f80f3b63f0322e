"""What several test modules need, apart from fixtures."""
