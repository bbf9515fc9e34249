"""Records that Frazil sends: dead letters and captures."""
