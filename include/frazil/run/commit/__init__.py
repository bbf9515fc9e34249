"""Makes one batch of staged files: audit, manifest, the deciding commit, and the parts of all other tables."""
