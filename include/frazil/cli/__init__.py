"""The command `frazil`. Importing a command is cheap: it loads heavy libraries when it runs."""
