"""The words of this package as plain data: records as Arrow, columns, formats, changes, dead letters, a pipeline's record spec."""
