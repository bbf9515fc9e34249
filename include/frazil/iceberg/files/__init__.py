"""Data files: written where nobody sees them yet, bounded by partitions, and read as facts from manifests."""
