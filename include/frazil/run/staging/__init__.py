"""Records become files that nobody sees: what is asked of a pipeline file, and the work of every engine."""
