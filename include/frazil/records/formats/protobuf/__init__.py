"""Protocol Buffers messages of registered schemas or of a message type at hand."""
