"""Plain data of this package: records as Arrow, columns, formats, changes, dead letters, and a pipeline's decoding rules."""
