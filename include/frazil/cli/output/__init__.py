"""Output of commands, and options that several of them share."""
