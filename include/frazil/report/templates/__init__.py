"""Templates of pages. This is a package, so that an installation includes them."""
