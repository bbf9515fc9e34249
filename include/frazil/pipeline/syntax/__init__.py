"""Forms that values of YAML files have: names, types, patterns, intervals, properties."""
