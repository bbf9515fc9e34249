"""Staged files become one batch: audit, manifest, the deciding commit, and the parts of all other tables."""
