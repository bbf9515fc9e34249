"""Commits that check the state they were planned on: marks and positions, branches, removals, and snapshot expiry."""
