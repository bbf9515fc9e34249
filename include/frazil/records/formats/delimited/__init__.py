"""Values that are one line of CSV or of a relative."""
