"""Connections to brokers: clients with time limits, logins, errors by what a caller may do, and messages as Arrow batches."""
