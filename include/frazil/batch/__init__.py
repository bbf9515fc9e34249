"""The protocol as plain data and pure functions: position, plan, audit, manifest. Imports nothing but errors."""
