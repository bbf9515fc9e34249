"""People are told: channels, callbacks, and the log of notices."""
