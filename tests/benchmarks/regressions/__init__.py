"""Paired runs of this tree and of the commit of a recorded run."""
