"""How YAML files are found, read and compared, and what is said of those that can't be used."""
