"""Commits that hold what they were planned on: marks and positions, branches, removals, and which snapshots stay."""
