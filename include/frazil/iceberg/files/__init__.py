"""Data files: written before any snapshot names them, limited in partitions, and described by facts from manifests."""
