"""Commands about files and the machine: validate, import-connector, doctor, plugins."""
