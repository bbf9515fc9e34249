"""Entry points for commands and tasks: plan, ingest, session, dry run, and the result of a run."""
