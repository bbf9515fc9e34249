"""Templates of pages. A package, so that they are found wherever it is installed."""
