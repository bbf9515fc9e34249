"""Commits that check the state on which they were planned: marks and positions, branches, removals, and snapshot expiry."""
