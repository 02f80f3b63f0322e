"""What reading costs, as ratios to decompressing every payload, and how fast ledgers are stored."""
