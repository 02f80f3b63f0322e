"""What reading costs, as ratios to decompressing every payload and doing nothing else."""
