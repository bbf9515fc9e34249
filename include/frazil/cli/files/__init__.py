"""Commands about files and the machine: init, new, peek, validate, import-connector, doctor, plugins."""
